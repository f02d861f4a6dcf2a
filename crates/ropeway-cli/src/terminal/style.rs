//! Styled text: warnings and faint lines.

use anstyle::{AnsiColor, Style};

use crate::terminal::text::clean_line;

const FAINT: Style = Style::new().dimmed();

/// Formats a warning line. Strips escape sequences.
pub(crate) fn warning(words: &str) -> String {
    const WARNING: Style = AnsiColor::Yellow.on_default().bold();
    format!("{WARNING}warning:{WARNING:#} {}\n", clean_line(words))
}

/// Dims every line in a text.
pub(crate) fn faint(text: &str) -> String {
    let line = |line: &str| {
        let words = line.trim_start();
        format!("{}{FAINT}{words}{FAINT:#}\n", &line[..line.len() - words.len()])
    };
    text.lines().map(line).collect()
}
