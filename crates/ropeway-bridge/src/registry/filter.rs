//! Filters for a server's tools.

use std::fmt;
use std::sync::Arc;

use ropeway_config::Glob;
use ropeway_core::tool::{BoxError, ToolDefinition};

/// Error returned for a server's invalid tool settings.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ToolShapeError {
    /// A pattern is not a valid glob.
    #[error("`{pattern}` is not a glob")]
    Glob {
        /// The pattern.
        pattern: String,
        /// The syntax error.
        #[source]
        source: BoxError,
    },
}

/// Parses a glob over the server's own tool names.
pub(super) fn glob(pattern: &str) -> Result<Glob, ToolShapeError> {
    Glob::new(pattern).map_err(|source| ToolShapeError::Glob { pattern: pattern.to_owned(), source: source.into() })
}

/// Returns `true` for tools to keep.
pub(crate) type Predicate = Arc<dyn Fn(&ToolDefinition) -> bool + Send + Sync>;

/// Selects a server's tools by globs over the server's own names, and by predicates.
#[derive(Clone, Default)]
pub struct ToolFilter {
    /// Allows all tools if empty.
    allow: Vec<Glob>,
    /// A tool must match at least one glob in each list.
    allowlists: Vec<Vec<Glob>>,
    deny: Vec<Glob>,
    predicates: Vec<Predicate>,
}

impl ToolFilter {
    /// Allows tools that match one of `allow`, or all tools if it is empty, and none of `deny`.
    ///
    /// # Errors
    ///
    /// Returns an error if a pattern is not a valid glob.
    pub fn new(allow: &[String], deny: &[String]) -> Result<Self, ToolShapeError> {
        let globs = |patterns: &[String]| patterns.iter().map(|pattern| glob(pattern)).collect::<Result<_, _>>();
        Ok(Self { allow: globs(allow)?, allowlists: Vec::new(), deny: globs(deny)?, predicates: Vec::new() })
    }

    /// Also requires a match with one of these globs. An empty list allows no tools.
    ///
    /// # Errors
    ///
    /// Returns an error if a pattern is not a valid glob.
    pub fn with_allowlist(mut self, globs: &[String]) -> Result<Self, ToolShapeError> {
        self.allowlists.push(globs.iter().map(|pattern| glob(pattern)).collect::<Result<_, _>>()?);
        Ok(self)
    }

    /// Also requires that `predicate` returns `true`.
    #[must_use]
    pub fn with(mut self, predicate: impl Fn(&ToolDefinition) -> bool + Send + Sync + 'static) -> Self {
        self.predicates.push(Arc::new(predicate));
        self
    }

    /// Removes the allowlists and keeps everything else.
    pub(super) fn allowing_all(mut self) -> Self {
        self.allow = Vec::new();
        self.allowlists = Vec::new();
        self
    }

    /// Returns `true` if the filter allows the tool.
    pub fn allows(&self, definition: &ToolDefinition) -> bool {
        let name = definition.own_name();
        let is_in = |globs: &[Glob]| globs.iter().any(|glob| glob.matches(name));
        (self.allow.is_empty() || is_in(&self.allow))
            && self.allowlists.iter().all(|globs| is_in(globs))
            && !is_in(&self.deny)
            && self.predicates.iter().all(|predicate| predicate(definition))
    }
}

impl fmt::Debug for ToolFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { allow, allowlists, deny, predicates } = self;
        let mut debug = f.debug_struct("ToolFilter");
        debug
            .field("allow", allow)
            .field("allowlists", allowlists)
            .field("deny", deny)
            .field("predicates", &predicates.len())
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ropeway_core::tool::Origin;

    const NAMES: [&str; 4] = ["read_file", "read/deep/file", "write_file", "Delete"];

    fn wanted(allow: &[&str], deny: &[&str]) -> Vec<&'static str> {
        let owned = |patterns: &[&str]| patterns.iter().map(ToString::to_string).collect::<Vec<_>>();
        let filter = ToolFilter::new(&owned(allow), &owned(deny)).expect("globs");
        NAMES.into_iter().filter(|name| filter.allows(&ToolDefinition::new(*name))).collect()
    }

    #[test]
    fn without_globs_all_tools_are_allowed() {
        assert_eq!(wanted(&[], &[]), NAMES);
    }

    #[test]
    fn deny_takes_precedence_over_allow() {
        assert_eq!(wanted(&["read*"], &[]), ["read_file", "read/deep/file"]);
        assert_eq!(wanted(&["*_file", "Delete"], &["write*"]), ["read_file", "Delete"]);
        assert_eq!(wanted(&["Delete"], &["Delete"]), [""; 0]);
        assert_eq!(wanted(&[], &["{read,write}_?ile"]), ["read/deep/file", "Delete"]);
        assert_eq!(wanted(&["delete"], &[]), [""; 0]);
    }

    #[test]
    fn a_tool_must_match_every_allowlist() {
        let list = |globs: &[&str]| globs.iter().map(ToString::to_string).collect::<Vec<_>>();
        let wanted = |filter: &ToolFilter| {
            NAMES.into_iter().filter(|name| filter.allows(&ToolDefinition::new(*name))).collect::<Vec<_>>()
        };
        let filter = ToolFilter::new(&list(&["*_file"]), &[]).expect("globs");
        let both = filter.clone().with_allowlist(&list(&["read*", "Delete"])).expect("globs");
        assert_eq!(wanted(&both), ["read_file"]);
        assert_eq!(wanted(&both.with_allowlist(&list(&["write*"])).expect("globs")), [""; 0]);
        assert_eq!(wanted(&filter.with_allowlist(&[]).expect("globs")), [""; 0]);
    }

    #[test]
    fn globs_match_the_servers_name_and_predicates_see_the_definition() {
        let mut definition = ToolDefinition::new("mcp_web_look").with_description("old");
        definition.origin = Origin::Server { server: "web".into(), tool: "look".into() };
        let filter = ToolFilter::new(&["look".to_owned()], &[]).expect("globs");
        assert!(filter.allows(&definition));
        assert!(!filter.with(|definition| definition.description.as_deref() != Some("old")).allows(&definition));
    }

    #[test]
    fn an_invalid_glob_is_named_in_the_error() {
        let error = ToolFilter::new(&[], &["fine*".to_owned(), "[a".to_owned()]).expect_err("no glob");
        assert_eq!(error.to_string(), "`[a` is not a glob");
        assert_eq!(
            std::error::Error::source(&error).map(ToString::to_string).as_deref(),
            Some("unclosed character class; missing ']'")
        );
    }
}
