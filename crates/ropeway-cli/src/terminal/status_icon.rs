//! A mark: how something stands, as a sign, a colour and a word, so that no one of them is the only one.

use anstyle::{AnsiColor, Style};
use ropeway::registry::ServerState;

use crate::terminal::table::Cell;

/// How something stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StatusIcon {
    /// It works.
    Good,
    /// It is on the way, or works with a reservation.
    Half,
    /// It is not wanted.
    Off,
    /// It does not work.
    Bad,
}

impl StatusIcon {
    /// How a server stands.
    pub(crate) fn for_state(outcome: &ServerState) -> Self {
        match outcome {
            ServerState::Ready { .. } => Self::Good,
            ServerState::Cached { .. } | ServerState::Connecting | ServerState::FilteredToZero { .. } => Self::Half,
            ServerState::Disabled
            | ServerState::Skipped { .. }
            | ServerState::Invalid { .. }
            | ServerState::NotStarted => Self::Off,
            _ => Self::Bad,
        }
    }

    /// The sign.
    pub(crate) fn symbol(self) -> char {
        match self {
            Self::Good => '●',
            Self::Half => '◐',
            Self::Off => '○',
            Self::Bad => '✗',
        }
    }

    /// The colour.
    pub(crate) fn style(self) -> Style {
        match self {
            Self::Good => AnsiColor::Green.on_default(),
            Self::Half => AnsiColor::Yellow.on_default(),
            Self::Off => Style::new().dimmed(),
            Self::Bad => AnsiColor::Red.on_default(),
        }
    }

    /// The sign and a word, for a table.
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
