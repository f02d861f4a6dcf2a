//! File excerpts: a line with a marker under a column.

use anstyle::{AnsiColor, Style};

use crate::secrets::literal;
use crate::terminal::text::{clean, clusters, columns, cut};

const FAINT: Style = Style::new().dimmed();
const HERE: Style = AnsiColor::Red.on_default().bold();

/// Replacement for secrets.
const HIDDEN: &str = "***";

/// Columns shown before the marked column.
const BEFORE: usize = 30;

/// Formats a line with a marker. Returns an empty string if the line does not exist.
pub(crate) fn excerpt(text: &str, line: usize, column: usize, width: usize) -> String {
    let Some(written) = line.checked_sub(1).and_then(|index| text.lines().nth(index)) else { return String::new() };
    let number = line.to_string();
    let gutter = " ".repeat(number.len());
    let (shown, offset) = window(&visible(written, column), width.saturating_sub(number.len() + 6));
    let mark = format!("{}{HERE}^{HERE:#}", " ".repeat(offset));
    format!("  {FAINT}{number} │{FAINT:#} {shown}\n  {gutter} {FAINT}│{FAINT:#} {mark}\n")
}

/// Splits a line at a column, with secrets and control characters removed.
fn visible(line: &str, column: usize) -> [String; 2] {
    let at = line.char_indices().nth(column.saturating_sub(1)).map_or(line.len(), |(at, _)| at);
    let mut parts = [String::new(), String::new()];
    let mut secrets = literal::secrets_in_line(line).into_iter().peekable();
    for (from, c) in line.char_indices() {
        // The ranges are sorted and do not overlap.
        while secrets.next_if(|secret| secret.end <= from).is_some() {}
        match secrets.peek().filter(|secret| secret.contains(&from)) {
            // A secret that contains the column belongs to the second part.
            Some(secret) if from == secret.start => parts[usize::from(secret.end > at)].push_str(HIDDEN),
            Some(_) => {}
            None => parts[usize::from(from >= at)].push(c),
        }
    }
    parts.map(|part| clean(&part).replace('\t', "    ").replace('\n', " "))
}

/// Cuts a line to a width. Returns it with the marked column.
fn window([before, after]: &[String; 2], width: usize) -> (String, usize) {
    let whole = format!("{before}{after}");
    if columns(whole.trim_end()) <= width {
        return (whole.trim_end().to_owned(), columns(before));
    }
    let most = BEFORE.min(width / 2);
    let start = if columns(before) > most {
        format!("…{}", with_exit(before, most.saturating_sub(1)))
    } else {
        before.clone()
    };
    let offset = columns(&start);
    (cut(&format!("{start}{after}"), width), offset)
}

/// Returns a text's end, at most `most` columns.
fn with_exit(text: &str, most: usize) -> &str {
    let (mut used, mut start) = (0, text.len());
    for (cluster, columns) in clusters(text).rev() {
        used += columns;
        if used > most {
            break;
        }
        start -= cluster.len();
    }
    &text[start..]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plain(text: &str, line: usize, column: usize, width: usize) -> String {
        anstream::adapter::strip_str(&excerpt(text, line, column, width)).to_string()
    }

    #[test]
    fn the_mark_stands_under_the_place() {
        let text = "servers:\n  - alias: a\n    transport: stdoi\n";
        assert_eq!(plain(text, 3, 16, 80), "  3 │     transport: stdoi\n    │                ^\n");
        assert_eq!(plain(text, 1, 1, 80), "  1 │ servers:\n    │ ^\n");
        assert_eq!(plain(text, 1, 90, 80), "  1 │ servers:\n    │         ^\n");
        assert_eq!(plain(text, 9, 1, 80) + &plain(text, 0, 0, 80), "");
    }

    #[test]
    fn wide_and_control_characters_do_not_move_the_marker() {
        assert_eq!(plain("日本: x", 1, 5, 80), "  1 │ 日本: x\n    │       ^\n");
        assert_eq!(plain("\ta\u{1b}[2J: x", 1, 9, 80), "  1 │     a: x\n    │        ^\n");
    }

    #[test]
    fn a_long_line_is_cut_around_the_place() {
        let long = format!("{}HERE{}", "a".repeat(100), "b".repeat(100));
        let expected = format!("  1 │ …{}HERE{}…\n    │ {}^\n", "a".repeat(25), "b".repeat(22), " ".repeat(26));
        assert_eq!(plain(&long, 1, 101, 60), expected);
        for width in 0..40 {
            for column in [1, 50, 101, 204, 300] {
                assert_eq!(plain(&long, 1, column, width).lines().count(), 2, "{width} {column}");
            }
        }
    }

    #[test]
    fn secrets_in_the_line_are_hidden_and_the_mark_is_still_right() {
        let line = "  - {env: {TOKEN: s3cret-s3cret}, transport: stdoi}";
        let expected = "  1 │   - {env: {TOKEN: ***}, transport: stdoi}\n    │                                    ^\n";
        assert_eq!(plain(line, 1, 46, 80), expected);
        assert_eq!(plain("TOKEN: s3cret-s3cret", 1, 8, 80), "  1 │ TOKEN: ***\n    │        ^\n");
        assert_eq!(plain("TOKEN: s3cret-s3cret", 1, 12, 80), "  1 │ TOKEN: ***\n    │        ^\n");
    }
}
