//! A line of bash up to the cursor, and how a candidate is inserted into it.
//!
//! Bash replaces only what stands behind the last character of `COMP_WORDBREAKS`, or behind an open quote, and inserts candidates
//! without quoting them.

/// Characters that mean something to bash outside quotes.
const SPECIAL: &str = " \t\"'\\$`&|;<>()[]{}*?!#~^";

/// A line up to the cursor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Line {
    /// The words without their quotes; the last one is being typed.
    pub(super) words: Vec<String>,
    /// Up to where bash keeps the last word, in bytes of it without its quotes.
    kept: usize,
    /// The quote that is open at the end.
    quote: Option<char>,
}

impl Line {
    /// Reads a line. Returns `None` if it has no words.
    pub(super) fn parse(line: &str, breaks: &str) -> Option<Self> {
        let mut words = Vec::new();
        // The word that is being read, if one has begun.
        let mut word: Option<String> = None;
        let (mut kept, mut quote) = (0, None);
        let mut characters = line.chars();
        while let Some(c) = characters.next() {
            match (quote, c) {
                (None, c) if c.is_whitespace() => {
                    words.extend(word.take());
                    kept = 0;
                }
                (None, '"' | '\'') => {
                    quote = Some(c);
                    kept = word.get_or_insert_default().len();
                }
                (Some(open), c) if c == open => {
                    quote = None;
                    kept = word.get_or_insert_default().len();
                }
                (None | Some('"'), '\\') => match characters.next() {
                    Some(next) => {
                        let word = word.get_or_insert_default();
                        // Between double quotes most characters need no escape, and keep what looks like one.
                        if quote.is_some() && !matches!(next, '"' | '\\' | '$' | '`') {
                            word.push('\\');
                        }
                        word.push(next);
                    }
                    None => drop(word.get_or_insert_default()),
                },
                (_, c) => {
                    let word = word.get_or_insert_default();
                    word.push(c);
                    if quote.is_none() && breaks.contains(c) {
                        kept = word.len();
                    }
                }
            }
        }
        words.push(word.unwrap_or_default());
        // Variables may be set before the command.
        let is_variable = |word: &String| word.split_once('=').is_some_and(|(name, _)| !name.contains('/'));
        let variables = words.iter().take_while(|word| is_variable(word)).count();
        words.drain(..variables);
        (words.len() > 1).then_some(Self { words, kept, quote })
    }

    /// Returns what bash is to insert for a candidate of the last word. Between double quotes nothing keeps `!` from being history.
    pub(super) fn replacement(&self, candidate: &str, is_open: bool) -> Option<String> {
        let rest = candidate.get(self.kept..).unwrap_or(candidate);
        if self.quote == Some('"') && rest.contains('!') {
            return None;
        }
        let special = match self.quote {
            Some('\'') => return Some(rest.replace('\'', "'\\''")),
            Some(_) => "\"\\$`",
            None => SPECIAL,
        };
        let mut quoted = String::with_capacity(rest.len());
        for c in rest.chars() {
            if special.contains(c) {
                quoted.push('\\');
            }
            quoted.push(c);
        }
        if self.quote.is_none() && !is_open {
            quoted.push(' ');
        }
        Some(quoted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BREAKS: &str = " \t\n\"'@><=;|&(:";

    fn replaced(line: &str, candidate: &str) -> String {
        Line::parse(line, BREAKS).expect("a line").replacement(candidate, false).expect("a replacement")
    }

    #[test]
    fn nothing_is_inserted_between_double_quotes_that_means_history() {
        let line = |text: &str| Line::parse(text, BREAKS).expect("a line");
        assert_eq!(line("ropeway call \"e.o").replacement("e.o!!", false), None);
        assert_eq!(line("ropeway call e.o").replacement("e.o!!", false).as_deref(), Some("e.o\\!\\! "));
    }

    #[test]
    fn a_line_is_split_as_bash_splits_it() {
        let words = |line: &str| Line::parse(line, BREAKS).map(|line| line.words).unwrap_or_default();
        assert_eq!(words("ropeway call a.b x=1 "), ["ropeway", "call", "a.b", "x=1", ""]);
        assert_eq!(words(r#"ropeway 'a b' "c \" \d" e\ f"#), ["ropeway", "a b", "c \" \\d", "e f"]);
        assert_eq!(words("A=1 B= ropeway ca"), ["ropeway", "ca"]);
        assert_eq!(words("ropeway call 'fi"), ["ropeway", "call", "fi"]);
        assert_eq!(words("ropeway"), [""; 0]);
        assert_eq!(words(""), [""; 0]);
    }

    #[test]
    fn only_what_bash_replaces_is_inserted_and_it_is_quoted() {
        for (line, candidate, expected) in [
            ("ropeway call fi", "files.read", "files.read "),
            ("ropeway call a:b", "a:bc", "bc "),
            ("ropeway call t kind=b", "kind=bar", "bar "),
            ("ropeway call t --kind=b", "--kind=bar", "bar "),
            ("ropeway call o", "odd name's $(x);", "odd\\ name\\'s\\ \\$\\(x\\)\\; "),
            ("ropeway call 'o", "odd name's", "odd name'\\''s"),
            ("ropeway call \"o", "odd \"$x\"", "odd \\\"\\$x\\\""),
            ("ropeway call 'a'b", "abc", "bc "),
        ] {
            assert_eq!(replaced(line, candidate), expected, "{line}");
        }
        let open = Line::parse("ropeway call t ti", BREAKS)
            .expect("a line")
            .replacement("title=", true)
            .expect("a replacement");
        assert_eq!(open, "title=");
    }
}
