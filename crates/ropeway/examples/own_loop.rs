//! A loop of one's own: the host keeps the conversation and makes the calls, `agent::stream` does what is between them.
//!
//! Each line that is typed is a question: `OPENAI_API_KEY=… cargo run --package ropeway --example own_loop -- MODEL`.
//! `OPENAI_BASE_URL` is for everybody else who speaks Chat Completions, such as a model on this machine.

use std::io::Write;

use ropeway::agent::{self, Generate, Step};
use ropeway::message::{CallArguments, Conversation, Dialect, ToolCall};
use ropeway::provider::{Provider, Settings};
use ropeway::tool::{ToolDefinition, ToolOutput};
use serde_json::json;

async fn on_tool_call(call: ToolCall) -> Option<ToolOutput> {
    match (call.name.as_str(), &call.arguments) {
        ("reverse", CallArguments::Object(arguments)) => {
            // Arguments that do not fit the schema are answered without us.
            let text = arguments["text"].as_str().unwrap_or_default();
            Some(ToolOutput::text(text.chars().rev().collect::<String>()))
        }
        _ => None,
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let model = std::env::args().nth(1).ok_or("which model?")?;
    let provider = Provider::new(Settings::from_env(Dialect::Chat))?;
    let reverse = ToolDefinition::new("reverse")
        .with_description("Writes a text from its end.")
        .with_input_schema(json!({"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}));
    let mut request = Generate::new(model, Conversation::new()).with_tools([reverse]);
    for line in std::io::stdin().lines() {
        request.conversation.push(line?);
        let mut generation = agent::stream(&provider, request.clone(), on_tool_call);
        while let Some(step) = generation.next().await {
            match step {
                Step::Text { text } => print!("{text}"),
                Step::Answered { .. } => println!(),
                Step::CallStarted { tool, arguments, .. } => println!("-> {tool} {arguments}"),
                _ => {}
            }
            std::io::stdout().flush()?;
        }
        request.conversation = generation.finish().await?.conversation;
        println!("({} messages)", request.conversation.messages.len());
    }
    Ok(())
}
