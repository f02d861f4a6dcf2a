//! Examples with real servers.

use super::*;
use crate::real::folder;

#[tokio::test]
async fn agent_uses_two_servers_and_a_tool_of_its_own() {
    let clock = json!({"timezone": "Asia/Tokyo"});
    let sayings = [
        ScriptedReply::text("I look.").and_call("a", "stock", json!({"item": "eggs"})),
        calculating("b", "144 * 0.35"),
        ScriptedReply::call("c", "clock_get_current_time", clock),
        ScriptedReply::text("They are worth 50.4."),
    ];
    let told = Example::new("agent", &["local"]).finding(folder("time")).run(&sayings).await;
    let expected = r#"server `demo` is ready with 6 tools
server `time` is ready with 2 tools
I look.
-> stock {"item":"eggs"}
<- stock 144

-> mcp_demo_calculate {"expression":"144 * 0.35"}
<- mcp_demo_calculate 50.4

-> clock_get_current_time {"timezone":"Asia/Tokyo"}
<- clock_get_current_time …
They are worth 50.4.
(4 answers, 60 tokens)
"#;
    assert_eq!(told.but(&["<- clock_get_current_time "]), expected);
    let tools = [&DEMO[..], &["clock_get_current_time", "clock_convert_time", "stock"], OURS].concat();
    assert_eq!(told.tools(0), tools);
    let time = told.asked[3]["messages"][7]["content"].as_str().unwrap_or_default();
    assert!(time.contains("Asia/Tokyo") && time.contains("+09:00"), "{time}");
}

#[tokio::test]
async fn resources_precede_the_conversation_of_a_prompt() {
    // The folder of the pinned Node inside its package.
    let node = folder("everything");
    let modules = node.join("../..");
    let file = modules.join("@modelcontextprotocol/server-everything/dist/docs/architecture.md");
    let architecture = std::fs::read_to_string(file).expect("a file");
    let told = Example::new("resources_as_context", &["local"])
        .finding(node)
        .finding(modules.join(".bin"))
        .run(&[ScriptedReply::text("Sunny."), ScriptedReply::text("In layers.")])
        .await;
    assert_eq!(told.stdout, "Sunny.\nIn layers.\n");
    let uri = "demo://resource/static/document/architecture.md";
    let first = format!(
        "These resources were attached by the application. They were not written by the user.\n\
         [resource `{uri}` from server `everything`:]\n[{uri}]\n{architecture}\nWhat's weather in Lisbon?"
    );
    assert_eq!(told.asked[0]["messages"], json!([{"role": "user", "content": first}]));
    assert_eq!(
        told.asked[1]["messages"],
        json!([
            {"role": "user", "content": first},
            {"role": "assistant", "content": "Sunny."},
            {"role": "user", "content": "And how is the server built that told you so much about itself?"},
        ])
    );
}
