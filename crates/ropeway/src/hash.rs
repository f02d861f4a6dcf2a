//! A hash that is the same on every machine and in every version, which the standard hasher does not promise.

/// FNV-1a of 64 bits. What it gave for a text is written down in files and remembered by models: it must never change.
pub(crate) struct Fnv(u64);

impl Default for Fnv {
    fn default() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }
}

impl Fnv {
    pub(crate) fn take(&mut self, bytes: impl IntoIterator<Item = u8>) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    }

    pub(crate) fn value(&self) -> u64 {
        self.0
    }
}

/// A text's hash folded to 32 bits, which are eight digits of a name.
pub(crate) fn short(text: &str) -> u32 {
    let mut hash = Fnv::default();
    hash.take(text.bytes());
    (hash.value() ^ (hash.value() >> 32)) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_is_that_of_the_published_vectors() {
        let hash = |text: &str| {
            let mut hash = Fnv::default();
            hash.take(text.bytes());
            hash.value()
        };
        assert_eq!(
            ["", "a", "foobar"].map(hash),
            [0xcbf2_9ce4_8422_2325, 0xaf63_dc4c_8601_ec8c, 0x8594_4171_f739_67e8]
        );
        assert_eq!(short("a"), 0xaf63_dc4c ^ 0x8601_ec8c);
    }
}
