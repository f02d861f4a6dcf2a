//! Exits without running destructors and still terminates its servers: `leave_at_once COMMAND ARGS…`.

use ropeway::config::{ServerConfig, StdioServer};
use ropeway::mcp::{Mcp, end_children};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut words = std::env::args().skip(1);
    let mut program = StdioServer::new(words.next().ok_or("usage: leave_at_once COMMAND ARGS…")?, words);
    program.inherit_env = true;
    let server = Mcp::new(ServerConfig::new("stubborn", program));
    server.connect().await?;
    println!("connected");
    end_children();
    std::process::exit(0);
}
