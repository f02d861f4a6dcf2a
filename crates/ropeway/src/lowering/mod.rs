//! Lowering: tool definitions as a dialect takes them, and the calls that come back as the tools want them.
//!
//! A pure function with a report. One tool can never spoil the others: what cannot be lowered is left out, and said so.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use serde_json::value::RawValue;

use crate::message::Dialect;
use crate::tool::{Arguments, ToolDefinition};

/// Something that has tools to offer to a model, lowered once for each dialect.
pub trait Lower: Send + Sync {
    /// The tools as a dialect takes them.
    fn lowered(&self, dialect: Dialect) -> Arc<Lowered>;
}

/// Tools lowered for one dialect.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct Lowered {
    /// The tools, in their order.
    pub tools: Vec<LoweredTool>,
    /// The tools that could not be lowered.
    pub left_out: Vec<LeftOut>,
    /// The tools' JSON texts, joined by commas.
    json: String,
    by_name: HashMap<String, usize>,
    by_wire_name: HashMap<String, usize>,
}

/// One tool as a dialect takes it.
#[derive(Debug)]
#[non_exhaustive]
pub struct LoweredTool {
    /// Our own name for the tool.
    pub name: String,
    /// The dialect's name for it.
    pub wire_name: String,
    /// The element of the request's list of tools.
    pub json: Box<RawValue>,
    /// What was altered on the way.
    pub alterations: Vec<Alteration>,
}

/// A tool that could not be lowered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeftOut {
    /// Our own name for the tool.
    pub name: String,
    /// Why.
    pub why: String,
}

/// Something that is not as it was in the definition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Alteration {
    /// Where, as a JSON pointer into the input schema.
    pub at: String,
    /// The keyword.
    pub keyword: String,
    /// What became of it.
    pub how: How,
}

/// What became of a keyword.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum How {
    /// A reference, replaced by what it points to.
    Inlined,
    /// Put into words in the description.
    Described,
    /// Said in another way.
    Rewritten(String),
    /// Gone without a trace: it has no meaning here.
    Dropped,
}

/// Lowers definitions for a dialect.
pub fn lower<'a>(definitions: impl IntoIterator<Item = &'a ToolDefinition>, dialect: Dialect) -> Lowered {
    let _ = (definitions.into_iter().count(), dialect);
    Lowered::default()
}

/// How many tools a request may have, where the dialect has a limit.
pub(crate) fn most_tools(dialect: Dialect) -> Option<usize> {
    match dialect {
        Dialect::Anthropic => None,
        Dialect::Responses | Dialect::Chat => Some(128),
        Dialect::Gemini => Some(512),
    }
}

/// A name that every dialect takes, for a tool that is not there any more.
pub(crate) fn wire_name(name: &str) -> String {
    name.to_owned()
}

/// Eight hexadecimal digits' worth of a hash that never changes.
pub(crate) fn short_hash(text: &str) -> u32 {
    let _ = text;
    0
}

impl Lowered {
    /// All tools as they stand in a request, between the brackets of the list.
    pub fn json(&self) -> &str {
        &self.json
    }

    /// The tool of one of our names.
    pub fn get(&self, name: &str) -> Option<&LoweredTool> {
        self.by_name.get(name).map(|&at| &self.tools[at])
    }

    /// The tool of one of the dialect's names.
    pub fn by_wire_name(&self, name: &str) -> Option<&LoweredTool> {
        self.by_wire_name.get(name).map(|&at| &self.tools[at])
    }
}

impl LoweredTool {
    /// Arguments as the dialect knows them, of a call that was made before.
    pub fn to_wire<'a>(&self, arguments: &'a Arguments) -> Cow<'a, Arguments> {
        Cow::Borrowed(arguments)
    }

    /// Arguments as the tool wants them, of a call as the model wrote it.
    pub fn from_wire(&self, arguments: Arguments) -> Arguments {
        arguments
    }
}

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
    fn lowered(&self, dialect: Dialect) -> Arc<Lowered> {
        self.cache.get(dialect, || lower(&self.definitions, dialect))
    }
}

/// Remembers what was lowered, for each dialect.
#[derive(Clone, Debug, Default)]
pub(crate) struct Cache([OnceLock<Arc<Lowered>>; Dialect::ALL.len()]);

impl Cache {
    pub(crate) fn get(&self, dialect: Dialect, lower: impl FnOnce() -> Lowered) -> Arc<Lowered> {
        let at = Dialect::ALL.iter().position(|other| *other == dialect).unwrap_or_default();
        self.0[at].get_or_init(|| Arc::new(lower())).clone()
    }
}
