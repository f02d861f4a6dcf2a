//! A tool that returns an image: the model sees it, in the form that its dialect has for pictures.
//!
//! `OPENAI_API_KEY=… cargo run --package ropeway --example image_tool -- MODEL PICTURE.png`. `OPENAI_BASE_URL` is for everybody else
//! who speaks Chat Completions, such as a model on this machine.

use ropeway::agent::Agent;
use ropeway::content::{Blob, ContentPart};
use ropeway::message::Dialect;
use ropeway::provider::{Provider, ProviderSettings};
use ropeway::tool::{LocalTool, ToolDefinition};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut words = std::env::args().skip(1);
    let model = words.next().ok_or("which model?")?;
    let picture = words.next().ok_or("which picture?")?;
    let camera = LocalTool::new(
        ToolDefinition::new("camera").with_description("Takes a picture of what is in front of you."),
        move |_, _| {
            // A picture that cannot be read is no reason to give up: the model is told why.
            let bytes = std::fs::read(&picture);
            async { Ok::<_, std::io::Error>(ContentPart::Image(Blob::new("image/png", &bytes?))) }
        },
    );
    let agent = Agent::builder()
        .provider(Provider::new(ProviderSettings::from_env(Dialect::Chat))?)
        .model(model)
        .tool(camera)
        .build()?;
    println!("{}", agent.send("Look at what is in front of you. What is it?").await?.text);
    Ok(())
}
