//! The two ends of something that is too large to be kept.

/// How much is kept at each end.
const END: usize = 4 << 10;

/// The two ends of something that is too large to be kept.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HeadTail {
    head: Vec<u8>,
    tail: Vec<u8>,
}

impl HeadTail {
    /// Takes the next part.
    pub fn take(&mut self, part: &[u8]) {
        let room = END.saturating_sub(self.head.len()).min(part.len());
        self.head.extend_from_slice(&part[..room]);
        self.tail.extend_from_slice(&part[part.len().saturating_sub(END)..]);
        self.tail.drain(..self.tail.len().saturating_sub(END));
    }

    /// What it begins with.
    pub fn head(&self) -> &[u8] {
        &self.head
    }

    /// What it ends with.
    pub fn tail(&self) -> &[u8] {
        &self.tail
    }
}
