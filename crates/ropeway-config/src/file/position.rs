//! Positions in a file's text.

/// Maximum bytes between two known positions in a line.
const STRIDE: usize = 1024;

/// A line and a column, both starting at one. Zero stands for the file as a whole.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Position {
    pub(super) line: usize,
    pub(super) column: usize,
}

/// Converts byte offsets in a text to positions.
pub(super) struct LineIndex<'a> {
    text: &'a str,
    /// Byte offsets with their positions: the start of each line, and points within long lines.
    known: Vec<(usize, Position)>,
}

impl<'a> LineIndex<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        let mut known = Vec::new();
        let mut start = 0;
        let last = (text.is_empty() || text.ends_with('\n')).then_some("");
        for (index, line) in text.split_inclusive('\n').chain(last).enumerate() {
            let mut position = Position { line: index + 1, column: 1 };
            let mut at = 0;
            known.push((start, position));
            while line.len() - at > STRIDE {
                let next = line.floor_char_boundary(at + STRIDE);
                position.column += line[at..next].chars().count();
                at = next;
                known.push((start + at, position));
            }
            start += line.len();
        }
        Self { text, known }
    }

    /// Returns a byte offset's position.
    pub(super) fn position(&self, at: usize) -> Position {
        let at = self.text.floor_char_boundary(at);
        let after = self.known.partition_point(|(known, _)| *known <= at);
        let (known, position) = self.known[after.saturating_sub(1)];
        Position { column: position.column + self.text[known..at].chars().count(), ..position }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offsets_map_to_positions_in_long_and_short_lines() {
        for text in
            [String::new(), "a\n".into(), "é\nb".into(), format!("é{}\n\n{}", "ä€x".repeat(900), "y".repeat(2050))]
        {
            let lines = LineIndex::new(&text);
            for (at, _) in text.char_indices().chain([(text.len(), ' ')]) {
                let before = &text[..at];
                let line = before.matches('\n').count() + 1;
                let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
                assert_eq!(lines.position(at), Position { line, column });
            }
        }
    }
}
