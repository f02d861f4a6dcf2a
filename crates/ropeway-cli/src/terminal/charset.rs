//! Plain characters for locales without UTF-8.

use std::borrow::Cow;
use std::sync::atomic::{AtomicBool, Ordering};

/// Set if the locale is not UTF-8. [`choose`] writes it at startup.
static IS_PLAIN: AtomicBool = AtomicBool::new(false);

/// Chooses the characters for this process's locale.
pub(crate) fn choose() {
    IS_PLAIN.store(!is_utf8(|name| std::env::var(name).ok()), Ordering::Relaxed);
}

/// Returns `true` if output has plain characters only.
pub(crate) fn is_plain() -> bool {
    IS_PLAIN.load(Ordering::Relaxed)
}

/// Returns `true` unless the variables name another encoding. The first that is set decides. Services and containers often set
/// none; their output is read as UTF-8 today.
fn is_utf8(variable: impl Fn(&str) -> Option<String>) -> bool {
    let locale = ["LC_ALL", "LC_CTYPE", "LANG"].into_iter().find_map(|name| variable(name).filter(|it| !it.is_empty()));
    locale.is_none_or(|locale| locale.to_ascii_lowercase().replace('-', "").contains("utf8"))
}

/// Replaces this program's symbols, if the locale needs it.
pub(crate) fn for_locale(text: &str) -> Cow<'_, str> {
    if is_plain() && !text.is_ascii() { Cow::Owned(plain(text)) } else { Cow::Borrowed(text) }
}

fn plain(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '●' | '•' => plain.push('*'),
            '◐' => plain.push('~'),
            '○' => plain.push('o'),
            '✗' => plain.push('x'),
            '✓' => plain.push('+'),
            '│' => plain.push('|'),
            '·' | '─' | '╌' | '–' | '—' => plain.push('-'),
            '━' => plain.push('='),
            '→' => plain.push_str("->"),
            '…' => plain.push_str("..."),
            'µ' => plain.push('u'),
            c => plain.push(c),
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_locale_variable_decides() {
        let with = |variables: &[(&str, &str)]| {
            is_utf8(|name| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned()))
        };
        assert!(with(&[]));
        assert!(with(&[("LANG", "en_US.UTF-8")]) && with(&[("LC_ALL", "C.utf8"), ("LANG", "C")]));
        assert!(with(&[("LC_ALL", ""), ("LANG", "de_DE.UTF-8")]));
        assert!(!with(&[("LC_ALL", "C"), ("LANG", "en_US.UTF-8")]));
        assert!(!with(&[("LANG", "de_DE.ISO-8859-1")]) && !with(&[("LC_CTYPE", "POSIX")]));
    }

    #[test]
    fn symbols_become_plain_and_words_stay() {
        assert_eq!(plain("● a · 3 µs → b… Ü"), "* a - 3 us -> b... Ü");
    }
}
