//! Characters that show nothing, or that change how the text around them is shown.
//!
//! Another party's text can use them to look like another text: in an approval, in a terminal, or in a list of changes. The
//! classes follow Unicode's properties [`Default_Ignorable_Code_Point`], [`Bidi_Control`] and [`White_Space`].
//!
//! [`Default_Ignorable_Code_Point`]: https://www.unicode.org/reports/tr44/#Default_Ignorable_Code_Point
//! [`Bidi_Control`]: https://www.unicode.org/reports/tr44/#Bidi_Control
//! [`White_Space`]: https://www.unicode.org/reports/tr44/#White_Space

/// The byte order mark, which shows nothing in a text.
pub const BYTE_ORDER_MARK: char = '\u{feff}';

/// Returns `true` for characters that an approved text's reader could miss: control characters, characters without width, signs
/// in some scripts that count as formatting, line separators, and blanks other than a space.
///
/// The selectors for text and emoji presentation are ordinary text.
pub fn hides_text(c: char) -> bool {
    c.is_control()
        || (is_invisible(c) && !matches!(c, '\u{fe0e}' | '\u{fe0f}'))
        || is_format_sign(c)
        || is_line_break(c)
        || is_unusual_blank(c)
        || is_filler(c)
}

/// Returns `true` for characters without width, which reorder, join, select or hide others, except the [fillers](is_filler).
pub fn is_invisible(c: char) -> bool {
    matches!(c,
        '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{17b4}' | '\u{17b5}' | '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200f}'
        | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{fe00}'..='\u{fe0f}' | BYTE_ORDER_MARK | '\u{fff0}'..='\u{fffb}'
        | '\u{1bca0}'..='\u{1bca3}' | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e0fff}')
}

/// Returns `true` for characters that act on a terminal or on the text around them: control characters, marks that change the text
/// direction, line separators and the byte order mark.
pub fn controls_display(c: char) -> bool {
    c.is_control() || changes_direction(c) || is_line_break(c) || c == BYTE_ORDER_MARK
}

/// Returns `true` for marks that change the text direction.
pub fn changes_direction(c: char) -> bool {
    matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Returns `true` for every character that some reader treats as a line break.
pub fn is_line_break(c: char) -> bool {
    matches!(c, '\n' | '\r' | '\u{b}' | '\u{c}' | '\u{85}' | '\u{2028}' | '\u{2029}')
}

/// Returns `true` for letters that show nothing: the Hangul fillers and the empty Braille pattern.
pub fn is_filler(c: char) -> bool {
    is_hangul_filler(c) || c == '\u{2800}'
}

/// Returns `true` for the Hangul fillers, which unlike the empty Braille pattern do not show as a space everywhere.
pub fn is_hangul_filler(c: char) -> bool {
    matches!(c, '\u{115f}' | '\u{1160}' | '\u{3164}' | '\u{ffa0}')
}

/// Format characters that some fonts show: number signs and marks in Arabic, Syriac, Kaithi and Egyptian text.
fn is_format_sign(c: char) -> bool {
    matches!(c, '\u{600}'..='\u{605}' | '\u{6dd}' | '\u{70f}' | '\u{110bd}' | '\u{110cd}' | '\u{13430}'..='\u{1345f}')
}

/// Blanks that look like a space, or narrower.
fn is_unusual_blank(c: char) -> bool {
    matches!(c, '\u{a0}' | '\u{1680}' | '\u{2000}'..='\u{200a}' | '\u{202f}' | '\u{205f}')
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sets that this module's callers had before, from the definitions that were compared, summaries, server messages, and three
    /// places in the terminal.
    const DIFFERENCES: &[(u32, u32)] = &[
        (0xa0, 0xa0),
        (0xad, 0xad),
        (0x34f, 0x34f),
        (0x61c, 0x61c),
        (0x115f, 0x1160),
        (0x1680, 0x1680),
        (0x17b4, 0x17b5),
        (0x180b, 0x180f),
        (0x2000, 0x200f),
        (0x2028, 0x202f),
        (0x205f, 0x206f),
        (0x2800, 0x2800),
        (0x3164, 0x3164),
        (0xfe00, 0xfe0d),
        (0xfeff, 0xfeff),
        (0xffa0, 0xffa0),
        (0xfff0, 0xfffb),
        (0x1bca0, 0x1bca3),
        (0x1d173, 0x1d17a),
        (0xe0000, 0xe0fff),
    ];
    const APPROVALS: &[(u32, u32)] =
        &[(0x600, 0x605), (0x6dd, 0x6dd), (0x70f, 0x70f), (0x110bd, 0x110bd), (0x110cd, 0x110cd), (0x13430, 0x1345f)];
    const OAUTH: &[(u32, u32)] =
        &[(0x200b, 0x200f), (0x202a, 0x202e), (0x2060, 0x206f), (0xfeff, 0xfeff), (0xe0000, 0xe0fff)];
    const TERMINAL_DIRECTION: &[(u32, u32)] = &[(0x200e, 0x200f), (0x202a, 0x202e), (0x2066, 0x2069)];
    const TERMINAL_HIDDEN: &[(u32, u32)] = &[
        (0xad, 0xad),
        (0x34f, 0x34f),
        (0x17b4, 0x17b5),
        (0x180b, 0x180f),
        (0x200b, 0x200d),
        (0x2060, 0x2064),
        (0x206a, 0x206f),
        (0xfff0, 0xfffb),
        (0x1bca0, 0x1bca3),
        (0x1d173, 0x1d17a),
        (0xe0000, 0xe0fff),
    ];
    const LINE_SEPARATORS: &[(u32, u32)] = &[(0x2028, 0x2029), (0x85, 0x85), (0xa, 0xd)];
    const HANGUL_FILLERS: &[(u32, u32)] = &[(0x115f, 0x1160), (0x3164, 0x3164), (0xffa0, 0xffa0)];

    fn all() -> impl Iterator<Item = char> {
        '\0'..=char::MAX
    }

    fn in_any(sets: &[&[(u32, u32)]], c: char) -> bool {
        sets.iter().copied().flatten().any(|(first, last)| (*first..=*last).contains(&u32::from(c)))
    }

    #[test]
    fn a_text_is_hidden_by_every_character_of_the_earlier_sets() {
        for c in all() {
            let is_known = c.is_control() || in_any(&[DIFFERENCES, APPROVALS], c);
            assert_eq!(hides_text(c), is_known, "{c:?}");
            let is_in_part = in_any(&[OAUTH, TERMINAL_DIRECTION, TERMINAL_HIDDEN, HANGUL_FILLERS, LINE_SEPARATORS], c);
            assert!(hides_text(c) || !is_in_part, "{c:?}");
        }
    }

    #[test]
    fn an_invisible_character_is_in_the_earlier_sets_of_servers_and_terminals() {
        for c in all() {
            assert!(is_invisible(c) || !in_any(&[OAUTH, TERMINAL_DIRECTION, TERMINAL_HIDDEN], c), "{c:?}");
            assert!(!is_invisible(c) || hides_text(c) || matches!(c, '\u{fe0e}' | '\u{fe0f}'), "{c:?}");
        }
    }

    #[test]
    fn the_display_is_controlled_by_direction_marks_and_line_breaks() {
        for c in all() {
            let acts = in_any(&[TERMINAL_DIRECTION, LINE_SEPARATORS], c) || matches!(c, '\u{61c}' | '\u{feff}');
            assert_eq!(controls_display(c), acts || c.is_control(), "{c:?}");
            assert_eq!(changes_direction(c), in_any(&[TERMINAL_DIRECTION], c) || c == '\u{61c}', "{c:?}");
            assert_eq!(is_line_break(c), in_any(&[LINE_SEPARATORS], c), "{c:?}");
            assert_eq!(is_filler(c), in_any(&[HANGUL_FILLERS], c) || c == '\u{2800}', "{c:?}");
        }
    }
}
