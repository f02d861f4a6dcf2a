//! Text that shares a message's memory.

use std::fmt;

use bytes::Bytes;
use bytestring::ByteString;
use serde::Serialize;
use serde::ser::Serializer;

use crate::conversions::conversions;

/// Text that may share memory with the message that it was parsed from. Cloning is cheap.
#[derive(Clone, Default, PartialEq, Eq, Hash)]
pub struct SharedText(ByteString);

impl SharedText {
    pub(super) fn into_string(self) -> String {
        self.0.into()
    }
}

impl std::ops::Deref for SharedText {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

conversions!(SharedText {
    text: String => Self(text.into());
    text: &str => Self(text.into());
});

impl fmt::Display for SharedText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self)
    }
}

impl fmt::Debug for SharedText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&**self, f)
    }
}

impl Serialize for SharedText {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self)
    }
}

/// The bytes that JSON is parsed from, if large strings may share their memory.
#[derive(Clone, Copy, Default)]
pub(crate) struct SourceBytes<'s>(pub(crate) Option<&'s Bytes>);

impl SourceBytes<'_> {
    /// Minimum shared text length. Sharing keeps the whole message in memory.
    const MIN_SHARED: usize = 16 << 10;

    /// Returns the text as a slice of the source, if it is long enough.
    pub(super) fn share(&self, text: &str) -> Option<SharedText> {
        let whole = self.0.filter(|_| text.len() >= Self::MIN_SHARED)?;
        let offset = (text.as_ptr() as usize).checked_sub(whole.as_ptr() as usize)?;
        if offset + text.len() > whole.len() {
            return None;
        }
        ByteString::try_from(whole.slice(offset..offset + text.len())).ok().map(SharedText)
    }
}
