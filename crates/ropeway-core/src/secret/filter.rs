//! A filter that skips text in which no pattern can start, without reading every byte.

use super::pattern::Pattern;

/// Bytes per sample.
const GRAM: usize = 4;

/// Distances between samples. Except for the first, the loop is compiled for each of them, which removes index checks.
const STRIDES: [usize; 8] = [1, 4, 6, 8, 12, 16, 24, 32];

/// Samples that are looked up per branch.
const GROUP: usize = 8;

/// Hash bits for the first lookup. A table with this size fits into the L1 cache.
const HASH_BITS: u32 = 15;

/// A number set with false positives (a Bloom filter with one hash function).
#[derive(Debug)]
struct ApproxSet {
    words: Box<[u64]>,
    shift: u32,
}

impl ApproxSet {
    /// Creates an empty set with room for `count` numbers.
    fn for_count(count: usize) -> Self {
        // At one bit in 128, false positives are rare, and the set for a few secrets still fits into the L1 cache.
        let bits = (128 * count).next_power_of_two().clamp(1 << 15, 1 << 24);
        Self { words: vec![0; bits / 64].into(), shift: 32 - bits.trailing_zeros() }
    }

    fn bit_of(&self, number: u32) -> (usize, u64) {
        let hash = number.wrapping_mul(0x9e37_79b1) >> self.shift;
        ((hash / 64) as usize, 1 << (hash % 64))
    }

    fn add(&mut self, number: u32) {
        let (word, bit) = self.bit_of(number);
        self.words[word] |= bit;
    }

    fn has(&self, number: u32) -> bool {
        let (word, bit) = self.bit_of(number);
        self.words[word] & bit != 0
    }
}

/// Each pattern's first four-byte windows, one per byte between two text samples: wherever a pattern starts, one of
/// its windows is sampled.
#[derive(Debug)]
struct Grams {
    /// One byte per hash, 1 if a gram has it. Reading a byte is faster than reading a bit, and most samples stop here.
    hashes: Box<[u8; 1 << HASH_BITS]>,
    /// The same grams by a second hash.
    bits: ApproxSet,
}

impl Grams {
    /// Creates an empty set with room for `count` grams.
    fn for_count(count: usize) -> Self {
        Self { hashes: Box::new([0; 1 << HASH_BITS]), bits: ApproxSet::for_count(count) }
    }

    fn index(gram: u32) -> usize {
        (gram.wrapping_mul(0x85eb_ca6b) >> (32 - HASH_BITS)) as usize
    }

    fn add(&mut self, gram: u32) {
        self.hashes[Self::index(gram)] = 1;
        self.bits.add(gram);
    }

    /// Returns 1 for every gram, and 0 for most other samples.
    fn lookup(&self, sample: u32) -> u8 {
        self.hashes[Self::index(sample)]
    }

    /// Returns `true` for every gram, and `false` for almost all other samples.
    fn has(&self, sample: u32) -> bool {
        self.lookup(sample) != 0 && self.bits.has(sample)
    }
}

/// Finds candidate positions: text that shares four bytes with a pattern.
#[derive(Debug)]
pub(super) struct Filter {
    /// The bytes that occur in any pattern.
    alphabet: [bool; 256],
    grams: Grams,
    /// Distance between two samples.
    stride: usize,
    /// The three-byte windows of all patterns.
    triples: ApproxSet,
}

impl Filter {
    /// Creates a filter for patterns with at least four bytes.
    pub(super) fn new(patterns: &[Pattern]) -> Self {
        let shortest = patterns.iter().map(|pattern| pattern.bytes.len()).min().unwrap_or(GRAM).max(GRAM);
        let stride = STRIDES.into_iter().rfind(|stride| *stride <= shortest + 1 - GRAM).unwrap_or(1);
        let mut alphabet = [false; 256];
        let mut grams = Grams::for_count(stride * patterns.len());
        let mut triples = ApproxSet::for_count(patterns.iter().map(|pattern| pattern.bytes.len()).sum());
        for Pattern { bytes, .. } in patterns {
            bytes.iter().for_each(|byte| alphabet[usize::from(*byte)] = true);
            bytes.windows(GRAM).take(stride).for_each(|gram| grams.add(number(gram)));
            bytes.windows(3).for_each(|triple| triples.add(number(triple)));
        }
        Self { alphabet, grams, stride, triples }
    }

    /// Returns the bytes that occur in any pattern.
    pub(super) fn alphabet(&self) -> &[bool; 256] {
        &self.alphabet
    }

    /// Returns `true` if the byte occurs in a pattern.
    pub(super) fn contains_byte(&self, byte: u8) -> bool {
        self.alphabet[usize::from(byte)]
    }

    /// Returns `true` if the three bytes may occur in a pattern.
    pub(super) fn may_contain_triple(&self, triple: [u8; 3]) -> bool {
        self.triples.has(number(&triple))
    }

    /// Returns the first position in `from..to` that may be part of a pattern that starts at or after `from`.
    pub(super) fn find(&self, text: &[u8], from: usize, to: usize) -> Option<usize> {
        match self.stride {
            32 => self.find_every::<32>(text, from, to),
            24 => self.find_every::<24>(text, from, to),
            16 => self.find_every::<16>(text, from, to),
            12 => self.find_every::<12>(text, from, to),
            8 => self.find_every::<8>(text, from, to),
            6 => self.find_every::<6>(text, from, to),
            4 => self.find_every::<4>(text, from, to),
            _ => self.find_slowly(text, from, to),
        }
    }

    fn find_every<const STRIDE: usize>(&self, text: &[u8], from: usize, to: usize) -> Option<usize> {
        // The last sample starts before `to` and may end after it.
        let part = text.get(from..text.len().min(to + GRAM - 1))?;
        let (groups, _) = part.as_chunks::<STRIDE>().0.as_chunks::<GROUP>();
        let sample = |step: &[u8; STRIDE]| u32::from_le_bytes([step[0], step[1], step[2], step[3]]);
        for (index, group) in groups.iter().enumerate() {
            // One branch for the whole group, so lookups do not wait for each other.
            if group.iter().fold(0, |seen, step| seen | self.grams.lookup(sample(step))) != 0
                && let Some(hit) = group.iter().position(|step| self.grams.has(sample(step)))
            {
                return Some(from + (index * GROUP + hit) * STRIDE);
            }
        }
        self.find_slowly(text, from + groups.len() * GROUP * STRIDE, to)
    }

    fn find_slowly(&self, text: &[u8], from: usize, to: usize) -> Option<usize> {
        let is_hit = |at: &usize| text.get(*at..*at + GRAM).is_some_and(|sample| self.grams.has(number(sample)));
        (from..to).step_by(self.stride).find(is_hit)
    }
}

fn number(bytes: &[u8]) -> u32 {
    bytes.iter().rev().fold(0, |number, byte| number << 8 | u32::from(*byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_of_any_length_is_sampled_wherever_it_begins() {
        for length in GRAM..=40 {
            let bytes: Vec<u8> = (0..length).map(|index| b'A' + index as u8).collect();
            let filter = Filter::new(&[Pattern::plain(bytes.clone())]);
            for start in 0..300 {
                let text = [&vec![b'.'; start], bytes.as_slice(), b"..."].concat();
                let found = filter.find(&text, 0, text.len());
                assert!(found.is_some_and(|at| (start..start + filter.stride).contains(&at)), "{length} at {start}");
                assert_eq!(filter.find(&text, 0, start), None);
                assert_eq!(filter.find(&text, start, start + 1), Some(start));
            }
        }
    }
}
