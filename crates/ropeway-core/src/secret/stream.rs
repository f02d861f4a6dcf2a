//! Redacting text that arrives in pieces.

use super::escape;
use super::matcher::Scanner;
use super::redactor::{REDACTED, Redactor};

/// Redacts text that arrives in pieces.
///
/// Text that may begin a secret is held back until the next pieces decide. Nothing is read twice.
#[derive(Clone, Debug, Default)]
pub struct StreamRedactor {
    redactor: Redactor,
    scanner: Scanner,
    /// The text that was not returned yet.
    held: String,
    /// `held`'s position in the whole text.
    base: usize,
    /// Where the scanned text ends.
    seen: usize,
    /// The end of the last secret for which `***` was returned.
    redacted_to: usize,
}

impl StreamRedactor {
    /// Creates a stream redactor.
    pub fn new(redactor: Redactor) -> Self {
        Self { redactor, ..Self::default() }
    }

    /// Returns the stream's redactor.
    pub fn redactor(&self) -> &Redactor {
        &self.redactor
    }

    /// Adds a piece and returns the redacted text that is certain by now.
    pub fn push(&mut self, piece: &str) -> String {
        let Some(matcher) = self.redactor.matcher() else { return piece.to_owned() };
        self.held.push_str(piece);
        let text = self.held.as_bytes();
        let end = self.base + text.len();
        while self.seen < end {
            let rest = &text[self.seen - self.base..];
            if escape::may_start_escape(rest[0]) && escape::is_incomplete(rest) {
                break;
            }
            self.scanner.step(matcher, text, self.base, self.seen);
            self.seen += 1;
        }
        let partial = self.scanner.partial(matcher, self.seen, 1).unwrap_or(self.seen);
        let incomplete = self.scanner.incomplete(text, self.base);
        self.release(incomplete.map_or(partial, |incomplete| incomplete.min(partial)))
    }

    /// Returns the remaining text. The redactor is then ready for another text.
    pub fn finish(&mut self) -> String {
        if let Some(matcher) = self.redactor.matcher() {
            let end = self.base + self.held.len();
            for at in self.seen..end {
                self.scanner.step(matcher, self.held.as_bytes(), self.base, at);
            }
        }
        let rest = self.release(self.base + self.held.len());
        *self = Self::new(self.redactor.clone());
        rest
    }

    /// Returns the held text up to `to`, redacted.
    fn release(&mut self, to: usize) -> String {
        let cut = self.held.floor_char_boundary(to.saturating_sub(self.base));
        let to = self.base + cut;
        let mut shown = String::new();
        let mut done = self.base.max(self.redacted_to);
        for part in self.scanner.take_found(to, self.held.as_bytes(), self.base) {
            // A match that overlaps a replaced secret is covered by the same `***`.
            if part.start >= self.redacted_to {
                shown.push_str(self.between(done, part.start));
                shown.push_str(REDACTED);
            }
            self.redacted_to = self.redacted_to.max(part.end);
            done = done.max(self.redacted_to);
        }
        shown.push_str(self.between(done, to));
        self.held.drain(..cut);
        self.base = to;
        shown
    }

    fn between(&self, from: usize, to: usize) -> &str {
        let from = self.held.ceil_char_boundary(from.max(self.base) - self.base);
        let to = self.held.floor_char_boundary(to.max(self.base) - self.base);
        self.held.get(from..to).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::super::redactor::tests::redactor;
    use super::*;

    #[test]
    fn text_in_pieces_is_redacted_like_the_whole() {
        let redactor = redactor(&["s3cret", "hunter22-token", "t-s3x", "abcd", "abcdef", "a b/\"c\"\\d\né+%&<ü😀'"]);
        for text in [
            "it is s3cret-s3x, abcdefg abcdx %73%33cret &am &amp; 100% \\u0073\\u{33}cret \\",
            "s3crets3cret a%20b%2f%22c%22%5cd%0a%c3%a9%2b%25%26%3c%c3%bc%f0%9f%98%80%27 ü",
            // `hunter22-token` after zero, one and two bytes, with and without padding.
            "aHVudGVyMjItdG9rZW4= xodW50ZXIyMi10b2tlbg== x YWJodW50ZXIyMi10b2tlbg (YWh1bnRlcjIyLXRva2Vueg==)",
            "czNjcmV0 and czNjcmV0LXMzeA== and 733363726574 and 5x3",
        ] {
            for size in 1..9 {
                let letters: Vec<char> = text.chars().collect();
                let mut stream = StreamRedactor::new(redactor.clone());
                let pieces = letters.chunks(size).map(|piece| stream.push(&piece.iter().collect::<String>()));
                let mut shown = pieces.collect::<String>();
                shown.push_str(&stream.finish());
                assert_eq!(shown, redactor.redact(text), "in pieces of {size}");
            }
        }
    }

    #[test]
    fn only_a_possible_secret_is_held_back() {
        let mut stream = StreamRedactor::new(redactor(&["s3cret"]));
        let pieces = ["it is s", "3cr", "3t, 100", "%", " or 1", "0%7", "3 \\", "n", " s"];
        let shown = pieces.map(|piece| stream.push(piece));
        assert_eq!(shown, ["it is ", "", "s3cr3t, 100", "", "% or 1", "0", "%73 ", "\\n", " "]);
        assert_eq!(stream.finish(), "s");
        assert_eq!(stream.push("again"), "again");
    }

    #[test]
    fn a_stream_of_partial_secrets_takes_linear_time() {
        // With every piece read again, this would take minutes.
        let secret = "ab".repeat(2000) + "c";
        let mut stream = StreamRedactor::new(redactor(&[&secret]));
        let shown: usize = (0..60_000).map(|index| stream.push(if index % 2 == 0 { "a" } else { "b" }).len()).sum();
        assert_eq!(shown + stream.finish().len(), 60_000);
        let mut stream = StreamRedactor::new(redactor(&[&secret]));
        let shown: usize = (0..20_000).map(|index| stream.push(["%61", "%62"][index % 2]).len()).sum();
        assert_eq!(shown + stream.finish().len(), 60_000);
    }
}
