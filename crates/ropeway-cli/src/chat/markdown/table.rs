//! Markdown tables, which are buffered until their column widths are known.

use super::attributes::Attributes;
use super::inline::InlineParser;
use super::wrap::wrap_text;
use crate::terminal::text::columns;

const SEPARATOR: &str = " │ ";

/// Maximum bytes and rows that are buffered. A larger table is shown as text.
const MAX_BYTES: usize = 256 << 10;
const MAX_ROWS: usize = 1000;

const MAX_COLUMNS: usize = 40;

/// Minimum width that a column keeps for its longest word.
const MAX_WORD: usize = 12;

/// The lines in a possible table.
#[derive(Debug, Default)]
pub(super) struct Table {
    lines: Vec<String>,
    size: usize,
}

type Cell = Vec<(char, Attributes)>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Alignment {
    Left,
    Centre,
    Right,
}

impl Table {
    /// Starts the next line.
    pub(super) fn begin_line(&mut self) {
        self.lines.push(String::new());
    }

    /// Adds a character to the line.
    pub(super) fn push(&mut self, c: char) {
        if let Some(line) = self.lines.last_mut() {
            line.push(c);
            self.size += c.len_utf8();
        }
    }

    /// Removes the last line.
    pub(super) fn end_line(&mut self) -> String {
        self.lines.pop().unwrap_or_default()
    }

    /// Returns `true` if the lines so far can be a table.
    pub(super) fn is_possible(&self) -> bool {
        match &self.lines[..] {
            [header, dashes, ..] => alignments(dashes).is_some_and(|dashes| dashes.len() == cells(header).len()),
            _ => true,
        }
    }

    /// Returns `true` if the buffer is full.
    pub(super) fn is_full(&self) -> bool {
        self.size > MAX_BYTES || self.lines.len() > MAX_ROWS
    }

    /// Returns the lines as written.
    pub(super) fn into_lines(self) -> Vec<String> {
        self.lines
    }

    /// Lays out the table. Returns `None` if it does not fit the width.
    pub(super) fn render(&self, width: usize, keeps_markers: bool) -> Option<Vec<String>> {
        let [header, dashes, rows @ ..] = &self.lines[..] else { return None };
        let alignments = alignments(dashes)?;
        if alignments.len() > MAX_COLUMNS || !self.is_possible() {
            return None;
        }
        let read = |line: &String, base| -> Vec<Cell> {
            let mut row: Vec<Cell> = cells(line).iter().map(|cell| inline(cell, base, keeps_markers)).collect();
            row.resize(alignments.len().max(row.len()), Cell::new());
            row
        };
        let rows: Vec<Vec<Cell>> = std::iter::once(read(header, Attributes::BOLD))
            .chain(rows.iter().map(|row| read(row, Attributes::PLAIN)))
            .collect();
        // Cells beyond the header have no column and must not be lost.
        if rows.iter().any(|row| row.len() > alignments.len()) {
            return None;
        }
        let widths = widths(&rows, alignments.len(), width)?;
        let mut lines = Vec::new();
        for (number, row) in rows.iter().enumerate() {
            lay_out(row, &widths, &alignments, &mut lines);
            if number == 0 {
                let rules: Vec<String> = widths.iter().map(|width| "─".repeat(*width)).collect();
                let mut line = String::new();
                Attributes::FAINT.write(&rules.join("─┼─"), &mut line);
                lines.push(line);
            }
        }
        Some(lines)
    }
}

/// Lays out a row, as high as its tallest cell.
fn lay_out(row: &[Cell], widths: &[usize], alignments: &[Alignment], lines: &mut Vec<String>) {
    let cells: Vec<Vec<(String, usize)>> =
        row.iter().zip(widths).map(|(cell, width)| wrap_text(cell, *width)).collect();
    let height = cells.iter().map(Vec::len).max().unwrap_or(0);
    let nothing = (String::new(), 0);
    for at in 0..height {
        let mut line = String::new();
        for (column, cell) in cells.iter().enumerate() {
            if column > 0 {
                Attributes::FAINT.write(SEPARATOR, &mut line);
            }
            let (text, used) = cell.get(at).unwrap_or(&nothing);
            let space = widths[column].saturating_sub(*used);
            let before = match alignments[column] {
                Alignment::Left => 0,
                Alignment::Centre => space / 2,
                Alignment::Right => space,
            };
            line.push_str(&" ".repeat(before));
            line.push_str(text);
            if column + 1 < cells.len() {
                line.push_str(&" ".repeat(space - before));
            }
        }
        lines.push(line.trim_end_matches(' ').to_owned());
    }
}

/// Returns the column widths, or `None` if they do not fit.
fn widths(rows: &[Vec<Cell>], count: usize, width: usize) -> Option<Vec<usize>> {
    let room = width.checked_sub(columns(SEPARATOR) * count.saturating_sub(1))?;
    let text = |cell: &Cell| cell.iter().map(|(c, _)| *c).collect::<String>();
    let mut natural = vec![1; count];
    let mut narrowest = vec![1; count];
    for (column, cell) in rows.iter().flat_map(|row| row.iter().enumerate()) {
        let text = text(cell);
        let word = text.split(' ').map(columns).max().unwrap_or(0);
        natural[column] = natural[column].max(columns(&text));
        narrowest[column] = narrowest[column].max(word.min(MAX_WORD));
    }
    if narrowest.iter().sum::<usize>() > room {
        return None;
    }
    let mut widths: Vec<usize> = natural.iter().map(|width| (*width).min(room)).collect();
    while widths.iter().sum::<usize>() > room {
        let widest = widths
            .iter_mut()
            .zip(&narrowest)
            .filter(|(width, least)| **width > **least)
            .map(|(width, _)| width)
            .max()?;
        *widest -= 1;
    }
    Some(widths)
}

fn inline(text: &str, base: Attributes, keeps_markers: bool) -> Cell {
    let mut parser = InlineParser::new(keeps_markers);
    parser.begin(base);
    text.chars().for_each(|c| parser.push(c));
    parser.finish();
    parser.take().collect()
}

/// Splits a row at unescaped bars.
fn cells(line: &str) -> Vec<String> {
    let line = line.trim();
    let inner = line.strip_prefix('|').unwrap_or(line);
    let mut cells = vec![String::new()];
    let mut is_escaped = false;
    for c in inner.chars() {
        if c == '|' && !is_escaped {
            cells.push(String::new());
        } else if let Some(cell) = cells.last_mut() {
            if c == '|' {
                cell.pop();
            }
            cell.push(c);
        }
        is_escaped = c == '\\' && !is_escaped;
    }
    // A bar at the end of a row starts no cell.
    if cells.last().is_some_and(|cell| cell.trim().is_empty()) && cells.len() > 1 {
        cells.pop();
    }
    cells.iter().map(|cell| cell.trim().to_owned()).collect()
}

/// Parses the delimiter row.
fn alignments(line: &str) -> Option<Vec<Alignment>> {
    let alignment = |cell: &String| {
        let dashes = cell.trim_start_matches(':').trim_end_matches(':');
        let is_dashes = !dashes.is_empty() && dashes.chars().all(|c| c == '-') && cell.len() - dashes.len() <= 2;
        is_dashes.then(|| match (cell.starts_with(':'), cell.ends_with(':')) {
            (true, true) => Alignment::Centre,
            (false, true) => Alignment::Right,
            _ => Alignment::Left,
        })
    };
    cells(line).iter().map(alignment).collect()
}
