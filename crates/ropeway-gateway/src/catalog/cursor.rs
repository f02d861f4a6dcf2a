//! A cursor's content: where a list's next page starts.

use std::borrow::Cow;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::digest;
use serde::{Deserialize, Serialize};

use crate::catalog::list_kind::ListKind;

/// Maximum encoded cursor size in bytes, before sealing.
const MAX_BYTES: usize = 2 << 10;

/// Maximum name size in a cursor, in bytes. A hash replaces a longer name.
const MAX_NAME_BYTES: usize = 256;

/// A page's position in a list. The caller seals it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct CursorPayload {
    pub(crate) kind: ListKind,
    /// The list's profile.
    pub(crate) profile: String,
    /// The previous page's last entry.
    pub(crate) last: PageEnd,
}

/// A page's last entry.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PageEnd {
    /// The entry's name, or its hash if it is long.
    name: String,
    /// Number of earlier entries with the same name: a server may list one twice.
    earlier: usize,
}

impl PageEnd {
    /// Returns the end for a page whose last entry is at `index`.
    pub(crate) fn new<'a>(names: impl Iterator<Item = &'a str> + Clone, index: usize) -> Self {
        let name = names.clone().nth(index).unwrap_or_default();
        Self { name: key(name).into_owned(), earlier: names.take(index).filter(|other| *other == name).count() }
    }

    /// Returns the next entry's index, or `None` if the last one was removed.
    pub(crate) fn next_index<'a>(&self, names: impl Iterator<Item = &'a str>) -> Option<usize> {
        let mut same = names.enumerate().filter(|(_, name)| key(name) == self.name);
        same.nth(self.earlier).map(|(index, _)| index + 1)
    }
}

/// Returns a name, or its hash if it would make a cursor too long.
fn key(name: &str) -> Cow<'_, str> {
    if name.len() <= MAX_NAME_BYTES {
        return Cow::Borrowed(name);
    }
    let hash = digest::digest(&digest::SHA256, name.as_bytes());
    Cow::Owned(format!("sha256:{}", URL_SAFE_NO_PAD.encode(hash)))
}

impl CursorPayload {
    /// Encodes the payload.
    pub(crate) fn encode(&self) -> Vec<u8> {
        // A tuple with only strings and numbers always has a JSON form.
        serde_json::to_vec(&(self.kind, &self.profile, &self.last.name, self.last.earlier)).unwrap_or_default()
    }

    /// Decodes a payload. Returns `None` if it is malformed.
    pub(crate) fn decode(payload: &[u8]) -> Option<Self> {
        let payload = Some(payload).filter(|payload| payload.len() <= MAX_BYTES)?;
        let (kind, profile, name, earlier) = serde_json::from_slice(payload).ok()?;
        Some(Self { kind, profile, last: PageEnd { name, earlier } })
    }

    /// Returns the entry after which the page starts, if the cursor belongs to this list in this profile.
    pub(crate) fn position(self, kind: ListKind, profile: &str) -> Option<PageEnd> {
        (self.kind == kind && self.profile == profile).then_some(self.last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cursor() -> CursorPayload {
        let last = PageEnd::new(["git_\"log\""].into_iter(), 0);
        CursorPayload { kind: ListKind::Prompts, profile: "coding".into(), last }
    }

    #[test]
    fn a_cursor_is_decoded_as_it_was_encoded() {
        assert_eq!(CursorPayload::decode(&cursor().encode()), Some(cursor()));
        assert_eq!(cursor().encode(), br#"["prompts","coding","git_\"log\"",0]"#);
        for malformed in [&b""[..], b"{}", b"[]", br#"["x","a","b"]"#, &[b'['; 5000]] {
            assert_eq!(CursorPayload::decode(malformed), None);
        }
    }

    #[test]
    fn a_cursor_of_another_profile_is_refused() {
        assert_eq!(cursor().position(ListKind::Prompts, "coding"), Some(cursor().last));
        assert_eq!(cursor().position(ListKind::Prompts, "default"), None);
        assert_eq!(cursor().position(ListKind::Tools, "coding"), None);
    }

    #[test]
    fn pages_of_equal_names_end() {
        let names = ["a", "b", "a", "a"];
        for index in 0..names.len() {
            let end = PageEnd::new(names.into_iter(), index);
            assert_eq!(end.next_index(names.into_iter()), Some(index + 1));
        }
        let last = PageEnd::new(names.into_iter(), 3);
        assert_eq!(last.next_index(["a", "b", "a"].into_iter()), None, "the entry was removed");
    }

    #[test]
    fn the_longest_name_has_a_short_cursor() {
        let long = ["x", "y"].map(|end| format!("{}{end}", "\"".repeat(8 << 10)));
        let names = || long.iter().map(String::as_str);
        let last = PageEnd::new(names(), 1);
        assert_eq!(last.next_index(names()), Some(2));
        let cursor = CursorPayload { last, ..cursor() };
        assert!(cursor.encode().len() < 256);
        assert_eq!(CursorPayload::decode(&cursor.encode()), Some(cursor));
    }
}
