//! Regular expressions that all providers interpret in the same way.

/// Returns `true` if the pattern matches the whole text, from `^` to `$`.
pub(super) fn is_anchored(pattern: &str) -> bool {
    let Some(inner) = pattern.strip_prefix('^').and_then(|rest| rest.strip_suffix('$')) else { return false };
    // An odd number of backslashes escapes the last character.
    let backslashes = inner.len() - inner.trim_end_matches('\\').len();
    backslashes.is_multiple_of(2) && !has_anchor(inner)
}

/// Returns `true` if the pattern only has characters, sets, groups, alternatives and repetitions.
///
/// Providers differ in look-around, back-references and escapes with a letter.
pub(super) fn is_portable(pattern: &str) -> bool {
    let mut open_groups = 0_usize;
    let mut in_set = false;
    // Whether the previous item can be repeated.
    let mut repeatable = false;
    let mut characters = pattern.chars().peekable();
    while let Some(c) = characters.next() {
        match c {
            '\\' => match characters.next() {
                Some(next) if next.is_ascii_punctuation() => repeatable = true,
                _ => return false,
            },
            ']' if in_set => (in_set, repeatable) = (false, true),
            '[' if in_set => return false,
            _ if in_set => {}
            '[' => {
                in_set = true;
                if characters.peek() == Some(&'^') {
                    characters.next();
                }
                // An empty set, or one that starts with `]`, is ambiguous.
                if characters.peek() == Some(&']') {
                    return false;
                }
            }
            '(' => {
                if characters.peek() == Some(&'?') {
                    return false;
                }
                open_groups += 1;
                repeatable = false;
            }
            ')' => {
                let Some(left) = open_groups.checked_sub(1) else { return false };
                (open_groups, repeatable) = (left, true);
            }
            '*' | '+' | '?' => {
                if !repeatable {
                    return false;
                }
                // A second quantifier would make it lazy or possessive.
                repeatable = false;
            }
            '{' => {
                if !repeatable || !is_repetition(&mut characters) {
                    return false;
                }
                repeatable = false;
            }
            '}' | ']' => return false,
            '|' | '^' | '$' => repeatable = false,
            c if c.is_control() => return false,
            _ => repeatable = true,
        }
    }
    !in_set && open_groups == 0
}

/// Parses the rest of `{n}`, `{n,}` or `{n,m}`.
fn is_repetition(characters: &mut impl Iterator<Item = char>) -> bool {
    let inner: String = characters.take_while(|c| *c != '}').take(12).collect();
    // Some providers reject larger numbers, and others expand them into a grammar with that size.
    let number = |text: &str| text.parse::<u16>().ok().filter(|number| *number <= 1000);
    match inner.split_once(',') {
        None => number(&inner).is_some(),
        Some((least, "")) => number(least).is_some(),
        Some((least, most)) => number(least).zip(number(most)).is_some_and(|(least, most)| least <= most),
    }
}

/// Returns `true` if the pattern contains an anchor.
fn has_anchor(inner: &str) -> bool {
    let (mut escaped, mut in_set) = (false, false);
    inner.chars().any(|c| {
        let plain = !std::mem::take(&mut escaped);
        match c {
            '\\' if plain => escaped = true,
            '[' if plain => in_set = true,
            ']' if plain => in_set = false,
            '^' | '$' => return plain && !in_set,
            _ => {}
        }
        false
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_portable_patterns_are_accepted() {
        let taken = |pattern: &str| is_anchored(pattern) && is_portable(pattern);
        for pattern in
            ["^$", "^a$", "^[A-Z]{3}$", "^(a|b)+$", "^[a-f0-9]{2,}x?$", r"^a\.b\$$", "^[^/]*$", "^é+$", r"^[a\]$]$"]
        {
            assert!(taken(pattern), "{pattern}");
        }
        for pattern in [
            "",
            "a",
            "^a",
            "a$",
            r"^a\$",
            r"^\d+$",
            "^(?:a)$",
            "^(?=a)b$",
            r"^(a)\1$",
            "^a+?$",
            "^*$",
            "^a{2,1}$",
            "^a{x}$",
            "^a{1001}$",
            "^(a$",
            "^a)$",
            "^[a$",
            "^[]$",
            "^[[:alpha:]]$",
            "^a$|^b$",
            "^a{$",
            "^a]$",
            "^\u{7}$",
            "^a**$",
        ] {
            assert!(!taken(pattern), "{pattern}");
        }
    }
}
