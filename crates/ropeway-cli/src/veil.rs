//! The veil over everything that is printed beside a tool's own answer: no secret shows through.

use std::borrow::Cow;
use std::io::{self, Write};
use std::sync::{PoisonError, RwLock};

use ropeway::secret::Mask;
use serde_json::Value;

use crate::text::Cleaner;

/// The secrets of all servers that this command knows.
static SECRETS: RwLock<Vec<Mask>> = RwLock::new(Vec::new());

/// Hides these secrets from now on, besides those that are hidden already.
pub(crate) fn hide(secrets: &Mask) {
    SECRETS.write().unwrap_or_else(PoisonError::into_inner).push(secrets.clone());
}

/// The text without secrets.
pub(crate) fn over(text: &str) -> Cow<'_, str> {
    let all = SECRETS.read().unwrap_or_else(PoisonError::into_inner);
    all.iter().fold(Cow::Borrowed(text), |text, secrets| match secrets.hide(&text) {
        Cow::Owned(hidden) => Cow::Owned(hidden),
        Cow::Borrowed(_) => text,
    })
}

/// Hides the secrets within the texts of a JSON value: once it is written, its escapes would hide them from us.
pub(crate) fn over_json(value: &mut Value) {
    let all = SECRETS.read().unwrap_or_else(PoisonError::into_inner);
    all.iter().for_each(|secrets| secrets.hide_json(value));
}

/// How many bytes at the end of a text may be the beginning of a secret: what comes next decides.
fn undecided(text: &str) -> usize {
    let all = SECRETS.read().unwrap_or_else(PoisonError::into_inner);
    all.iter().map(|secrets| secrets.undecided(text)).max().unwrap_or_default()
}

/// Text from outside that comes piece by piece, made harmless and without secrets, wherever it is cut.
#[derive(Debug)]
pub(crate) struct Flow {
    /// None where no terminal sees it.
    cleaner: Option<Cleaner>,
    /// What may be the beginning of a secret.
    held: String,
}

impl Default for Flow {
    fn default() -> Self {
        Self { cleaner: Some(Cleaner::default()), held: String::new() }
    }
}

impl Flow {
    /// The same for a text that no terminal sees as it is: only secrets are hidden.
    pub(crate) fn raw() -> Self {
        Self { cleaner: None, held: String::new() }
    }

    /// What can be shown now that there is another piece.
    pub(crate) fn push(&mut self, piece: &str) -> String {
        match &mut self.cleaner {
            Some(cleaner) => self.held.push_str(&cleaner.push(piece)),
            None => self.held.push_str(piece),
        }
        let mut shown = over(&self.held).into_owned();
        self.held = shown.split_off(shown.len() - undecided(&shown));
        shown
    }

    /// What is left to be shown when no more pieces come; then another text may begin.
    pub(crate) fn end(&mut self) -> String {
        std::mem::take(&mut self.held) + self.cleaner.as_mut().map_or("", Cleaner::end)
    }
}

/// A writer of whole lines, such as a log's, that lets no secret through.
pub(crate) struct Veiled<W>(pub(crate) W);

impl<W: Write> Write for Veiled<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write_all(over(&String::from_utf8_lossy(bytes)).as_bytes())?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

#[cfg(test)]
mod tests {
    use ropeway::secret::Secret;

    use super::*;

    #[test]
    fn what_is_hidden_once_stays_hidden() {
        hide(&Mask::new([&Secret::new("a-token-of-the-veil")]));
        hide(&Mask::new([&Secret::new("another-of-the-veil")]));
        let mut lines = Vec::new();
        Veiled(&mut lines).write_all(b"a-token-of-the-veil and another-of-the-veil\n").expect("a line");
        assert_eq!(String::from_utf8(lines).expect("text"), "*** and ***\n");
    }

    #[test]
    fn a_secret_that_comes_in_pieces_is_hidden_and_nothing_else_is_held_back() {
        hide(&Mask::new([&Secret::new("sk-of-a-flow")]));
        let mut flow = Flow::default();
        let pieces = ["it is s", "k-of-", "\u{1b}[3", "1ma-flo", "w, and sk", "y", " high\r", " s"];
        let shown = pieces.map(|piece| flow.push(piece));
        assert_eq!(shown, ["it is ", "", "", "", "***, and ", "sky", " high", "\n "]);
        assert_eq!(flow.end(), "s");
        assert_eq!(flow.push("again"), "again");
    }
}
