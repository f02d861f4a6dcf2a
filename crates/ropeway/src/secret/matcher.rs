//! A matcher: finds patterns in text, however their characters are written there.
//!
//! Everything here takes time in proportion to the text, whatever the text and the patterns are.

use std::collections::VecDeque;
use std::ops::Range;

use super::automaton::{Automaton, ROOT, State};
use super::encoding::is_base64;
use super::filter::Filter;
use super::finder::SpellingFinder;
use super::pattern::Pattern;
use super::spelling::{self, Reading, is_special, readings};

/// How much text is filtered at a time: as much as stays close to the processor.
const BLOCK: usize = 8 << 10;

/// How many ways to read the same text are followed at once.
const MOST_READINGS: usize = 24;

/// Patterns, prepared to be found.
#[derive(Debug)]
pub(super) struct Matcher {
    patterns: Vec<Pattern>,
    automaton: Automaton,
    filter: Filter,
    /// What finds places where a pattern may stand; the one at [`PLAIN`] finds those that are literal.
    sources: Vec<Source>,
    /// A `+` may be a space of a pattern.
    spaces: bool,
    longest: usize,
}

impl Matcher {
    /// Prepares patterns of four bytes at least.
    pub(super) fn new(mut patterns: Vec<Pattern>) -> Self {
        patterns.sort_unstable();
        patterns.dedup_by(|other, one| {
            let same = other.bytes == one.bytes;
            if same {
                one.after |= other.after;
            }
            same
        });
        let filter = Filter::new(&patterns);
        Self {
            automaton: Automaton::new(patterns.iter().map(|pattern| pattern.bytes.as_slice())),
            sources: Source::all(filter.alphabet()),
            filter,
            spaces: patterns.iter().any(|pattern| pattern.bytes.contains(&b' ')),
            longest: patterns.iter().map(|pattern| pattern.bytes.len()).max().unwrap_or_default(),
            patterns,
        }
    }

    /// Where in the text patterns stand: in order, and apart from each other.
    pub(super) fn find(&self, text: &[u8]) -> Vec<Range<usize>> {
        let mut scan = Scan::default();
        let mut done = 0;
        // No pattern begins before this place and goes on behind it.
        let mut settled = 0;
        let mut candidates = Vec::new();
        while done < text.len() {
            let to = text.len().min(done + BLOCK);
            // Each source is asked again only behind its last candidate: together they cost a few passes, whatever the text.
            candidates.clear();
            candidates.extend(self.sources.iter().map(|source| source.next(&self.filter, text, done, to)));
            while let Some(at) = candidates.iter().flatten().copied().min() {
                if candidates[PLAIN] == Some(at) || self.may_be_spelled(text, at) {
                    // The pattern may have begun before, but everything there is literal, and in a pattern.
                    let lowest = settled.max(at.saturating_sub(self.longest));
                    let known = text[lowest..at].iter().rev().take_while(|byte| self.filter.knows(**byte)).count();
                    done = scan.run(self, text, at - known, at);
                    settled = done;
                } else {
                    done = at + 1;
                    if !self.filter.knows(text[at]) {
                        settled = done;
                    }
                }
                for (source, candidate) in self.sources.iter().zip(&mut candidates) {
                    if candidate.is_some_and(|candidate| candidate < done) {
                        *candidate = source.next(&self.filter, text, done, to);
                    }
                }
            }
            done = done.max(to);
        }
        scan.take_found(text.len(), text, 0)
    }

    /// Where the beginning of a pattern at the end of the text begins, if it has so many bytes at least.
    pub(super) fn find_begun(&self, text: &[u8], least: usize) -> Option<usize> {
        // Written as `\u0041`, a byte takes six.
        let from = text.len().saturating_sub(6 * self.longest + spelling::LONGEST);
        let mut scan = Scan::default();
        let end = (from..text.len()).find(|at| {
            let is_open = is_special(text[*at]) && spelling::is_open(&text[*at..]);
            if !is_open {
                scan.step(self, text, 0, *at);
            }
            is_open
        });
        let begun = scan.begun(self, end.unwrap_or(text.len()), least);
        match end {
            // What stands there may be the first byte of a pattern.
            Some(open) if least <= 1 => Some(begun.unwrap_or(open)),
            _ => begun,
        }
    }

    /// May a character be spelled here that is a part of a pattern?
    fn may_be_spelled(&self, text: &[u8], at: usize) -> bool {
        let mut may_be = false;
        readings(&text[at..], |reading| {
            let [first, rest @ ..] = reading.bytes() else { return };
            // Most are told by one look, as a line break that no pattern has.
            if may_be || !self.filter.knows(*first) {
                return;
            }
            // Whichever byte of a pattern it is, three in a row of its neighbours are in the pattern, too.
            let behind = at + reading.length;
            let is_unclear = |at: usize| text.get(at).is_some_and(|byte| is_special(*byte));
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
                    [Some(a), Some(b), Some(c)] => self.filter.knows_triple([*a, *b, *c]),
                    _ => false,
                });
        });
        may_be
    }
}

/// Finds places where a pattern may stand.
#[derive(Debug)]
enum Source {
    /// Samples the text for four bytes of a pattern as they are.
    Plain,
    /// Finds spellings that have more than one byte.
    Spelled(SpellingFinder),
    /// Finds a byte that is a spelling by itself: `+` for a space, or a backslash where a pattern holds one.
    Byte(u8),
}

/// The index of [`Source::Plain`], behind a source that brings the block into the cache at the speed of memory.
const PLAIN: usize = 1;

impl Source {
    /// Returns the sources that matter for patterns of these bytes.
    fn all(alphabet: &[bool; 256]) -> Vec<Self> {
        let mut sources = vec![Self::Spelled(SpellingFinder::new(alphabet)), Self::Plain];
        let bytes = [(b' ', b'+'), (b'\\', b'\\')].into_iter().filter(|(meaning, _)| alphabet[usize::from(*meaning)]);
        sources.extend(bytes.map(|(_, byte)| Self::Byte(byte)));
        sources
    }

    /// Returns the next place at or behind `from` and before `to`.
    fn next(&self, filter: &Filter, text: &[u8], from: usize, to: usize) -> Option<usize> {
        match self {
            Self::Plain => filter.find(text, from, to),
            Self::Spelled(finder) => finder.find(text, from, to),
            Self::Byte(byte) => memchr::memchr(*byte, text.get(from..to)?).map(|at| from + at),
        }
    }
}

/// A way to read the last bytes of a text, in which some character is spelled in another way.
#[derive(Clone, Debug)]
struct Trail {
    state: State,
    /// The first bytes are literal, and stand here.
    plain: Range<usize>,
    /// Where each of the bytes behind them comes from.
    later: VecDeque<usize>,
}

impl Trail {
    /// The literal bytes before a place, as far as they begin a pattern.
    fn literal(matcher: &Matcher, state: State, at: usize) -> Self {
        Self { state, plain: at - matcher.automaton.depth(state)..at, later: VecDeque::new() }
    }

    fn count(&self) -> usize {
        self.plain.len() + self.later.len()
    }

    /// The same with more bytes, all of which come from one place, if that still begins a pattern.
    fn then(&self, matcher: &Matcher, bytes: &[u8], at: usize) -> Option<Self> {
        let (state, kept) = self.next(matcher, bytes)?;
        let skipped = self.count() - kept;
        let plain = self.plain.start + skipped.min(self.plain.len())..self.plain.end;
        let later = self.later.iter().skip(skipped.saturating_sub(self.plain.len())).copied();
        Some(Self { state, plain, later: later.chain(bytes.iter().map(|_| at)).collect() })
    }

    /// The same, of which nobody else needs what was before.
    fn into_then(mut self, matcher: &Matcher, bytes: &[u8], at: usize) -> Option<Self> {
        let (state, kept) = self.next(matcher, bytes)?;
        let skipped = self.count() - kept;
        let plain = skipped.min(self.plain.len());
        self.plain.start += plain;
        self.later.drain(..skipped - plain);
        self.later.extend(bytes.iter().map(|_| at));
        self.state = state;
        Some(self)
    }

    /// The state after more bytes, and how many bytes of those before still count.
    fn next(&self, matcher: &Matcher, bytes: &[u8]) -> Option<(State, usize)> {
        let state = bytes.iter().fold(self.state, |state, byte| match matcher.filter.knows(*byte) {
            true => matcher.automaton.next(state, *byte),
            false => ROOT,
        });
        // A character of which only the last bytes begin a pattern is none of it.
        let kept = matcher.automaton.depth(state).checked_sub(bytes.len())?;
        Some((state, kept))
    }

    /// Where the last so many bytes begin.
    fn start(&self, count: usize) -> usize {
        let index = self.count() - count;
        match index.checked_sub(self.plain.len()) {
            Some(later) => self.later[later],
            None => self.plain.start + index,
        }
    }
}

/// A search through a text that can stop anywhere and go on.
#[derive(Clone, Debug, Default)]
pub(super) struct Scan {
    /// The text read literally.
    plain: State,
    /// Other ways to read it, and where each goes on.
    trails: Vec<(usize, Trail)>,
    found: Vec<Match>,
}

/// An occurrence of a pattern.
#[derive(Clone, Debug)]
struct Match {
    range: Range<usize>,
    /// The base64 digit and the padding that follow it belong to it.
    after: bool,
}

impl Match {
    /// The range with the characters behind it that belong to it, and whether the text shows all of them.
    fn extended(&self, text: &[u8], base: usize) -> (Range<usize>, bool) {
        let Range { start, end } = self.range;
        if !self.after {
            return (start..end, true);
        }
        let follows = text.get(end - base..).unwrap_or_default();
        let digit = usize::from(follows.first().is_some_and(|byte| is_base64(*byte)));
        let padding = follows[digit..].iter().take(2).take_while(|byte| **byte == b'=').count();
        let belongs = digit + padding;
        (start..end + belongs, padding == 2 || belongs < follows.len())
    }
}

impl Scan {
    /// Searches from one place to another and on, until no pattern is begun; says where that is.
    fn run(&mut self, matcher: &Matcher, text: &[u8], from: usize, to: usize) -> usize {
        let mut at = from;
        while at < text.len() && (at <= to || self.plain != ROOT || !self.trails.is_empty()) {
            self.step(matcher, text, 0, at);
            at += 1;
        }
        at
    }

    /// Reads what stands at one place. `text` is the text from `base` on.
    pub(super) fn step(&mut self, matcher: &Matcher, text: &[u8], base: usize, at: usize) {
        let byte = text[at - base];
        if !self.trails.is_empty() || is_special(byte) {
            self.step_trails(matcher, text, base, at);
        }
        self.plain = matcher.automaton.next(self.plain, byte);
        if let Some(pattern) = matcher.automaton.matched(self.plain) {
            let pattern = &matcher.patterns[pattern];
            self.add(pattern, at + 1 - pattern.bytes.len()..at + 1);
        }
    }

    fn step_trails(&mut self, matcher: &Matcher, text: &[u8], base: usize, at: usize) {
        let byte = text[at - base];
        let mut here: Vec<Trail> = Vec::new();
        let plain = self.plain;
        for (_, trail) in self.trails.extract_if(.., |(next, _)| *next == at) {
            // What goes on in the same way is followed once.
            if trail.state != plain && here.iter().all(|other| other.state != trail.state) {
                here.push(trail);
            }
        }
        let mut ways = Vec::new();
        if is_special(byte) && (byte != b'+' || matcher.spaces) {
            readings(&text[at - base..], |reading| ways.push(reading));
            ways.retain(|reading| matcher.filter.knows(reading.bytes()[0]));
        }
        let spelled = ways.clone();
        if matcher.filter.knows(byte) {
            ways.push(Reading::literal(byte));
        }
        here.sort_by_key(|trail| std::cmp::Reverse(trail.count()));
        let Some((last, others)) = ways.split_last() else { return };
        for trail in here {
            for reading in others {
                if let Some(trail) = trail.then(matcher, reading.bytes(), at) {
                    self.follow(matcher, trail, at + reading.length);
                }
            }
            if let Some(trail) = trail.into_then(matcher, last.bytes(), at) {
                self.follow(matcher, trail, at + last.length);
            }
        }
        // Last, since there is room for a few only, and what has gone on for longer is closer to a whole pattern.
        for reading in &spelled {
            if let Some(trail) = Trail::literal(matcher, plain, at).into_then(matcher, reading.bytes(), at) {
                self.follow(matcher, trail, at + reading.length);
            }
        }
    }

    /// Goes on with a trail at a place, and keeps what it has found.
    fn follow(&mut self, matcher: &Matcher, trail: Trail, next: usize) {
        if let Some(pattern) = matcher.automaton.matched(trail.state) {
            let pattern = &matcher.patterns[pattern];
            self.add(pattern, trail.start(pattern.bytes.len())..next);
        }
        // More than a few ways to read one text there are only where nobody could tell them apart.
        if self.trails.len() < MOST_READINGS {
            self.trails.push((next, trail));
        }
    }

    fn add(&mut self, pattern: &Pattern, range: Range<usize>) {
        let after = pattern.after;
        match self.found.last_mut() {
            Some(last) if last.range.start <= range.start && range.start < last.range.end => {
                if range.end >= last.range.end {
                    last.after = after || last.after && range.end == last.range.end;
                    last.range.end = range.end;
                }
            }
            _ => self.found.push(Match { range, after }),
        }
    }

    /// Where the earliest pattern begins that is begun at this place, with so many bytes at least.
    pub(super) fn begun(&self, matcher: &Matcher, at: usize, least: usize) -> Option<usize> {
        let plain = Some(matcher.automaton.open_depth(self.plain)).filter(|depth| *depth >= least.max(1));
        let plain = plain.map(|depth| at - depth);
        let trails = self.trails.iter().filter_map(|(_, trail)| {
            let depth = matcher.automaton.open_depth(trail.state);
            (depth >= least.max(1)).then(|| trail.start(depth))
        });
        trails.chain(plain).min()
    }

    /// Where the earliest match begins that more text may extend.
    pub(super) fn unfinished(&self, text: &[u8], base: usize) -> Option<usize> {
        let unfinished = self.found.iter().filter(|found| !found.extended(text, base).1);
        unfinished.map(|found| found.range.start).min()
    }

    /// Removes the matches that begin before `to`, and returns them in order and merged where they overlap.
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
