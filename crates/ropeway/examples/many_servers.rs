//! Connects to the servers of a configuration file, prints the status of each, and calls a tool.
//!
//! From the root of the repository, with `ropeway` on the PATH (`cargo install --path crates/ropeway-cli`):
//! `cargo run --package ropeway --example many_servers`

use ropeway::prelude::*;
use serde_json::json;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let bridge = Bridge::from_file("crates/ropeway/examples/ropeway.yaml")?;
    for status in bridge.start().await? {
        println!("{status}");
    }
    let envelope = bridge.call("demo.calculate", json!({"expression": "6 * 7"})).await;
    println!("{}", serde_json::to_string_pretty(&envelope)?);
    bridge.stop().await;
    Ok(())
}
