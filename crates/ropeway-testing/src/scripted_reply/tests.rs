//! Each scripted reply is decoded by the decoder of its dialect.

use serde_json::{Map, Value, json};

use super::reply::{Call, Part, SIGNATURE};
use super::*;
use crate::ModelServer;
use ropeway_core::message::{
    AssistantMessage, AssistantPart, AssistantText, CallArguments, Conversation, ModelEndpoint, ToolCall,
};
use ropeway_providers::{ChatRequest, Reply, StopReason, Usage};

async fn ask(provider: &Provider) -> Reply {
    let conversation = Conversation::new().with("hello");
    provider.complete(&ChatRequest::new("m", &conversation)).await.expect("an answer")
}

/// Returns the parts of a message without opaque ones.
fn bare(message: &AssistantMessage) -> Vec<AssistantPart> {
    let mut parts = message.parts.clone();
    for part in &mut parts {
        match part {
            AssistantPart::Text(part) => part.extra = Map::new(),
            AssistantPart::Reasoning(part) => part.extra = Map::new(),
            AssistantPart::ToolCall(part) => part.extra = Map::new(),
            AssistantPart::Opaque { .. } => {}
        }
    }
    parts
}

/// Returns the expected parts of a reply.
fn expected(dialect: Dialect, reply: &ScriptedReply, cut: bool) -> Vec<AssistantPart> {
    let last = reply.parts.len();
    let parts = reply.parts.iter().zip(1..).map(|(part, place)| match part {
        Part::Text(text) => AssistantPart::Text(AssistantText { text: text.clone(), extra: Map::new() }),
        Part::Reasoning(text) => AssistantPart::Reasoning(AssistantText { text: text.clone(), extra: Map::new() }),
        Part::Call(Call { id, name, arguments: text }) => {
            let arguments = match CallArguments::read(text) {
                // Gemini sends calls as a whole.
                _ if cut && place == last && dialect != Dialect::Gemini => {
                    CallArguments::broken(text, "the arguments were cut off: the reply reached its maximum length")
                }
                CallArguments::Broken { .. }
                    if dialect == Dialect::Gemini && serde_json::from_str::<Value>(text).is_err() =>
                {
                    CallArguments::read(&Value::from(text.as_str()).to_string())
                }
                arguments => arguments,
            };
            AssistantPart::ToolCall(ToolCall { id: id.clone(), name: name.clone(), arguments, extra: Map::new() })
        }
    });
    parts.collect()
}

fn replies() -> Vec<(ScriptedReply, StopReason)> {
    let two_calls = ScriptedReply::reasoning("Two of them are needed.")
        .and_text("I look at both.")
        .and_call("a", "wind", json!({"station": "summit", "unit": "km/h"}))
        .and_call("b", "cabins", json!({}));
    let broken = ScriptedReply::written_call("a", "wind", "{\"station\": ").and_written_call("b", "wind", "[1]");
    vec![
        (ScriptedReply::nothing(), StopReason::EndTurn),
        (ScriptedReply::text("The north line is open – until 22:00. 🚡"), StopReason::EndTurn),
        (ScriptedReply::reasoning("Is it?").and_text("It is."), StopReason::EndTurn),
        (two_calls, StopReason::ToolUse),
        (broken, StopReason::ToolUse),
        (ScriptedReply::call("a", "wind", json!({"n": 1})).and_call("a", "wind", json!({"n": 2})), StopReason::ToolUse),
        (ScriptedReply::text("It is rather").stopping(StopReason::MaxTokens), StopReason::MaxTokens),
        (ScriptedReply::written_call("a", "wind", "{\"sta").stopping(StopReason::MaxTokens), StopReason::MaxTokens),
        (ScriptedReply::text("I will not help.").stopping(StopReason::Refusal), StopReason::Refusal),
    ]
}

#[tokio::test]
async fn a_reply_is_decoded_in_each_dialect() {
    for dialect in Dialect::ALL {
        let (scripted, stops): (Vec<_>, Vec<_>) = replies().into_iter().unzip();
        let provider = model(dialect, scripted.clone());
        for (scripted, stop) in scripted.iter().zip(stops) {
            let stop = match (dialect, stop) {
                (Dialect::Gemini, StopReason::Refusal) => StopReason::ContentFilter,
                (_, stop) => stop,
            };
            let reply = ask(&provider).await;
            let usage = Usage { input: 10, output: 5, ..Usage::default() };
            assert_eq!((reply.stop, reply.usage, reply.warnings.len()), (stop.clone(), usage, 0), "{dialect}");
            assert_eq!(bare(&reply.message), expected(dialect, scripted, stop == StopReason::MaxTokens), "{dialect}");
            let endpoint = format!("https://{dialect}.example.com");
            assert_eq!(reply.message.from, Some(ModelEndpoint { dialect, endpoint, model: "m".to_owned() }));
        }
    }
}

#[tokio::test]
async fn opaque_parts_are_included() {
    let reply = ScriptedReply::reasoning("Hm.").and_text("Both.").and_call("a", "wind", json!({"n": 1}));
    let extras = |dialect: Dialect| {
        let reply = reply.clone();
        async move {
            let reply = ask(&model(dialect, [reply])).await;
            let parts = reply.message.parts.iter().map(|part| match part {
                AssistantPart::Text(part) => part.extra.clone(),
                AssistantPart::Reasoning(part) => part.extra.clone(),
                AssistantPart::ToolCall(part) => part.extra.clone(),
                AssistantPart::Opaque { json } => json.clone(),
            });
            (reply.id.unwrap_or_default(), Value::from(parts.map(Value::from).collect::<Vec<_>>()))
        }
    };
    let anthropic = json!([{"signature": SIGNATURE}, {"citations": null}, {}]);
    assert_eq!(extras(Dialect::Anthropic).await, ("msg_answer_1".to_owned(), anthropic));
    let summary = json!([{"type": "summary_text", "text": "Hm."}]);
    let thoughts =
        json!({"id": "rs_answer_1_0", "type": "reasoning", "encrypted_content": SIGNATURE, "summary": summary});
    let message = json!({"id": "msg_answer_1_1", "type": "message", "status": "completed", "role": "assistant"});
    let part = json!({"type": "output_text", "annotations": [], "logprobs": [], "text": ""});
    let call = json!({"id": "fc_answer_1_2", "type": "function_call", "status": "completed"});
    let responses = json!([{"item": thoughts}, {"part": part, "item": message}, {"item": call}]);
    assert_eq!(extras(Dialect::Responses).await, ("resp_answer_1".to_owned(), responses));
    let gemini = json!([{}, {}, {"thoughtSignature": SIGNATURE, "functionCall": {"id": "a"}}]);
    assert_eq!(extras(Dialect::Gemini).await, ("answer_1".to_owned(), gemini));
    let chat = json!([{"fields": ["reasoning_content"]}, {}, {}]);
    assert_eq!(extras(Dialect::Chat).await, ("chatcmpl-answer_1".to_owned(), chat));
}

#[tokio::test]
async fn a_broken_reply_has_its_content_and_then_fails() {
    for dialect in Dialect::ALL {
        let provider = replaying(dialect, [ScriptedReply::text("It is open").broken_exchange(dialect)]);
        let conversation = Conversation::new().with("hello");
        let mut stream = provider.stream(&ChatRequest::new("m", &conversation));
        let mut text = String::new();
        let error = loop {
            match stream.next().await.expect("more") {
                Ok(ropeway_providers::ReplyEvent::Text(piece)) => text += &piece,
                Ok(_) => {}
                Err(error) => break error,
            }
        };
        assert_eq!((text.as_str(), error.kind), ("It is open", ProviderErrorKind::Truncated), "{dialect}");
    }
}

#[tokio::test]
async fn a_reply_is_the_same_over_a_socket() {
    for dialect in Dialect::ALL {
        let scripted = ScriptedReply::text("One moment.").and_call("a", "wind", json!({"station": "summit"}));
        let server = ModelServer::start([scripted.answer(dialect)]).await.expect("a server");
        let settings = ProviderSettings::new(dialect).with_base_url(server.url()).with_key("a-key-for-tests");
        let reply = ask(&Provider::new(settings).expect("a provider")).await;
        assert_eq!((bare(&reply.message), reply.stop), (expected(dialect, &scripted, false), StopReason::ToolUse));
    }
}
