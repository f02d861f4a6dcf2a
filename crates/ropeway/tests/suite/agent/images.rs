//! Parallel calls with images in results, as sent to each provider, live and from a recording.

use ropeway::agent::{Agent, Step, TurnEnd};
use ropeway::content::{Blob, ContentPart};
use ropeway::message::{Conversation, Dialect};
use ropeway::provider::{Provider, ProviderSettings, Recorder, StopReason};
use ropeway::testing::{ModelAnswer, ModelServer, ScriptedReply};
use ropeway::tool::LocalTool;
use serde_json::{Value, json};

use super::kit::{done, echo, lines, sendable, tool};

/// The first bytes of a PNG.
const PNG: &[u8] = b"\x89PNG\r\n\x1a\n";
const BASE64: &str = "iVBORw0KGgo=";

fn camera() -> LocalTool {
    tool("photo", |_, _| async {
        Ok(vec![ContentPart::text("the summit"), ContentPart::Image(Blob::new("image/png", PNG))])
    })
}

fn replies() -> [ScriptedReply; 2] {
    let both = ScriptedReply::reasoning("A picture and a word.")
        .and_text("I look.")
        .and_call("a", "photo", json!({}))
        .and_call("b", "echo", json!({"text": "hello"}));
    [both, ScriptedReply::text("There is snow.")]
}

fn settings(dialect: Dialect, url: String) -> ProviderSettings {
    ProviderSettings::new(dialect).with_base_url(url).with_key("a-key-for-tests")
}

fn agent(provider: Provider, dialect: Dialect, history: Conversation) -> Agent {
    // A model that supports images in results, where that depends on the model.
    let model = if dialect == Dialect::Gemini { "gemini-3-flash" } else { "m" };
    let agent = Agent::builder().provider(provider).model(model).tool(camera()).tool(echo()).history(history);
    agent.build().expect("an agent")
}

/// Returns the results of the round from a request.
fn results(dialect: Dialect, body: &Value) -> Value {
    match dialect {
        Dialect::Anthropic => body["messages"][2]["content"].clone(),
        Dialect::Responses => {
            let items = body["input"].as_array().expect("items").iter();
            items.filter(|item| item["type"] == "function_call_output").cloned().collect()
        }
        Dialect::Gemini => body["contents"][2].clone(),
        Dialect::Chat => body["messages"].as_array().expect("messages")[2..].to_vec().into(),
    }
}

/// Returns the expected results.
fn expected(dialect: Dialect) -> Value {
    let url = format!("data:image/png;base64,{BASE64}");
    match dialect {
        Dialect::Anthropic => {
            let image =
                json!({"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": BASE64}});
            json!([
                {"type": "tool_result", "tool_use_id": "a", "content": [{"type": "text", "text": "the summit"}, image]},
                {"type": "tool_result", "tool_use_id": "b", "content": "hello"},
            ])
        }
        Dialect::Responses => {
            let text = json!({"type": "input_text", "text": "the summit"});
            let image = json!({"type": "input_image", "image_url": url, "detail": "auto"});
            json!([
                {"type": "function_call_output", "call_id": "a", "output": [text, image]},
                {"type": "function_call_output", "call_id": "b", "output": "hello"},
            ])
        }
        Dialect::Gemini => {
            let image = json!([{"inlineData": {"mimeType": "image/png", "data": BASE64}}]);
            json!({"role": "user", "parts": [
                {"functionResponse": {"id": "a", "name": "photo", "response": {"output": "the summit"}, "parts": image}},
                {"functionResponse": {"id": "b", "name": "echo", "response": {"output": "hello"}}},
            ]})
        }
        // Results are text only: the image follows in a message, and both refer to each other.
        Dialect::Chat => json!([
            {"role": "tool", "tool_call_id": "a", "content": "the summit\n[image 1 of `photo`, shown below]"},
            {"role": "tool", "tool_call_id": "b", "content": "hello"},
            {"role": "user", "content": [
                {"type": "text", "text": "[image 1 of `photo`, call `a`]"},
                {"type": "image_url", "image_url": {"url": url, "detail": "auto"}},
            ]},
        ]),
    }
}

#[tokio::test]
async fn an_image_in_a_result_is_encoded_for_each_provider() {
    for dialect in Dialect::ALL {
        let server = ModelServer::start(replies().map(|reply| reply.answer(dialect))).await.expect("a port");
        let provider = Provider::new(settings(dialect, server.url())).expect("a provider");
        let agent = agent(provider, dialect, Conversation::new());
        assert_eq!(done(agent.send("what is there?")).await.text, "There is snow.", "{dialect}");
        sendable(&agent.history());
        let bodies = server.bodies();
        assert_eq!((bodies.len(), results(dialect, &bodies[1])), (2, expected(dialect)), "{dialect}");
    }
}

#[tokio::test]
async fn a_conversation_with_images_continues_with_every_provider() {
    for first in Dialect::ALL {
        let provider = ropeway::testing::model(first, replies());
        let begun = agent(provider, first, Conversation::new());
        done(begun.send("what is there?")).await;
        let saved = serde_json::to_value(begun.history()).expect("JSON");
        for dialect in Dialect::ALL {
            let server = ModelServer::start([ScriptedReply::text("Yes.").answer(dialect)]).await.expect("a port");
            let provider = Provider::new(settings(dialect, server.url())).expect("a provider");
            let history = serde_json::from_value(saved.clone()).expect("a conversation");
            let agent = agent(provider, dialect, history);
            let outcome = done(agent.send("much of it?")).await;
            assert_eq!((outcome.text.as_str(), outcome.end), ("Yes.", TurnEnd::Done(StopReason::EndTurn)));
            sendable(&agent.history());
            let said = ["user: what is there?", "model: I look. <a> <b>", "tools: <a> <b>", "model: There is snow."];
            assert_eq!(lines(&agent.history())[..4], said, "{first} to {dialect}");
            let body = server.bodies().remove(0).to_string();
            assert_eq!(body.matches(BASE64).count(), 1, "{first} to {dialect}: {body}");
        }
    }
}

#[tokio::test]
async fn a_recorded_conversation_replays_with_identical_requests() {
    for dialect in Dialect::ALL {
        let server = ModelServer::start(replies().map(|reply| reply.answer(dialect))).await.expect("a port");
        let recorder = Recorder::in_memory();
        let provider = Provider::new(settings(dialect, server.url())).expect("a provider");
        let first = agent(provider.with_recorder(recorder.clone()), dialect, Conversation::new());
        done(first.send("what is there?")).await;
        let recording = recorder.recording();
        assert_eq!(recording.exchanges.len(), 2, "{dialect}");
        // A request that differs from the recorded one would be an error.
        let replayed = Provider::replaying(settings(dialect, server.url()), recording);
        let second = agent(replayed, dialect, Conversation::new());
        assert_eq!(done(second.send("what is there?")).await.text, "There is snow.", "{dialect}");
        assert_eq!(second.history(), first.history(), "{dialect}");
    }
}

#[tokio::test]
async fn a_model_without_image_support_completes_a_turn_with_an_image() {
    let words = "image input is not supported - hint: if this is unexpected, you may need to provide the mmproj";
    for dialect in Dialect::ALL {
        let refusal =
            ModelAnswer::json(500, &json!({"error": {"code": 500, "message": words, "type": "server_error"}}));
        let [calls, snow] = replies().map(|reply| reply.answer(dialect));
        let answers = [calls, refusal, snow, ScriptedReply::text("Yes.").answer(dialect)];
        let server = ModelServer::start(answers).await.expect("a port");
        let provider = Provider::new(settings(dialect, server.url())).expect("a provider");
        let agent = agent(provider, dialect, Conversation::new());
        for (said, answer, warned) in [("what is there?", "There is snow.", 1), ("much of it?", "Yes.", 0)] {
            let mut turn = agent.send(said);
            let mut warnings = Vec::new();
            while let Some(step) = turn.next().await {
                if let Step::Warning { message } = step {
                    warnings.push(message);
                }
            }
            let model = if dialect == Dialect::Gemini { "gemini-3-flash" } else { "m" };
            let warning = format!("model `{model}` does not support images: sent text descriptions instead");
            assert_eq!(warnings, vec![warning; warned], "{dialect}");
            assert_eq!(turn.finish().await.expect("an outcome").text, answer, "{dialect}");
        }
        let bodies = server.bodies();
        let pictures = bodies.iter().map(|body| body.to_string().matches(BASE64).count());
        assert_eq!(pictures.collect::<Vec<_>>(), [0, 1, 0, 0], "{dialect}");
        let line = "[image, image/png, 8 bytes: it cannot be shown here]";
        assert!(results(dialect, &bodies[2]).to_string().contains(line), "{dialect}: {}", bodies[2]);
        // The history keeps the image for other models.
        let history = serde_json::to_string(&agent.history()).expect("JSON");
        assert_eq!(history.matches(BASE64).count(), 1, "{dialect}");
        sendable(&agent.history());
    }
}
