//! An Aho-Corasick automaton over pattern bytes.
//!
//! Unlike in the `aho-corasick` crate, a state exposes how many bytes of a pattern it has seen, which redacting
//! truncated text requires.

/// A state: the longest pattern prefix that the bytes so far end with.
pub(super) type State = u32;

/// The state that has seen no pattern byte.
pub(super) const ROOT: State = 0;

#[derive(Debug)]
struct Node {
    /// The byte on the edge to this node.
    byte: u8,
    /// Distance from the root.
    depth: u32,
    /// The first child; 0 if it has none.
    child: State,
    /// The same parent's next child.
    sibling: State,
    /// The state to continue with if no child matches.
    fail: State,
    /// The index of the longest pattern that ends here, plus one.
    matched: u32,
}

/// Finds all patterns in one pass, regardless of their number and length.
#[derive(Debug)]
pub(super) struct Automaton {
    nodes: Vec<Node>,
    /// The root's children by byte.
    root: Box<[State; 256]>,
}

impl Automaton {
    /// Builds the automaton from distinct patterns, none of which is empty.
    pub(super) fn new<'a>(patterns: impl Iterator<Item = &'a [u8]>) -> Self {
        let start = Node { byte: 0, depth: 0, child: 0, sibling: 0, fail: ROOT, matched: 0 };
        let mut automaton = Self { nodes: vec![start], root: Box::new([ROOT; 256]) };
        for (index, pattern) in patterns.enumerate() {
            let end = pattern.iter().fold(ROOT, |state, byte| automaton.child_or_new(state, *byte));
            automaton.nodes[end as usize].matched = index as u32 + 1;
        }
        automaton.link();
        automaton
    }

    fn child_or_new(&mut self, state: State, byte: u8) -> State {
        if let Some(child) = self.child(state, byte) {
            return child;
        }
        let new = self.nodes.len() as State;
        let Node { depth, child: sibling, .. } = self.nodes[state as usize];
        self.nodes.push(Node { byte, depth: depth + 1, child: 0, sibling, fail: ROOT, matched: 0 });
        self.nodes[state as usize].child = new;
        if state == ROOT {
            self.root[usize::from(byte)] = new;
        }
        new
    }

    /// Links each node to its longest proper suffix's node.
    fn link(&mut self) {
        let mut fails = vec![ROOT; self.nodes.len()];
        let mut queue = std::collections::VecDeque::from([ROOT]);
        while let Some(state) = queue.pop_front() {
            let mut child = self.nodes[state as usize].child;
            while child != 0 {
                let Node { byte, sibling, .. } = self.nodes[child as usize];
                let mut fail = ROOT;
                let mut from = state;
                while from != ROOT {
                    from = fails[from as usize];
                    if let Some(found) = self.child(from, byte) {
                        fail = found;
                        break;
                    }
                }
                fails[child as usize] = fail;
                if self.nodes[child as usize].matched == 0 {
                    self.nodes[child as usize].matched = self.nodes[fail as usize].matched;
                }
                queue.push_back(child);
                child = sibling;
            }
            // If every child of the suffix has a counterpart here, the suffix cannot match either. Skipping it keeps
            // the search linear for patterns that repeat themselves.
            let fail = fails[state as usize];
            let is_covered = fail != ROOT && self.covers(state, fail);
            self.nodes[state as usize].fail = if is_covered { self.nodes[fail as usize].fail } else { fail };
        }
    }

    /// Returns `true` if `state` has a child for every byte that `other` has a child for.
    fn covers(&self, state: State, other: State) -> bool {
        let mut child = self.nodes[other as usize].child;
        while child != 0 {
            let Node { byte, sibling, .. } = self.nodes[child as usize];
            if self.child(state, byte).is_none() {
                return false;
            }
            child = sibling;
        }
        true
    }

    fn child(&self, state: State, byte: u8) -> Option<State> {
        if state == ROOT {
            return Some(self.root[usize::from(byte)]).filter(|child| *child != ROOT);
        }
        let mut child = self.nodes[state as usize].child;
        while child != 0 {
            let node = &self.nodes[child as usize];
            if node.byte == byte {
                return Some(child);
            }
            child = node.sibling;
        }
        None
    }

    /// Returns the state after one more byte.
    pub(super) fn next(&self, mut state: State, byte: u8) -> State {
        loop {
            if let Some(child) = self.child(state, byte) {
                return child;
            }
            if state == ROOT {
                return ROOT;
            }
            state = self.nodes[state as usize].fail;
        }
    }

    /// Returns how many of the last bytes begin a pattern.
    pub(super) fn depth(&self, state: State) -> usize {
        self.nodes[state as usize].depth as usize
    }

    /// Like [`depth`](Self::depth), without patterns that are complete and cannot be extended to a longer one.
    pub(super) fn open_depth(&self, mut state: State) -> usize {
        while state != ROOT && self.nodes[state as usize].child == 0 {
            state = self.nodes[state as usize].fail;
        }
        self.depth(state)
    }

    /// Returns the index of the longest pattern that the bytes end with.
    pub(super) fn matched(&self, state: State) -> Option<usize> {
        (self.nodes[state as usize].matched as usize).checked_sub(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_pattern_at_each_position_is_found() {
        let patterns = ["he", "she", "his", "hers", "aaaa"];
        let automaton = Automaton::new(patterns.iter().map(|pattern| pattern.as_bytes()));
        let mut state = ROOT;
        let found: Vec<_> = "ushershisaaaaa"
            .bytes()
            .enumerate()
            .filter_map(|(at, byte)| {
                state = automaton.next(state, byte);
                automaton.matched(state).map(|index| (at, patterns[index]))
            })
            .collect();
        assert_eq!(found, [(3, "she"), (5, "hers"), (8, "his"), (12, "aaaa"), (13, "aaaa")]);
        assert_eq!(automaton.depth(state), 4);
    }

    #[test]
    fn matches_agree_with_a_naive_search() {
        let mut seed = 7_u32;
        let mut letter = || {
            seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            b'a' + (seed >> 24) as u8 % 3
        };
        for round in 1..60 {
            let mut patterns: Vec<Vec<u8>> =
                (0..1 + round % 5).map(|index| (0..1 + (index + round) % 6).map(|_| letter()).collect()).collect();
            patterns.sort();
            patterns.dedup();
            let text: Vec<u8> = (0..200).map(|_| letter()).collect();
            let automaton = Automaton::new(patterns.iter().map(Vec::as_slice));
            let mut state = ROOT;
            for end in 1..=text.len() {
                state = automaton.next(state, text[end - 1]);
                let naive = patterns.iter().filter(|pattern| text[..end].ends_with(pattern)).map(Vec::len).max();
                assert_eq!(automaton.matched(state).map(|index| patterns[index].len()), naive);
                let partial =
                    |pattern: &Vec<u8>| (1..=pattern.len()).filter(|n| text[..end].ends_with(&pattern[..*n])).max();
                assert_eq!(automaton.depth(state), patterns.iter().filter_map(partial).max().unwrap_or(0));
            }
        }
    }
}
