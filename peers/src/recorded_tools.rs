//! Real servers' tools, from recorded lists.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};
use ropeway::tool::{Schema, ToolDefinition};
use serde::Deserialize;
use serde_json::value::RawValue;

/// A real server's tool.
#[derive(Debug)]
pub struct RecordedTool {
    /// The server's name for the tool.
    pub name: String,
    /// The tool's description.
    pub description: Option<String>,
    /// The input schema as JSON text.
    pub schema: Box<RawValue>,
}

impl RecordedTool {
    /// Returns its definition, with a number that makes the name unique.
    pub fn definition(&self, number: usize) -> ToolDefinition {
        let mut definition = ToolDefinition::new(format!("{}_{number}", self.name));
        definition.description.clone_from(&self.description);
        definition.input_schema = Schema::from_text(self.schema.clone());
        definition
    }
}

/// Returns the tools in a folder's recorded lists: one file per server, with its `tools/list` result as `tools_list`.
pub fn recorded_tools(folder: &Path) -> Result<Vec<RecordedTool>> {
    #[derive(Deserialize)]
    struct Recording {
        tools_list: Option<List>,
    }
    #[derive(Deserialize)]
    struct List {
        tools: Vec<Tool>,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Tool {
        name: String,
        description: Option<String>,
        input_schema: Box<RawValue>,
    }
    let unreadable = || format!("could not read `{}`", folder.display());
    let mut files: Vec<_> = fs::read_dir(folder).with_context(unreadable)?.collect::<std::io::Result<_>>()?;
    files.sort_by_key(fs::DirEntry::path);
    let mut tools = Vec::new();
    for file in files {
        let recording: Recording = serde_json::from_str(&fs::read_to_string(file.path())?)
            .with_context(|| format!("`{}` is not a recording", file.path().display()))?;
        let list = recording.tools_list.map(|list| list.tools).unwrap_or_default();
        for Tool { name, description, input_schema } in list {
            let schema = RawValue::from_string(compact(input_schema.get()))?;
            tools.push(RecordedTool { name, description, schema });
        }
    }
    Ok(tools)
}

/// Removes whitespace outside strings: servers send compact JSON, and recordings may be formatted.
fn compact(json: &str) -> String {
    let (mut is_text, mut is_escaped) = (false, false);
    let keep = |c: &char| {
        let is_kept = is_text || !c.is_ascii_whitespace();
        match c {
            '"' if !is_escaped => is_text = !is_text,
            _ => {}
        }
        is_escaped = is_text && *c == '\\' && !is_escaped;
        is_kept
    };
    json.chars().filter(keep).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whitespace_outside_of_strings_is_removed() {
        let json = "{\n  \"a b\": [ 1,\t\"c \\\" d\\\\\" ,  true ]\r\n}";
        assert_eq!(compact(json), r#"{"a b":[1,"c \" d\\",true]}"#);
    }
}
