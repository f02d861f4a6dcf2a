//! A set of tools that is lowered when a dialect first asks for it.

use std::sync::{Arc, OnceLock};

use super::{Lower, LoweredTools, lower};
use crate::message::Dialect;
use crate::tool::ToolDefinition;

/// Definitions that are lowered when a dialect first asks for them.
#[derive(Debug, Default)]
pub struct Toolset {
    definitions: Vec<ToolDefinition>,
    cache: Cache,
}

impl Toolset {
    /// A set of definitions.
    pub fn new(definitions: impl IntoIterator<Item = ToolDefinition>) -> Self {
        Self { definitions: definitions.into_iter().collect(), cache: Cache::default() }
    }
}

impl Lower for Toolset {
    fn lowered(&self, dialect: Dialect) -> Arc<LoweredTools> {
        self.cache.get(dialect, || lower(&self.definitions, dialect))
    }
}

/// Remembers what was lowered, for each dialect.
#[derive(Clone, Debug, Default)]
pub(crate) struct Cache([OnceLock<Arc<LoweredTools>>; Dialect::ALL.len()]);

impl Cache {
    pub(crate) fn get(&self, dialect: Dialect, lower: impl FnOnce() -> LoweredTools) -> Arc<LoweredTools> {
        let at = Dialect::ALL.iter().position(|other| *other == dialect).unwrap_or_default();
        self.0[at].get_or_init(|| Arc::new(lower())).clone()
    }
}
