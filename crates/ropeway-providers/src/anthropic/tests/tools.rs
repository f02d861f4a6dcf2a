//! Tool names in requests and replies.

use serde_json::{Map, Value, json};

use super::{body, conversation, input, native, settings, stream, tool_use, user};
use crate::{ChatRequest, EncodedRequest, ReplyEvent, ToolChoice, encode};
use ropeway_core::lowering::Toolset;
use ropeway_core::message::{AssistantPart, ToolCall};
use ropeway_core::tool::ToolDefinition;

fn tools() -> Toolset {
    let schema = json!({"type": "object", "properties": {"city": {"type": "string"}}});
    let definition =
        ToolDefinition::new("maps.weather").with_description("Says the weather.").with_input_schema(schema);
    Toolset::new([definition, ToolDefinition::new("clock")])
}

fn encoded(messages: Value, choice: ToolChoice) -> EncodedRequest {
    let (conversation, tools) = (conversation(messages), tools());
    let request = ChatRequest::new("claude", &conversation).with_tools(&tools).with_tool_choice(choice);
    encode(&settings(), &request).expect("a request")
}

#[test]
fn tools_are_offered_with_valid_names() {
    let body = body(&encoded(json!([user("hi")]), ToolChoice::Auto));
    assert_eq!(body.get("tool_choice"), None);
    let names: Vec<&Value> = body["tools"].as_array().expect("a list").iter().map(|tool| &tool["name"]).collect();
    assert_eq!(names, ["maps_weather", "clock"]);
    assert_eq!(body["tools"][0]["description"], "Says the weather.");
    assert_eq!(body["tools"][0]["input_schema"]["properties"]["city"]["type"], "string");
}

#[test]
fn a_tool_choice_uses_the_wire_name() {
    let choice = |choice: ToolChoice| body(&encoded(json!([user("hi")]), choice))["tool_choice"].take();
    let weather = ToolChoice::Tool("maps.weather".to_owned());
    assert_eq!(choice(weather), json!({"type": "tool", "name": "maps_weather"}));
    assert_eq!(choice(ToolChoice::Required), json!({"type": "any"}));
    assert_eq!(choice(ToolChoice::None), json!({"type": "none"}));
}

#[test]
fn a_forced_call_is_downgraded_for_some_models() {
    let asked = |model: &str, choice: ToolChoice| {
        let (conversation, tools) = (conversation(json!([user("hi")])), tools());
        let request = ChatRequest::new(model, &conversation).with_tools(&tools).with_tool_choice(choice);
        let encoded = encode(&settings(), &request).expect("a request");
        let body = body(&encoded);
        let names: Vec<Value> =
            body["tools"].as_array().expect("a list").iter().map(|tool| tool["name"].clone()).collect();
        (json!([body["tool_choice"], names]), encoded.warnings.clone())
    };
    for model in ["claude-fable-5-1", "claude-mythos-5-1", "claude-opus-5-5", "claude-sonnet-5-5"] {
        let warnings = vec![format!("model `{model}` does not support forced tool calls: it may skip the tool")];
        let any = json!([{"type": "auto"}, ["maps_weather", "clock"]]);
        assert_eq!(asked(model, ToolChoice::Required), (any, warnings.clone()));
        let one = json!([{"type": "auto"}, ["maps_weather"]]);
        assert_eq!(asked(model, ToolChoice::Tool("maps.weather".to_owned())), (one, warnings));
    }
}

#[test]
fn calls_are_renamed_in_both_directions() {
    let encoded_first = encoded(json!([user("hi")]), ToolChoice::Auto);
    let mut decoder = encoded_first.decoder();
    let mut events = Vec::new();
    let block = tool_use("toolu_1", "maps_weather");
    for frame in stream([(block, vec![input("{\"city\":\"Paris\"}")])], "tool_use") {
        decoder.frame(frame.to_string().as_bytes(), &mut events).expect("a frame");
    }
    let reply = decoder.end(&mut events).expect("a reply");
    let arguments: Map<String, Value> = serde_json::from_value(json!({"city": "Paris"})).expect("an object");
    let call = ToolCall::new("toolu_1", "maps.weather", arguments);
    assert_eq!(reply.message.parts, [AssistantPart::ToolCall(call)]);
    let name = "maps.weather".to_owned();
    assert!(events.contains(&ReplyEvent::ToolCallStarted { index: 0, id: "toolu_1".to_owned(), name }));

    let again = body(&encoded(json!([user("hi"), native(json!(reply.message.parts))]), ToolChoice::Auto));
    let sent = json!({"type": "tool_use", "id": "toolu_1", "name": "maps_weather", "input": {"city": "Paris"}});
    assert_eq!(again["messages"][1]["content"], json!([sent]));
}
