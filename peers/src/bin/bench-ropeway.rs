//! A contestant: ropeway's client.

use anyhow::{Context, Result};
use ropeway::config::{ServerConfig, StdioServer};
use ropeway::content::ContentPart;
use ropeway::mcp::{Era, Mcp};
use ropeway::tool::CallContext;
use ropeway_peers::runner::{self, Contestant};
use serde_json::{Map, Value};

struct Ours(Mcp);

impl Contestant for Ours {
    async fn connect(server: &[String]) -> Result<Self> {
        let (program, args) = server.split_first().context("no server is given")?;
        let mcp = Mcp::new(ServerConfig::new("bench", StdioServer::new(program, args)));
        mcp.connect().await?;
        Ok(Self(mcp))
    }

    async fn call(&self, tool: &'static str, arguments: Map<String, Value>) -> Result<usize> {
        let output = self.0.call_tool_with(tool, arguments, &CallContext::default()).await?;
        if let Some(structured) = &output.structured {
            return Ok(structured["rows"].as_array().map_or(0, Vec::len));
        }
        let sizes = output.content.iter().map(|part| match part {
            ContentPart::Text { text, .. } => text.len(),
            ContentPart::Image(image) => image.base64().len(),
            _ => 0,
        });
        Ok(sizes.sum())
    }

    async fn list(&self) -> Result<usize> {
        // A legacy list is cached. A modern one has a time to live, which is zero for this server.
        if self.0.server_info().is_some_and(|server| server.era == Era::Legacy) {
            self.0.refresh_tools().await?;
        }
        Ok(self.0.list_tool_definitions().await?.len())
    }

    async fn close(self) {
        self.0.close().await;
    }
}

fn main() -> Result<()> {
    runner::main::<Ours>()
}
