//! Runs a custom loop with one provider and the tools of a bridge.
//!
//! From the root of the repository, with `ropeway` on the PATH (`cargo install --path crates/ropeway-cli`):
//! `OPENAI_API_KEY=… cargo run --package ropeway --example ask_a_model -- MODEL`. Set `OPENAI_BASE_URL` to use another server that
//! speaks Chat Completions, such as a local model.

use ropeway::message::ToolCall;
use ropeway::prelude::*;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let model = std::env::args().nth(1).ok_or("usage: ask_a_model MODEL")?;
    let bridge = Bridge::from_file("crates/ropeway/examples/ropeway.yaml")?;
    bridge.start().await?;
    let tools = bridge.registry();
    let provider = Provider::from_env(Dialect::Chat)?;
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
