//! Tools of real servers, out of recorded lists.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};
use ropeway::tool::{Schema, ToolDefinition};
use serde::Deserialize;
use serde_json::Value;
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

/// The tools in the recorded lists of a folder.
pub fn recorded(folder: &Path) -> Result<Vec<Real>> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Tool {
        name: String,
        description: Option<String>,
        input_schema: Box<RawValue>,
    }
    let mut files: Vec<_> = fs::read_dir(folder)
        .with_context(|| format!("could not read `{}`", folder.display()))?
        .collect::<std::io::Result<_>>()?;
    files.sort_by_key(fs::DirEntry::path);
    let mut tools = Vec::new();
    for file in files {
        let server: Value = serde_json::from_str(&fs::read_to_string(file.path())?)?;
        for list in lists(&server) {
            for tool in list {
                let Ok(tool) = Tool::deserialize(tool) else { continue };
                tools.push(Real { name: tool.name, description: tool.description, schema: tool.input_schema });
            }
        }
    }
    Ok(tools)
}

/// The lists of tools in a recording, wherever they stand.
fn lists(value: &Value) -> Vec<&Vec<Value>> {
    match value {
        Value::Object(fields) => fields
            .iter()
            .flat_map(|(name, value)| match value {
                Value::Array(list) if name == "tools" && list.iter().all(|tool| tool.get("inputSchema").is_some()) => {
                    vec![list]
                }
                other => lists(other),
            })
            .collect(),
        Value::Array(values) => values.iter().flat_map(lists).collect(),
        _ => Vec::new(),
    }
}
