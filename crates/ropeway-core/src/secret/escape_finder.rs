//! Finds escapes that may decode to a pattern byte, with vector instructions.

use aho_corasick::packed;

use super::escape;

/// Finds escapes by their first two bytes.
///
/// Most escapes in a text, such as `\"` in JSON, cannot be part of a pattern and are skipped at search speed.
#[derive(Debug)]
pub(super) struct EscapeFinder {
    prefixes: Vec<[u8; 2]>,
    /// Searches for all prefixes at once. `None` on processors without the required vector instructions.
    searcher: Option<packed::Searcher>,
}

impl EscapeFinder {
    /// Creates a finder for escaped characters whose first byte is in the alphabet.
    pub(super) fn new(alphabet: &[bool; 256]) -> Self {
        let prefixes = escape::prefixes(alphabet);
        Self { searcher: packed::Searcher::new(&prefixes), prefixes }
    }

    /// Returns the first escape that starts in `from..to`.
    pub(super) fn find(&self, text: &[u8], from: usize, to: usize) -> Option<usize> {
        // The second byte may be just past the range.
        let part = text.get(from..text.len().min(to + 1))?;
        // Most text has none of these bytes, and `memchr` is the fastest way to find that out.
        let first = memchr::memchr3(b'%', b'\\', b'&', part)?;
        let rest = &part[first..];
        let at = match &self.searcher {
            Some(searcher) => searcher.find(rest)?.start(),
            None => memchr::memchr3_iter(b'%', b'\\', b'&', rest)
                .find(|at| self.prefixes.iter().any(|beginning| rest[*at..].starts_with(beginning)))?,
        };
        let at = from + first + at;
        Some(if text[at] == b'\\' { escape::backslash_run_start(text, at, from) } else { at })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_processor_finds_the_same_escapes() {
        let mut alphabet = [false; 256];
        b"abc-\"".iter().for_each(|byte| alphabet[usize::from(*byte)] = true);
        let fast = EscapeFinder::new(&alphabet);
        let slow = EscapeFinder { searcher: None, prefixes: escape::prefixes(&alphabet) };
        let text = r#"100% of "a\nb" & \\\"c\" %0a %61 &amp; &#98; \\u0061 \u{62} %"#.repeat(3);
        let found = |finder: &EscapeFinder, to: usize| {
            let mut from = 0;
            std::iter::from_fn(|| {
                let at = finder.find(text.as_bytes(), from, to)?;
                from = at + 1;
                Some(at)
            })
            .collect::<Vec<_>>()
        };
        for to in 0..=text.len() {
            let all = found(&fast, to);
            assert_eq!(all, found(&slow, to));
            assert!(all.iter().all(|at| *at < to));
        }
        let first: Vec<&str> = found(&fast, text.len() / 3).into_iter().map(|at| &text[at..at + 2]).collect();
        assert_eq!(first, [r"\\", r"\\", r#"\""#, r#"\""#, "%6", "&#", r"\\", r"\u", r"\u"]);
    }
}
