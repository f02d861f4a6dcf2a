//! Unusual definitions, content blocks and results, as real servers send them.

use serde_json::{Value, json};

use super::fault::{Fault, FaultRule, FaultTrigger};
use super::script::ExtraTool;

/// Tools with one unusual property each; all of them can be called.
pub fn tools() -> Vec<ExtraTool> {
    let object = json!({ "type": "object" });
    [
        json!({ "name": "no_schema" }),
        json!({ "name": "null_schema", "inputSchema": null }),
        json!({ "name": "true_schema", "inputSchema": true }),
        json!({ "name": "empty_schema", "inputSchema": {} }),
        json!({ "name": "icon_sizes_as_text", "inputSchema": object, "icons": [{ "src": "data:,", "sizes": "48x48" }] }),
        json!({ "name": "icons_as_object", "inputSchema": object, "icons": { "src": 1 } }),
        json!({ "name": "description_as_number", "inputSchema": object, "description": 7 }),
        json!({ "name": "description_as_null", "inputSchema": object, "description": null }),
        json!({ "name": "annotations_as_text", "inputSchema": object, "annotations": "read only" }),
        json!({ "name": "hints_as_text", "inputSchema": object, "annotations": { "readOnlyHint": "yes" } }),
        json!({ "name": "output_schema_as_text", "inputSchema": object, "outputSchema": "a string" }),
        json!({ "name": "title_as_list", "inputSchema": object, "title": ["a"] }),
        json!({ "name": "meta_as_list", "inputSchema": object, "_meta": [] }),
        json!({ "name": "unknown_fields", "inputSchema": object, "x-vendor": { "kept": true } }),
        json!({ "name": "a name with spaces / and ünïcode", "inputSchema": object }),
    ]
    .into_iter()
    .map(|definition| ExtraTool::new(definition, json!({ "content": [{ "type": "text", "text": "fine" }] })))
    .collect()
}

/// Tool list entries that are not valid tools.
pub fn not_tools() -> Vec<ExtraTool> {
    [
        json!({ "description": "it has no name", "inputSchema": {} }),
        json!({ "name": 7 }),
        json!("a string"),
        json!(null),
    ]
    .into_iter()
    .map(|definition| ExtraTool::new(definition, json!({})))
    .collect()
}

/// Content blocks with one unusual property each.
pub fn blocks() -> Vec<Value> {
    vec![
        json!({ "type": "hologram", "data": "AAAA", "depth": 3 }),
        json!({ "type": "text", "text": null }),
        json!({ "type": "text" }),
        json!({ "type": "text", "text": "for whom", "annotations": { "audience": ["system"], "priority": "high" } }),
        json!({ "type": "resource_link", "uri": "test://nameless" }),
        json!({ "type": "resource", "resource": { "uri": "test://empty" } }),
        json!({ "type": "image", "data": "not base64!", "mimeType": "image/png" }),
        json!({ "type": "image", "data": "AAAA" }),
        json!({ "no": "type" }),
        json!("a string"),
        json!(null),
    ]
}

/// Faults that make the `initialize` result unusual, each in one way.
pub fn initializes() -> Vec<FaultRule> {
    [
        Fault::remove("/result/serverInfo/version"),
        Fault::remove("/result/serverInfo"),
        Fault::remove("/result/capabilities"),
        Fault::set("/result/capabilities/tools", true),
        Fault::set("/result/capabilities", json!([])),
        Fault::set("/result/instructions", json!(["a", "b"])),
        Fault::set("/result/serverInfo/name", 7),
    ]
    .into_iter()
    .map(|fault| FaultRule { on: FaultTrigger::method("initialize"), fault })
    .collect()
}

/// Faults that make the `tools/list` result unusual, each in one way.
pub fn lists() -> Vec<FaultRule> {
    [
        Fault::set("/result/nextCursor", json!(null)),
        Fault::set("/result/ttlMs", -1),
        Fault::set("/result/ttlMs", "soon"),
        Fault::set("/result/cacheScope", "shared"),
        Fault::set("/result/cacheScope", ""),
        Fault::set("/result/_meta", json!("a string")),
    ]
    .into_iter()
    .map(|fault| FaultRule { on: FaultTrigger::method("tools/list"), fault })
    .collect()
}
