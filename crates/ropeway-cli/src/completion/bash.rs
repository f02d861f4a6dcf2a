//! Parses a bash command line and quotes candidates for it.
//!
//! Bash replaces only the text after the last `COMP_WORDBREAKS` character or after an open quote, and inserts candidates without
//! quoting them.

/// Characters that are special to bash outside quotes.
const SPECIAL: &str = " \t\"'\\$`&|;<>()[]{}*?!#~^";

/// A command line up to the cursor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Line {
    /// The unquoted words; the last one is incomplete.
    pub(super) words: Vec<String>,
    /// How many unquoted bytes of the last word bash keeps.
    kept: usize,
    /// The open quote.
    quote: Option<char>,
}

impl Line {
    /// Parses a line. Returns `None` if it has no words.
    pub(super) fn parse(line: &str, breaks: &str) -> Option<Self> {
        let mut words = Vec::new();
        // The current word.
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
                        // Inside double quotes, a backslash escapes only these characters.
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
        // Variable assignments may precede the command.
        let is_variable = |word: &String| word.split_once('=').is_some_and(|(name, _)| !name.contains('/'));
        let variables = words.iter().take_while(|word| is_variable(word)).count();
        words.drain(..variables);
        (words.len() > 1).then_some(Self { words, kept, quote })
    }

    /// Returns the text that bash inserts for a candidate. `!` cannot be escaped inside double quotes, so such a candidate has none.
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
    fn history_expansion_is_never_inserted_in_double_quotes() {
        let line = |text: &str| Line::parse(text, BREAKS).expect("a line");
        assert_eq!(line("ropeway call \"e.o").replacement("e.o!!", false), None);
        assert_eq!(line("ropeway call e.o").replacement("e.o!!", false).as_deref(), Some("e.o\\!\\! "));
    }

    #[test]
    fn a_line_is_split_as_by_bash() {
        let words = |line: &str| Line::parse(line, BREAKS).map(|line| line.words).unwrap_or_default();
        assert_eq!(words("ropeway call a.b x=1 "), ["ropeway", "call", "a.b", "x=1", ""]);
        assert_eq!(words(r#"ropeway 'a b' "c \" \d" e\ f"#), ["ropeway", "a b", "c \" \\d", "e f"]);
        assert_eq!(words("A=1 B= ropeway ca"), ["ropeway", "ca"]);
        assert_eq!(words("ropeway call 'fi"), ["ropeway", "call", "fi"]);
        assert_eq!(words("ropeway"), [""; 0]);
        assert_eq!(words(""), [""; 0]);
    }

    #[test]
    fn only_the_part_that_bash_replaces_is_inserted_quoted() {
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
