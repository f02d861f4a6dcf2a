//! What is written.

use serde_json::{Value, json};

use super::{body, conversation, encode, input, local, openai, tools};
use crate::message::Conversation;
use crate::provider::{ChatRequest, ProviderErrorKind, Quirks, ReasoningEffort, ToolChoice};

const PNG: &str = "iVBORw0KGgoAAAANSUhEUg==";

#[test]
fn a_request_keeps_nothing_with_the_provider_and_streams() {
    let conversation = Conversation::new().with_system("Be brief.").with("hi");
    let encoded = encode(&openai(), &ChatRequest::new("gpt-6-sol", &conversation));
    assert_eq!((encoded.request.method, encoded.request.url.as_str()), ("POST", "https://api.openai.com/v1/responses"));
    let headers: Vec<(&str, &str)> =
        encoded.request.headers.iter().map(|(name, value)| (name.as_str(), value.expose())).collect();
    let expected =
        [("content-type", "application/json"), ("accept", "text/event-stream"), ("authorization", "Bearer sk-test")];
    assert_eq!(headers, expected);
    let sent: Value = serde_json::from_slice(&encoded.request.body).expect("JSON");
    let expected = json!({
        "model": "gpt-6-sol",
        "instructions": "Be brief.",
        "input": [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hi"}]}],
        "stream": true,
        "store": false,
        "include": ["reasoning.encrypted_content"],
        "stream_options": {"include_obfuscation": false}
    });
    assert_eq!((sent, encoded.warnings), (expected, Vec::new()));
}

#[test]
fn only_openai_itself_is_asked_to_leave_out_the_padding() {
    let conversation = Conversation::new().with("hi");
    let sent = body(&local(), &ChatRequest::new("m", &conversation));
    let fields: Vec<&String> = sent.as_object().expect("an object").keys().collect();
    assert_eq!(fields, ["model", "input", "stream", "store", "include"]);
}

#[test]
fn thoughts_are_asked_for_where_the_model_has_any() {
    let conversation = Conversation::new().with("hi");
    let asked = |model: &str| body(&openai(), &ChatRequest::new(model, &conversation)).get("include").is_some();
    for model in ["gpt-5.1", "o3", "openai/gpt-6-sol", "gpt-oss-120b", "m"] {
        assert!(asked(model), "{model}");
    }
    for model in [
        "gpt-4o",
        "gpt-4.1-mini",
        "gpt-3.5-turbo",
        "chatgpt-4o-latest",
        "gpt-5-chat-latest",
        "openai/GPT-4o",
        "ft:gpt-4o:us::x",
    ] {
        assert!(!asked(model), "{model}");
    }
}

#[test]
fn what_is_asked_for_has_the_names_of_this_dialect() {
    let conversation = Conversation::new().with("hi");
    let mut request = ChatRequest::new("m", &conversation).with_max_tokens(100).with_temperature(0.5);
    request.top_p = Some(0.25);
    request.parallel_calls = Some(false);
    let sent = body(&local(), &request);
    assert_eq!([&sent["max_output_tokens"], &sent["temperature"], &sent["top_p"]], [100.0, 0.5, 0.25]);
    assert_eq!(sent.get("parallel_tool_calls"), None, "there are no tools");
    let tools = tools();
    assert_eq!(body(&local(), &request.with_tools(&tools))["parallel_tool_calls"], false);
}

#[test]
fn efforts_have_the_words_of_this_dialect() {
    let conversation = Conversation::new().with("hi");
    let sent = |effort| body(&local(), &ChatRequest::new("m", &conversation).with_effort(effort))["reasoning"].take();
    let words = [
        ReasoningEffort::Minimal,
        ReasoningEffort::Low,
        ReasoningEffort::Medium,
        ReasoningEffort::High,
        ReasoningEffort::Max,
    ]
    .map(sent);
    let expected = ["minimal", "low", "medium", "high", "xhigh"].map(|word| json!({"effort": word, "summary": "auto"}));
    assert_eq!(words, expected);
    assert_eq!(sent(ReasoningEffort::Off), json!({"effort": "none"}));
}

#[test]
fn stop_sequences_are_left_out_and_that_is_told() {
    let conversation = Conversation::new().with("hi");
    let mut request = ChatRequest::new("m", &conversation);
    request.stop_sequences = vec!["END".to_owned()];
    let encoded = encode(&local(), &request);
    assert_eq!(encoded.warnings, ["the stop sequences are left out: responses has none"]);
    assert!(!String::from_utf8_lossy(&encoded.request.body).contains("END"));
}

#[test]
fn what_the_caller_says_himself_wins() {
    let conversation = Conversation::new().with("hi");
    let mut request = ChatRequest::new("m", &conversation).with_effort(ReasoningEffort::Low);
    request.extra = serde_json::from_value(
        json!({"store": true, "include": [], "reasoning": {"effort": "max"}, "prompt_cache_key": "k"}),
    )
    .expect("fields");
    let sent = body(&local(), &request);
    let said = [&sent["store"], &sent["include"], &sent["reasoning"], &sent["prompt_cache_key"]];
    assert_eq!(said, [&json!(true), &json!([]), &json!({"effort": "max"}), &json!("k")]);
}

#[test]
fn a_choice_is_said_in_the_way_that_the_server_understands() {
    let (conversation, tools) = (Conversation::new().with("hi"), tools());
    let sent = |settings: &crate::provider::ProviderSettings, choice: ToolChoice| {
        let sent = body(settings, &ChatRequest::new("m", &conversation).with_tools(&tools).with_tool_choice(choice));
        let names: Vec<String> =
            sent["tools"].as_array().expect("tools").iter().map(|tool| tool["name"].to_string()).collect();
        (sent.get("tool_choice").cloned(), names.join(","))
    };
    let both = r#""weather","files_read""#.to_owned();
    for settings in [openai(), local()] {
        assert_eq!(sent(&settings, ToolChoice::Auto), (None, both.clone()));
        assert_eq!(sent(&settings, ToolChoice::None), (Some(json!("none")), both.clone()));
        assert_eq!(sent(&settings, ToolChoice::Required), (Some(json!("required")), both.clone()));
    }
    let this = ToolChoice::Tool("files.read".to_owned());
    let by_name = Some(json!({"type": "function", "name": "files_read"}));
    assert_eq!(sent(&openai(), this.clone()), (by_name, both));
    assert_eq!(sent(&local(), this), (Some(json!("required")), r#""files_read""#.to_owned()));
}

#[test]
fn a_tool_that_must_be_called_is_there_even_if_there_are_too_many() {
    let (conversation, tools) = (Conversation::new().with("hi"), tools());
    let choice = ToolChoice::Tool("files.read".to_owned());
    let request = ChatRequest::new("m", &conversation).with_tools(&tools).with_tool_choice(choice);
    let settings = openai().with_quirks(Quirks { most_tools: Some(1), ..Quirks::default() });
    let sent = body(&settings, &request);
    assert_eq!(
        [&sent["tool_choice"], &sent["tools"][0]["name"], &sent["tools"][1]],
        [&json!("required"), &json!("files_read"), &Value::Null]
    );
}

#[test]
fn a_schema_that_cannot_be_used_is_an_error_at_once() {
    let conversation = Conversation::new().with("hi");
    let request = ChatRequest::new("m", &conversation).with_output("answer", json!({"type": "string"}));
    let error = crate::provider::encode(&openai(), &request).expect_err("no schema");
    assert_eq!(error.kind, ProviderErrorKind::Unusable);
    assert!(error.to_string().starts_with("unsupported output schema: "), "{error}");
}

#[test]
fn a_tool_that_is_not_offered_cannot_be_called_for() {
    let conversation = Conversation::new().with("hi");
    let request = ChatRequest::new("m", &conversation).with_tool_choice(ToolChoice::Tool("gone".to_owned()));
    let error = crate::provider::encode(&openai(), &request).expect_err("no tool");
    assert_eq!(error.kind, ProviderErrorKind::Unusable);
    assert_eq!(error.to_string(), "the tool `gone` must be called, but it is not offered");
}

#[test]
fn without_tools_there_is_no_choice() {
    let conversation = Conversation::new().with("hi");
    let request = ChatRequest::new("m", &conversation).with_tool_choice(ToolChoice::None);
    assert_eq!(body(&openai(), &request).get("tool_choice"), None);
}

/// All kinds of content, and the parts that they become.
fn content() -> (Value, Vec<Value>) {
    let content = json!([
        {"type": "text", "text": "look"},
        {"type": "image", "data": PNG, "mimeType": "image/png"},
        {"type": "resource", "resource": {"uri": "file:///papers/report.pdf?x=1", "mimeType": "application/pdf", "blob": "JVBERi0x"}},
        {"type": "resource", "resource": {"uri": "urn:paper", "mimeType": "application/pdf", "blob": "JVBERi0x"}},
        {"type": "resource", "resource": {"uri": "file:///a.txt", "text": "hello"}},
        {"type": "audio", "data": "AAAA", "mimeType": "audio/wav"},
        {"type": "resource_link", "uri": "file:///b", "name": "b"}
    ]);
    let pdf = "data:application/pdf;base64,JVBERi0x";
    let parts = vec![
        json!({"type": "input_text", "text": "look"}),
        json!({"type": "input_image", "image_url": format!("data:image/png;base64,{PNG}"), "detail": "auto"}),
        json!({"type": "input_file", "filename": "report.pdf", "file_data": pdf}),
        json!({"type": "input_file", "filename": "paper.pdf", "file_data": pdf}),
        json!({"type": "input_text", "text": "[file:///a.txt]\nhello"}),
        json!({"type": "input_text", "text": "[sound, audio/wav, 3 bytes: it cannot be shown here]"}),
        json!({"type": "input_text", "text": "[resource `b`, file:///b]"}),
    ];
    (content, parts)
}

#[test]
fn a_person_shows_pictures_and_documents() {
    let (content, parts) = content();
    let conversation = conversation(json!([{"role": "user", "content": content}]));
    assert_eq!(input(&openai(), &conversation), json!([{"type": "message", "role": "user", "content": parts}]));
}

/// What a model is told of a result.
fn output(content: Value, is_error: bool) -> Value {
    let conversation = conversation(json!([
        {"role": "assistant", "parts": [{"type": "tool_call", "id": "a", "name": "t", "arguments": {}}]},
        {"role": "tool", "results": [{"call": "a", "tool": "t", "content": content, "is_error": is_error}]}
    ]));
    let mut sent = input(&openai(), &conversation)[1].take();
    assert_eq!([&sent["type"], &sent["call_id"]], ["function_call_output", "a"]);
    sent["output"].take()
}

#[test]
fn a_result_shows_pictures_and_documents() {
    let (content, parts) = content();
    assert_eq!(output(content, false), Value::from(parts));
}

#[test]
fn a_result_of_text_alone_is_a_string() {
    assert_eq!(output(json!([{"type": "text", "text": "18"}]), false), "18");
    assert_eq!(
        output(json!([{"type": "text", "text": "18"}, {"type": "resource_link", "uri": "file:///a"}]), false),
        "18\n[resource file:///a]"
    );
    assert_eq!(output(json!([]), false), "(no output)");
    assert_eq!(output(json!([{"type": "text", "text": ""}]), false), "(no output)");
}

#[test]
fn an_error_says_that_it_is_one_and_says_it_once() {
    assert_eq!(output(json!([{"type": "text", "text": "no such city"}]), true), "error: no such city");
    assert_eq!(output(json!([{"type": "text", "text": "Error: no such city"}]), true), "Error: no such city");
    assert_eq!(output(json!([{"type": "text", "text": "{\"error\": 5}"}]), true), "{\"error\": 5}");
    assert_eq!(output(json!([{"type": "text", "text": "{\"code\": 5}"}]), true), "error: {\"code\": 5}");
    assert_eq!(output(json!([]), true), "error: the tool failed");
    assert_eq!(output(json!([{"type": "text", "text": ""}]), true), "error: the tool failed");
    let picture = json!([{"type": "image", "data": PNG, "mimeType": "image/png"}]);
    assert_eq!(output(picture, true)[0], json!({"type": "input_text", "text": "error: the tool failed"}));
}

#[test]
fn each_of_several_calls_has_its_result() {
    let conversation = conversation(json!([
        {"role": "assistant", "parts": [
            {"type": "text", "text": "both"},
            {"type": "tool_call", "id": "a", "name": "t", "arguments": {"n": 1}},
            {"type": "tool_call", "id": "b", "name": "t", "broken_arguments": {"text": "{", "problem": "cut"}}]},
        {"role": "tool", "results": [{"call": "a", "tool": "t", "content": [{"type": "text", "text": "1"}]}]}
    ]));
    let expected = json!([
        {"type": "message", "role": "assistant", "content": "both"},
        {"type": "function_call", "call_id": "a", "name": "t", "arguments": "{\"n\":1}"},
        {"type": "function_call", "call_id": "b", "name": "t", "arguments": "{\"invalid_arguments\":\"{\"}"},
        {"type": "function_call_output", "call_id": "a", "output": "1"},
        {"type": "function_call_output", "call_id": "b", "output": "error: there is no result of this call: the turn was interrupted"}
    ]);
    assert_eq!(input(&openai(), &conversation), expected);
}

#[test]
fn json_is_asked_for_by_its_schema_strictly_where_that_is_possible() {
    let conversation = Conversation::new().with("hi");
    let sent = |schema: Value| {
        let request = ChatRequest::new("m", &conversation).with_output("my answer", schema);
        body(&openai(), &request)["text"]["format"].take()
    };
    let strict = json!({"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"], "additionalProperties": false});
    let format = json!({"type": "json_schema", "name": "my_answer", "schema": strict, "strict": true});
    assert_eq!(sent(strict), format);
    let open = json!({"type": "object", "additionalProperties": {"type": "integer"}});
    let format = sent(open);
    assert_eq!(
        [&format["strict"], &format["schema"]["additionalProperties"]["type"]],
        [&json!(false), &json!("integer")]
    );
}
