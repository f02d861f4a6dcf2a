//! Shaping: which tools a model gets and how it knows them, said in the configuration and in code.
//!
//! With `ropeway` on the PATH (`cargo install --path crates/ropeway-cli`):
//! `OPENAI_API_KEY=… cargo run --package ropeway --example shaping -- MODEL`. `OPENAI_BASE_URL` is for everybody else who speaks
//! Chat Completions, such as a model on this machine.

use std::path::Path;

use ropeway::agent::Agent;
use ropeway::bridge::Bridge;
use ropeway::config::{Config, Secrets};
use ropeway::message::Dialect;
use ropeway::provider::{Provider, ProviderSettings};
use ropeway::registry::ProviderOptions;
use ropeway::tool::ToolDefinition;
use serde_json::json;

const CONFIG: &str = "
servers:
  - alias: demo
    command: ropeway
    args: [demo-server]
    prefix: ''
    tools:
      deny: [fail, time]
      rename: {calculate: work_out}
      preset: {chart: {kind: line}}     # the model neither sees nor changes it
";

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let config = Config::parse(CONFIG, Path::new("ropeway.yaml"), &Secrets::from_env())?;
    let bridge = Bridge::builder(config)
        .filter(|tool| tool.output_schema.is_none() && tool.annotations.read_only())
        .transformer(|mut tool: ToolDefinition| {
            // The first sentence is enough.
            let description = tool.description.as_deref()?;
            tool.description = Some(description.split(". ").next()?.to_owned());
            Some(tool)
        })
        .transformer(ProviderOptions::new("openai", json!({"strict": true})))
        .build()?;
    let agent = Agent::builder()
        .provider(Provider::new(ProviderSettings::from_env(Dialect::Chat))?)
        .model(std::env::args().nth(1).ok_or("which model?")?)
        .bridge(bridge)
        .build()?;
    agent.connect().await;
    for tool in agent.all_tools().definitions() {
        println!("{}: {}", tool.name, tool.description.as_deref().unwrap_or_default());
    }
    println!("{}", agent.send("Draw 3, 1 and 4.").await?.text);
    Ok(())
}
