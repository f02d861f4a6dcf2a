//! The content of a cursor: where the next page of a list starts.

use serde::{Deserialize, Serialize};

use super::list_kind::ListKind;

/// Maximum bytes of an encoded cursor, before it is sealed.
const MAX_BYTES: usize = 2 << 10;

/// The position of a page in a list. The caller seals it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct CursorPayload {
    pub(crate) kind: ListKind,
    /// The profile of the list.
    pub(crate) profile: String,
    /// The name of the last entry of the previous page.
    pub(crate) last: String,
}

impl CursorPayload {
    /// Encodes the payload.
    pub(crate) fn encode(&self) -> Vec<u8> {
        // A tuple of strings always has a JSON form.
        serde_json::to_vec(&(self.kind, &self.profile, &self.last)).unwrap_or_default()
    }

    /// Decodes a payload. Returns `None` if it is malformed.
    pub(crate) fn decode(payload: &[u8]) -> Option<Self> {
        let payload = Some(payload).filter(|payload| payload.len() <= MAX_BYTES)?;
        let (kind, profile, last) = serde_json::from_slice(payload).ok()?;
        Some(Self { kind, profile, last })
    }

    /// Returns the name after which the page starts, if the cursor belongs to this list of this profile.
    pub(crate) fn position(self, kind: ListKind, profile: &str) -> Option<String> {
        (self.kind == kind && self.profile == profile).then_some(self.last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cursor() -> CursorPayload {
        CursorPayload { kind: ListKind::Prompts, profile: "coding".into(), last: "git_\"log\"".into() }
    }

    #[test]
    fn a_cursor_is_decoded_as_it_was_encoded() {
        assert_eq!(CursorPayload::decode(&cursor().encode()), Some(cursor()));
        assert_eq!(cursor().encode(), br#"["prompts","coding","git_\"log\""]"#);
        for malformed in [&b""[..], b"{}", b"[]", br#"["x","a","b"]"#, &[b'['; 5000]] {
            assert_eq!(CursorPayload::decode(malformed), None);
        }
    }

    #[test]
    fn a_cursor_of_another_profile_is_refused() {
        assert_eq!(cursor().position(ListKind::Prompts, "coding").as_deref(), Some("git_\"log\""));
        assert_eq!(cursor().position(ListKind::Prompts, "default"), None);
        assert_eq!(cursor().position(ListKind::Tools, "coding"), None);
    }
}
