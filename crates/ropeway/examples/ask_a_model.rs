//! A model that uses the tools of a bridge: a loop of one's own around one provider.
//!
//! From the root of the repository, with `ropeway` on the PATH (`cargo install --path crates/ropeway-cli`):
//! `OPENAI_API_KEY=… cargo run --package ropeway --example ask_a_model -- MODEL`. `OPENAI_BASE_URL` is for everybody else who speaks
//! Chat Completions, such as a model on this machine.

use std::path::Path;

use ropeway::bridge::Bridge;
use ropeway::config::{Config, Secrets};
use ropeway::message::{Conversation, Dialect, ToolCall};
use ropeway::provider::{ChatRequest, Provider, ProviderSettings};
use ropeway::tool::CallContext;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let model = std::env::args().nth(1).ok_or("which model?")?;
    let config = Config::load(Path::new("crates/ropeway/examples/ropeway.yaml"), &Secrets::from_env())?;
    let bridge = Bridge::new(config)?;
    bridge.start().await?;
    let tools = bridge.tools().registry;
    let provider = Provider::new(ProviderSettings::from_env(Dialect::Chat))?;
    let mut conversation = Conversation::new().with("What is 6 * 7? Use a tool.");
    loop {
        let reply = provider.complete(&ChatRequest::new(&model, &conversation).with_tools(&tools)).await?;
        println!("{}", reply.message.to_text());
        let calls: Vec<ToolCall> = reply.message.calls().cloned().collect();
        conversation.push(reply.message);
        if calls.is_empty() {
            break;
        }
        let mut results = Vec::new();
        for call in &calls {
            results.push(tools.answer(call, &CallContext::default()).await);
        }
        conversation.push(results);
    }
    bridge.stop().await;
    Ok(())
}
