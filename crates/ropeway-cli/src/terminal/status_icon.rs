//! Status icons: a symbol, a colour and a word for each status.

use anstyle::{AnsiColor, Style};
use ropeway_bridge::registry::ServerState;

use crate::terminal::table::Cell;

/// A server's or check's status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StatusIcon {
    /// Working.
    Good,
    /// In progress, or working with a limitation.
    Half,
    /// Disabled.
    Off,
    /// Failed.
    Bad,
}

impl StatusIcon {
    /// Returns the icon for a server's state.
    pub(crate) fn for_state(state: &ServerState) -> Self {
        match state {
            ServerState::Ready { .. } => Self::Good,
            ServerState::Cached { .. } | ServerState::Connecting | ServerState::FilteredToZero { .. } => Self::Half,
            ServerState::Disabled
            | ServerState::Skipped { .. }
            | ServerState::Invalid { .. }
            | ServerState::NotStarted => Self::Off,
            _ => Self::Bad,
        }
    }

    pub(crate) fn symbol(self) -> char {
        match self {
            Self::Good => '●',
            Self::Half => '◐',
            Self::Off => '○',
            Self::Bad => '✗',
        }
    }

    pub(crate) fn style(self) -> Style {
        match self {
            Self::Good => AnsiColor::Green.on_default(),
            Self::Half => AnsiColor::Yellow.on_default(),
            Self::Off => Style::new().dimmed(),
            Self::Bad => AnsiColor::Red.on_default(),
        }
    }

    /// Returns a table cell with the symbol and a word.
    pub(crate) fn cell(self, word: &str) -> Cell {
        Cell::new(&format!("{} {word}", self.symbol())).styled(self.style())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::terminal::text::columns;

    #[test]
    fn every_mark_differs_without_colour_and_takes_one_column() {
        let marks = [StatusIcon::Good, StatusIcon::Half, StatusIcon::Off, StatusIcon::Bad];
        let signs = marks.map(|mark| mark.symbol().to_string());
        assert_eq!(signs, ["●", "◐", "○", "✗"]);
        assert!(signs.iter().all(|sign| columns(sign) == 1));
    }
}
