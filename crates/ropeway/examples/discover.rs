//! Discovers the tools of the servers of a file, registers them, and calls one.
//!
//! From the root of the repository, with `ropeway` on the PATH (`cargo install --path crates/ropeway-cli`):
//! `cargo run --package ropeway --example discover`

use std::path::Path;

use ropeway::bridge::discover_and_register;
use ropeway::config::{Config, Secrets};
use ropeway::registry::Registry;
use ropeway::tool::{Arguments, CallContext};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut tools = Registry::default();
    let config = Config::load(Path::new("crates/ropeway/examples/ropeway.yaml"), &Secrets::from_env())?;
    for status in discover_and_register(config, &mut tools).await? {
        println!("{status}");
    }
    let arguments = Arguments::from_iter([("expression".to_owned(), "6 * 7".into())]);
    let envelope = tools.call("mcp_demo_calculate", arguments, &CallContext::default()).await;
    println!("{}", serde_json::to_string_pretty(&envelope)?);
    Ok(())
}
