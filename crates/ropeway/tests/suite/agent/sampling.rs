//! Sampling requests of servers, and prompts that start a conversation.

use ropeway::agent::{AgentServer, SamplingHandler};
use ropeway::bridge::Bridge;
use ropeway::config::Config;
use ropeway::event::Events;
use ropeway::mcp::{Handlers, SamplingRequest};
use ropeway::message::{Conversation, Dialect, Message};
use ropeway::provider::{ChatRequest, Provider, ProviderSettings};
use ropeway::registry::{Registry, ToolSource};
use ropeway::testing::{Fault, FaultTrigger, ModelAnswer, ModelServer, Script, ScriptedServer};
use ropeway::tool::{Arguments, CallContext};
use ropeway_providers::encode;
use serde_json::{Value, json};

use crate::fast_config::{arguments, connect, fast_config};
use crate::scene::scene;
use crate::specification::Specification;

/// Returns a local model that reasons and then says hello.
async fn model() -> (ModelServer, Provider) {
    let delta = json!({"reasoning_content": "private thoughts", "content": "Hello."});
    let said = json!({"id": "a", "model": "m-2", "choices": [{"index": 0, "delta": delta}]});
    let end = json!({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]});
    let answer = ModelAnswer::events(format!("data: {said}\n\ndata: {end}\n\ndata: [DONE]\n\n"));
    let server = ModelServer::start([answer]).await.expect("a free port");
    let settings =
        ProviderSettings::new(Dialect::Chat).with_base_url(format!("{}/v1", server.url())).with_key("sk-0123456789");
    let provider = Provider::new(settings).expect("a provider");
    (server, provider)
}

fn greeting() -> Value {
    let content = json!({"type": "text", "text": "Hello."});
    json!({"role": "assistant", "content": content, "model": "m-2", "stopReason": "endTurn"})
}

/// Returns the answer that the server's tool received.
async fn sampled(registry: &Registry) -> Value {
    let cx = CallContext::default();
    let envelope = registry.call_with("mcp_peer_sample", arguments(json!({"prompt": "Say hi."})), &cx).await;
    let text = ropeway::content::plain_text(&envelope.meta.content).expect("text only");
    serde_json::from_str(&text).unwrap_or_else(|_| panic!("{text}"))
}

#[test]
fn a_server_samples_the_model_in_both_protocol_eras() {
    scene(|_| async {
        // The newest version in which sampling is a separate request.
        let specification = Specification::of("2025-11-25");
        for script in [Script::legacy(), Script::modern()] {
            let (model, provider) = model().await;
            let handlers =
                Handlers::new().on_sampling(SamplingHandler::new(provider, "m").with_max_tokens(64).handler());
            let server = AgentServer::from(fast_config(ScriptedServer::new(script).in_process()));
            let source = server.into_source(handlers, Events::default());
            source.ready().await;
            let result = sampled(&source.registry()).await;
            assert_eq!(result, greeting());
            let answer = json!({"jsonrpc": "2.0", "id": 1, "result": result});
            assert_eq!(specification.faults(&answer, Some("sampling/createMessage")), [""; 0]);
            let body = &model.bodies()[0];
            assert_eq!(body["messages"], json!([{"role": "user", "content": "Say hi."}]));
            assert_eq!((&body["model"], &body["max_tokens"]), (&json!("m"), &json!(64)));
        }
    });
}

#[test]
fn a_bridge_samples_the_same_model_with_approval() {
    scene(|_| async {
        let (model, provider) = model().await;
        let (sender, mut questions) = tokio::sync::mpsc::unbounded_channel::<SamplingRequest>();
        let sampling = SamplingHandler::new(provider, "m").with_approval(move |request| {
            let is_first = request.params["messages"][0]["content"]["text"] == "Say hi.";
            sender.send(request).expect("a listener");
            async move { is_first }
        });
        let config = Config::new([fast_config(ScriptedServer::new(Script::legacy()).in_process())]);
        let handlers = Handlers::new().on_sampling(sampling.handler());
        let bridge = Bridge::builder(config).handlers(handlers).build().expect("a bridge");
        bridge.start().await.expect("a start");
        let registry = bridge.tools().registry;
        assert_eq!(sampled(&registry).await, greeting());
        assert_eq!(questions.recv().await.expect("a question").server.as_str(), "peer");
        // A rejected request is not made, and the server receives an error.
        let cx = CallContext::default();
        let refused = registry.call_with("mcp_peer_sample", arguments(json!({"prompt": "Spend all."})), &cx).await;
        let told = ropeway::content::plain_text(&refused.meta.content).expect("text only");
        let told: Value = serde_json::from_str(&told).expect("JSON");
        assert_eq!(told, json!({"code": -1, "message": "the user rejected the sampling request"}));
        assert_eq!(model.requests().len(), 1);
        bridge.stop().await;
    });
}

#[test]
fn a_prompt_starts_a_conversation_in_every_dialect() {
    scene(|_| async {
        let text = |text: &str| json!({"type": "text", "text": text});
        let messages = json!([
            {"role": "assistant", "content": text("Welcome.")},
            {"role": "user", "content": text("Look:")},
            {"role": "user", "content": {"type": "image", "data": "iVBORw0KGgo=", "mimeType": "image/png"}},
            {"role": "assistant", "content": text("I see")},
        ]);
        let script =
            Script::default().fault(FaultTrigger::method("prompts/get"), Fault::set("/result/messages", messages));
        let mcp = connect(fast_config(ScriptedServer::new(script).in_process())).await;
        let prompt = mcp.list_prompts().await.expect("prompts").remove(0);
        let filled = prompt.arguments.iter().map(|argument| (argument.name.clone(), json!("x")));
        let filled: Arguments = filled.collect();
        let prompt = mcp.get_prompt_with(&prompt.name, filled, &CallContext::default()).await.expect("a prompt");
        let messages = prompt.to_messages();
        let roles: Vec<bool> = messages.iter().map(|message| matches!(message, Message::User { .. })).collect();
        assert_eq!(roles, [false, true, false]);
        let conversation = Conversation { system: None, messages };
        for dialect in Dialect::ALL {
            let encoded = encode(&ProviderSettings::new(dialect), &ChatRequest::new("m", &conversation));
            assert!(encoded.is_ok(), "{dialect}: {:?}", encoded.err());
        }
        mcp.close().await;
    });
}
