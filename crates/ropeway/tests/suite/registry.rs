//! Tool definitions of real servers pass through naming, filtering and validation without loss.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ropeway::checked::CheckedTool;
use ropeway::config::{CollisionPolicy, ServerConfig, ServerEntry, StdioServer};
use ropeway::registry::Registry;
use ropeway::tool::{Alias, LocalTool, Origin, Tool, ToolDefinition};
use ropeway_bridge::registry::ToolShape;
use ropeway_mcp::protocol::tool_definition;
use serde_json::{Value, json};

/// A server and its tool list.
type Listed = (Alias, Vec<Value>);

/// Unusual definitions.
fn odd() -> Listed {
    let long = "deeply/nested.tool ".repeat(10);
    let deep =
        (0..60).fold(json!({"type": "string"}), |inner, _| json!({"type": "object", "properties": {"a": inner}}));
    let tools = vec![
        json!({"name": "plain"}),
        json!({"name": "files.read"}),
        json!({"name": "files/read"}),
        json!({"name": "files_read"}),
        json!({"name": "搜索"}),
        json!({"name": "工具"}),
        json!({"name": " "}),
        json!({"name": "[a-"}),
        json!({"name": "new\nline\u{0}"}),
        json!({"name": format!("{long}one")}),
        json!({"name": format!("{long}two")}),
        json!({"name": "no-schema", "inputSchema": true, "description": 3}),
        json!({"name": "wrong", "inputSchema": {"type": "objekt", "properties": [], "required": "all"}}),
        json!({"name": "loop", "inputSchema": {"$ref": "#"}}),
        json!({"name": "lost", "inputSchema": {"$ref": "#/$defs/nowhere"}}),
        json!({"name": "far", "inputSchema": {"$ref": "https://example.invalid/schema.json"}}),
        json!({"name": "regex", "inputSchema": {"properties": {"a": {"pattern": "(((("}}}}),
        json!({"name": "deep", "inputSchema": deep}),
        json!({"name": "draft", "inputSchema": {"$schema": "http://json-schema.org/draft-04/schema#", "required": []}}),
    ];
    ("odd one/ü".into(), tools)
}

/// Returns the folder of recorded servers next to the repository or from the environment, if it exists.
fn corpus() -> Option<PathBuf> {
    let beside = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/corpus");
    let folder = std::env::var_os("ROPEWAY_CORPUS").map_or_else(beside, PathBuf::from).join("servers");
    folder.is_dir().then_some(folder)
}

fn recorded(folder: &Path) -> Vec<Listed> {
    let files = std::fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").path());
    let mut files: Vec<PathBuf> = files.filter(|path| path.extension().is_some_and(|end| end == "json")).collect();
    files.sort();
    assert!(!files.is_empty(), "`{}` holds no servers", folder.display());
    files.iter().map(|path| server(path)).collect()
}

fn server(path: &Path) -> Listed {
    let text = std::fs::read_to_string(path).expect("a file");
    let mut record: Value = serde_json::from_str(&text).expect("JSON");
    let alias = path.file_stem().and_then(|name| name.to_str()).expect("a name").into();
    let tools = record.pointer_mut("/tools_list/tools").map(Value::take);
    (alias, tools.and_then(|tools| tools.as_array().cloned()).unwrap_or_default())
}

fn tool(alias: &Alias, entry: Value) -> Arc<dyn Tool> {
    let entry = serde_json::value::to_raw_value(&entry).expect("JSON");
    let definition = tool_definition(alias, &entry).expect("a tool");
    Arc::new(LocalTool::new(definition, |_, _| async { Ok("") }))
}

fn own_name(definition: &ToolDefinition) -> &str {
    match &definition.origin {
        Origin::Server { tool, .. } => tool,
        Origin::Local => panic!("`{}` has lost its server", definition.name),
    }
}

fn entry(alias: &Alias) -> ServerEntry {
    ServerEntry::new(ServerConfig::new(alias.clone(), StdioServer::new("none", [""; 0])))
}

/// Returns the tools of a server that pass these globs.
fn shaped(alias: &Alias, tools: &[Arc<dyn Tool>], allow: &[&str], deny: &[&str]) -> Vec<CheckedTool> {
    let mut entry = entry(alias);
    entry.tools.allow = allow.iter().map(ToString::to_string).collect();
    entry.tools.deny = deny.iter().map(ToString::to_string).collect();
    ToolShape::new(&entry).expect("a shape").apply_all(tools.iter().cloned())
}

#[test]
fn no_tool_of_a_real_server_is_lost() {
    let servers: Vec<Listed> =
        corpus().map(|folder| recorded(&folder)).unwrap_or_default().into_iter().chain([odd()]).collect();
    let servers: Vec<(Alias, Vec<Arc<dyn Tool>>)> = servers
        .into_iter()
        .map(|(alias, entries)| {
            let tools = entries.into_iter().map(|entry| tool(&alias, entry)).collect();
            (alias, tools)
        })
        .collect();

    let groups = servers.iter().map(|(alias, tools)| shaped(alias, tools, &[], &[]));
    let (registry, collisions) = Registry::assemble(groups, CollisionPolicy::Error);
    assert_eq!(collisions, []);
    for (alias, tools) in &servers {
        let sent: BTreeSet<&str> = tools.iter().map(|tool| own_name(tool.definition())).collect();
        let kept: BTreeSet<&str> = registry.of_server(alias).map(|tool| own_name(tool.definition())).collect();
        assert_eq!(kept, sent, "{alias}");

        // A glob and its complement partition the tools.
        let [with, without] = [shaped(alias, tools, &["*e*"], &[]), shaped(alias, tools, &[], &["*e*"])];
        assert_eq!(with.len() + without.len(), tools.len(), "{alias}");
        assert!(with.iter().all(|tool| own_name(tool.definition()).contains('e')), "{alias}");
    }
    for tool in registry.tools() {
        let ToolDefinition { name, input_schema, .. } = tool.definition();
        let is_legal = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
        assert!((1..=64).contains(&name.len()) && name.chars().all(is_legal), "{name}");
        let original = servers
            .iter()
            .flat_map(|(_, tools)| tools)
            .find(|sent| sent.definition().origin == tool.definition().origin)
            .expect("the tool as it was sent");
        assert!(input_schema.ptr_eq(&original.definition().input_schema), "{name}");
        // Compiles the schema; the warning is not checked.
        let _ = tool.warning();
    }
    let names: BTreeSet<&str> = registry.definitions().map(|definition| definition.name.as_str()).collect();
    assert_eq!(names.len(), servers.iter().map(|(_, tools)| tools.len()).sum::<usize>());
}
