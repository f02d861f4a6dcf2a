//! Checks messages against the JSON Schema of the MCP specification.

use std::cell::RefCell;
use std::collections::BTreeMap;

use jsonschema::Validator;
use serde_json::{Value, json};

/// The schema of one protocol version.
pub(crate) struct Specification {
    document: Value,
    /// The key of the definitions, which differs between versions.
    definitions: &'static str,
    /// Compiled validators, by definition name.
    validators: RefCell<BTreeMap<String, Validator>>,
}

impl Specification {
    pub(crate) fn of(version: &str) -> Self {
        let text = match version {
            // The first version has no published schema, so the next one is used.
            "2024-11-05" | "2025-03-26" => include_str!("../../../../fixtures/protocol/2025-03-26.json"),
            "2025-06-18" => include_str!("../../../../fixtures/protocol/2025-06-18.json"),
            "2025-11-25" => include_str!("../../../../fixtures/protocol/2025-11-25.json"),
            "2026-07-28" => include_str!("../../../../fixtures/protocol/2026-07-28.json"),
            other => panic!("there is no schema for `{other}`"),
        };
        let document: Value = serde_json::from_str(text).expect("a schema is JSON");
        let definitions = if document.get("$defs").is_some() { "$defs" } else { "definitions" };
        Self { document, definitions, validators: RefCell::default() }
    }

    /// Returns the violations in a message of a client. A response is checked by the method of its request.
    pub(crate) fn faults(&self, message: &Value, question: Option<&str>) -> Vec<String> {
        let Some(method) = message["method"].as_str() else {
            return self.faults_of_answer(message, question.expect("a question to this answer"));
        };
        let (any, ours) = match message.get("id") {
            Some(_) => ("JSONRPCRequest", "ClientRequest"),
            None => ("JSONRPCNotification", "ClientNotification"),
        };
        let mut faults = self.check(any, message);
        if let Some(definition) = self.definition_of(method) {
            faults.extend(self.check(ours, message));
            faults.extend(self.check(definition, message));
            faults.extend(self.unknown_parameters(definition, message));
        } else if self.is_extension(method) {
            faults.extend(self.check("InputResponseRequestParams", &message["params"]));
        } else {
            faults.push(format!("there is no `{method}` in this version"));
        }
        faults
    }

    fn faults_of_answer(&self, message: &Value, question: &str) -> Vec<String> {
        if message.get("error").is_some() {
            return self.check(self.either("JSONRPCErrorResponse", "JSONRPCError"), message);
        }
        let result = match question {
            "elicitation/create" => self.either("ElicitResult", "Result"),
            "sampling/createMessage" => "CreateMessageResult",
            "roots/list" => "ListRootsResult",
            "ping" => "EmptyResult",
            other => panic!("nobody asks a client for `{other}`"),
        };
        let mut faults = self.check(self.either("JSONRPCResultResponse", "JSONRPCResponse"), message);
        faults.extend(self.check(result, &message["result"]));
        faults
    }

    /// Returns `true` for task methods of 2026-07-28, which are an extension with a separate schema.
    fn is_extension(&self, method: &str) -> bool {
        method.starts_with("tasks/") && self.defines("RequestMetaObject")
    }

    fn defines(&self, name: &str) -> bool {
        self.document[self.definitions].get(name).is_some()
    }

    /// Returns the definition with this name, or its equivalent in older versions.
    fn either(&self, name: &'static str, older: &'static str) -> &'static str {
        if self.defines(name) { name } else { older }
    }

    fn definition_of(&self, method: &str) -> Option<&str> {
        let definitions = self.document[self.definitions].as_object()?;
        let mut names = definitions.iter().filter(|(name, _)| !name.starts_with("Client"));
        names.find(|(_, it)| it["properties"]["method"]["const"] == method).map(|(name, _)| name.as_str())
    }

    fn check(&self, definition: &str, value: &Value) -> Vec<String> {
        let mut validators = self.validators.borrow_mut();
        let validator = validators.entry(definition.to_owned()).or_insert_with(|| self.validator(definition));
        let faults = validator.iter_errors(value);
        faults.map(|fault| format!("{definition}: at `{}`: {fault}", fault.instance_path())).collect()
    }

    fn validator(&self, definition: &str) -> Validator {
        assert!(self.defines(definition), "there is no definition `{definition}`");
        let mut schema = self.document.clone();
        schema["allOf"] = json!([{"$ref": format!("#/{}/{definition}", self.definitions)}]);
        jsonschema::options().should_validate_formats(true).build(&schema).expect("a schema")
    }

    /// Returns parameters that the definition does not declare. The schemas allow them.
    fn unknown_parameters(&self, definition: &str, message: &Value) -> Vec<String> {
        let mut known = &self.document[self.definitions][definition]["properties"]["params"];
        while let Some(pointer) = known["$ref"].as_str() {
            known = self.document.pointer(pointer.trim_start_matches('#')).expect("what a `$ref` points at");
        }
        let given = message["params"].as_object().into_iter().flatten().map(|(name, _)| name);
        let unknown = given.filter(|name| *name != "_meta" && known["properties"].get(name.as_str()).is_none());
        unknown.map(|name| format!("{definition}: there is no parameter `{name}`")).collect()
    }
}

#[test]
fn the_checker_finds_violations_in_every_version() {
    for version in ["2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28"] {
        let specification = Specification::of(version);
        let meta = json!({"io.modelcontextprotocol/protocolVersion": version,
            "io.modelcontextprotocol/clientCapabilities": {}});
        let good = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "a", "_meta": meta}});
        assert_eq!(specification.faults(&good, None), Vec::<String>::new());
        for (pointer, bad) in [
            ("/jsonrpc", json!("1.0")),
            ("/id", json!(null)),
            ("/method", json!("tools/calls")),
            ("/params/name", json!(1)),
            ("/params", json!({"_meta": meta})),
            ("/params", json!({"_meta": meta, "name": "a", "argumints": {}})),
        ] {
            let mut message = good.clone();
            *message.pointer_mut(pointer).expect("a place") = bad;
            assert_ne!(specification.faults(&message, None), Vec::<String>::new(), "{message}");
        }
        let answer = json!({"jsonrpc": "2.0", "id": 1, "result": {"roots": [{"name": "no address"}]}});
        if version != "2026-07-28" {
            assert_ne!(specification.faults(&answer, Some("roots/list")), Vec::<String>::new());
        }
    }
}
