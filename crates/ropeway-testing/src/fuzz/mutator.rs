//! A small deterministic mutator for machines without libFuzzer.

use super::chunks::Choices;
use super::input::SEPARATOR;

/// Maximum input size.
const MAX_SIZE: usize = 16 << 10;

/// Bytes that many parsers treat specially.
const BYTES: &[u8] = b"\0\t\n\r \"#$%&'()*+,-./09:;<=>?@[\\]_`aAfz{|}~\x7f\x80\xbf\xc3\xe2\xf0\xff";

/// Generates new inputs from a corpus, the same ones for the same seed.
///
/// # Examples
///
/// ```
/// use ropeway_testing::fuzz::{Mutator, Target};
///
/// let target = Target::named("sse").expect("a target");
/// let mut mutator = Mutator::new(target.tokens, vec![b"data: a\n\n".to_vec()], 7);
/// for _ in 0..100 {
///     (target.run)(&mutator.next_input());
/// }
/// ```
pub struct Mutator {
    corpus: Vec<Vec<u8>>,
    tokens: &'static [&'static str],
    choices: Choices,
}

impl std::fmt::Debug for Mutator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Mutator").field("corpus", &self.corpus.len()).finish_non_exhaustive()
    }
}

impl Mutator {
    /// Creates a mutator for these inputs; `tokens` are their format's tokens.
    pub fn new(tokens: &'static [&'static str], mut corpus: Vec<Vec<u8>>, seed: u64) -> Self {
        if corpus.is_empty() {
            corpus.push(Vec::new());
        }
        Self { corpus, tokens, choices: Choices::of(&seed.to_le_bytes()) }
    }

    /// Returns the next input: one from the corpus with a few changes.
    pub fn next_input(&mut self) -> Vec<u8> {
        let mut input = self.pick();
        for _ in 0..=self.choices.below(4) {
            self.mutate(&mut input);
        }
        input.truncate(MAX_SIZE);
        input
    }

    fn pick(&mut self) -> Vec<u8> {
        let at = self.choices.below(self.corpus.len());
        self.corpus[at].clone()
    }

    fn mutate(&mut self, input: &mut Vec<u8>) {
        let start = self.choices.below(input.len() + 1);
        let end = start + self.choices.below((input.len() - start).min(64) + 1);
        match self.choices.below(12) {
            0 if start < input.len() => input[start] = self.byte(),
            1 => input.insert(start, self.byte()),
            2 => drop(input.drain(start..end)),
            3 => {
                // Repeats a part up to 256 times, for depth and length.
                let most = 1 << self.choices.below(9);
                let times = 1 + self.choices.below(most);
                let part = input[start..end].repeat(times);
                input.splice(start..start, part);
            }
            4 | 5 if !self.tokens.is_empty() => {
                let token = self.tokens[self.choices.below(self.tokens.len())];
                input.splice(start..start, token.bytes());
            }
            6 => {
                // Inserts a part of another input.
                let other = self.pick();
                let from = self.choices.below(other.len() + 1);
                let to = from + self.choices.below((other.len() - from).min(512) + 1);
                input.splice(start..end, other[from..to].iter().copied());
            }
            7 => input.truncate(start),
            8 | 9 => self.replace_json(input, start),
            10 => {
                let at = memchr::memmem::find(input, SEPARATOR.as_bytes());
                match at {
                    Some(at) => drop(input.drain(at..at + SEPARATOR.len())),
                    None => drop(input.splice(start..start, SEPARATOR.bytes())),
                }
            }
            _ if start < input.len() => input[start] ^= 1 << self.choices.below(8),
            _ => {}
        }
    }

    fn byte(&mut self) -> u8 {
        BYTES[self.choices.below(BYTES.len())]
    }

    /// Replaces, wraps or removes the first JSON value at or after a position.
    fn replace_json(&mut self, input: &mut Vec<u8>, start: usize) {
        const VALUES: [&str; 18] = [
            "null",
            "true",
            "{}",
            "[]",
            "\"\"",
            "0",
            "-0",
            "-1",
            "1.5",
            "1e400",
            "18446744073709551616",
            "\"\\ud83d\"",
            "\"\\u0000\"",
            "[{}]",
            "{\"a\":[]}",
            "\"a\"",
            "9007199254740993",
            "{\"\":null}",
        ];
        let Some(begin) =
            (start..input.len()).find(|at| matches!(input[*at], b'{' | b'[' | b'"' | b'0'..=b'9' | b't' | b'f' | b'n'))
        else {
            return;
        };
        let end = json_end(input, begin);
        match self.choices.below(4) {
            0 => {
                let depth = 1 << self.choices.below(8);
                let (open, close) = if self.choices.below(2) == 0 { ("[", "]") } else { ("{\"a\":", "}") };
                let inner = input[begin..end].to_vec();
                let wrapped = [open.repeat(depth).as_bytes(), &inner, close.repeat(depth).as_bytes()].concat();
                input.splice(begin..end, wrapped);
            }
            1 => drop(input.drain(begin..end)),
            _ => {
                let value = VALUES[self.choices.below(VALUES.len())];
                input.splice(begin..end, value.bytes());
            }
        }
    }
}

/// Returns the approximate end of the JSON value that starts at `begin`.
fn json_end(input: &[u8], begin: usize) -> usize {
    let mut depth = 0_usize;
    let mut in_string = false;
    let mut at = begin;
    while let Some(byte) = input.get(at) {
        at += 1;
        match byte {
            b'\\' if in_string => at += 1,
            b'"' => {
                in_string = !in_string;
                if !in_string && depth == 0 {
                    break;
                }
            }
            _ if in_string => {}
            b'{' | b'[' => depth += 1,
            b'}' | b']' if depth <= 1 => {
                // A bare word does not include the delimiter after it.
                at -= usize::from(depth == 0);
                break;
            }
            b'}' | b']' => depth -= 1,
            b',' | b'\n' if depth == 0 => {
                at -= 1;
                break;
            }
            _ => {}
        }
    }
    at.clamp(begin, input.len())
}
