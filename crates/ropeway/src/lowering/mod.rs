//! Lowering: tool definitions as a dialect takes them, and the calls that come back as the tools want them.
//!
//! A pure function with a report. One tool can never spoil the others: what cannot be lowered is left out, and said so.

#![allow(
    clippy::ptr_arg,
    reason = "what is borrowed from the definition stays borrowed, so it matters whether a value is"
)]

mod arguments;
mod array;
mod branch;
mod declaration;
mod form;
mod keywords;
pub(crate) mod name;
mod node;
mod note;
mod object;
mod output;
mod pattern;
mod plain;
mod reference;
mod rename;
mod root;
#[cfg(any(test, feature = "testing"))]
#[path = "tests/rules.rs"]
pub(crate) mod rules;
#[cfg(test)]
mod tests;
mod tool;
mod toolset;
mod types;
mod untouched;
mod values;
mod walker;
mod written;

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

use serde_json::value::RawValue;

use self::arguments::Shape;
use self::name::Alphabet;
pub use self::output::{LowerError, LoweredOutput, lower_output};
use self::tool::Strictness;
#[cfg(feature = "bridge")]
pub(crate) use self::toolset::Cache;
pub use self::toolset::Toolset;

use crate::message::Dialect;
use crate::tool::{Arguments, ToolDefinition};

/// Something that has tools to offer to a model, lowered once for each dialect.
pub trait Lower: Send + Sync {
    /// The tools as a dialect takes them.
    fn lowered(&self, dialect: Dialect) -> Arc<LoweredTools>;
}

/// Tools lowered for one dialect.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct LoweredTools {
    /// The tools, in their order.
    pub tools: Vec<LoweredTool>,
    /// The tools that could not be lowered.
    pub left_out: Vec<OmittedTool>,
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
    pub alterations: Vec<SchemaChange>,
    /// Provider options that are not sent as they were given, or may be refused.
    pub warnings: Vec<String>,
    /// How the arguments differ, if they do.
    shape: Option<Shape>,
}

/// A tool that could not be lowered.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct OmittedTool {
    /// Our own name for the tool.
    pub name: String,
    /// Why.
    pub why: String,
}

/// Something that is not as it was in the definition.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SchemaChange {
    /// Where, as a JSON pointer into the input schema.
    pub at: String,
    /// The keyword.
    pub keyword: String,
    /// What became of it.
    pub how: ChangeKind,
}

/// What became of a keyword.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ChangeKind {
    /// A reference, replaced by what it points to.
    Inlined,
    /// Put into words in the description.
    Described,
    /// Said in another way: this one.
    Rewritten(String),
    /// Not in the definition; the dialect wants it.
    Added,
    /// Gone without a trace: it has no meaning here.
    Dropped,
}

/// Lowers definitions for a dialect.
pub fn lower<'a>(definitions: impl IntoIterator<Item = &'a ToolDefinition>, dialect: Dialect) -> LoweredTools {
    let definitions: Vec<&ToolDefinition> = definitions.into_iter().collect();
    let names: Vec<&str> = definitions.iter().map(|definition| definition.name.as_str()).collect();
    let wire_names = name::legal_names(&names, Alphabet::of_tools(dialect));
    let mut strictness = Strictness::default();
    let mut lowered = LoweredTools::default();
    for definition in definitions {
        let name = definition.name.as_str();
        if lowered.by_name.contains_key(name) {
            lowered.leave_out(name, "another tool has the same name".to_owned());
            continue;
        }
        let wire_name = wire_names.get(name).map_or(name, String::as_str);
        match tool::lower(definition, wire_name, dialect, &mut strictness) {
            Ok(tool) => lowered.add(tool),
            Err(why) => lowered.leave_out(name, why),
        }
    }
    lowered
}

/// How many tools a request may have, where the dialect has a limit.
#[cfg(feature = "providers")]
pub(crate) fn most_tools(dialect: Dialect) -> Option<usize> {
    match dialect {
        Dialect::Anthropic => None,
        Dialect::Responses | Dialect::Chat => Some(128),
        Dialect::Gemini => Some(512),
    }
}

/// A name that every dialect takes, for a tool that is not there any more.
#[cfg(feature = "providers")]
pub(crate) fn wire_name(name: &str) -> String {
    name::plain(name)
}

/// Eight hexadecimal digits' worth of a hash that never changes.
#[cfg(feature = "providers")]
pub(crate) fn short_hash(text: &str) -> u32 {
    crate::hash::short(text)
}

impl LoweredTools {
    fn add(&mut self, tool: LoweredTool) {
        if !self.json.is_empty() {
            self.json.push(',');
        }
        self.json.push_str(tool.json.get());
        self.by_name.insert(tool.name.clone(), self.tools.len());
        self.by_wire_name.insert(tool.wire_name.clone(), self.tools.len());
        self.tools.push(tool);
    }

    fn leave_out(&mut self, name: &str, why: String) {
        self.left_out.push(OmittedTool { name: name.to_owned(), why });
    }

    /// Returns what a person should know: tools that are left out, and provider options that are not sent.
    pub fn warnings(&self) -> impl Iterator<Item = String> {
        let left_out =
            self.left_out.iter().map(|OmittedTool { name, why }| format!("tool `{name}` is left out: {why}"));
        let options = |tool: &LoweredTool| {
            let name = tool.name.clone();
            tool.warnings.iter().map(move |warning| format!("tool `{name}`: {warning}")).collect::<Vec<_>>()
        };
        left_out.chain(self.tools.iter().flat_map(options))
    }

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
        match &self.shape {
            Some(shape) => Cow::Owned(shape.object_to_wire(arguments)),
            None => Cow::Borrowed(arguments),
        }
    }

    /// Arguments as the tool wants them, of a call as the model wrote it.
    pub fn from_wire(&self, arguments: Arguments) -> Arguments {
        match &self.shape {
            Some(shape) => shape.object_back(arguments),
            None => arguments,
        }
    }
}
