//! Gives an agent a server's resources as context, and starts its conversation with a prompt of the server.
//!
//! With `mcp-server-everything` on the PATH (`npm install --global @modelcontextprotocol/server-everything`):
//! `OPENAI_API_KEY=… cargo run --package ropeway --example resources_as_context -- MODEL`. Set `OPENAI_BASE_URL` to use another
//! server that speaks Chat Completions, such as a local model.

use std::path::Path;

use ropeway::prelude::*;
use serde_json::json;

/// The resources under `context` are read before each turn and precede the conversation.
const CONFIG: &str = "
servers:
  - alias: everything
    command: mcp-server-everything
    tools: {deny: ['*']}
    resources: {context: ['demo://resource/static/document/arch*']}
";

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let bridge = Bridge::new(Config::parse(CONFIG, Path::new("ropeway.yaml"), &Secrets::from_env())?)?;
    bridge.start().await?;
    let server = bridge.server("everything").ok_or("server `everything` is not connected")?;
    let prompt = server.get_prompt("args-prompt", json!({"city": "Lisbon"})).await?;

    let agent = Agent::builder()
        .provider(Provider::from_env(Dialect::Chat)?)
        .model(std::env::args().nth(1).ok_or("usage: resources_as_context MODEL")?)
        .bridge(bridge.clone())
        .build()?;
    println!("{}", agent.send(prompt.to_messages()).await?.text);
    println!("{}", agent.send("And how is the server built that told you so much about itself?").await?.text);
    bridge.stop().await;
    Ok(())
}
