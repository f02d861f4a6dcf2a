//! A small stroke font, which scales to any size.

/// Capital height, in grid units.
pub(super) const CAPITALS: f64 = 6.0;
/// The gap between two characters.
const GAP: f64 = 1.9;
/// A space's width.
const SPACE: f64 = 1.2;

/// A character, in grid units.
pub(super) struct Glyph {
    /// Lines through points.
    pub(super) strokes: Vec<Vec<(f64, f64)>>,
    /// The next character's offset.
    pub(super) advance: f64,
}

/// Returns a text's width if its capitals are `size` high.
pub(super) fn width(text: &str, size: f64) -> f64 {
    let units: f64 = text.chars().map(|character| glyph(character).advance).sum();
    (units - GAP).max(0.0) * size / CAPITALS
}

/// Returns a character's strokes, or a box for an unknown one.
pub(super) fn glyph(character: char) -> Glyph {
    let number = |byte: u8| f64::from(byte.saturating_sub(b'0'));
    let point = |point: &str| match point.as_bytes() {
        [x, y] => (number(*x), number(*y)),
        _ => (0.0, 0.0),
    };
    let strokes: Vec<Vec<(f64, f64)>> = match drawing(character) {
        "" => Vec::new(),
        drawing => drawing.split('/').map(|stroke| stroke.split(' ').map(point).collect()).collect(),
    };
    let widest = strokes.iter().flatten().map(|(x, _)| *x).fold(0.0, f64::max);
    let wide = match character {
        '0'..='9' => 4.0,
        _ if strokes.is_empty() => SPACE,
        _ => widest,
    };
    Glyph { strokes, advance: wide + GAP }
}

/// Returns strokes as points of two digits, column and row. The base line is row 6; lowercase letters start at row 2.
fn drawing(character: char) -> &'static str {
    match character {
        ' ' | '\u{a0}' | '\t' => "",
        '!' => "00 04/06 06",
        '"' | '“' | '”' => "00 01/20 21",
        '#' => "10 16/30 36/02 42/04 44",
        '$' => "41 30 10 01 02 13 33 44 45 36 16 05/20 26",
        '%' => "00 10 11 01 00/35 45 46 36 35/40 06",
        '&' => "46 12 11 20 31 32 04 05 16 26 44",
        '\'' | '’' | '‘' => "00 01",
        '(' => "10 01 05 16",
        ')' => "00 11 15 06",
        '*' => "11 35/31 15/03 43",
        '+' => "11 15/03 23",
        ',' => "15 16 07",
        '-' | '−' => "03 23",
        '–' | '—' => "03 43",
        '.' => "06 06",
        '/' => "30 06",
        '0' => "10 30 41 45 36 16 05 01 10",
        '1' => "11 20 26/16 36",
        '2' => "01 10 30 41 42 06 46",
        '3' => "00 40 22 32 43 45 36 16 05",
        '4' => "36 30 04 44",
        '5' => "40 00 02 32 43 45 36 16 05",
        '6' => "40 20 02 05 16 36 45 43 32 12 03",
        '7' => "00 40 16",
        '8' => "10 30 41 42 33 13 02 01 10/13 04 05 16 36 45 44 33",
        '9' => "43 34 14 03 01 10 30 41 44 26 06",
        ':' => "03 03/06 06",
        ';' => "13 13/15 16 07",
        '<' => "31 03 35",
        '=' => "02 32/04 34",
        '>' => "01 33 05",
        '?' => "01 10 30 41 42 23 24/26 26",
        '@' => "34 33 23 13 14 25 34 45 43 41 30 10 01 05 16 36",
        'A' | 'À'..='Å' => "06 20 46/14 34",
        'B' => "00 06 36 45 44 33 03/33 42 41 30 00",
        'C' | 'Ç' => "41 30 10 01 05 16 36 45",
        'D' => "00 06 26 44 42 20 00",
        'E' | 'È'..='Ë' => "40 00 06 46/03 33",
        'F' => "40 00 06/03 33",
        'G' => "41 30 10 01 05 16 36 45 43 23",
        'H' => "00 06/40 46/03 43",
        'I' | 'Ì'..='Ï' => "00 20/10 16/06 26",
        'J' => "30 35 26 16 05",
        'K' => "00 06/40 04/13 46",
        'L' => "00 06 36",
        'M' => "06 00 23 40 46",
        'N' | 'Ñ' => "06 00 46 40",
        'O' | 'Ò'..='Ö' | 'Ø' => "10 30 41 45 36 16 05 01 10",
        'P' => "06 00 30 41 42 33 03",
        'Q' => "10 30 41 45 36 16 05 01 10/24 46",
        'R' => "06 00 30 41 42 33 03/23 46",
        'S' => "41 30 10 01 02 13 33 44 45 36 16 05",
        'T' => "00 40/20 26",
        'U' | 'Ù'..='Ü' => "00 05 16 36 45 40",
        'V' => "00 26 40",
        'W' => "00 16 22 36 40",
        'X' => "00 46/40 06",
        'Y' | 'Ý' => "00 23 40/23 26",
        'Z' => "00 40 06 46",
        '[' => "10 00 06 16",
        '\\' => "00 36",
        ']' => "00 10 16 06",
        '^' => "02 20 42",
        '_' => "07 47",
        '`' => "00 11",
        'a' | 'à'..='å' => "33 22 12 03 05 16 26 35/32 36",
        'b' => "00 06/03 12 22 33 35 26 16 05",
        'c' | 'ç' => "33 22 12 03 05 16 26 35",
        'd' => "30 36/33 22 12 03 05 16 26 35",
        'e' | 'è'..='ë' => "04 34 33 22 12 03 05 16 26 35",
        'f' => "20 11 16/02 22",
        'g' => "33 22 12 03 05 16 26 35/32 37 28 18 07",
        'h' => "00 06/03 12 22 33 36",
        'i' | 'ì'..='ï' => "02 06/00 00",
        'j' => "12 17 08/10 10",
        'k' => "00 06/32 05/14 36",
        'l' => "00 05 16",
        'm' => "02 06/03 12 23 26/23 32 43 46",
        'n' | 'ñ' => "02 06/03 12 22 33 36",
        'o' | 'ò'..='ö' | 'ø' => "12 22 33 35 26 16 05 03 12",
        'p' => "02 08/03 12 22 33 35 26 16 05",
        'q' => "32 38/33 22 12 03 05 16 26 35",
        'r' => "02 06/04 13 22",
        's' => "32 12 03 14 24 35 26 06",
        'ß' => "06 01 10 20 31 32 23 34 35 26 16",
        't' => "10 15 26/02 22",
        'u' | 'ù'..='ü' => "02 05 16 26 35/32 36",
        'v' => "02 26 42",
        'w' => "02 16 23 36 42",
        'x' => "02 36/32 06",
        'y' | 'ý' | 'ÿ' => "02 05 16 26 35/32 37 28 18 07",
        'z' => "02 32 06 36",
        '{' => "20 10 12 03 14 16 26",
        '|' => "00 07",
        '}' => "00 10 12 23 14 16 06",
        '~' => "04 13 34 43",
        '…' => "06 06/26 26/46 46",
        '°' => "00 20 22 02 00",
        '€' => "41 30 20 11 15 26 36 45/02 32/04 34",
        _ => "00 40 46 06 00",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_printable_character_has_strokes_within_the_grid() {
        for character in '!'..='~' {
            let glyph = glyph(character);
            assert!(!glyph.strokes.is_empty(), "{character}");
            let inside = |(x, y): &(f64, f64)| (0.0..=4.0).contains(x) && (0.0..=8.0).contains(y);
            assert!(glyph.strokes.iter().flatten().all(inside), "{character}");
            assert!(drawing(character) != drawing('\u{fffd}'), "{character}");
        }
    }
}
