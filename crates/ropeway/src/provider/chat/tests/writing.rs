//! Requests, field by field.

use serde_json::{Value, json};

use crate::content::ContentPart;
use crate::lowering::Toolset;
use crate::message::{AssistantMessage, Conversation, Dialect};
use crate::provider::{
    ChatRequest, EncodedRequest, ProviderErrorKind, ProviderSettings, Quirks, ReasoningEffort, ToolChoice, encode,
};
use crate::tool::ToolDefinition;

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

/// The body of a request without tools.
fn written(settings: &ProviderSettings, change: impl FnOnce(&mut ChatRequest<'_>)) -> Value {
    let conversation = hello();
    let mut request = ChatRequest::new("m", &conversation);
    change(&mut request);
    body(&encode(settings, &request).expect("a request"))
}

fn tools() -> Toolset {
    Toolset::new([ToolDefinition::new("look.up"), ToolDefinition::new("find")])
}

/// The body of a request with tools.
fn written_with_tools(settings: &ProviderSettings, choice: ToolChoice, several: Option<bool>) -> Value {
    let (conversation, tools) = (hello(), tools());
    let mut request = ChatRequest::new("m", &conversation).with_tools(&tools).with_tool_choice(choice);
    request.parallel_calls = several;
    body(&encode(settings, &request).expect("a request"))
}

/// What a request says of tools: the choice, and their names.
fn about_tools(settings: &ProviderSettings, choice: ToolChoice) -> Value {
    let body = written_with_tools(settings, choice, None);
    let tools = body["tools"].as_array().expect("tools");
    let names: Vec<&Value> = tools.iter().map(|tool| &tool["function"]["name"]).collect();
    json!([body["tool_choice"], names])
}

fn said(content: Value) -> Value {
    let parts: Vec<ContentPart> = serde_json::from_value(content).expect("parts");
    let conversation = Conversation::new().with(parts);
    let written = body(&encode(&local(), &ChatRequest::new("m", &conversation)).expect("a request"));
    written["messages"][0]["content"].clone()
}

#[test]
fn a_plain_request_says_no_more_than_it_must() {
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
fn openai_itself_is_spoken_to_in_its_own_words() {
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
fn a_server_may_be_said_to_be_like_openai_or_not() {
    let said = |settings: &ProviderSettings| {
        let body = written(settings, |request| request.max_tokens = Some(9));
        json!([body["messages"][0]["role"], body["max_tokens"], body["max_completion_tokens"]])
    };
    let like = |openai| Quirks { chat_openai: Some(openai), ..Quirks::default() };
    assert_eq!(said(&local().with_quirks(like(true))), json!(["developer", null, 9]));
    assert_eq!(said(&openai().with_quirks(like(false))), json!(["system", 9, null]));
}

#[test]
fn settings_of_the_request_have_their_fields() {
    let written = written(&local(), |request| {
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
    assert_eq!(written, expected);
}

#[test]
fn efforts_have_words() {
    let word = |effort| written(&local(), |request| request.effort = Some(effort))["reasoning_effort"].clone();
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
fn the_usage_is_not_asked_for_where_it_must_not_be() {
    let quirks = Quirks { chat_without_usage: true, ..Quirks::default() };
    assert_eq!(written(&local().with_quirks(quirks), |_| ()).get("stream_options"), None);
}

#[test]
fn the_caller_has_the_last_word() {
    let written = written(&local(), |request| {
        request.max_tokens = Some(9);
        request.temperature = Some(0.5);
        request.extra.insert("max_completion_tokens".to_owned(), 7.into());
        request.extra.insert("temperature".to_owned(), 1.into());
        request.extra.insert("stream_options".to_owned(), Value::Null);
    });
    let limits = json!([
        written["max_tokens"],
        written["max_completion_tokens"],
        written["temperature"],
        written["stream_options"]
    ]);
    assert_eq!(limits, json!([null, 7, 1, null]));
}

#[test]
fn a_choice_of_tools_is_said_where_there_are_tools() {
    let both = json!(["look_up", "find"]);
    assert_eq!(about_tools(&local(), ToolChoice::Auto), json!([null, both]));
    assert_eq!(about_tools(&local(), ToolChoice::None), json!(["none", both]));
    assert_eq!(about_tools(&local(), ToolChoice::Required), json!(["required", both]));
    let bare = written(&local(), |request| {
        request.tool_choice = ToolChoice::Required;
        request.parallel_calls = Some(true);
    });
    assert_eq!((bare.get("tool_choice"), bare.get("parallel_tool_calls"), bare.get("tools")), (None, None, None));
}

#[test]
fn a_named_tool_is_named_to_openai_and_is_the_only_one_for_others() {
    let choice = ToolChoice::Tool("look.up".to_owned());
    let named = json!({"type": "function", "function": {"name": "look_up"}});
    assert_eq!(about_tools(&openai(), choice.clone()), json!([named, ["look_up", "find"]]));
    assert_eq!(about_tools(&local(), choice), json!(["required", ["look_up"]]));
    let few = Quirks { most_tools: Some(1), ..Quirks::default() };
    assert_eq!(
        about_tools(&openai().with_quirks(few), ToolChoice::Tool("find".to_owned())),
        json!(["required", ["find"]])
    );
}

#[test]
fn a_tool_that_is_not_offered_cannot_be_forced() {
    let conversation = hello();
    let tools = tools();
    let choice = ToolChoice::Tool("fly".to_owned());
    for request in [ChatRequest::new("m", &conversation), ChatRequest::new("m", &conversation).with_tools(&tools)] {
        let error = encode(&local(), &request.with_tool_choice(choice.clone())).expect_err("no request");
        let words = "the tool `fly` must be called, but it is not offered";
        assert_eq!((error.kind, error.to_string().as_str()), (ProviderErrorKind::Unusable, words));
    }
}

#[test]
fn several_calls_at_once_are_allowed_or_not_when_somebody_said_so() {
    let written = |several| written_with_tools(&local(), ToolChoice::Auto, several);
    assert_eq!(written(Some(false))["parallel_tool_calls"], false);
    assert_eq!(written(None).get("parallel_tool_calls"), None);
}

#[test]
fn json_of_a_schema_is_asked_for_by_a_legal_name_and_strictly_where_that_is_possible() {
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
fn text_alone_is_a_plain_string() {
    assert_eq!(said(json!([{"type": "text", "text": "a"}])), "a");
    let document = json!({"type": "resource", "resource": {"uri": "file:///b.txt", "text": "b"}});
    let link = json!({"type": "resource_link", "uri": "file:///c", "name": "c"});
    let several = json!([{"type": "text", "text": "a"}, document, link]);
    assert_eq!(said(several), "a\n[file:///b.txt]\nb\n[resource `c`, file:///c]");
}

#[test]
fn pictures_sounds_and_documents_are_parts() {
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
    assert_eq!(said(parts), expected);
}

#[test]
fn what_is_private_to_another_speaker_stays_behind() {
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
    .expect("an answer");
    let conversation = Conversation::new().with("hi").with(answer);
    let written = body(&encode(&local(), &ChatRequest::new("m", &conversation)).expect("a request"));
    let expected = json!({"role": "assistant", "content": "I'll look.", "tool_calls": [
        {"id": "toolu_1", "type": "function", "function": {"name": "find", "arguments": "{\"a\":1}"}},
    ]});
    assert_eq!(written["messages"][1], expected);
}
