//! Globs: patterns over names and URIs.

use std::fmt;

use globset::{GlobBuilder, GlobMatcher};

/// A pattern: `*`, `?`, `[ab]`, `{one,two}`, and `\` before a character that means itself.
#[derive(Clone, Debug)]
pub(crate) struct Glob(GlobMatcher);

/// What is wrong with a pattern.
#[derive(Debug)]
pub(crate) struct NotAGlob(globset::Error);

impl Glob {
    pub(crate) fn new(pattern: &str) -> Result<Self, NotAGlob> {
        // Otherwise a backslash means something else on another system.
        let glob = GlobBuilder::new(pattern).backslash_escape(true).build();
        Ok(Self(glob.map_err(NotAGlob)?.compile_matcher()))
    }

    pub(crate) fn matches(&self, name: &str) -> bool {
        self.0.is_match(name)
    }
}

/// The pattern that only this text matches.
pub(super) fn escape(text: &str) -> String {
    globset::escape(text).replace('\\', "\\\\")
}

impl fmt::Display for NotAGlob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.kind().fmt(f)
    }
}

impl std::error::Error for NotAGlob {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_backslash_takes_the_meaning_from_the_character_behind_it() {
        let glob = Glob::new(r"read_\*").expect("a glob");
        assert_eq!(["read_*", "read_x", r"read_\*"].map(|name| glob.matches(name)), [true, false, false]);
        assert_eq!(Glob::new("a\\").expect_err("no glob").to_string(), "dangling '\\'");
    }

    #[test]
    fn an_escaped_text_is_a_pattern_that_matches_it_alone() {
        for text in ["read", "a*b?", "[x]", "{a,b}", r"back\slash"] {
            let glob = Glob::new(&escape(text)).expect("a glob");
            assert_eq!(
                ["read", "a*b?", "[x]", "{a,b}", r"back\slash", "aab."]
                    .iter()
                    .filter(|name| glob.matches(name))
                    .collect::<Vec<_>>(),
                [&text]
            );
        }
    }
}
