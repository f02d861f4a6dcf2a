//! Definitions recorded from real servers.

use std::path::{Path, PathBuf};

use serde_json::Value;

use super::*;
use crate::schema::Validator;

/// Returns the folder of recorded servers, if it exists next to the repository or in the environment.
fn folder() -> Option<PathBuf> {
    let beside = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/corpus");
    let folder = std::env::var_os("ROPEWAY_CORPUS").map_or_else(beside, PathBuf::from);
    folder.is_dir().then_some(folder)
}

fn files(folder: &Path) -> Vec<(String, Value)> {
    let paths = std::fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").path());
    let mut paths: Vec<PathBuf> = paths.filter(|path| path.extension().is_some_and(|end| end == "json")).collect();
    paths.sort();
    let read = |path: PathBuf| {
        let name = path.file_stem().and_then(|name| name.to_str()).expect("a name").to_owned();
        (name, serde_json::from_str(&std::fs::read_to_string(&path).expect("a file")).expect("JSON"))
    };
    paths.into_iter().map(read).collect()
}

fn definitions(record: &Value) -> Vec<ToolDefinition> {
    let tools = record.pointer("/tools_list/tools").and_then(Value::as_array).into_iter().flatten();
    let read = |tool: &Value| {
        let mut definition = ToolDefinition::new(tool["name"].as_str().expect("a name"));
        definition.description = tool["description"].as_str().map(str::to_owned);
        definition.with_input_schema(tool["inputSchema"].clone())
    };
    tools.map(read).collect()
}

#[test]
fn real_definitions_follow_the_rules_of_all_dialects() {
    let Some(folder) = folder() else { return };
    let (mut count, mut strict) = (0, 0);
    for (server, record) in files(&folder.join("servers")) {
        let definitions = definitions(&record);
        count += definitions.len();
        for dialect in Dialect::ALL {
            let lowered = lower(&definitions, dialect);
            assert_eq!(lowered.omitted, [], "{server}");
            assert_eq!(lowered.tools.len(), definitions.len());
            for tool in &lowered.tools {
                let broken = rules::broken(dialect, &declared(tool));
                assert_eq!(broken, [""; 0], "{dialect}: {server}: {}", tool.name);
                assert_eq!(lowered.by_wire_name(&tool.wire_name).map(|tool| &tool.name), Some(&tool.name));
            }
        }
        for definition in definitions {
            let strict_one = strict_definition((*definition.input_schema).clone());
            for dialect in [Dialect::Anthropic, Dialect::Chat] {
                let tool = one(&strict_one, dialect).expect("a tool");
                let declared = declared(&tool);
                let broken = rules::broken(dialect, &declared);
                assert_eq!(broken, [""; 0], "{dialect}, strict: {server}: {}: {declared}", definition.name);
                strict += usize::from(declared.pointer("/function/strict") == Some(&Value::Bool(true)));
            }
        }
    }
    assert!(count >= 2_000, "{count} definitions");
    // More than half support strict mode.
    assert!(strict > count / 2, "{strict} of {count}");
}

#[test]
fn real_calls_match_the_lowered_schema_and_round_trip() {
    let Some(folder) = folder() else { return };
    let servers = files(&folder.join("servers"));
    let mut count = 0;
    for (server, record) in files(&folder.join("calls")) {
        let Some((_, listed)) = servers.iter().find(|(name, _)| *name == server) else { continue };
        let definitions = definitions(listed);
        for dialect in Dialect::ALL {
            let lowered = lower(&definitions, dialect);
            for call in record["calls"].as_array().expect("calls") {
                let request = &call["request"];
                let Some(tool) =
                    request.pointer("/params/name").and_then(Value::as_str).and_then(|name| lowered.get(name))
                else {
                    continue;
                };
                let own: Arguments =
                    request.pointer("/params/arguments").and_then(Value::as_object).cloned().unwrap_or_default();
                let original =
                    definitions.iter().find(|definition| definition.name == tool.name).expect("a definition");
                let wire = tool.to_wire(&own).into_owned();
                if Validator::compile(&original.input_schema).validate(&Value::Object(own.clone())).is_ok() {
                    let schema = schema_of(tool, dialect);
                    let status = Validator::compile(&schema).validate(&Value::Object(wire.clone()));
                    assert_eq!(status, Ok(()), "{dialect}: {server}: {}", tool.name);
                }
                assert_eq!(tool.from_wire(wire), own, "{dialect}: {server}: {}", tool.name);
                count += 1;
            }
        }
    }
    assert!(count >= 100, "{count} calls");
}
