//! Selects and changes the tools of a server, in the configuration and in code.
//!
//! With `ropeway` on the PATH (`cargo install --path crates/ropeway-cli`):
//! `OPENAI_API_KEY=… cargo run --package ropeway --example shaping -- MODEL`. Set `OPENAI_BASE_URL` to use another server that speaks
//! Chat Completions, such as a local model.

use std::path::Path;

use ropeway::config::ToolOverride;
use ropeway::prelude::*;
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
      preset: {chart: {kind: line}}     # hidden from the model
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
        .transformer(ToolOverride::default().with_provider_options([("openai".to_owned(), json!({"strict": true}))]))
        .build()?;
    let agent = Agent::builder()
        .provider(Provider::from_env(Dialect::Chat)?)
        .model(std::env::args().nth(1).ok_or("usage: shaping MODEL")?)
        .bridge(bridge)
        .build()?;
    agent.connect().await;
    for tool in agent.all_tools().definitions() {
        println!("{}: {}", tool.name, tool.description.as_deref().unwrap_or_default());
    }
    println!("{}", agent.send("Draw 3, 1 and 4.").await?.text);
    Ok(())
}
