//! Defines a tool that returns an image. The model gets it in the form that its API has for images.
//!
//! `OPENAI_API_KEY=… cargo run --package ropeway --example image_tool -- MODEL PICTURE.png`. Set `OPENAI_BASE_URL` to use another
//! server that speaks Chat Completions, such as a local model.

use ropeway::prelude::*;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let model = args.next().ok_or("usage: image_tool MODEL PICTURE")?;
    let picture = args.next().ok_or("usage: image_tool MODEL PICTURE")?;
    let camera = LocalTool::new(ToolDefinition::new("camera").with_description("Takes a picture."), move |_, _| {
        // A file that cannot be read is reported to the model.
        let bytes = std::fs::read(&picture);
        async { Ok(ContentPart::Image(Blob::new("image/png", &bytes?))) }
    });
    let agent = Agent::builder().provider(Provider::from_env(Dialect::Chat)?).model(model).tool(camera).build()?;
    println!("{}", agent.send("Look at what is in front of you. What is it?").await?.text);
    Ok(())
}
