//! Secrets: values that must not be seen, and the mask that hides them wherever text goes out.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

/// A value that must not be seen: it has no `Display`, and its `Debug` is `***`.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Hides a value.
    pub fn new(value: impl Into<String>) -> Self {
        Self(value.into())
    }

    /// The value, for the one place that has to send it.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

impl From<&str> for Secret {
    fn from(value: &str) -> Self {
        Self::new(value)
    }
}

impl From<String> for Secret {
    fn from(value: String) -> Self {
        Self::new(value)
    }
}

/// What stands where a secret stood.
const HIDDEN: &str = "***";

/// Values shorter than this are no secrets, and to hide them would spoil every text.
const SHORTEST: usize = 4;

/// Hides secrets in text: a set of values, none of which may be seen.
///
/// Cheap to clone.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Mask(Option<Arc<[String]>>);

impl Mask {
    /// Hides these values.
    pub fn new<'a>(secrets: impl IntoIterator<Item = &'a Secret>) -> Self {
        let mut values: Vec<String> = secrets
            .into_iter()
            .map(|secret| secret.expose().to_owned())
            .filter(|value| value.len() >= SHORTEST)
            .collect();
        // The longest first: one secret may be a part of another.
        values.sort_by(|a, b| b.len().cmp(&a.len()).then_with(|| a.cmp(b)));
        values.dedup();
        if values.is_empty() { Self(None) } else { Self(Some(values.into())) }
    }

    /// The text without the secrets.
    pub fn hide<'a>(&self, text: &'a str) -> Cow<'a, str> {
        let mut text = Cow::Borrowed(text);
        for value in self.0.iter().flat_map(|values| values.iter()) {
            if text.contains(value.as_str()) {
                text = Cow::Owned(text.replace(value.as_str(), HIDDEN));
            }
        }
        text
    }
}

impl fmt::Debug for Mask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Mask of {} secrets", self.0.as_ref().map_or(0, |values| values.len()))
    }
}
