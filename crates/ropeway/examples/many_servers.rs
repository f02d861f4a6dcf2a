//! Many servers: a bridge over those of a file, what each has to offer, and a call.
//!
//! From the root of the repository, with `ropeway` on the PATH (`cargo install --path crates/ropeway-cli`):
//! `cargo run --package ropeway --example many_servers`

use std::path::Path;

use ropeway::bridge::Bridge;
use ropeway::config::{Config, Secrets};
use ropeway::tool::{Arguments, CallContext};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let config = Config::load(Path::new("crates/ropeway/examples/ropeway.yaml"), &Secrets::from_env())?;
    let bridge = Bridge::new(config)?;
    for status in bridge.start().await? {
        println!("{status}");
    }
    let tools = bridge.tools().registry;
    let arguments = Arguments::from_iter([("expression".to_owned(), "6 * 7".into())]);
    let envelope = tools.call("mcp_demo_calculate", arguments, &CallContext::default()).await;
    println!("{}", serde_json::to_string_pretty(&envelope)?);
    bridge.stop().await;
    Ok(())
}
