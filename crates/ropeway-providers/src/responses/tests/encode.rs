//! Encoding of requests.

use serde_json::{Value, json};

use super::{body, conversation, encode, input, local, openai, tools};
use crate::{ChatRequest, ProviderErrorKind, Quirks, ReasoningEffort, ToolChoice};
use ropeway_core::message::Conversation;

const PNG: &str = "iVBORw0KGgoAAAANSUhEUg==";

#[test]
fn a_request_is_stateless_and_streams() {
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
fn obfuscation_is_disabled_only_at_openai() {
    let conversation = Conversation::new().with("hi");
    let sent = body(&local(), &ChatRequest::new("m", &conversation));
    let fields: Vec<&String> = sent.as_object().expect("an object").keys().collect();
    assert_eq!(fields, ["model", "input", "stream", "store", "include"]);
}

#[test]
fn encrypted_reasoning_is_requested_if_supported() {
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
fn request_settings_have_their_fields() {
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
fn efforts_are_mapped() {
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
fn stop_sequences_are_left_out_with_a_warning() {
    let conversation = Conversation::new().with("hi");
    let mut request = ChatRequest::new("m", &conversation);
    request.stop_sequences = vec!["END".to_owned()];
    let encoded = encode(&local(), &request);
    assert_eq!(encoded.warnings, ["left out the stop sequences: responses does not support them"]);
    assert!(!String::from_utf8_lossy(&encoded.request.body).contains("END"));
}

#[test]
fn extra_fields_take_precedence() {
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
fn tool_choices_are_encoded_for_each_server() {
    let (conversation, tools) = (Conversation::new().with("hi"), tools());
    let sent = |settings: &crate::ProviderSettings, choice: ToolChoice| {
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
fn a_chosen_tool_is_offered_beyond_the_limit() {
    let (conversation, tools) = (Conversation::new().with("hi"), tools());
    let choice = ToolChoice::Tool("files.read".to_owned());
    let request = ChatRequest::new("m", &conversation).with_tools(&tools).with_tool_choice(choice);
    let settings = openai().with_quirks(Quirks { max_tools: Some(1), ..Quirks::default() });
    let sent = body(&settings, &request);
    assert_eq!(
        [&sent["tool_choice"], &sent["tools"][0]["name"], &sent["tools"][1]],
        [&json!("required"), &json!("files_read"), &Value::Null]
    );
}

#[test]
fn an_invalid_output_schema_is_an_error() {
    let conversation = Conversation::new().with("hi");
    let request = ChatRequest::new("m", &conversation).with_output("answer", json!({"type": "string"}));
    let error = crate::encode(&openai(), &request).expect_err("no schema");
    assert_eq!(error.kind, ProviderErrorKind::Unusable);
    assert!(error.to_string().starts_with("unsupported output schema: "), "{error}");
}

#[test]
fn a_tool_choice_must_be_offered() {
    let conversation = Conversation::new().with("hi");
    let request = ChatRequest::new("m", &conversation).with_tool_choice(ToolChoice::Tool("gone".to_owned()));
    let error = crate::encode(&openai(), &request).expect_err("no tool");
    assert_eq!(error.kind, ProviderErrorKind::Unusable);
    assert_eq!(error.to_string(), "the tool choice `gone` is not an offered tool");
}

#[test]
fn a_tool_choice_without_tools_is_left_out() {
    let conversation = Conversation::new().with("hi");
    let request = ChatRequest::new("m", &conversation).with_tool_choice(ToolChoice::None);
    assert_eq!(body(&openai(), &request).get("tool_choice"), None);
}

/// All kinds of content and their encoded parts.
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
fn images_and_documents_of_the_user_are_sent() {
    let (content, parts) = content();
    let conversation = conversation(json!([{"role": "user", "content": content}]));
    assert_eq!(input(&openai(), &conversation), json!([{"type": "message", "role": "user", "content": parts}]));
}

/// Returns the encoded output of a result.
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
fn images_and_documents_of_results_are_sent() {
    let (content, parts) = content();
    assert_eq!(output(content, false), Value::from(parts));
}

#[test]
fn a_text_result_is_a_string() {
    assert_eq!(output(json!([{"type": "text", "text": "18"}]), false), "18");
    assert_eq!(
        output(json!([{"type": "text", "text": "18"}, {"type": "resource_link", "uri": "file:///a"}]), false),
        "18\n[resource file:///a]"
    );
    assert_eq!(output(json!([]), false), "(no output)");
    assert_eq!(output(json!([{"type": "text", "text": ""}]), false), "(no output)");
}

#[test]
fn an_error_has_exactly_one_prefix() {
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
fn parallel_calls_have_their_results() {
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
        {"type": "function_call_output", "call_id": "b", "output": "error: the call was interrupted and returned no result"}
    ]);
    assert_eq!(input(&openai(), &conversation), expected);
}

#[test]
fn an_output_schema_is_strict_if_possible() {
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
