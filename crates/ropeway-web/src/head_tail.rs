//! The first and last bytes of data that is too large to keep.

/// Number of bytes to keep at each end.
const MAX_PART: usize = 4 << 10;

/// The first and last bytes of data that is too large to keep.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HeadTail {
    head: Vec<u8>,
    tail: Vec<u8>,
}

impl HeadTail {
    /// Appends the next part.
    pub fn push(&mut self, part: &[u8]) {
        let room = MAX_PART.saturating_sub(self.head.len()).min(part.len());
        self.head.extend_from_slice(&part[..room]);
        self.tail.extend_from_slice(&part[part.len().saturating_sub(MAX_PART)..]);
        self.tail.drain(..self.tail.len().saturating_sub(MAX_PART));
    }

    /// Returns the first bytes.
    pub fn head(&self) -> &[u8] {
        &self.head
    }

    /// Returns the last bytes.
    pub fn tail(&self) -> &[u8] {
        &self.tail
    }
}
