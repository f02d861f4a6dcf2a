//! Envelopes: what calls came to, as the output schema promises it, and what had to be changed for that.
//!
//! With `ropeway` on the PATH (`cargo install --path crates/ropeway-cli`): `cargo run --package ropeway --example envelopes`

use std::sync::Arc;

use ropeway::config::{ServerConfig, StdioServer};
use ropeway::envelope::EnvelopeData;
use ropeway::mcp::Mcp;
use ropeway::registry::Registry;
use ropeway::tool::{Arguments, BoxError, CallContext, LocalTool, ToolDefinition};
use serde::Deserialize;
use serde_json::json;

#[derive(Deserialize)]
struct Statistics {
    count: u32,
    mean: f64,
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let weather = ToolDefinition::new("weather").with_output_schema(json!({
        "type": "object",
        "properties": {
            "celsius": {"type": "number"},
            "sunny": {"type": "boolean"},
            "station": {"type": "string", "default": "north"},
        },
        "additionalProperties": false,
    }));
    // Not what it promises: tools are like that.
    let answer = json!({"celsius": "21.5", "sunny": "now and then", "debug": 7});
    let weather = LocalTool::new(weather, move |_, _| std::future::ready(Ok::<_, BoxError>(answer.clone())));

    let server = Mcp::new(ServerConfig::new("demo", StdioServer::new("ropeway", ["demo-server"])));
    server.connect().await?;
    let mut tools = Registry::default();
    tools.register(Arc::new(weather));
    for tool in server.list_tools(None).await? {
        tools.register(tool);
    }

    let envelope = tools.call("weather", Arguments::new(), &CallContext::default()).await;
    println!("it said {}", serde_json::to_string(&envelope.meta.structured_content)?);
    println!("we have {}", serde_json::to_string(&envelope.data())?);
    for change in &envelope.changes {
        println!("changed {}", serde_json::to_string(change)?);
    }
    for warning in &envelope.warnings {
        println!("warning {warning}");
    }

    let arguments = Arguments::from_iter([("values".to_owned(), json!([3, 1, 4]))]);
    let envelope = tools.call("statistics", arguments, &CallContext::default()).await;
    let EnvelopeData::Json(data) = envelope.data() else { return Err("no structured content".into()) };
    let Statistics { count, mean } = Statistics::deserialize(data)?;
    println!("{count} values, {mean:.2} on average");
    server.close().await;
    Ok(())
}
