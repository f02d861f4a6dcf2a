//! Embeds a gateway: serves the demo server to other MCP clients on a free local port until Ctrl-C.
//!
//! With `ropeway` on the PATH (`cargo install --path crates/ropeway-cli`):
//! `cargo run --package ropeway --features gateway --example embedded_gateway`. Then, in another terminal: `ropeway tools URL`.

use std::net::TcpListener;
use std::time::Duration;

use ropeway::gateway::{Gateway, GatewayError};
use ropeway::prelude::*;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let demo = StdioServer::command("ropeway").with_args(["demo-server"]);
    let config = Config::default().with_server(ServerConfig::new("demo", demo));
    let gateway = Gateway::builder(config).build()?;
    for status in gateway.start().await? {
        println!("{status}");
    }
    let listener = TcpListener::bind("127.0.0.1:0")?;
    println!("serving http://{}/mcp", listener.local_addr()?);
    let stop = async {
        tokio::signal::ctrl_c().await?;
        // Refuses new calls, and waits for those in progress, which still need the listener.
        gateway.drain(Duration::from_secs(10)).await;
        Ok::<_, GatewayError>(())
    };
    tokio::try_join!(gateway.serve_http(listener), stop)?;
    Ok(())
}
