//! Replays a recording of a real 1.5B model on llama.cpp, made by `cargo xtask llm --record`.
//!
//! A replay fails if today's requests differ from those that the real server accepted.

use ropeway::content::ContentPart;
use ropeway::lowering::Toolset;
use ropeway::message::{CallArguments, Conversation, Dialect, ToolCall, ToolResult};
use ropeway::provider::{ChatRequest, Provider, ProviderSettings, Recording, Reply, StopReason};
use ropeway::tool::ToolDefinition;
use serde_json::json;

const RECORDING: &str = include_str!("../../recordings/llama.jsonl");

/// A tool name that no dialect accepts.
const TOOL: &str = "weather.now/city";

fn provider(dialect: Dialect) -> Provider {
    let base = if dialect == Dialect::Anthropic { "http://127.0.0.1:1" } else { "http://127.0.0.1:1/v1" };
    let mut settings = ProviderSettings::new(dialect).with_base_url(base);
    settings.quirks.anthropic_version = Some("2023-06-01".to_owned());
    Provider::replaying(settings, Recording::read(RECORDING).expect("a recording"))
}

fn tools() -> Toolset {
    let schema = json!({"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]});
    let tool = ToolDefinition::new(TOOL).with_description("The weather in a city, right now").with_input_schema(schema);
    Toolset::new([tool])
}

async fn complete(provider: &Provider, request: ChatRequest<'_>) -> Reply {
    let request = request.with_max_tokens(100).with_temperature(0.0);
    provider.complete(&request).await.unwrap_or_else(|error| panic!("{}: {error}", provider.dialect()))
}

#[tokio::test]
async fn a_real_model_calls_a_tool_in_three_dialects() {
    for dialect in [Dialect::Chat, Dialect::Responses, Dialect::Anthropic] {
        let provider = provider(dialect);
        let question =
            Conversation::new().with_system("You answer in one word.").with("What is the capital of France?");
        let reply = complete(&provider, ChatRequest::new("local", &question)).await;
        assert_eq!((reply.message.to_text().trim(), reply.stop), ("Paris", StopReason::EndTurn), "{dialect}");
        assert!(reply.usage.input > 0 && reply.usage.output > 0, "{dialect}: {:?}", reply.usage);

        let tools = tools();
        let mut conversation = Conversation::new().with("What is the weather in Tokyo right now?");
        let reply = complete(&provider, ChatRequest::new("local", &conversation).with_tools(&tools)).await;
        assert_eq!(reply.stop, StopReason::ToolUse, "{dialect}");
        let calls: Vec<ToolCall> = reply.message.calls().cloned().collect();
        let [call] = &calls[..] else { panic!("{dialect}: one call, not {calls:?}") };
        let CallArguments::Object(arguments) = &call.arguments else { panic!("{dialect}: {call:?}") };
        assert_eq!((call.name.as_str(), json!(arguments)), (TOOL, json!({"city": "Tokyo"})), "{dialect}");

        conversation.push(reply.message);
        conversation.push(vec![ToolResult::new(call, vec![ContentPart::text("24 degrees and rain in Tokyo")])]);
        let reply = complete(&provider, ChatRequest::new("local", &conversation).with_tools(&tools)).await;
        assert!(reply.message.to_text().contains("24"), "{dialect}: {}", reply.message.to_text());
    }
}

#[tokio::test]
async fn a_real_model_writes_json_of_a_schema() {
    let schema = json!({
        "type": "object",
        "properties": {"city": {"type": "string"}, "population": {"type": "integer"}},
        "required": ["city", "population"],
        "additionalProperties": false,
    });
    let question = Conversation::new().with("Name a city and its population, as JSON.");
    let request = ChatRequest::new("local", &question).with_output("city", schema);
    let output = request.output.clone().expect("a format");
    let reply = complete(&provider(Dialect::Chat), request).await;
    let value = output.read(&reply).expect("JSON of the schema");
    assert!(value["city"].is_string() && value["population"].is_i64(), "{value}");
}
