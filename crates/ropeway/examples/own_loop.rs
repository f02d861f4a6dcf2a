//! Runs a custom loop: the host keeps the conversation and makes the calls, `agent::stream` does the rest.
//!
//! Each line of standard input is a question: `OPENAI_API_KEY=… cargo run --package ropeway --example own_loop -- MODEL`.
//! Set `OPENAI_BASE_URL` to use another server that speaks Chat Completions, such as a local model.

use std::io::Write;

use ropeway::agent;
use ropeway::agent::{GenerateRequest, ToolCallRequest};
use ropeway::prelude::*;
use ropeway::tool::ToolCallError;
use serde::Deserialize;
use serde_json::json;

#[derive(Deserialize)]
struct Reverse {
    text: String,
}

async fn on_tool_call(call: ToolCallRequest) -> Result<Option<ToolOutput>, ToolCallError> {
    match call.name.as_str() {
        "reverse" => {
            let Reverse { text } = call.parse()?;
            if text.is_empty() {
                // Reported to the model; `ToolCallError::fatal` would end the turn instead.
                return Err("nothing to reverse".into());
            }
            Ok(Some(ToolOutput::text(text.chars().rev().collect::<String>())))
        }
        _ => Ok(None),
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let model = std::env::args().nth(1).ok_or("usage: own_loop MODEL")?;
    let provider = Provider::from_env(Dialect::Chat)?;
    let reverse = ToolDefinition::new("reverse")
        .with_description("Reverses a text.")
        .with_input_schema(json!({"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}));
    let mut request = GenerateRequest::new(model, Conversation::new()).with_tools([reverse]);
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
