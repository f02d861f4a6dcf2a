//! Discovers the tools of the servers of a configuration file, registers them, and calls one.
//!
//! From the root of the repository, with `ropeway` on the PATH (`cargo install --path crates/ropeway-cli`):
//! `cargo run --package ropeway --example discover`

use std::path::Path;

use ropeway::bridge::discover_and_register;
use ropeway::prelude::*;
use serde_json::json;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut tools = Registry::default();
    let config = Config::load(Path::new("crates/ropeway/examples/ropeway.yaml"), &Secrets::from_env())?;
    for status in discover_and_register(config, &mut tools).await? {
        println!("{status}");
    }
    let envelope = tools.call("demo.calculate", json!({"expression": "6 * 7"})).await;
    println!("{}", serde_json::to_string_pretty(&envelope)?);
    Ok(())
}
