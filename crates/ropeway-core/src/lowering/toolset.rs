//! A tool set that is lowered on first use.

use std::fmt;
use std::sync::{Arc, OnceLock};

use super::lowered::LoweredTools;
use super::name::{self, NameRules};
use super::tool::{self, StrictBudget};
use crate::message::Dialect;
use crate::tool::ToolDefinition;

/// A tool source, lowered once per dialect.
pub trait Lower: fmt::Debug + Send + Sync {
    /// Returns the tools, lowered for a dialect.
    fn lowered(&self, dialect: Dialect) -> Arc<LoweredTools>;
}

/// Lowers tool definitions for a dialect.
pub fn lower<'a>(definitions: impl IntoIterator<Item = &'a ToolDefinition>, dialect: Dialect) -> LoweredTools {
    let definitions: Vec<&ToolDefinition> = definitions.into_iter().collect();
    let names: Vec<&str> = definitions.iter().map(|definition| definition.name.as_str()).collect();
    let wire_names = name::legal_names(&names, NameRules::of_tools(dialect));
    let mut budget = StrictBudget::default();
    let mut lowered = LoweredTools::default();
    for definition in definitions {
        let name = definition.name.as_str();
        if lowered.get(name).is_some() {
            lowered.omit(name, "another tool has the same name".to_owned());
            continue;
        }
        let wire_name = wire_names.get(name).map_or(name, String::as_str);
        match tool::lower(definition, wire_name, dialect, &mut budget) {
            Ok(tool) => lowered.add(tool),
            Err(why) => lowered.omit(name, why),
        }
    }
    lowered
}

/// Tools for a model, lowered once per dialect, on first use. Cheap to clone.
///
/// A reference to a `Registry` converts into its tool set.
#[derive(Clone, Debug)]
pub struct Toolset(Arc<dyn Lower>);

impl Toolset {
    /// Creates a set from definitions.
    pub fn new(definitions: impl IntoIterator<Item = ToolDefinition>) -> Self {
        Self::of(Definitions { definitions: definitions.into_iter().collect(), cache: Cache::default() })
    }

    /// Wraps tools that keep their lowered form themselves.
    pub fn of(tools: impl Lower + 'static) -> Self {
        Self(Arc::new(tools))
    }

    /// Returns the tools, lowered for a dialect.
    pub fn lowered(&self, dialect: Dialect) -> Arc<LoweredTools> {
        self.0.lowered(dialect)
    }
}

impl From<&Toolset> for Toolset {
    fn from(tools: &Toolset) -> Self {
        tools.clone()
    }
}

#[derive(Debug)]
struct Definitions {
    definitions: Vec<ToolDefinition>,
    cache: Cache,
}

impl Lower for Definitions {
    fn lowered(&self, dialect: Dialect) -> Arc<LoweredTools> {
        self.cache.get(dialect, || lower(&self.definitions, dialect))
    }
}

/// Each dialect's lowered tools.
#[derive(Clone, Debug, Default)]
pub struct Cache([OnceLock<Arc<LoweredTools>>; Dialect::ALL.len()]);

impl Cache {
    /// Returns a dialect's lowered tools, lowering them at the first use.
    pub fn get(&self, dialect: Dialect, lower: impl FnOnce() -> LoweredTools) -> Arc<LoweredTools> {
        let at = Dialect::ALL.iter().position(|other| *other == dialect).unwrap_or_default();
        self.0[at].get_or_init(|| Arc::new(lower())).clone()
    }
}
