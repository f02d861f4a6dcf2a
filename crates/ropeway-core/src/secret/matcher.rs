//! Finds patterns in text, in every escaped form of their characters.
//!
//! All functions are linear in the text's length, for any text and any patterns.

use std::collections::VecDeque;
use std::ops::Range;

use super::automaton::{Automaton, ROOT, State};
use super::encoding::is_base64_digit;
use super::escape::{self, Decoded, decodings, may_start_escape};
use super::escape_finder::EscapeFinder;
use super::filter::Filter;
use super::pattern::Pattern;

/// Bytes that are filtered at a time. A block stays in the L1 cache.
const BLOCK: usize = 8 << 10;

/// Maximum number of decodings of the same text that are followed at once.
const MAX_PATHS: usize = 24;

/// Patterns, compiled for searching.
#[derive(Debug)]
pub(super) struct Matcher {
    patterns: Vec<Pattern>,
    automaton: Automaton,
    filter: Filter,
    /// Candidate position finders; the one at index [`PLAIN`] finds literal text.
    finders: Vec<CandidateFinder>,
    /// Whether any pattern contains a space, which `+` may stand for.
    has_spaces: bool,
    longest: usize,
}

impl Matcher {
    /// Compiles patterns with at least four bytes.
    pub(super) fn new(mut patterns: Vec<Pattern>) -> Self {
        patterns.sort_unstable();
        patterns.dedup_by(|other, one| {
            let same = other.bytes == one.bytes;
            if same {
                one.takes_next_digit |= other.takes_next_digit;
            }
            same
        });
        let filter = Filter::new(&patterns);
        Self {
            automaton: Automaton::new(patterns.iter().map(|pattern| pattern.bytes.as_slice())),
            finders: CandidateFinder::all(filter.alphabet()),
            filter,
            has_spaces: patterns.iter().any(|pattern| pattern.bytes.contains(&b' ')),
            longest: patterns.iter().map(|pattern| pattern.bytes.len()).max().unwrap_or_default(),
            patterns,
        }
    }

    /// Returns the matches in order, merged where they overlap.
    pub(super) fn find(&self, text: &[u8]) -> Vec<Range<usize>> {
        let mut scanner = Scanner::default();
        let mut done = 0;
        // No match spans this position.
        let mut settled = 0;
        let mut candidates = Vec::new();
        while done < text.len() {
            let to = text.len().min(done + BLOCK);
            // Each finder continues after its last candidate, so together they read the text only a few times.
            candidates.clear();
            candidates.extend(self.finders.iter().map(|finder| finder.next(&self.filter, text, done, to)));
            while let Some(at) = candidates.iter().flatten().copied().min() {
                if candidates[PLAIN] == Some(at) || self.may_be_escaped(text, at) {
                    // The match may start before the candidate, in a pattern's literal bytes.
                    let lowest = settled.max(at.saturating_sub(self.longest));
                    let known =
                        text[lowest..at].iter().rev().take_while(|byte| self.filter.contains_byte(**byte)).count();
                    done = scanner.run(self, text, at - known, at);
                    settled = done;
                } else {
                    done = at + 1;
                    if !self.filter.contains_byte(text[at]) {
                        settled = done;
                    }
                }
                for (finder, candidate) in self.finders.iter().zip(&mut candidates) {
                    if candidate.is_some_and(|candidate| candidate < done) {
                        *candidate = finder.next(&self.filter, text, done, to);
                    }
                }
            }
            done = done.max(to);
        }
        scanner.take_found(text.len(), text, 0)
    }

    /// Returns the start of a pattern that the text's end begins, if at least `least` of its bytes are there.
    pub(super) fn find_partial(&self, text: &[u8], least: usize) -> Option<usize> {
        // A byte that is written as `\u0041` takes six.
        let from = text.len().saturating_sub(6 * self.longest + escape::MAX_LENGTH);
        let mut scanner = Scanner::default();
        let end = (from..text.len()).find(|at| {
            let is_incomplete = may_start_escape(text[*at]) && escape::is_incomplete(&text[*at..]);
            if !is_incomplete {
                scanner.step(self, text, 0, *at);
            }
            is_incomplete
        });
        let partial = scanner.partial(self, end.unwrap_or(text.len()), least);
        match end {
            // The incomplete escape may be a pattern's first byte.
            Some(open) if least <= 1 => Some(partial.unwrap_or(open)),
            _ => partial,
        }
    }

    /// Returns `true` if an escape at this position may be part of a pattern.
    fn may_be_escaped(&self, text: &[u8], at: usize) -> bool {
        let mut may_be = false;
        decodings(&text[at..], |decoded| {
            let [first, rest @ ..] = decoded.bytes() else { return };
            // Skips escapes for characters that no pattern has, such as `\n`, at the cost of one lookup.
            if may_be || !self.filter.contains_byte(*first) {
                return;
            }
            // At any position in a pattern, three consecutive bytes around the character are part of the pattern as
            // well.
            let behind = at + decoded.length;
            let is_unclear = |at: usize| text.get(at).is_some_and(|byte| may_start_escape(*byte));
            let byte = |at: Option<usize>| at.and_then(|at| text.get(at).copied());
            let around = [
                byte(at.checked_sub(2)),
                byte(at.checked_sub(1)),
                Some(*first),
                byte(Some(behind)),
                byte(Some(behind + 1)),
            ];
            may_be = !rest.is_empty()
                || is_unclear(behind)
                || is_unclear(behind + 1)
                || around.windows(3).any(|triple| match triple {
                    [Some(a), Some(b), Some(c)] => self.filter.may_contain_triple([*a, *b, *c]),
                    _ => false,
                });
        });
        may_be
    }
}

/// Finds a pattern's candidate positions.
#[derive(Debug)]
enum CandidateFinder {
    /// Samples literal text for four bytes of a pattern.
    Plain,
    /// Finds escapes with two bytes and more.
    Escaped(EscapeFinder),
    /// Finds a byte that is an escape on its own: `+` for a space, or a backslash if a pattern contains one.
    Byte(u8),
}

/// The index of `Plain`. The finder before it loads the block into the cache at memory speed.
const PLAIN: usize = 1;

impl CandidateFinder {
    /// Returns the finders that patterns in this alphabet need.
    fn all(alphabet: &[bool; 256]) -> Vec<Self> {
        let mut finders = vec![Self::Escaped(EscapeFinder::new(alphabet)), Self::Plain];
        let bytes = [(b' ', b'+'), (b'\\', b'\\')].into_iter().filter(|(meaning, _)| alphabet[usize::from(*meaning)]);
        finders.extend(bytes.map(|(_, byte)| Self::Byte(byte)));
        finders
    }

    /// Returns the first candidate in `from..to`.
    fn next(&self, filter: &Filter, text: &[u8], from: usize, to: usize) -> Option<usize> {
        match self {
            Self::Plain => filter.find(text, from, to),
            Self::Escaped(finder) => finder.find(text, from, to),
            Self::Byte(byte) => memchr::memchr(*byte, text.get(from..to)?).map(|at| from + at),
        }
    }
}

/// One decoding of a text's last bytes, with at least one escape.
#[derive(Clone, Debug)]
struct DecodePath {
    state: State,
    /// The position of the leading literal bytes.
    plain: Range<usize>,
    /// Each later byte's position.
    later: VecDeque<usize>,
}

impl DecodePath {
    /// Starts with the literal bytes before `at` that begin a pattern.
    fn literal(matcher: &Matcher, state: State, at: usize) -> Self {
        Self { state, plain: at - matcher.automaton.depth(state)..at, later: VecDeque::new() }
    }

    fn count(&self) -> usize {
        self.plain.len() + self.later.len()
    }

    /// Returns the path extended by bytes that were decoded at `at`, or `None` if it begins no pattern.
    fn extended_by(&self, matcher: &Matcher, bytes: &[u8], at: usize) -> Option<Self> {
        let (state, kept) = self.next(matcher, bytes)?;
        let skipped = self.count() - kept;
        let plain = self.plain.start + skipped.min(self.plain.len())..self.plain.end;
        let later = self.later.iter().skip(skipped.saturating_sub(self.plain.len())).copied();
        Some(Self { state, plain, later: later.chain(bytes.iter().map(|_| at)).collect() })
    }

    /// Like [`extended_by`](Self::extended_by), and reuses the path.
    fn into_extended(mut self, matcher: &Matcher, bytes: &[u8], at: usize) -> Option<Self> {
        let (state, kept) = self.next(matcher, bytes)?;
        let skipped = self.count() - kept;
        let plain = skipped.min(self.plain.len());
        self.plain.start += plain;
        self.later.drain(..skipped - plain);
        self.later.extend(bytes.iter().map(|_| at));
        self.state = state;
        Some(self)
    }

    /// Returns the state after more bytes, and how many of the earlier bytes are still part of it.
    fn next(&self, matcher: &Matcher, bytes: &[u8]) -> Option<(State, usize)> {
        let state = bytes.iter().fold(self.state, |state, byte| {
            if matcher.filter.contains_byte(*byte) { matcher.automaton.next(state, *byte) } else { ROOT }
        });
        // All of the character's bytes must be part of the pattern.
        let kept = matcher.automaton.depth(state).checked_sub(bytes.len())?;
        Some((state, kept))
    }

    /// Returns the position of the last `count` bytes.
    fn start(&self, count: usize) -> usize {
        let index = self.count() - count;
        match index.checked_sub(self.plain.len()) {
            Some(later) => self.later[later],
            None => self.plain.start + index,
        }
    }
}

/// A search that can be suspended at any position.
#[derive(Clone, Debug, Default)]
pub(super) struct Scanner {
    /// The literal decoding's state.
    plain: State,
    /// The other decodings, with the position where each continues.
    paths: Vec<(usize, DecodePath)>,
    found: Vec<Match>,
}

#[derive(Clone, Debug)]
struct Match {
    range: Range<usize>,
    /// Whether the base64 digit and the padding that follow belong to the match.
    takes_next_digit: bool,
}

impl Match {
    /// Returns the range including the characters that follow and belong to it, and whether the text contains all of
    /// them.
    fn extended(&self, text: &[u8], base: usize) -> (Range<usize>, bool) {
        let Range { start, end } = self.range;
        if !self.takes_next_digit {
            return (start..end, true);
        }
        let follows = text.get(end - base..).unwrap_or_default();
        let digit = usize::from(follows.first().is_some_and(|byte| is_base64_digit(*byte)));
        let padding = follows[digit..].iter().take(2).take_while(|byte| **byte == b'=').count();
        let belongs = digit + padding;
        (start..end + belongs, padding == 2 || belongs < follows.len())
    }
}

impl Scanner {
    /// Searches from `from` to `to` and on until no pattern is begun. Returns the position.
    fn run(&mut self, matcher: &Matcher, text: &[u8], from: usize, to: usize) -> usize {
        let mut at = from;
        while at < text.len() && (at <= to || self.plain != ROOT || !self.paths.is_empty()) {
            self.step(matcher, text, 0, at);
            at += 1;
        }
        at
    }

    /// Processes the byte at one position. `text` starts at position `base`.
    pub(super) fn step(&mut self, matcher: &Matcher, text: &[u8], base: usize, at: usize) {
        let byte = text[at - base];
        if !self.paths.is_empty() || may_start_escape(byte) {
            self.step_paths(matcher, text, base, at);
        }
        self.plain = matcher.automaton.next(self.plain, byte);
        if let Some(pattern) = matcher.automaton.matched(self.plain) {
            let pattern = &matcher.patterns[pattern];
            self.add(pattern, at + 1 - pattern.bytes.len()..at + 1);
        }
    }

    fn step_paths(&mut self, matcher: &Matcher, text: &[u8], base: usize, at: usize) {
        let byte = text[at - base];
        let mut here: Vec<DecodePath> = Vec::new();
        let plain = self.plain;
        for (_, path) in self.paths.extract_if(.., |(next, _)| *next == at) {
            // Paths in the same state are merged.
            if path.state != plain && here.iter().all(|other| other.state != path.state) {
                here.push(path);
            }
        }
        let mut choices = Vec::new();
        if may_start_escape(byte) && (byte != b'+' || matcher.has_spaces) {
            decodings(&text[at - base..], |decoded| choices.push(decoded));
            choices.retain(|decoded| matcher.filter.contains_byte(decoded.bytes()[0]));
        }
        let escapes = choices.clone();
        if matcher.filter.contains_byte(byte) {
            choices.push(Decoded::literal(byte));
        }
        here.sort_by_key(|path| std::cmp::Reverse(path.count()));
        let Some((last, others)) = choices.split_last() else { return };
        for path in here {
            for decoded in others {
                if let Some(path) = path.extended_by(matcher, decoded.bytes(), at) {
                    self.follow(matcher, path, at + decoded.length);
                }
            }
            if let Some(path) = path.into_extended(matcher, last.bytes(), at) {
                self.follow(matcher, path, at + last.length);
            }
        }
        // Last, because the number of paths is limited and longer ones are closer to a match.
        for decoded in &escapes {
            if let Some(path) = DecodePath::literal(matcher, plain, at).into_extended(matcher, decoded.bytes(), at) {
                self.follow(matcher, path, at + decoded.length);
            }
        }
    }

    /// Records a path's match, if it has one, and continues it at `next`.
    fn follow(&mut self, matcher: &Matcher, path: DecodePath, next: usize) {
        if let Some(pattern) = matcher.automaton.matched(path.state) {
            let pattern = &matcher.patterns[pattern];
            self.add(pattern, path.start(pattern.bytes.len())..next);
        }
        // Text with more decodings than this is ambiguous to every reader.
        if self.paths.len() < MAX_PATHS {
            self.paths.push((next, path));
        }
    }

    fn add(&mut self, pattern: &Pattern, range: Range<usize>) {
        let takes_next_digit = pattern.takes_next_digit;
        match self.found.last_mut() {
            Some(last) if last.range.start <= range.start && range.start < last.range.end => {
                if range.end >= last.range.end {
                    last.takes_next_digit = takes_next_digit || last.takes_next_digit && range.end == last.range.end;
                    last.range.end = range.end;
                }
            }
            _ => self.found.push(Match { range, takes_next_digit }),
        }
    }

    /// Returns the start of the earliest pattern that is begun here with at least `least` bytes.
    pub(super) fn partial(&self, matcher: &Matcher, at: usize, least: usize) -> Option<usize> {
        let plain = Some(matcher.automaton.open_depth(self.plain)).filter(|depth| *depth >= least.max(1));
        let plain = plain.map(|depth| at - depth);
        let paths = self.paths.iter().filter_map(|(_, path)| {
            let depth = matcher.automaton.open_depth(path.state);
            (depth >= least.max(1)).then(|| path.start(depth))
        });
        paths.chain(plain).min()
    }

    /// Returns the start of the earliest match that more text may extend.
    pub(super) fn incomplete(&self, text: &[u8], base: usize) -> Option<usize> {
        let incomplete = self.found.iter().filter(|found| !found.extended(text, base).1);
        incomplete.map(|found| found.range.start).min()
    }

    /// Removes the matches that start before `to`. Returns them in order, merged where they overlap.
    pub(super) fn take_found(&mut self, to: usize, text: &[u8], base: usize) -> Vec<Range<usize>> {
        let taken = self.found.extract_if(.., |found| found.range.start < to);
        let mut found: Vec<_> = taken.map(|found| found.extended(text, base).0).collect();
        found.sort_unstable_by_key(|range| range.start);
        found.dedup_by(|later, earlier| {
            let overlaps = later.start < earlier.end;
            if overlaps {
                earlier.end = earlier.end.max(later.end);
            }
            overlaps
        });
        found
    }
}
