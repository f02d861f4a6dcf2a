//! The first call: connects to a server, lists its tools and calls one.
//!
//! With `ropeway` on the PATH (`cargo install --path crates/ropeway-cli`): `cargo run --package ropeway --example first_call`

use ropeway::config::{ServerConfig, StdioServer};
use ropeway::mcp::Mcp;
use ropeway::tool::{Arguments, CallContext};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let server = Mcp::new(ServerConfig::new("demo", StdioServer::new("ropeway", ["demo-server"])));
    server.connect().await?;
    for tool in server.list_tools(None).await? {
        println!("{}", tool.definition().name);
    }
    let arguments = Arguments::from_iter([("expression".to_owned(), "6 * 7".into())]);
    let output = server.call_tool("calculate", arguments, &CallContext::default()).await?;
    println!("6 * 7 = {}", output.plain_text().unwrap_or_default());
    server.close().await;
    Ok(())
}
