//! Encoding of requests.

use serde_json::{Value, json};

use crate::{
    ChatRequest, EncodedRequest, ProviderErrorKind, ProviderSettings, Quirks, ReasoningEffort, ToolChoice, encode,
};
use ropeway_core::content::ContentPart;
use ropeway_core::lowering::Toolset;
use ropeway_core::message::{AssistantMessage, Conversation, Dialect};
use ropeway_core::tool::ToolDefinition;

fn local() -> ProviderSettings {
    ProviderSettings::new(Dialect::Chat).with_base_url("http://127.0.0.1:8080/v1/")
}

fn openai() -> ProviderSettings {
    ProviderSettings::new(Dialect::Chat).with_key("sk-1")
}

fn hello() -> Conversation {
    Conversation::new().with_system("Be brief.").with("hi")
}

fn body(encoded: &EncodedRequest) -> Value {
    serde_json::from_slice(&encoded.request.body).expect("JSON")
}

/// Encodes a request without tools.
fn encoded(settings: &ProviderSettings, change: impl FnOnce(&mut ChatRequest<'_>)) -> Value {
    let conversation = hello();
    let mut request = ChatRequest::new("m", &conversation);
    change(&mut request);
    body(&encode(settings, &request).expect("a request"))
}

fn tools() -> Toolset {
    Toolset::new([ToolDefinition::new("look.up"), ToolDefinition::new("find")])
}

/// Encodes a request with tools.
fn encoded_with_tools(settings: &ProviderSettings, choice: ToolChoice, several: Option<bool>) -> Value {
    let (conversation, tools) = (hello(), tools());
    let mut request = ChatRequest::new("m", &conversation).with_tools(&tools).with_tool_choice(choice);
    request.parallel_calls = several;
    body(&encode(settings, &request).expect("a request"))
}

/// Returns the tool choice and the tool names of a request.
fn about_tools(settings: &ProviderSettings, choice: ToolChoice) -> Value {
    let body = encoded_with_tools(settings, choice, None);
    let tools = body["tools"].as_array().expect("tools");
    let names: Vec<&Value> = tools.iter().map(|tool| &tool["function"]["name"]).collect();
    json!([body["tool_choice"], names])
}

fn user_content(content: Value) -> Value {
    let parts: Vec<ContentPart> = serde_json::from_value(content).expect("parts");
    let conversation = Conversation::new().with(parts);
    let encoded = body(&encode(&local(), &ChatRequest::new("m", &conversation)).expect("a request"));
    encoded["messages"][0]["content"].clone()
}

#[test]
fn a_minimal_request_has_only_required_fields() {
    let conversation = hello();
    let encoded = encode(&local(), &ChatRequest::new("m", &conversation)).expect("a request");
    assert_eq!(encoded.request.url, "http://127.0.0.1:8080/v1/chat/completions");
    assert_eq!(encoded.request.method, "POST");
    let expected = json!({
        "model": "m", "stream": true, "stream_options": {"include_usage": true},
        "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "hi"}],
    });
    assert_eq!(body(&encoded), expected);
}

#[test]
fn openai_gets_its_own_field_names() {
    let conversation = hello();
    let request = ChatRequest::new("m", &conversation).with_max_tokens(9).with_effort(ReasoningEffort::Max);
    let encoded = encode(&openai(), &request).expect("a request");
    assert_eq!(encoded.request.url, "https://api.openai.com/v1/chat/completions");
    let key = encoded.request.headers.iter().find(|(name, _)| name == "authorization").expect("a key");
    assert_eq!(key.1.expose(), "Bearer sk-1");
    let expected = json!({
        "model": "m", "stream": true, "stream_options": {"include_usage": true, "include_obfuscation": false},
        "messages": [{"role": "developer", "content": "Be brief."}, {"role": "user", "content": "hi"}],
        "max_completion_tokens": 9, "reasoning_effort": "xhigh",
    });
    assert_eq!(body(&encoded), expected);
}

#[test]
fn the_openai_quirk_overrides_the_host() {
    let fields = |settings: &ProviderSettings| {
        let body = encoded(settings, |request| request.max_tokens = Some(9));
        json!([body["messages"][0]["role"], body["max_tokens"], body["max_completion_tokens"]])
    };
    let like = |openai| Quirks { chat_openai: Some(openai), ..Quirks::default() };
    assert_eq!(fields(&local().with_quirks(like(true))), json!(["developer", null, 9]));
    assert_eq!(fields(&openai().with_quirks(like(false))), json!(["system", 9, null]));
}

#[test]
fn request_settings_have_their_fields() {
    let encoded = encoded(&local(), |request| {
        request.max_tokens = Some(9);
        request.temperature = Some(0.5);
        request.top_p = Some(0.9);
        request.stop_sequences = vec!["END".to_owned()];
        request.effort = Some(ReasoningEffort::Off);
        request.parallel_calls = Some(false);
    });
    let expected = json!({
        "model": "m", "stream": true, "stream_options": {"include_usage": true},
        "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "hi"}],
        "max_tokens": 9, "temperature": 0.5, "top_p": 0.9, "stop": ["END"], "reasoning_effort": "none",
    });
    assert_eq!(encoded, expected);
}

#[test]
fn efforts_are_mapped() {
    let word = |effort| encoded(&local(), |request| request.effort = Some(effort))["reasoning_effort"].clone();
    let efforts = [
        ReasoningEffort::Off,
        ReasoningEffort::Minimal,
        ReasoningEffort::Low,
        ReasoningEffort::Medium,
        ReasoningEffort::High,
        ReasoningEffort::Max,
    ];
    assert_eq!(efforts.map(word), ["none", "minimal", "low", "medium", "high", "high"]);
}

#[test]
fn usage_is_not_requested_with_the_quirk() {
    let quirks = Quirks { chat_without_usage: true, ..Quirks::default() };
    assert_eq!(encoded(&local().with_quirks(quirks), |_| ()).get("stream_options"), None);
}

#[test]
fn extra_fields_take_precedence() {
    let encoded = encoded(&local(), |request| {
        request.max_tokens = Some(9);
        request.temperature = Some(0.5);
        request.extra.insert("max_completion_tokens".to_owned(), 7.into());
        request.extra.insert("temperature".to_owned(), 1.into());
        request.extra.insert("stream_options".to_owned(), Value::Null);
    });
    let limits = json!([
        encoded["max_tokens"],
        encoded["max_completion_tokens"],
        encoded["temperature"],
        encoded["stream_options"]
    ]);
    assert_eq!(limits, json!([null, 7, 1, null]));
}

#[test]
fn a_tool_choice_is_sent_only_with_tools() {
    let both = json!(["look_up", "find"]);
    assert_eq!(about_tools(&local(), ToolChoice::Auto), json!([null, both]));
    assert_eq!(about_tools(&local(), ToolChoice::None), json!(["none", both]));
    assert_eq!(about_tools(&local(), ToolChoice::Required), json!(["required", both]));
    let bare = encoded(&local(), |request| {
        request.tool_choice = ToolChoice::Required;
        request.parallel_calls = Some(true);
    });
    assert_eq!((bare.get("tool_choice"), bare.get("parallel_tool_calls"), bare.get("tools")), (None, None, None));
}

#[test]
fn a_named_tool_is_the_only_one_for_compatible_servers() {
    let choice = ToolChoice::Tool("look.up".to_owned());
    let named = json!({"type": "function", "function": {"name": "look_up"}});
    assert_eq!(about_tools(&openai(), choice.clone()), json!([named, ["look_up", "find"]]));
    assert_eq!(about_tools(&local(), choice), json!(["required", ["look_up"]]));
    let few = Quirks { max_tools: Some(1), ..Quirks::default() };
    assert_eq!(
        about_tools(&openai().with_quirks(few), ToolChoice::Tool("find".to_owned())),
        json!(["required", ["find"]])
    );
}

#[test]
fn a_tool_choice_must_be_offered() {
    let conversation = hello();
    let tools = tools();
    let choice = ToolChoice::Tool("fly".to_owned());
    for request in [ChatRequest::new("m", &conversation), ChatRequest::new("m", &conversation).with_tools(&tools)] {
        let error = encode(&local(), &request.with_tool_choice(choice.clone())).expect_err("no request");
        let words = "the tool choice `fly` is not an offered tool";
        assert_eq!((error.kind, error.to_string().as_str()), (ProviderErrorKind::Unusable, words));
    }
}

#[test]
fn parallel_calls_are_sent_if_set() {
    let encoded = |several| encoded_with_tools(&local(), ToolChoice::Auto, several);
    assert_eq!(encoded(Some(false))["parallel_tool_calls"], false);
    assert_eq!(encoded(None).get("parallel_tool_calls"), None);
}

#[test]
fn an_output_schema_has_a_valid_name_and_is_strict() {
    let asked = |schema: Value| {
        let conversation = hello();
        let request = ChatRequest::new("m", &conversation).with_output("my answer", schema);
        body(&encode(&local(), &request).expect("a request"))["response_format"].clone()
    };
    let closed = json!({"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"], "additionalProperties": false});
    let expected =
        json!({"type": "json_schema", "json_schema": {"name": "my_answer", "strict": true, "schema": closed}});
    assert_eq!(asked(closed), expected);
    let open = json!({"type": "object", "properties": {}, "additionalProperties": {"type": "string"}});
    let expected =
        json!({"type": "json_schema", "json_schema": {"name": "my_answer", "strict": false, "schema": open}});
    assert_eq!(asked(open), expected);
}

#[test]
fn text_is_a_plain_string() {
    assert_eq!(user_content(json!([{"type": "text", "text": "a"}])), "a");
    let document = json!({"type": "resource", "resource": {"uri": "file:///b.txt", "text": "b"}});
    let link = json!({"type": "resource_link", "uri": "file:///c", "name": "c"});
    let several = json!([{"type": "text", "text": "a"}, document, link]);
    assert_eq!(user_content(several), "a\n[file:///b.txt]\nb\n[resource `c`, file:///c]");
}

#[test]
fn images_audio_and_documents_are_parts() {
    let pdf = json!({"type": "resource", "resource": {"uri": "https://example.com/d/r.pdf?x=1", "mimeType": "application/pdf", "blob": "JVBERi0x"}});
    let nameless =
        json!({"type": "resource", "resource": {"uri": "", "mimeType": "application/pdf", "blob": "JVBERi0x"}});
    let parts = json!([
        {"type": "text", "text": "look"},
        {"type": "image", "data": "iVBORw0KGgoAAAANSUhEUg==", "mimeType": "image/png"},
        {"type": "audio", "data": "AAAA", "mimeType": "audio/x-wav"},
        {"type": "audio", "data": "AAAA", "mimeType": "audio/mpeg"},
        {"type": "audio", "data": "AAAA", "mimeType": "audio/ogg"},
        pdf,
        nameless,
    ]);
    let expected = json!([
        {"type": "text", "text": "look"},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgoAAAANSUhEUg==", "detail": "auto"}},
        {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}},
        {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "mp3"}},
        {"type": "text", "text": "[sound, audio/ogg, 3 bytes: it cannot be shown here]"},
        {"type": "file", "file": {"filename": "r.pdf", "file_data": "data:application/pdf;base64,JVBERi0x"}},
        {"type": "file", "file": {"filename": "document.pdf", "file_data": "data:application/pdf;base64,JVBERi0x"}},
    ]);
    assert_eq!(user_content(parts), expected);
}

#[test]
fn opaque_parts_of_another_endpoint_are_dropped() {
    let answer: AssistantMessage = serde_json::from_value(json!({
        "from": {"dialect": "anthropic", "endpoint": "https://api.anthropic.com", "model": "c"},
        "parts": [
            {"type": "reasoning", "text": "hm", "extra": {"fields": ["reasoning_content"], "signature": "s"}},
            {"type": "private", "json": {"type": "redacted_thinking"}},
            {"type": "text", "text": "I'll look.", "extra": {"fields": ["refusal"]}},
            {"type": "tool_call", "id": "toolu_1", "name": "find", "arguments": {"a": 1}, "extra": {"arguments": "{ }", "x": 1}},
        ],
        "extra": {"container": "x"},
    }))
    .expect("a reply");
    let conversation = Conversation::new().with("hi").with(answer);
    let encoded = body(&encode(&local(), &ChatRequest::new("m", &conversation)).expect("a request"));
    let expected = json!({"role": "assistant", "content": "I'll look.", "tool_calls": [
        {"id": "toolu_1", "type": "function", "function": {"name": "find", "arguments": "{\"a\":1}"}},
    ]});
    assert_eq!(encoded["messages"][1], expected);
}
