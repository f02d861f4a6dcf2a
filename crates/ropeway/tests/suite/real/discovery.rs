//! The steps of a host that discovers, filters, transforms and registers tools itself, with a real server.

use ropeway::agent::Agent;
use ropeway::bridge::{connect_and_discover, discover_and_register};
use ropeway::config::{Config, ServerConfig, ServerEntry};
use ropeway::message::{Conversation, Dialect};
use ropeway::provider::{ChatRequest, ProviderSettings};
use ropeway::registry::{Registry, ServerState};
use ropeway::testing::{ScriptedReply, model};
use ropeway::tool::{CallContext, Tool as _, ToolDefinition};
use ropeway_providers::encode;
use serde_json::{Value, json};

use super::arguments;
use crate::scene::{Scene, scene};

fn filesystem(scene: &Scene) -> Config {
    Config::default().with_server(ServerEntry::new(ServerConfig::new("filesystem", scene.server("filesystem"))))
}

/// A transformer that adds a prefix to the description and sets provider options, such as `strict` for OpenAI.
fn described(mut definition: ToolDefinition) -> Option<ToolDefinition> {
    let description = definition.description.unwrap_or_default();
    definition.description = Some(format!("[Filesystem MCP] {description}"));
    let options = json!({"openai": {"function": {"strict": true}}, "google": {"grounding": false}});
    definition.provider_options = arguments(options);
    Some(definition)
}

#[test]
fn the_tools_of_a_real_server_are_registered_in_one_call() {
    scene(|scene| async move {
        let mut tools = Registry::default();
        let statuses = discover_and_register(filesystem(&scene), &mut tools).await.expect("tools");
        assert!(matches!(statuses[0].state, ServerState::Ready { tools: 1.. }), "{statuses:?}");
        let name = "mcp_filesystem_list_allowed_directories";
        let envelope = tools.call_with(name, arguments(json!({})), &CallContext::default()).await;
        assert!(!envelope.meta.is_error, "{envelope:?}");
    });
}

#[test]
fn discovered_tools_are_filtered_changed_and_registered_one_by_one() {
    scene(|scene| async move {
        let (bridge, found) = connect_and_discover(filesystem(&scene)).await.expect("tools");
        drop(bridge);
        let mut tools = Registry::default();
        let reads = |name: &str| !["delete", "write", "edit", "move", "create"].iter().any(|word| name.contains(word));
        for tool in found.into_iter().filter(|tool| reads(&tool.definition().name)) {
            let own = tool.definition().description.clone();
            let tool = tool.transformed(described).expect("a tool");
            assert_eq!(tool.definition().original().description, own);
            assert!(tool.register_exposed(&mut tools).is_none());
        }
        let named = |name: &str| tools.get(name).is_some();
        assert!(named("mcp_filesystem_list_directory") && !named("mcp_filesystem_write_file"));
        options_reach_the_wire(&tools);

        // A model calls one of the tools, and the server answers.
        let name = "mcp_filesystem_list_allowed_directories";
        let sayings = [ScriptedReply::call("a", name, json!({})), ScriptedReply::text("done")];
        let agent = Agent::builder().provider(model(Dialect::Chat, sayings)).model("m");
        let agent = agent.tools(tools.tools().map(|tool| tool.tool())).build().expect("an agent");
        let outcome = agent.send("which folders?").finish().await.expect("an outcome");
        assert_eq!(outcome.text, "done");
        let history = serde_json::to_string(&agent.history()).expect("JSON");
        assert!(history.contains("Allowed directories"), "{history}");
    });
}

/// Checks one of the tools as sent to each vendor.
fn options_reach_the_wire(tools: &Registry) {
    let name = "mcp_filesystem_list_directory";
    let tools = tools.filter(|definition| definition.name == name);
    let sent = |dialect: Dialect| {
        let conversation = Conversation::new().with("list the folder");
        let request = ChatRequest::new("m", &conversation).with_tools(&tools);
        let settings = ProviderSettings::new(dialect).with_base_url("https://models.example.com/v1");
        let encoded = encode(&settings, &request).expect("a request");
        (serde_json::from_slice::<Value>(&encoded.request.body).expect("JSON"), encoded.warnings)
    };
    let (body, warnings) = sent(Dialect::Chat);
    let function = &body["tools"][0]["function"];
    assert!(function["description"].as_str().is_some_and(|text| text.starts_with("[Filesystem MCP] ")), "{function}");
    assert_eq!((&function["strict"], warnings), (&json!(true), Vec::new()));
    assert_eq!(sent(Dialect::Responses).0["tools"][0]["strict"], true);
    let (body, warnings) = sent(Dialect::Gemini);
    assert!(!body.to_string().contains("grounding"), "{body}");
    let warning = format!(
        "tool `{name}`: provider option `google.grounding` is not sent: function declarations do not support grounding"
    );
    assert_eq!(warnings, [warning]);
}
