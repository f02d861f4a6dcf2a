//! Lowered tools.

use std::borrow::Cow;
use std::collections::HashMap;

use serde_json::value::RawValue;

use super::argument_mapping::ArgumentMapping;
use super::change::SchemaChange;
use crate::tool::Arguments;

/// Tools lowered for one dialect.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct LoweredTools {
    /// The tools, in definition order.
    pub tools: Vec<LoweredTool>,
    /// The tools that could not be lowered.
    pub omitted: Vec<OmittedTool>,
    /// All tools as JSON, separated by commas.
    json: String,
    by_name: HashMap<String, usize>,
    by_wire_name: HashMap<String, usize>,
}

/// A tool, lowered for one dialect.
#[derive(Debug)]
#[non_exhaustive]
pub struct LoweredTool {
    /// The tool's name in its definition.
    pub name: String,
    /// The tool's name in this dialect's requests.
    pub wire_name: String,
    /// The element in the request's tool list.
    pub json: Box<RawValue>,
    /// The changes to the schema.
    pub changes: Vec<SchemaChange>,
    /// Provider options that are not sent as given, or that the provider may refuse.
    pub warnings: Vec<String>,
    /// How the arguments differ from the definition, if they do.
    pub(super) mapping: Option<ArgumentMapping>,
}

/// A tool that could not be lowered.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct OmittedTool {
    /// The tool's name in its definition.
    pub name: String,
    /// The reason.
    pub reason: String,
}

impl LoweredTools {
    pub(super) fn add(&mut self, tool: LoweredTool) {
        if !self.json.is_empty() {
            self.json.push(',');
        }
        self.json.push_str(tool.json.get());
        self.by_name.insert(tool.name.clone(), self.tools.len());
        self.by_wire_name.insert(tool.wire_name.clone(), self.tools.len());
        self.tools.push(tool);
    }

    pub(super) fn omit(&mut self, name: &str, reason: String) {
        self.omitted.push(OmittedTool { name: name.to_owned(), reason });
    }

    /// Returns a warning for each omitted tool, and for each provider option that is not sent.
    pub fn warnings(&self) -> impl Iterator<Item = String> {
        let omitted =
            self.omitted.iter().map(|OmittedTool { name, reason }| format!("tool `{name}` is omitted: {reason}"));
        let options = |tool: &LoweredTool| {
            let name = tool.name.clone();
            tool.warnings.iter().map(move |warning| format!("tool `{name}`: {warning}")).collect::<Vec<_>>()
        };
        omitted.chain(self.tools.iter().flat_map(options))
    }

    /// Returns all tools as JSON, as it appears between the brackets in the request's list.
    pub fn json(&self) -> &str {
        &self.json
    }

    /// Returns the tool with this name in its definition.
    pub fn get(&self, name: &str) -> Option<&LoweredTool> {
        self.by_name.get(name).map(|&at| &self.tools[at])
    }

    /// Returns the tool with this name in the dialect.
    pub fn by_wire_name(&self, name: &str) -> Option<&LoweredTool> {
        self.by_wire_name.get(name).map(|&at| &self.tools[at])
    }
}

impl LoweredTool {
    /// Translates an earlier call's arguments into the dialect's form.
    pub fn to_wire<'a>(&self, arguments: &'a Arguments) -> Cow<'a, Arguments> {
        match &self.mapping {
            Some(mapping) => Cow::Owned(mapping.object_to_wire(arguments)),
            None => Cow::Borrowed(arguments),
        }
    }

    /// Translates the arguments that a model wrote into the form that the tool expects.
    pub fn from_wire(&self, arguments: Arguments) -> Arguments {
        match &self.mapping {
            Some(mapping) => mapping.object_to_tool(arguments),
            None => arguments,
        }
    }
}
