//! Reads envelopes: data cast to the output schema of a tool, and what the cast changed.
//!
//! With `ropeway` on the PATH (`cargo install --path crates/ropeway-cli`): `cargo run --package ropeway --example envelopes`

use ropeway::prelude::*;
use serde_json::json;

#[derive(serde::Deserialize)]
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
    // The result does not match the schema, as with many real tools.
    let weather =
        LocalTool::new(weather, |_, _| async { Ok(json!({"celsius": "21.5", "sunny": "now and then", "debug": 7})) });

    let server = Mcp::stdio("ropeway", ["demo-server"]).with_alias("demo");
    server.connect().await?;
    let mut tools = Registry::default();
    tools.register(weather);
    for tool in server.list_tools().await? {
        tools.register(tool);
    }

    let envelope = tools.call("weather", ()).await;
    println!("it said {}", serde_json::to_string(&envelope.meta.structured_content)?);
    println!("we have {}", serde_json::to_string(&envelope.data())?);
    for change in &envelope.changes {
        println!("changed {}", serde_json::to_string(change)?);
    }
    for warning in &envelope.warnings {
        println!("warning {warning}");
    }

    let envelope = tools.call("statistics", json!({"values": [3, 1, 4]})).await;
    let Statistics { count, mean } = envelope.parse()?;
    println!("{count} values, {mean:.2} on average");
    server.close().await;
    Ok(())
}
