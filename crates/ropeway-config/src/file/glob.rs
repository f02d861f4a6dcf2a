//! Glob patterns for names and URIs.

use std::cell::{Cell, RefCell};
use std::collections::HashSet;

use globset::{GlobBuilder, GlobMatcher};

/// Maximum glob length in bytes. The regular expression for a much longer one fails to compile.
const MAX_GLOB_BYTES: usize = 1024;

/// Maximum different globs per file.
const MAX_GLOBS: usize = 20_000;

/// A compiled glob with `*`, `?`, `[ab]`, `{one,two}`, and `\` to escape a character.
#[derive(Clone, Debug)]
pub struct Glob(GlobMatcher);

/// Error returned for an invalid glob.
#[derive(Debug, thiserror::Error)]
#[error("{}", .0.kind())]
pub struct GlobError(globset::Error);

impl Glob {
    /// Parses a pattern.
    pub fn new(pattern: &str) -> Result<Self, GlobError> {
        // By default, a backslash is a separator on Windows.
        let glob = GlobBuilder::new(pattern).backslash_escape(true).build();
        Ok(Self(glob.map_err(GlobError)?.compile_matcher()))
    }

    /// Returns whether the whole name matches.
    pub fn matches(&self, name: &str) -> bool {
        self.0.is_match(name)
    }
}

/// Returns a glob that matches only this text.
pub(super) fn escape(text: &str) -> String {
    globset::escape(text).replace('\\', "\\\\")
}

/// Validates a file's globs. Compiles each only once, however many servers use it.
#[derive(Default)]
pub(super) struct GlobChecker {
    valid: RefCell<HashSet<String>>,
    /// The limit is reached, which is reported only once.
    is_full: Cell<bool>,
}

impl GlobChecker {
    /// Validates a glob. The error describes a valid one.
    pub(super) fn check(&self, glob: &str) -> Result<(), String> {
        let mut valid = self.valid.borrow_mut();
        if self.is_full.get() || valid.contains(glob) {
            return Ok(());
        }
        if glob.len() > MAX_GLOB_BYTES {
            return Err(format!("a glob of at most {MAX_GLOB_BYTES} bytes"));
        }
        if valid.len() >= MAX_GLOBS {
            self.is_full.set(true);
            return Err(format!("at most {MAX_GLOBS} different globs in a file"));
        }
        Glob::new(glob).map_err(|error| format!("a valid glob ({error})"))?;
        valid.insert(glob.to_owned());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_backslash_escapes_the_next_character() {
        let glob = Glob::new(r"read_\*").expect("a glob");
        assert_eq!(["read_*", "read_x", r"read_\*"].map(|name| glob.matches(name)), [true, false, false]);
        assert_eq!(Glob::new("a\\").expect_err("no glob").to_string(), "dangling '\\'");
    }

    #[test]
    fn an_escaped_text_matches_only_itself() {
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
