//! An agent: a model that uses two servers and a tool of this program, shown while it does.
//!
//! `ropeway` (`cargo install --path crates/ropeway-cli`) and `mcp-server-time` (`pipx install mcp-server-time`) must be on the PATH:
//! `OPENAI_API_KEY=… cargo run --package ropeway --example agent -- MODEL`. `OPENAI_BASE_URL` is for everybody else who speaks
//! Chat Completions, such as a model on this machine.

use std::io::Write;

use ropeway::agent::{Agent, AgentServer, Step};
use ropeway::config::{ServerConfig, StdioServer};
use ropeway::message::Dialect;
use ropeway::provider::{Provider, ProviderSettings};
use ropeway::tool::{LocalTool, ToolDefinition};
use schemars::JsonSchema;
use serde::Deserialize;

#[derive(Deserialize, JsonSchema)]
struct Stock {
    /// What to look for, such as `eggs`.
    item: String,
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let stock = LocalTool::typed(
        ToolDefinition::new("stock").with_description("Tells how many of something we have."),
        |Stock { item }: Stock, _| async move {
            match item.as_str() {
                "eggs" => Ok("144"),
                _ => Err("we have never had that"),
            }
        },
    );
    let demo = ServerConfig::new("demo", StdioServer::new("ropeway", ["demo-server"]));
    let time = ServerConfig::new("time", StdioServer::new("mcp-server-time", ["--local-timezone", "UTC"]));
    let agent = Agent::builder()
        .provider(Provider::new(ProviderSettings::from_env(Dialect::Chat))?)
        .model(std::env::args().nth(1).ok_or("which model?")?)
        .system("Use the tools, and be brief.")
        .tool(stock)
        .mcps([AgentServer::from(demo), AgentServer::from(time).with_prefix("clock")])
        .build()?;

    let mut turn = agent.send("What are our eggs worth at 0.35 each, and what time is it in Tokyo?");
    while let Some(step) = turn.next().await {
        match step {
            Step::Servers { statuses } => statuses.iter().for_each(|status| println!("{status}")),
            Step::Text { text } => print!("{text}"),
            Step::Answered { .. } => println!(),
            Step::CallStarted { tool, arguments, .. } => println!("-> {tool} {arguments}"),
            Step::CallFinished { envelope, .. } => {
                println!("<- {} {}", envelope.tool, serde_json::to_string(&envelope.data())?);
            }
            _ => {}
        }
        std::io::stdout().flush()?;
    }
    let outcome = turn.finish().await?;
    println!("({} answers, {} tokens)", outcome.steps, outcome.usage.input + outcome.usage.output);
    Ok(())
}
