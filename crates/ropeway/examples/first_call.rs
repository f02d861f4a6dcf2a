//! Connects to a server, lists its tools and calls one.
//!
//! With `ropeway` on the PATH (`cargo install --path crates/ropeway-cli`): `cargo run --package ropeway --example first_call`

use ropeway::prelude::*;
use serde_json::json;

#[tokio::main]
async fn main() -> Result<(), ropeway::Error> {
    let server = Mcp::stdio("ropeway", ["demo-server"]);
    server.connect().await?;
    for tool in server.list_tools().await? {
        println!("{}", tool.definition().name);
    }
    println!("6 * 7 = {}", server.call("calculate", json!({"expression": "6 * 7"})).await);
    server.close().await;
    Ok(())
}
