//! Ways to split an input into chunks, derived from the input itself so that each run is the same.

use ropeway_core::hash::Fnv;

/// Number of random splits per input.
const WAYS: usize = 3;

/// A deterministic random number generator, seeded with an input.
pub(super) struct Choices(u64);

impl Choices {
    pub(super) fn of(data: &[u8]) -> Self {
        let mut hash = Fnv::default();
        hash.write(data.iter().copied());
        Self(hash.finish())
    }

    /// Returns the next number (SplitMix64, <https://prng.di.unimi.it/splitmix64.c>).
    pub(super) fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut number = self.0;
        number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        number ^ (number >> 31)
    }

    /// Returns a number below `limit`, or 0 if `limit` is 0.
    pub(super) fn below(&mut self, limit: usize) -> usize {
        if limit == 0 { 0 } else { (self.number() % limit as u64) as usize }
    }
}

/// Maximum size for inputs that are also split byte by byte.
const SMALL: usize = 2 << 10;

/// Splits an input byte by byte, and at a few random positions.
pub(super) fn ways(data: &[u8]) -> Vec<Vec<&[u8]>> {
    let mut choices = Choices::of(data);
    let mut ways = vec![data.chunks(1 + data.len() / SMALL).collect()];
    for way in 0..WAYS {
        let mut cuts: Vec<usize> = (0..1 + 3 * way).map(|_| choices.below(data.len() + 1)).collect();
        cuts.extend([0, data.len()]);
        cuts.sort_unstable();
        ways.push(cuts.windows(2).map(|pair| &data[pair[0]..pair[1]]).collect());
    }
    ways
}

/// Like [`ways`], at character boundaries.
pub(super) fn text_ways(text: &str) -> Vec<Vec<&str>> {
    let whole = |at: &usize| text.is_char_boundary(*at);
    ways(text.as_bytes())
        .into_iter()
        .map(|chunks| {
            let ends = chunks.iter().scan(0, |end, chunk| {
                *end += chunk.len();
                Some(*end)
            });
            let cuts: Vec<usize> = std::iter::once(0).chain(ends.filter(whole)).chain([text.len()]).collect();
            cuts.windows(2).map(|pair| &text[pair[0]..pair[1]]).collect()
        })
        .collect()
}
