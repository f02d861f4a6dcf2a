//! Text attributes for terminals.

use std::ops::BitOr;

use anstyle::{AnsiColor, Effects, Style};

/// Text attributes, as a bit set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Attributes(u8);

impl Attributes {
    pub(super) const PLAIN: Self = Self(0);
    pub(super) const BOLD: Self = Self(1);
    pub(super) const ITALIC: Self = Self(2);
    pub(super) const STRUCK: Self = Self(4);
    pub(super) const UNDERLINED: Self = Self(8);
    pub(super) const CODE: Self = Self(16);
    pub(super) const FAINT: Self = Self(32);

    fn has(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    /// Returns the terminal style.
    fn style(self) -> Style {
        let mut effects = Effects::new();
        for (attribute, effect) in [
            (Self::BOLD, Effects::BOLD),
            (Self::ITALIC, Effects::ITALIC),
            (Self::STRUCK, Effects::STRIKETHROUGH),
            (Self::UNDERLINED, Effects::UNDERLINE),
            (Self::FAINT, Effects::DIMMED),
        ] {
            if self.has(attribute) {
                effects = effects.insert(effect);
            }
        }
        let colour = self.has(Self::CODE).then(|| AnsiColor::Cyan.into());
        Style::new().fg_color(colour).effects(effects)
    }

    /// Appends styled text and resets the style.
    pub(super) fn write(self, text: &str, out: &mut String) {
        if self == Self::PLAIN || text.is_empty() {
            out.push_str(text);
        } else {
            let style = self.style();
            out.push_str(&format!("{style}{text}{style:#}"));
        }
    }
}

impl BitOr for Attributes {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}
