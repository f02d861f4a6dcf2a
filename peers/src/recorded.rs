//! Tools of real servers, out of recorded lists.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};
use ropeway::tool::{Schema, ToolDefinition};
use serde::Deserialize;
use serde_json::value::RawValue;

/// A tool of a real server.
#[derive(Debug)]
pub struct Real {
    /// The server's own name for it.
    pub name: String,
    /// What it says of itself.
    pub description: Option<String>,
    /// The schema of its arguments, as text.
    pub schema: Box<RawValue>,
}

impl Real {
    /// Its definition, under a name of its own.
    pub fn definition(&self, number: usize) -> ToolDefinition {
        let mut definition = ToolDefinition::new(format!("{}_{number}", self.name));
        definition.description.clone_from(&self.description);
        definition.input_schema = Schema::from_text(self.schema.clone());
        definition
    }
}

/// The tools in the recorded lists of a folder: one file for each server, with its answer to `tools/list` as `tools_list`.
pub fn recorded(folder: &Path) -> Result<Vec<Real>> {
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
            .with_context(|| format!("`{}` is no recording", file.path().display()))?;
        let list = recording.tools_list.map(|list| list.tools).unwrap_or_default();
        for Tool { name, description, input_schema } in list {
            let schema = RawValue::from_string(in_one_line(input_schema.get()))?;
            tools.push(Real { name, description, schema });
        }
    }
    Ok(tools)
}

/// JSON as it goes over the wire: servers send no line breaks, whoever records them may add some.
fn in_one_line(json: &str) -> String {
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
    fn only_what_stands_between_texts_is_gone() {
        let json = "{\n  \"a b\": [ 1,\t\"c \\\" d\\\\\" ,  true ]\r\n}";
        assert_eq!(in_one_line(json), r#"{"a b":[1,"c \" d\\",true]}"#);
    }
}
