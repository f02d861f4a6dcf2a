//! Encoding of everything but the messages.

use serde_json::{Map, Value, json};

use super::{body, conversation, native, settings, user};
use crate::{
    ChatRequest, EncodedRequest, ProviderErrorKind, ProviderSettings, Quirks, ReasoningEffort, ToolChoice, encode,
};
use ropeway_core::message::Conversation;

fn hello() -> Conversation {
    conversation(json!([user("hi")]))
}

/// Encodes a minimal request after `change`.
fn encoded(settings: &ProviderSettings, change: impl FnOnce(&mut ChatRequest<'_>)) -> EncodedRequest {
    let conversation = hello();
    let mut request = ChatRequest::new("claude", &conversation);
    change(&mut request);
    encode(settings, &request).expect("a request")
}

/// Returns the fields that a change adds to a minimal request.
fn added(change: impl FnOnce(&mut ChatRequest<'_>)) -> Value {
    let mut body = body(&encoded(&settings(), change));
    let plain = super::body(&encoded(&settings(), |_| {}));
    let fields = body.as_object_mut().expect("an object");
    fields.retain(|name, value| plain.get(name) != Some(value));
    body
}

fn old_version() -> ProviderSettings {
    settings().with_quirks(Quirks { anthropic_version: Some("2023-06-01".to_owned()), ..Quirks::default() })
}

fn headers(settings: &ProviderSettings) -> Value {
    let encoded = encoded(settings, |_| {});
    let headers = encoded.request.headers.iter();
    headers.map(|(name, value)| (name.clone(), value.expose().into())).collect::<Map<_, _>>().into()
}

fn extra(fields: Value) -> Map<String, Value> {
    serde_json::from_value(fields).expect("an object")
}

#[test]
fn a_minimal_request_has_a_limit_and_a_message() {
    let encoded = encoded(&settings(), |_| {});
    assert_eq!(
        (encoded.request.method, encoded.request.url.as_str()),
        ("POST", "https://api.anthropic.com/v1/messages")
    );
    assert_eq!(
        body(&encoded),
        json!({"model": "claude", "max_tokens": 32000, "stream": true,
            "messages": [{"role": "user", "content": [{"type": "text", "text": "hi"}]}]})
    );
    assert!(encoded.warnings.is_empty());
}

#[test]
fn the_base_url_may_include_the_api_version() {
    for (base, url) in [
        ("http://127.0.0.1:8080", "http://127.0.0.1:8080/v1/messages"),
        ("http://127.0.0.1:8080/", "http://127.0.0.1:8080/v1/messages"),
        ("http://127.0.0.1:8080/v1", "http://127.0.0.1:8080/v1/messages"),
        ("http://127.0.0.1:8080/v1/", "http://127.0.0.1:8080/v1/messages"),
        ("https://gate.example/anthropic", "https://gate.example/anthropic/v1/messages"),
        ("https://gate.example/v1?team=a", "https://gate.example/v1/messages?team=a"),
    ] {
        assert_eq!(encoded(&settings().with_base_url(base), |_| {}).request.url, url, "{base}");
    }
}

#[test]
fn the_key_and_the_version_are_headers() {
    let usual = json!({"content-type": "application/json", "accept": "text/event-stream"});
    let with = |more: Value| {
        let mut all = usual.clone();
        all.as_object_mut().expect("an object").extend(extra(more));
        all
    };
    let settings = settings().with_key("k");
    assert_eq!(headers(&settings), with(json!({"anthropic-version": "2026-10-21", "x-api-key": "k"})));
    let mut bearer = old_version().with_key("k");
    bearer.key_header = None;
    assert_eq!(headers(&bearer), with(json!({"anthropic-version": "2023-06-01", "authorization": "Bearer k"})));
    let own = settings.with_header("Anthropic-Version", "2027-01-01");
    assert_eq!(headers(&own), with(json!({"x-api-key": "k", "Anthropic-Version": "2027-01-01"})));
}

#[test]
fn the_system_prompt_is_a_field_unless_it_is_blank() {
    let system = |text: &str| {
        let conversation = hello().with_system(text);
        let encoded = encode(&settings(), &ChatRequest::new("claude", &conversation)).expect("a request");
        body(&encoded).get("system").cloned()
    };
    assert_eq!(system("Be brief."), Some(json!("Be brief.")));
    assert_eq!(system(" \n"), None);
}

#[test]
fn limits_and_stop_sequences_are_sent() {
    let change = |request: &mut ChatRequest<'_>| {
        request.max_tokens = Some(5);
        request.stop_sequences = vec!["END".to_owned()];
    };
    assert_eq!(added(change), json!({"max_tokens": 5, "stop_sequences": ["END"]}));
}

#[test]
fn unsupported_sampling_parameters_are_left_out() {
    let change = |request: &mut ChatRequest<'_>| {
        request.temperature = Some(0.5);
        request.top_p = Some(0.9);
    };
    let new = encoded(&settings(), change);
    assert_eq!(body(&new), body(&encoded(&settings(), |_| {})));
    assert_eq!(
        new.warnings,
        [
            "left out `temperature`: anthropic does not support it since version 2026-10-21",
            "left out `top_p`: anthropic does not support it since version 2026-10-21"
        ]
    );
    for settings in [old_version(), settings().with_header("Anthropic-Version", "2023-06-01")] {
        let old = encoded(&settings, change);
        assert_eq!((&body(&old)["temperature"], &body(&old)["top_p"]), (&json!(0.5), &json!(0.9)));
        assert!(old.warnings.is_empty());
    }
}

#[test]
fn effort_enables_adaptive_thinking() {
    let effort = |effort: ReasoningEffort| added(|request| request.effort = Some(effort));
    assert_eq!(effort(ReasoningEffort::Off), json!({"thinking": {"type": "disabled"}}));
    for (level, word) in [
        (ReasoningEffort::Minimal, "low"),
        (ReasoningEffort::Low, "low"),
        (ReasoningEffort::Medium, "medium"),
        (ReasoningEffort::High, "high"),
        (ReasoningEffort::Max, "max"),
    ] {
        assert_eq!(effort(level), json!({"thinking": {"type": "adaptive"}, "output_config": {"effort": word}}));
    }
}

#[test]
fn effort_off_limits_thinking_to_between_tools() {
    let conversation = hello();
    let request = ChatRequest::new("claude-sonnet-5-5", &conversation).with_effort(ReasoningEffort::Off);
    let encoded = encode(&settings(), &request).expect("a request");
    assert_eq!(body(&encoded)["thinking"], json!({"type": "between_tools"}));
    assert_eq!(encoded.warnings, [""; 0]);
}

#[test]
fn effort_off_is_left_out_for_models_that_always_think() {
    let conversation = hello();
    let request = ChatRequest::new("claude-opus-5-5", &conversation).with_effort(ReasoningEffort::Off);
    let encoded = encode(&settings(), &request).expect("a request");
    assert_eq!(encoded.warnings, ["model `claude-opus-5-5` does not support disabling thinking"]);
    assert!(!body(&encoded).as_object().expect("an object").contains_key("thinking"));
}

#[test]
fn a_strict_output_schema_is_sent() {
    let schema = json!({"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]});
    let closed = json!({"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"], "additionalProperties": false});
    let change = |request: &mut ChatRequest<'_>| {
        request.effort = Some(ReasoningEffort::High);
        *request = request.clone().with_output("answer", schema);
    };
    let config = json!({"effort": "high", "format": {"type": "json_schema", "schema": closed}});
    assert_eq!(added(change)["output_config"], config);
}

#[test]
fn a_loose_output_schema_is_sent_with_a_warning() {
    let tree = json!({"type": "object", "properties": {"next": {"$ref": "#"}}});
    let encoded = encoded(&settings(), |request| *request = request.clone().with_output("answer", tree));
    assert_eq!(encoded.warnings, ["anthropic may reject the output schema: it cannot be enforced strictly"]);
    assert_eq!(body(&encoded)["output_config"]["format"]["schema"]["type"], "object");
}

#[test]
fn an_invalid_output_schema_is_an_error() {
    let conversation = hello();
    let mut request = ChatRequest::new("claude", &conversation).with_output("answer", json!(7));
    let error = encode(&settings(), &request).expect_err("no request");
    assert_eq!(error.kind, ProviderErrorKind::Unusable);
    assert!(error.message.starts_with("unsupported output schema: "), "{error}");
    request.extra = extra(json!({"output_config": {"effort": "xhigh"}}));
    let encoded = encode(&settings(), &request).expect("a request");
    assert_eq!(body(&encoded)["output_config"], json!({"effort": "xhigh"}));
}

#[test]
fn extra_fields_take_precedence() {
    let change = |request: &mut ChatRequest<'_>| {
        request.effort = Some(ReasoningEffort::Low);
        request.extra = extra(
            json!({"thinking": {"type": "enabled", "budget_tokens": 1024}, "max_tokens": 2048, "metadata": {"user_id": "u"}}),
        );
    };
    assert_eq!(
        added(change),
        json!({"output_config": {"effort": "low"}, "thinking": {"type": "enabled", "budget_tokens": 1024}, "max_tokens": 2048, "metadata": {"user_id": "u"}})
    );
}

#[test]
fn a_tool_choice_without_tools_is_left_out() {
    for choice in [ToolChoice::Auto, ToolChoice::None, ToolChoice::Required] {
        let change = |request: &mut ChatRequest<'_>| {
            request.tool_choice = choice;
            request.parallel_calls = Some(false);
        };
        assert_eq!(added(change), json!({}));
    }
}

#[test]
fn tool_choices_are_encoded() {
    let choice = |choice: ToolChoice, parallel: Option<bool>| {
        let mut body = added(|request| {
            request.tool_choice = choice;
            request.parallel_calls = parallel;
            request.extra = extra(json!({"tools": [{"type": "web_search_20260101", "name": "web_search"}]}));
        });
        body["tool_choice"].take()
    };
    let named = || ToolChoice::Tool("web_search".to_owned());
    assert_eq!(choice(ToolChoice::Auto, None), Value::Null);
    assert_eq!(choice(ToolChoice::Auto, Some(true)), Value::Null);
    assert_eq!(choice(ToolChoice::Auto, Some(false)), json!({"type": "auto", "disable_parallel_tool_use": true}));
    assert_eq!(choice(ToolChoice::Required, None), json!({"type": "any"}));
    assert_eq!(choice(ToolChoice::Required, Some(false)), json!({"type": "any", "disable_parallel_tool_use": true}));
    assert_eq!(choice(named(), Some(true)), json!({"type": "tool", "name": "web_search"}));
    assert_eq!(choice(ToolChoice::None, Some(false)), json!({"type": "none"}));
}

#[test]
fn a_request_without_an_answer_is_an_error() {
    let error = |conversation: &Conversation, choice: ToolChoice| {
        let request = ChatRequest::new("claude", conversation).with_tool_choice(choice);
        let error = encode(&settings(), &request).expect_err("no request");
        (error.kind, error.message)
    };
    let missing = ToolChoice::Tool("gone".to_owned());
    let words = "the tool choice `gone` is not an offered tool".to_owned();
    assert_eq!(error(&hello(), missing), (ProviderErrorKind::Unusable, words));
    let words = "the conversation has no message to answer".to_owned();
    assert_eq!(error(&conversation(json!([user(" ")])), ToolChoice::Auto), (ProviderErrorKind::Unusable, words));
}

#[test]
fn the_container_is_sent_until_the_turn_ends() {
    let call = json!({"type": "tool_call", "id": "a", "name": "t", "arguments": {}});
    let container = |last: Option<Value>, parts: Value| {
        let mut answer = native(parts);
        answer["extra"] = json!({"container": {"id": "container_1", "expires_at": "2026-11-15T10:00:00Z"}});
        let conversation = conversation(Value::from_iter([user("hi"), answer].into_iter().chain(last)));
        let encoded = encode(&settings(), &ChatRequest::new("claude", &conversation)).expect("a request");
        body(&encoded)["container"].take()
    };
    let said = json!([{"type": "text", "text": "ok"}]);
    assert_eq!(container(None, json!([call])), "container_1");
    assert_eq!(container(None, said.clone()), "container_1");
    assert_eq!(container(Some(user("more")), said), Value::Null);
}
