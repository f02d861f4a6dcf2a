//! A hash that is stable across machines and versions, unlike the standard hasher.

/// 64-bit FNV-1a (<https://datatracker.ietf.org/doc/html/draft-eastlake-fnv>). Hashes are part of file names and tool names, so the
/// function must never change.
pub struct Fnv(u64);

impl Default for Fnv {
    fn default() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }
}

impl Fnv {
    /// Adds bytes.
    pub fn write(&mut self, bytes: impl IntoIterator<Item = u8>) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    }

    /// Returns the hash over all bytes so far.
    pub fn finish(&self) -> u64 {
        self.0
    }
}

/// Returns a text's hash folded to 32 bits.
pub fn short(text: &str) -> u32 {
    let mut hash = Fnv::default();
    hash.write(text.bytes());
    (hash.finish() ^ (hash.finish() >> 32)) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_match_the_published_test_vectors() {
        let hash = |text: &str| {
            let mut hash = Fnv::default();
            hash.write(text.bytes());
            hash.finish()
        };
        assert_eq!(
            ["", "a", "foobar"].map(hash),
            [0xcbf2_9ce4_8422_2325, 0xaf63_dc4c_8601_ec8c, 0x8594_4171_f739_67e8]
        );
        assert_eq!(short("a"), 0xaf63_dc4c ^ 0x8601_ec8c);
    }
}
