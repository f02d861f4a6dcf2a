//! Cases about tools, request settings and quirks.

use ropeway::content::ContentPart;
use ropeway::message::{AssistantMessage, Conversation, Dialect, ToolResult};
use ropeway::provider::{ChatRequest, MediaKinds, ReasoningEffort, ToolChoice};
use ropeway::tool::ToolDefinition;
use serde_json::{Value, json};

use super::case::{Case, call, tools};
use super::cases::{after, wind};
use super::parts::part;

/// Returns all cases.
pub(super) fn cases() -> Vec<Case> {
    let mut cases = offered();
    cases.extend(settings_cases());
    cases.extend(particular());
    cases
}

/// Tools of every kind.
fn offered() -> Vec<Case> {
    let hi = || Conversation::new().with("hi");
    let named = |name: &str| ToolDefinition::new(name).with_description("Does it");
    let with = |name: &str, schema: Value| named(name).with_input_schema(schema);
    let odd = call("call_1", "files/read.all", json!({"path": "a"}));
    let names = || {
        let long = "deeply/nested.tool.".repeat(8);
        vec![
            named("files/read.all"),
            named("files_read_all"),
            named("工具"),
            named("搜索"),
            named(&format!("{long}one")),
            named(&format!("{long}two")),
            named("2nd"),
        ]
    };
    let mut strict = with("wind", tools()[0].input_schema.read().into_owned());
    let options = json!({
        "anthropic": {"strict": true, "cache_control": {"type": "ephemeral"}},
        "openai": {"strict": true},
        "responses": {"defer_loading": true},
        "gemini": {"responseJsonSchema": {"type": "string"}}
    });
    strict.provider_options = options.as_object().cloned().expect("an object");
    vec![
        Case::new("tools", hi()).with_tools(tools()),
        Case::new("no_tools", hi()).with_tools(vec![]),
        Case::new("tool_without_anything", hi()).with_tools(vec![ToolDefinition::new("now")]),
        Case::new("odd_names", after(&[&odd], vec![ToolResult::new(&odd, vec![ContentPart::text("a")])]))
            .with_tools(names()),
        Case::new("odd_schemas", hi()).with_tools(odd_schemas()),
        Case::new("provider_options", hi()).with_tools(vec![strict]),
    ]
}

/// Schemas that some or all dialects have to change.
fn odd_schemas() -> Vec<ToolDefinition> {
    let branch = |name: &str| json!({"type": "object", "properties": {name: {"type": "string"}}, "required": [name]});
    let schemas = [
        ("any_root", json!({"anyOf": [branch("by_name"), branch("by_number")]})),
        ("all_root", json!({"type": "object", "allOf": [branch("a"), branch("b")]})),
        ("true_schema", json!({"type": "object", "properties": {"anything": true, "nothing": false}})),
        ("no_items", json!({"type": "object", "properties": {"list": {"type": "array"}}})),
        (
            "recursive",
            json!({
                "type": "object",
                "properties": {"tree": {"$ref": "#/$defs/node"}},
                "$defs": {"node": {"type": "object", "properties": {"children": {"type": "array", "items": {"$ref": "#/$defs/node"}}}}}
            }),
        ),
        (
            "referred",
            json!({
                "$schema": "http://json-schema.org/draft-07/schema#",
                "type": "object",
                "properties": {"at": {"$ref": "#/definitions/place", "description": "where"}},
                "definitions": {"place": {"type": "object", "properties": {"x": {"type": "number"}}}}
            }),
        ),
        (
            "detailed",
            json!({
                "type": "object",
                "title": "Details",
                "properties": {
                    "kind": {"const": "line"},
                    "level": {"enum": [1, 2, "three", null]},
                    "size": {"type": ["integer", "null"], "exclusiveMinimum": 0, "default": 3},
                    "code": {"type": "string", "pattern": "^(?=a)[a-z]+$", "minLength": 2, "maxLength": 5, "format": "uri"},
                    "pair": {"type": "array", "items": [{"type": "string"}, {"type": "number"}]},
                    "either": {"oneOf": [{"type": "string"}, {"type": "integer"}]},
                    "not this": {"not": {"type": "string"}}
                },
                "required": ["kind"],
                "additionalProperties": false,
                "examples": [{"kind": "line"}]
            }),
        ),
        ("no_object", json!({"type": "string"})),
        ("anything", json!(true)),
    ];
    schemas.into_iter().map(|(name, schema)| ToolDefinition::new(name).with_input_schema(schema)).collect()
}

/// Request settings.
fn settings_cases() -> Vec<Case> {
    let ask = |name: &str, ask: fn(&mut ChatRequest<'_>)| {
        Case::new(name, Conversation::new().with("hi")).with_tools(tools()).asking(ask)
    };
    vec![
        ask("choice_none", |request| request.tool_choice = ToolChoice::None),
        ask("choice_required", |request| request.tool_choice = ToolChoice::Required),
        ask("choice_tool", |request| request.tool_choice = ToolChoice::Tool("wind".to_owned())),
        ask("choice_unknown_tool", |request| request.tool_choice = ToolChoice::Tool("teleport".to_owned())),
        Case::new("choice_without_tools", Conversation::new().with("hi"))
            .asking(|request| request.tool_choice = ToolChoice::Required),
        ask("one_at_a_time", |request| request.parallel_calls = Some(false)),
        ask("many_at_a_time", |request| request.parallel_calls = Some(true)),
        ask("required_one_at_a_time", |request| {
            request.tool_choice = ToolChoice::Required;
            request.parallel_calls = Some(false);
        }),
        ask("output", |request| {
            let schema = json!({"type": "object", "properties": {"wind": {"type": "number", "minimum": 0}}, "required": ["wind"], "additionalProperties": false});
            *request = request.clone().with_output("report", schema);
        }),
        ask("effort_off", |request| request.effort = Some(ReasoningEffort::Off)),
        ask("effort_minimal", |request| request.effort = Some(ReasoningEffort::Minimal)),
        ask("effort_low", |request| request.effort = Some(ReasoningEffort::Low)),
        ask("effort_medium", |request| request.effort = Some(ReasoningEffort::Medium)),
        ask("effort_high", |request| request.effort = Some(ReasoningEffort::High)),
        ask("effort_max", |request| request.effort = Some(ReasoningEffort::Max)),
        ask("limits", |request| {
            request.max_tokens = Some(100);
            request.stop_sequences = vec!["\n\n".to_owned(), "END".to_owned()];
        }),
        ask("chance", |request| {
            request.temperature = Some(0.5);
            request.top_p = Some(0.25);
        }),
        ask("all_wishes", |request| {
            *request = request.clone().with_output("report", json!({"type": "object", "properties": {}}));
            request.effort = Some(ReasoningEffort::High);
            request.max_tokens = Some(5000);
            request.tool_choice = ToolChoice::Required;
        }),
    ]
}

/// Settings of a single dialect.
fn particular() -> Vec<Case> {
    let pictures = || {
        let (one, two) = (wind("call_1"), call("call_2", "cabins", json!({})));
        let results =
            vec![ToolResult::new(&one, vec![part("text"), part("png")]), ToolResult::new(&two, vec![part("wav")])];
        after(&[&one, &two], results)
    };
    let case = |name: &str| Case::new(name, pictures().with_system("Be brief.")).with_tools(tools());
    vec![
        case("older_model").only(Dialect::Gemini, "gemini-2.5-flash", |_| {}),
        case("older_model_effort")
            .only(Dialect::Gemini, "gemini-2.5-flash", |_| {})
            .asking(|request| request.effort = Some(ReasoningEffort::Low)),
        case("without_result_parts").only(Dialect::Gemini, "gemini-3.8-flash", |settings| {
            settings.quirks.gemini_result_parts = Some(false);
        }),
        case("other_version").only(Dialect::Gemini, "gemini-3.8-flash", |settings| {
            settings.quirks.gemini_version = Some("v1".to_owned());
        }),
        case("older_version").only(Dialect::Anthropic, "claude-opus-4-5", |settings| {
            settings.quirks.anthropic_version = Some("2023-06-01".to_owned());
        }),
        case("text_only")
            .only(Dialect::Chat, "local-model", |settings| settings.quirks.described_media = MediaKinds::ALL),
        case("openai")
            .only(Dialect::Chat, "gpt-6-sol", |settings| settings.quirks.chat_openai = Some(true))
            .asking(|request| request.max_tokens = Some(100)),
        case("without_usage").only(Dialect::Chat, "local-model", |settings| settings.quirks.chat_without_usage = true),
        case("openai").only(Dialect::Responses, "gpt-6-sol", |settings| {
            settings.base_url = "https://api.openai.com/v1".to_owned()
        }),
        Case::new("openai_dialogue", Conversation::new().with("hi").with(AssistantMessage::text("Hello.")).with("Up"))
            .only(Dialect::Responses, "gpt-6-sol", |settings| {
                settings.base_url = "https://api.openai.com/v1".to_owned()
            }),
        case("one_tool").only(Dialect::Responses, "gpt-6-sol", |settings| settings.quirks.max_tools = Some(1)),
        case("extra_fields").only(Dialect::Responses, "gpt-6-sol", |_| {}).asking(|request| {
            let extra = json!({"store": true, "prompt_cache_key": "k", "tools": [{"type": "web_search"}]});
            request.extra = extra.as_object().cloned().expect("an object");
        }),
    ]
}
