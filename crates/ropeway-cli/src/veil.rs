//! The veil over everything that is printed beside a tool's own answer: no secret shows through.

use std::borrow::Cow;
use std::io::{self, Write};
use std::sync::{PoisonError, RwLock};

use ropeway::secret::Mask;

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
}
