//! Resources as context, and a prompt that starts a conversation: what a server has besides tools, in an agent.
//!
//! With `mcp-server-everything` on the PATH (`npm install --global @modelcontextprotocol/server-everything`):
//! `OPENAI_API_KEY=… cargo run --package ropeway --example resources_as_context -- MODEL`. `OPENAI_BASE_URL` is for everybody
//! else who speaks Chat Completions, such as a model on this machine.

use std::path::Path;

use ropeway::agent::Agent;
use ropeway::bridge::Bridge;
use ropeway::config::{Config, Secrets};
use ropeway::message::Dialect;
use ropeway::provider::{Provider, ProviderSettings};
use ropeway::tool::{Alias, Arguments, CallContext};

/// What is named here is read before each turn, and stands before the conversation.
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
    let server = bridge.server(&Alias::new("everything")).ok_or("the server is not there")?;
    let arguments = Arguments::from_iter([("city".to_owned(), "Lisbon".into())]);
    let prompt = server.get_prompt("args-prompt", arguments, &CallContext::default()).await?;

    let agent = Agent::builder()
        .provider(Provider::new(ProviderSettings::from_env(Dialect::Chat))?)
        .model(std::env::args().nth(1).ok_or("which model?")?)
        .bridge(bridge.clone())
        .build()?;
    println!("{}", agent.send(prompt.to_messages()).await?.text);
    println!("{}", agent.send("And how is the server built that told you so much about itself?").await?.text);
    bridge.stop().await;
    Ok(())
}
