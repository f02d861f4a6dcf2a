//! Runs an agent with two servers and a local tool, and prints its steps.
//!
//! `ropeway` (`cargo install --path crates/ropeway-cli`) and `mcp-server-time` (`pipx install mcp-server-time`) must be on the PATH:
//! `OPENAI_API_KEY=… cargo run --package ropeway --example agent -- MODEL`. Set `OPENAI_BASE_URL` to use another server that speaks
//! Chat Completions, such as a local model.

use std::io::Write;

use ropeway::prelude::*;

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Stock {
    /// Name of the item, such as `eggs`.
    item: String,
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let stock = LocalTool::typed(
        ToolDefinition::new("stock").with_description("Returns how many of an item are in stock."),
        |Stock { item }, _| async move { if item == "eggs" { Ok("144") } else { Err("unknown item".into()) } },
    );
    let demo = StdioServer::command("ropeway").with_args(["demo-server"]);
    let time = StdioServer::command("mcp-server-time").with_args(["--local-timezone", "UTC"]);
    let agent = Agent::builder()
        .provider(Provider::from_env(Dialect::Chat)?)
        .model(std::env::args().nth(1).ok_or("usage: agent MODEL")?)
        .system("Use the tools, and be brief.")
        .tool(stock)
        .mcp(ServerConfig::new("demo", demo))
        .mcp_with_prefix(ServerConfig::new("time", time), "clock")
        .build()?;

    let mut turn = agent.send("What are our eggs worth at 0.35 each, and what time is it in Tokyo?");
    while let Some(step) = turn.next().await {
        match step {
            Step::Servers { statuses } => statuses.iter().for_each(|status| println!("{status}")),
            Step::Text { text } => print!("{text}"),
            Step::Answered { .. } => println!(),
            Step::CallStarted { tool, arguments, .. } => println!("-> {tool} {arguments}"),
            Step::CallFinished { envelope, .. } => println!("<- {} {envelope}", envelope.tool),
            _ => {}
        }
        std::io::stdout().flush()?;
    }
    let outcome = turn.finish().await?;
    println!("({} answers, {} tokens)", outcome.steps, outcome.usage.input + outcome.usage.output);
    Ok(())
}
