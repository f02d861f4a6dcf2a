//! A loop of one's own: the host keeps the conversation and makes the calls, `agent::stream` does what is between them.
//!
//! Each line that is typed is a question: `OPENAI_API_KEY=… cargo run --package ropeway --example own_loop -- MODEL`.
//! `OPENAI_BASE_URL` is for everybody else who speaks Chat Completions, such as a model on this machine.

use std::io::Write;

use ropeway::agent::{self, GenerateRequest, Step, ToolCallRequest};
use ropeway::message::{Conversation, Dialect};
use ropeway::provider::{Provider, ProviderSettings};
use ropeway::tool::{ToolCallError, ToolDefinition, ToolOutput};
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
                // The model is told; `ToolCallError::fatal` would end the turn instead.
                return Err("there is nothing to reverse".into());
            }
            Ok(Some(ToolOutput::text(text.chars().rev().collect::<String>())))
        }
        _ => Ok(None),
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let model = std::env::args().nth(1).ok_or("which model?")?;
    let provider = Provider::new(ProviderSettings::from_env(Dialect::Chat))?;
    let reverse = ToolDefinition::new("reverse")
        .with_description("Writes a text from its end.")
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
