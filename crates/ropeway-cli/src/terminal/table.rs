//! Tables that fit into a terminal.

use anstyle::Style;

use crate::terminal::text::{clean_line, columns, cut, wrap};

const HEADER: Style = Style::new().dimmed();

/// Spaces between columns.
const GAP: usize = 2;

/// Default minimum width for the last column; other columns shrink first.
const NARROWEST_LAST: usize = 24;

/// Minimum width for other columns.
const NARROWEST: usize = 6;

/// How text in the last column that does not fit is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Overflow {
    /// Wrapped.
    Wrap,
    /// Cut with `…`.
    Cut,
}

/// A cell with clean text in one style.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Cell {
    text: String,
    style: Style,
    hang: usize,
}

impl Cell {
    /// Creates a cell. Control characters are removed.
    pub(crate) fn new(text: &str) -> Self {
        Self { text: clean_line(text), ..Self::default() }
    }

    /// Sets the style.
    pub(crate) fn styled(mut self, style: Style) -> Self {
        self.style = style;
        self
    }

    /// Indents wrapped lines.
    pub(crate) fn hanging(mut self, columns: usize) -> Self {
        self.hang = columns;
        self
    }
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Table {
    header: Vec<Cell>,
    rows: Vec<Vec<Cell>>,
    overflow: Overflow,
    narrowest_last: usize,
    /// Columns to omit in narrow terminals, least important first.
    optional: Vec<usize>,
}

impl Table {
    /// Creates a table. An empty header is not shown.
    pub(crate) fn new(header: &[&str], overflow: Overflow) -> Self {
        let header = header.iter().map(|name| Cell::new(name).styled(HEADER)).collect();
        Self { header, rows: Vec::new(), overflow, narrowest_last: NARROWEST_LAST, optional: Vec::new() }
    }

    /// Sets the last column's minimum width.
    pub(crate) fn with_narrowest_last(mut self, columns: usize) -> Self {
        self.narrowest_last = columns;
        self
    }

    /// Sets the columns to omit in narrow terminals, by index.
    pub(crate) fn with_optional(mut self, columns: &[usize]) -> Self {
        self.optional = columns.to_vec();
        self
    }

    pub(crate) fn row(&mut self, cells: impl IntoIterator<Item = Cell>) {
        self.rows.push(cells.into_iter().collect());
    }

    /// Formats the table within `width` columns, if limited, after `indent` spaces.
    pub(crate) fn render(&self, width: Option<usize>, indent: usize) -> String {
        let room = width.map(|width| width.saturating_sub(indent));
        let fitting = room.filter(|_| !self.optional.is_empty()).map(|room| self.fitting(room));
        fitting.as_ref().unwrap_or(self).lay_out(width, indent)
    }

    /// Drops optional columns that do not fit.
    fn fitting(&self, room: usize) -> Self {
        let mut table = self.clone();
        let mut left_out = Vec::new();
        for column in std::mem::take(&mut table.optional) {
            // A long cell shrinks before a column is dropped.
            let most = (room / 4).max(2 * NARROWEST);
            let mut widths: Vec<usize> = table.widths(None).into_iter().map(|width| width.min(most)).collect();
            if let Some(last) = widths.last_mut() {
                *last = (*last).min(table.narrowest_last);
            }
            if widths.iter().sum::<usize>() + GAP * widths.len().saturating_sub(1) <= room {
                break;
            }
            // Dropped columns shift the index.
            let at = column - left_out.iter().filter(|gone| **gone < column).count();
            if at + 1 == widths.len() {
                table.narrowest_last = NARROWEST_LAST;
            }
            table.rows.iter_mut().chain([&mut table.header]).filter(|row| at < row.len()).for_each(|row| {
                row.remove(at);
            });
            left_out.push(column);
        }
        table
    }

    fn lay_out(&self, width: Option<usize>, indent: usize) -> String {
        let widths = self.widths(width.map(|width| width.saturating_sub(indent)));
        let header = Some(&self.header).filter(|header| !header.is_empty());
        header.into_iter().chain(&self.rows).map(|row| self.lines(row, &widths, indent)).collect()
    }

    /// Returns each column's width.
    fn widths(&self, most: Option<usize>) -> Vec<usize> {
        let count = self.rows.iter().chain([&self.header]).map(Vec::len).max().unwrap_or(0);
        let natural = |column: usize| {
            let cells = self.rows.iter().chain([&self.header]).filter_map(|row| row.get(column));
            cells.map(|cell| columns(&cell.text) + cell.hang).max().unwrap_or(0)
        };
        let mut widths: Vec<usize> = (0..count).map(natural).collect();
        let (Some(most), Some((last, others))) = (most, widths.split_last_mut()) else { return widths };
        others.iter_mut().for_each(|width| *width = (*width).min(most));
        // The widest of the other columns shrinks until the last one fits.
        let room = most.saturating_sub(GAP * others.len() + (*last).min(self.narrowest_last));
        while others.iter().sum::<usize>() > room
            && let Some(widest) = others.iter_mut().max().filter(|widest| **widest > NARROWEST)
        {
            *widest -= 1;
        }
        let taken: usize = others.iter().map(|width| width + GAP).sum();
        *last = (*last).min(most.saturating_sub(taken).max(1));
        widths
    }

    /// Formats a row, which may wrap in its last cell.
    fn lines(&self, row: &[Cell], widths: &[usize], indent: usize) -> String {
        let mut start = " ".repeat(indent);
        let mut used = indent;
        for (at, (cell, width)) in row.iter().zip(widths).enumerate() {
            let style = cell.style;
            if at + 1 < widths.len() {
                let text = cut(&cell.text, *width);
                let space = " ".repeat(width + GAP - columns(&text));
                start.push_str(&format!("{style}{text}{style:#}{space}"));
                used += width + GAP;
                continue;
            }
            let text = match self.overflow {
                Overflow::Cut => cut(&cell.text, *width),
                Overflow::Wrap => wrap(&cell.text, width.saturating_sub(cell.hang), 0),
            };
            let space = " ".repeat(used + cell.hang);
            let lines = text.lines().map(|line| format!("{style}{line}{style:#}"));
            start.push_str(&lines.collect::<Vec<_>>().join(&format!("\n{space}")));
        }
        format!("{}\n", start.trim_end())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plain(table: &Table, width: Option<usize>) -> String {
        anstream::adapter::strip_str(&table.render(width, 0)).to_string()
    }

    fn table(overflow: Overflow) -> Table {
        let mut table = Table::new(&["NAME", "TOOLS", "WHAT"], overflow);
        table.row(["files", "12", "reads and writes the files of one folder and no other"].map(Cell::new));
        table.row(["日本", "3", "wide"].map(Cell::new));
        table.row(["empty"].map(Cell::new));
        table
    }

    #[test]
    fn columns_are_aligned_by_display_width() {
        let expected = "\
NAME   TOOLS  WHAT
files  12     reads and writes the files of one folder and no other
日本   3      wide
empty
";
        assert_eq!(plain(&table(Overflow::Cut), None), expected);
        assert_eq!(plain(&table(Overflow::Wrap), Some(100)), expected);
    }

    #[test]
    fn a_last_column_that_does_not_fit_is_cut_or_wrapped() {
        let cut = "\
NAME   TOOLS  WHAT
files  12     reads and writes the fi…
日本   3      wide
empty
";
        assert_eq!(plain(&table(Overflow::Cut), Some(38)), cut);
        let wrapped = "\
NAME   TOOLS  WHAT
files  12     reads and writes the
              files of one folder and
              no other
日本   3      wide
empty
";
        assert_eq!(plain(&table(Overflow::Wrap), Some(38)), wrapped);
    }

    #[test]
    fn a_cell_that_hangs_keeps_its_sign_apart() {
        let mut table = Table::new(&[], Overflow::Wrap);
        table.row([Cell::new("fix"), Cell::new("→ install the other one").hanging(2)]);
        assert_eq!(plain(&table, Some(20)), "fix  → install the\n       other one\n");
    }

    #[test]
    fn a_long_first_column_gives_way_to_the_last() {
        let mut table = Table::new(&[], Overflow::Cut);
        table.row([Cell::new(&"x".repeat(90)), Cell::new(&"y".repeat(90))]);
        let line = plain(&table, Some(60));
        assert_eq!(line, format!("{}…  {}…\n", "x".repeat(33), "y".repeat(23)));
    }

    #[test]
    fn a_last_column_that_matters_least_gives_way_first() {
        let mut table = Table::new(&[], Overflow::Cut).with_narrowest_last(5);
        table.row([Cell::new(&"x".repeat(30)), Cell::new(&"y".repeat(30))]);
        assert_eq!(plain(&table, Some(40)), format!("{}  {}…\n", "x".repeat(30), "y".repeat(7)));
    }

    #[test]
    fn no_terminal_is_too_narrow() {
        for width in 0..40 {
            let text = plain(&table(Overflow::Cut), Some(width));
            assert_eq!(text.lines().count(), 4, "{width}: {text}");
            assert!(text.lines().all(|line| columns(line) <= width.max(18)), "{width}: {text}");
        }
    }

    #[test]
    fn optional_columns_give_way_one_after_the_other() {
        let mut table = Table::new(&["A", "B", "C", "D"], Overflow::Cut).with_optional(&[3, 1]);
        table.row(["aaaa", "bbbb", "cccc", "dddd"].map(Cell::new));
        assert_eq!(plain(&table, Some(22)), "A     B     C     D\naaaa  bbbb  cccc  dddd\n");
        assert_eq!(plain(&table, Some(21)), "A     B     C\naaaa  bbbb  cccc\n");
        assert_eq!(plain(&table, Some(15)), "A     C\naaaa  cccc\n");
        assert_eq!(plain(&table, None), "A     B     C     D\naaaa  bbbb  cccc  dddd\n");
    }

    #[test]
    fn text_of_a_server_cannot_break_the_table() {
        let mut table = Table::new(&[], Overflow::Wrap);
        table.row([Cell::new("a\u{1b}[2J\nb"), Cell::new("c\u{9b}31m\nd")]);
        assert_eq!(table.render(Some(80), 2), "  a b  c d\n");
    }

    #[test]
    fn styles_go_around_the_text_and_not_around_the_space() {
        let mut table = Table::new(&[], Overflow::Cut);
        table.row([Cell::new("a").styled(Style::new().bold()), Cell::new("b")]);
        table.row([Cell::new("abc"), Cell::new("b")]);
        assert_eq!(table.render(None, 0), "\u{1b}[1ma\u{1b}[0m    b\nabc  b\n");
    }
}
