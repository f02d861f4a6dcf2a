//! Tests of shapes.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::registry::{ToolShape, Transformer, naming};
use ropeway_config::{ServerConfig, ServerEntry, StdioServer, ToolOverride};
use ropeway_core::checked::CheckedTool;
use ropeway_core::envelope::EnvelopeData;
use ropeway_core::tool::{
    ArgumentMapping, Arguments, BoxFuture, CallContext, CallError, LocalTool, Origin, Tool, ToolDefinition, ToolOutput,
};

/// A server's tool that returns its own name and the arguments that it received.
fn received(name: &str, schema: Value) -> Arc<dyn Tool> {
    let mut definition = ToolDefinition::new(name).with_description("Says it.").with_input_schema(schema);
    definition.origin = Origin::Server { server: "web".into(), tool: name.into() };
    let name = name.to_owned();
    Arc::new(LocalTool::new(definition, move |arguments: Arguments, _| {
        let said = json!({"name": name, "arguments": arguments}).to_string();
        async move { Ok(said) }
    }))
}

fn say() -> Arc<dyn Tool> {
    received(
        "say",
        json!({"type": "object", "properties": {"text": {"type": "string"}, "token": {}, "room": {}},
            "required": ["text", "token"], "additionalProperties": false}),
    )
}

fn entry() -> ServerEntry {
    ServerEntry::new(ServerConfig::new("web", StdioServer::new("none", [""; 0])))
}

fn with_override(pattern: &str, change: ToolOverride) -> ToolShape {
    let mut entry = entry();
    entry.tools.overrides.push((pattern.to_owned(), change));
    ToolShape::new(&entry).expect("a shape")
}

fn shaped(shape: &ToolShape, tool: Arc<dyn Tool>) -> ToolDefinition {
    shape.apply(tool).expect("a tool").definition().clone()
}

async fn call(shape: &ToolShape, tool: Arc<dyn Tool>, arguments: Value) -> Value {
    let tool = CheckedTool::new(shape.apply(tool).expect("a tool"));
    let arguments = arguments.as_object().cloned().unwrap_or_default();
    let envelope = tool.call(arguments, &CallContext::default()).await;
    match envelope.data() {
        EnvelopeData::Text(text) => serde_json::from_str(&text).unwrap_or_else(|_| json!(text)),
        other => panic!("{other:?}"),
    }
}

fn object(value: Value) -> serde_json::Map<String, Value> {
    value.as_object().cloned().unwrap_or_default()
}

#[tokio::test]
async fn a_tool_has_a_prefix_and_the_server_receives_its_own_name() {
    let shape = ToolShape::new(&entry()).expect("a shape");
    let definition = shaped(&shape, received("look/up", json!({"type": "object"})));
    assert_eq!(definition.name, "mcp_web_look_up");
    assert_eq!(definition.description.as_deref(), Some("Says it."));
    assert_eq!(
        call(&shape, received("look/up", json!({})), json!({"a": 1})).await,
        json!({"name": "look/up", "arguments": {"a": 1}})
    );
}

#[test]
fn all_settings_of_an_entry_apply() {
    let mut entry = entry();
    entry.prefix = "{alias}-".to_owned();
    entry.description_prefix = Some("[MCP: {alias}] ".to_owned());
    let change = ToolOverride {
        name: Some("speak".to_owned()),
        name_prefix: Some("out_".to_owned()),
        description: Some("Speaks.".to_owned()),
        description_prefix: Some("Loud: ".to_owned()),
        hide: vec!["room".to_owned()],
        preset: object(json!({"token": "t"})),
        provider_options: [("openai".to_owned(), json!({"strict": true}))].into(),
    };
    entry.tools.overrides = vec![("s*".to_owned(), change), ("other".to_owned(), ToolOverride::default())];
    let mut expected = ToolDefinition::new("web-out_speak").with_description("[MCP: web] Loud: Speaks.");
    expected = expected.with_input_schema(json!({"type": "object", "properties": {"text": {"type": "string"}},
        "required": ["text"], "additionalProperties": false}));
    expected.origin = Origin::Server { server: "web".into(), tool: "say".into() };
    expected.provider_options = object(json!({"openai": {"strict": true}}));
    let shaped = shaped(&ToolShape::new(&entry).expect("a shape"), say());
    // The definition of the server is kept.
    assert_eq!((shaped.original(), &*shaped.provenance.prefix), (say().definition(), "web-"));
    expected.provenance = shaped.provenance.clone();
    assert_eq!(shaped, expected);
}

#[test]
fn later_overrides_build_on_earlier_ones() {
    let named = |name: &str| ToolOverride { name: Some(name.to_owned()), ..ToolOverride::default() };
    let mut entry = entry();
    entry.tools.overrides =
        vec![("*".to_owned(), named("a")), ("say".to_owned(), named("b")), ("b".to_owned(), named("c"))];
    assert_eq!(shaped(&ToolShape::new(&entry).expect("a shape"), say()).name, "mcp_web_b");
}

#[test]
fn filtered_tools_are_left_out() {
    let mut entry = entry();
    entry.tools.allow = vec!["s*".to_owned()];
    entry.tools.deny = vec!["*delete*".to_owned()];
    let shape = ToolShape::new(&entry).expect("a shape").with_filter(|definition| definition.name != "sing");
    let tools = ["say", "sing", "s_delete", "look"].map(|name| received(name, json!({})));
    let names: Vec<String> = shape.apply_all(tools).iter().map(|tool| tool.definition().name.clone()).collect();
    assert_eq!(names, ["mcp_web_say"]);
}

#[test]
fn an_invalid_pattern_is_an_error_in_every_setting() {
    let broken = |change: fn(&mut ServerEntry)| {
        let mut entry = entry();
        change(&mut entry);
        ToolShape::new(&entry).expect_err("an error").to_string()
    };
    assert_eq!(broken(|entry| entry.tools.allow.push("a[".to_owned())), "`a[` is not a glob");
    assert_eq!(broken(|entry| entry.tools.deny.push("{b".to_owned())), "`{b` is not a glob");
    assert_eq!(
        broken(|entry| entry.tools.overrides.push(("[z-a]".to_owned(), ToolOverride::default()))),
        "`[z-a]` is not a glob"
    );
}

#[tokio::test]
async fn hidden_arguments_never_reach_the_server_and_presets_always_do() {
    let change = ToolOverride {
        hide: vec!["room".to_owned()],
        preset: object(json!({"token": "ours"})),
        ..ToolOverride::default()
    };
    let shape = with_override("*", change);
    for sent in [json!({"text": "hi"}), json!({"text": "hi", "token": "mine", "room": "secret"})] {
        assert_eq!(
            call(&shape, say(), sent).await,
            json!({"name": "say", "arguments": {"text": "hi", "token": "ours"}})
        );
    }
    let refused = call(&shape, say(), json!({"token": "mine"})).await;
    assert!(refused.as_str().is_some_and(|text| text.contains("`text` is missing")), "{refused}");
}

#[tokio::test]
async fn an_argument_that_is_hidden_and_preset_is_sent() {
    let hide: Arc<dyn Transformer> = Arc::new(ToolOverride::default().with_hide(["token".to_owned()]));
    let preset: Arc<dyn Transformer> = Arc::new(ToolOverride::default().with_preset(object(json!({"token": "ours"}))));
    for [first, second] in [[hide.clone(), preset.clone()], [preset, hide]] {
        let shape = ToolShape::new(&entry()).expect("a shape").with_transformer(first).with_transformer(second);
        assert_eq!(
            call(&shape, say(), json!({"text": "hi", "token": "mine"})).await["arguments"],
            json!({"text": "hi", "token": "ours"})
        );
    }
}

/// Exposes argument `token` as `room`.
struct Swap;

impl Transformer for Swap {
    fn transform(&self, definition: ToolDefinition) -> Option<ToolDefinition> {
        Some(definition.with_input_schema(json!({"properties": {"text": {}, "room": {}}})))
    }

    fn transform_arguments(&self, arguments: &mut Arguments) {
        if let Some(room) = arguments.shift_remove("room") {
            arguments.insert("token".to_owned(), room);
        }
    }
}

#[tokio::test]
async fn transformers_are_undone_in_reverse_order() {
    let hide = Arc::new(ToolOverride::default().with_hide(["room".to_owned()]));
    let shape = ToolShape::new(&entry()).expect("a shape").with_transformer(hide).with_transformer(Arc::new(Swap));
    let preset = Arc::new(ToolOverride::default().with_preset(object(json!({"room": "ours"}))));
    assert_eq!(call(&shape, say(), json!({"room": "r"})).await["arguments"], json!({"token": "r"}));
    let shape = shape.with_transformer(preset);
    assert_eq!(call(&shape, say(), json!({"room": "r"})).await["arguments"], json!({"token": "ours"}));
}

#[test]
fn transformers_run_before_the_prefix_is_added() {
    let prefix_name = |prefix: &'static str| {
        Arc::new(move |tool: ToolDefinition| Some(ToolDefinition { name: format!("{prefix}{}", tool.name), ..tool }))
    };
    let shape = with_override("*", ToolOverride { name: Some("speak".to_owned()), ..ToolOverride::default() })
        .with_transformer(prefix_name("so."))
        .with_transformer_for("say", prefix_name("and "))
        .and_then(|shape| shape.with_transformer_for("look", prefix_name("never")))
        .expect("a shape");
    assert_eq!(shaped(&shape, say()).name, "mcp_web_and_so_speak");
    let long_name = with_override("*", ToolOverride::default().with_name("x".repeat(100)));
    assert_eq!(shaped(&long_name, say()).name.len(), naming::MAX_LENGTH);
}

#[test]
fn a_transformer_cannot_change_the_origin() {
    let stolen = |mut definition: ToolDefinition| {
        definition.origin = Origin::Local;
        Some(definition)
    };
    let shape = ToolShape::new(&entry()).expect("a shape").with_transformer(Arc::new(stolen));
    assert_eq!(shaped(&shape, say()).origin, say().definition().origin);
}

#[test]
fn a_transformer_that_panics_only_drops_its_tool() {
    let unlucky = |definition: ToolDefinition| {
        assert_ne!(definition.name, "say", "no luck");
        Some(definition)
    };
    let shape = ToolShape::new(&entry()).expect("a shape").with_transformer(Arc::new(unlucky));
    let shape = shape.with_filter(|definition| !definition.name.starts_with("p") || panic!("no luck"));
    let tools = shape.apply_all([say(), received("pray", json!({})), received("look", json!({}))]);
    assert_eq!(tools.iter().map(|tool| tool.definition().name.as_str()).collect::<Vec<_>>(), ["mcp_web_look"]);
}

/// Panics when it maps arguments.
struct Clumsy;

impl Transformer for Clumsy {
    fn transform(&self, definition: ToolDefinition) -> Option<ToolDefinition> {
        Some(definition)
    }

    fn transform_arguments(&self, _: &mut Arguments) {
        panic!("oops");
    }
}

#[tokio::test]
async fn a_panic_while_mapping_arguments_fails_the_call() {
    let shape = ToolShape::new(&entry()).expect("a shape").with_transformer(Arc::new(Clumsy));
    let said = call(&shape, received("look", json!({})), json!({})).await;
    assert!(said.as_str().is_some_and(|text| text.contains("panicked: oops")), "{said}");
}

#[test]
fn a_schema_without_hidden_arguments_is_shared() {
    let tool = say();
    let shape = with_override("*", ToolOverride { hide: vec!["none".to_owned()], ..ToolOverride::default() });
    assert!(shaped(&shape, tool.clone()).input_schema.ptr_eq(&tool.definition().input_schema));
}

/// A tool whose arguments the server gets unchanged.
struct Verbatim(ToolDefinition);

impl Tool for Verbatim {
    fn definition(&self) -> &ToolDefinition {
        &self.0
    }

    fn argument_mapping(&self) -> ArgumentMapping {
        ArgumentMapping::Verbatim
    }

    fn call<'a>(&'a self, _: Arguments, _: &'a CallContext) -> BoxFuture<'a, Result<ToolOutput, CallError>> {
        Box::pin(async { Err(CallError::Cancelled) })
    }
}

#[tokio::test]
async fn arguments_are_mapped_only_if_a_transformer_changes_them() {
    let renamed = ToolOverride { name: Some("see".into()), description: Some("Sees.".into()), ..Default::default() };
    let preset = ToolOverride { hide: vec!["room".into()], preset: object(json!({"token": "t"})), ..renamed.clone() };
    let verbatim = || Arc::new(Verbatim(say().definition().clone()));
    let mapping = |change: &ToolOverride, tool: Arc<dyn Tool>| {
        with_override("say", change.clone()).apply(tool).expect("a tool").argument_mapping()
    };
    assert_eq!(mapping(&renamed, verbatim()), ArgumentMapping::Verbatim);
    assert_eq!(mapping(&preset, verbatim()), ArgumentMapping::Mapped);
    assert_eq!(mapping(&renamed, say()), ArgumentMapping::Opaque);
    let tool = CheckedTool::new(with_override("say", preset.clone()).apply(say()).expect("a tool")).renamed("other");
    let mut mapped = object(json!({"text": "a", "room": 1}));
    tool.tool().map_arguments(&mut mapped);
    let called = call(&with_override("say", preset), say(), json!({"text": "a", "room": 1})).await;
    assert_eq!(Value::Object(mapped), called["arguments"]);
}
