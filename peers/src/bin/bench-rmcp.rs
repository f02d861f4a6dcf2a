//! A contestant: the official Rust SDK's client.

use anyhow::{Context, Result};
use rmcp::model::{
    CallToolRequestParams, ClientCapabilities, ClientConfig, ContentBlock, Implementation, ProtocolVersion,
};
use rmcp::service::{ClientCacheConfig, ClientLifecycleMode, RunningService};
use rmcp::transport::TokioChildProcess;
use rmcp::{ClientServiceExt, RoleClient};
use ropeway_peers::runner::{self, Contestant};
use serde_json::{Map, Value};
use tokio::process::Command;

struct Rmcp(RunningService<RoleClient, ClientConfig>);

impl Contestant for Rmcp {
    async fn connect(server: &[String]) -> Result<Self> {
        let (program, args) = server.split_first().context("no server is given")?;
        let mut command = Command::new(program);
        command.args(args);
        let client = ClientConfig::new(ClientCapabilities::default(), Implementation::new("bench", "0.1.0"));
        // The same negotiation as ropeway's, so that both use the same protocol era.
        let lifecycle = ClientLifecycleMode::Auto {
            preferred_versions: vec![ProtocolVersion::V_2026_07_28],
            legacy_version: Some(ProtocolVersion::LATEST_WITH_INITIALIZE),
        };
        let running = client.serve_with_lifecycle(TokioChildProcess::new(command)?, lifecycle).await?;
        running.set_response_cache_config(ClientCacheConfig::disabled()).await;
        Ok(Self(running))
    }

    async fn call(&self, tool: &'static str, arguments: Map<String, Value>) -> Result<usize> {
        let result = self.0.call_tool(CallToolRequestParams::new(tool).with_arguments(arguments)).await?;
        if let Some(structured) = &result.structured_content {
            return Ok(structured["rows"].as_array().map_or(0, Vec::len));
        }
        let sizes = result.content.iter().map(|block| match block {
            ContentBlock::Text(text) => text.text.len(),
            ContentBlock::Image(image) => image.data.len(),
            _ => 0,
        });
        Ok(sizes.sum())
    }

    async fn list(&self) -> Result<usize> {
        Ok(self.0.list_all_tools().await?.len())
    }

    async fn close(self) {
        let _ = self.0.cancel().await;
    }
}

fn main() -> Result<()> {
    runner::main::<Rmcp>()
}
