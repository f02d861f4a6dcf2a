//! Inputs as text.

/// The line between an input's two parts, such as secrets and text, or schema and value.
pub(super) const SEPARATOR: &str = "\n---\n";

/// Splits an input at the first separator. Without one, the first part is empty.
pub(super) fn split_input(text: &str) -> (&str, &str) {
    text.split_once(SEPARATOR).unwrap_or(("", text))
}

/// Converts an input to text and replaces invalid UTF-8.
pub(super) fn text(data: &[u8]) -> std::borrow::Cow<'_, str> {
    String::from_utf8_lossy(data)
}
