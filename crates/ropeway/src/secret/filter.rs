//! A filter: tells places where a pattern may stand from those where none does, faster than a look at every byte.

use super::pattern::Pattern;

/// How many bytes are looked at together.
const GRAM: usize = 4;

/// How far the places that are looked at are apart at most.
const WIDEST: usize = 32;

/// A set of numbers that may also hold others.
#[derive(Debug)]
struct Bits {
    words: Box<[u64]>,
    shift: u32,
}

impl Bits {
    /// An empty set for so many numbers.
    fn for_count(count: usize) -> Self {
        // One bit of 128 is set, so that few others are taken for ours; for a few secrets that still fits the nearest cache.
        let bits = (128 * count).next_power_of_two().clamp(1 << 15, 1 << 24);
        Self { words: vec![0; bits / 64].into(), shift: 32 - bits.trailing_zeros() }
    }

    fn place(&self, number: u32) -> (usize, u64) {
        let hash = number.wrapping_mul(0x9e37_79b1) >> self.shift;
        ((hash / 64) as usize, 1 << (hash % 64))
    }

    fn add(&mut self, number: u32) {
        let (word, bit) = self.place(number);
        self.words[word] |= bit;
    }

    fn has(&self, number: u32) -> bool {
        let (word, bit) = self.place(number);
        self.words[word] & bit != 0
    }
}

/// What all patterns have in common, so that most places of a text are passed over.
#[derive(Debug)]
pub(super) struct Filter {
    /// The bytes that are in any pattern.
    alphabet: [bool; 256],
    /// Four bytes each from the beginnings of all patterns: however a text is sampled, one of them is hit.
    grams: Bits,
    /// How far the samples are apart.
    stride: usize,
    /// Three bytes each from everywhere in all patterns.
    triples: Bits,
}

impl Filter {
    /// The filter for patterns of four bytes at least.
    pub(super) fn new(patterns: &[Pattern]) -> Self {
        let shortest = patterns.iter().map(|pattern| pattern.bytes.len()).min().unwrap_or(GRAM).max(GRAM);
        let stride = (shortest + 1 - GRAM).min(WIDEST);
        let mut alphabet = [false; 256];
        let mut grams = Bits::for_count(stride * patterns.len());
        let mut triples = Bits::for_count(patterns.iter().map(|pattern| pattern.bytes.len()).sum());
        for Pattern { bytes, .. } in patterns {
            bytes.iter().for_each(|byte| alphabet[usize::from(*byte)] = true);
            bytes.windows(GRAM).take(stride).for_each(|gram| grams.add(number(gram)));
            bytes.windows(3).for_each(|triple| triples.add(number(triple)));
        }
        Self { alphabet, grams, stride, triples }
    }

    /// Which bytes are in any pattern.
    pub(super) fn alphabet(&self) -> &[bool; 256] {
        &self.alphabet
    }

    /// Is the byte in any pattern?
    pub(super) fn knows(&self, byte: u8) -> bool {
        self.alphabet[usize::from(byte)]
    }

    /// May these three bytes be in a pattern?
    pub(super) fn knows_triple(&self, triple: [u8; 3]) -> bool {
        self.triples.has(number(&triple))
    }

    /// The next place at or behind `from` and before `to` that may be in a pattern, if one begins at `from` or later.
    pub(super) fn find(&self, text: &[u8], from: usize, to: usize) -> Option<usize> {
        let mut at = from;
        // Four at a time: no look has to wait for the one before it.
        while at + 3 * self.stride < to
            && let Some(part) = text.get(at..at + 3 * self.stride + GRAM)
        {
            let hit = |index: usize| {
                let from = index * self.stride;
                self.grams.has(u32::from_le_bytes([part[from], part[from + 1], part[from + 2], part[from + 3]]))
            };
            if hit(0) | hit(1) | hit(2) | hit(3) {
                return (0..4).find(|index| hit(*index)).map(|index| at + index * self.stride);
            }
            at += 4 * self.stride;
        }
        while at < to
            && let Some(gram) = text.get(at..at + GRAM)
        {
            if self.grams.has(number(gram)) {
                return Some(at);
            }
            at += self.stride;
        }
        None
    }
}

fn number(bytes: &[u8]) -> u32 {
    bytes.iter().rev().fold(0, |number, byte| number << 8 | u32::from(*byte))
}
