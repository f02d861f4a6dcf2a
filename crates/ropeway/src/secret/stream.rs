//! A mask over a text that comes in pieces.

use super::mask::{HIDDEN, Redactor};
use super::matcher::Scan;
use super::spelling;

/// Hides secrets in a text that comes piece by piece, wherever it is cut. What may be the beginning of a secret is held
/// back until it is decided; nothing is looked at twice.
#[derive(Clone, Debug, Default)]
pub struct StreamRedactor {
    mask: Redactor,
    scan: Scan,
    /// The text that was not handed on yet.
    held: String,
    /// Where in the whole text it begins.
    base: usize,
    /// Up to where it was looked at.
    seen: usize,
    /// Up to where the text is a part of a secret for which `***` was handed on.
    hidden: usize,
}

impl StreamRedactor {
    /// Hides what the mask hides.
    pub fn new(mask: Redactor) -> Self {
        Self { mask, ..Self::default() }
    }

    /// What hides the secrets.
    pub fn mask(&self) -> &Redactor {
        &self.mask
    }

    /// Returns what can be shown now that there is another piece.
    pub fn push(&mut self, piece: &str) -> String {
        let Some(matcher) = self.mask.matcher() else { return piece.to_owned() };
        self.held.push_str(piece);
        let text = self.held.as_bytes();
        let end = self.base + text.len();
        while self.seen < end {
            let rest = &text[self.seen - self.base..];
            if spelling::is_special(rest[0]) && spelling::is_open(rest) {
                break;
            }
            self.scan.step(matcher, text, self.base, self.seen);
            self.seen += 1;
        }
        let begun = self.scan.begun(matcher, self.seen, 1).unwrap_or(self.seen);
        let unfinished = self.scan.unfinished(text, self.base);
        self.release(unfinished.map_or(begun, |unfinished| unfinished.min(begun)))
    }

    /// Returns what is left when no more pieces come; then another text may begin.
    pub fn finish(&mut self) -> String {
        if let Some(matcher) = self.mask.matcher() {
            let end = self.base + self.held.len();
            for at in self.seen..end {
                self.scan.step(matcher, self.held.as_bytes(), self.base, at);
            }
        }
        let rest = self.release(self.base + self.held.len());
        *self = Self::new(self.mask.clone());
        rest
    }

    /// Hands on the text up to a place.
    fn release(&mut self, to: usize) -> String {
        let cut = self.held.floor_char_boundary(to.saturating_sub(self.base));
        let to = self.base + cut;
        let mut shown = String::new();
        let mut done = self.base.max(self.hidden);
        for part in self.scan.take_found(to, self.held.as_bytes(), self.base) {
            // What goes on with a secret that was hidden is hidden with it.
            if part.start >= self.hidden {
                shown.push_str(self.between(done, part.start));
                shown.push_str(HIDDEN);
            }
            self.hidden = self.hidden.max(part.end);
            done = done.max(self.hidden);
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
    use super::super::mask::tests::mask;
    use super::*;

    #[test]
    fn a_text_in_pieces_is_masked_like_the_whole() {
        let mask = mask(&["s3cret", "hunter22-token", "t-s3x", "abcd", "abcdef", "a b/\"c\"\\d\né+%&<ü😀'"]);
        for text in [
            "it is s3cret-s3x, abcdefg abcdx %73%33cret &am &amp; 100% \\u0073\\u{33}cret \\",
            "s3crets3cret a%20b%2f%22c%22%5cd%0a%c3%a9%2b%25%26%3c%c3%bc%f0%9f%98%80%27 ü",
            // `hunter22-token` behind zero, one and two bytes, with and without padding.
            "aHVudGVyMjItdG9rZW4= xodW50ZXIyMi10b2tlbg== x YWJodW50ZXIyMi10b2tlbg (YWh1bnRlcjIyLXRva2Vueg==)",
            "czNjcmV0 and czNjcmV0LXMzeA== and 733363726574 and 5x3",
        ] {
            for size in 1..9 {
                let letters: Vec<char> = text.chars().collect();
                let mut stream = StreamRedactor::new(mask.clone());
                let pieces = letters.chunks(size).map(|piece| stream.push(&piece.iter().collect::<String>()));
                let mut shown = pieces.collect::<String>();
                shown.push_str(&stream.finish());
                assert_eq!(shown, mask.hide(text), "in pieces of {size}");
            }
        }
    }

    #[test]
    fn only_what_may_be_a_secret_is_held_back() {
        let mut stream = StreamRedactor::new(mask(&["s3cret"]));
        let pieces = ["it is s", "3cr", "3t, 100", "%", " or 1", "0%7", "3 \\", "n", " s"];
        let shown = pieces.map(|piece| stream.push(piece));
        assert_eq!(shown, ["it is ", "", "s3cr3t, 100", "", "% or 1", "0", "%73 ", "\\n", " "]);
        assert_eq!(stream.finish(), "s");
        assert_eq!(stream.push("again"), "again");
    }

    #[test]
    fn a_stream_of_beginnings_takes_no_time() {
        // Letter by letter, a text that is looked at again with every piece would take minutes.
        let secret = "ab".repeat(2000) + "c";
        let mut stream = StreamRedactor::new(mask(&[&secret]));
        let shown: usize = (0..60_000).map(|index| stream.push(if index % 2 == 0 { "a" } else { "b" }).len()).sum();
        assert_eq!(shown + stream.finish().len(), 60_000);
        let mut stream = StreamRedactor::new(mask(&[&secret]));
        let shown: usize = (0..20_000).map(|index| stream.push(["%61", "%62"][index % 2]).len()).sum();
        assert_eq!(shown + stream.finish().len(), 60_000);
    }
}
