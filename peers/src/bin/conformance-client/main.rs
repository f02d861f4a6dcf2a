//! The client for the official conformance suite.
//!
//! `conformance-client URL`, with the scenario's name, protocol version and data in `MCP_CONFORMANCE_*`.

mod auth;

use std::env;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use ropeway::config::{EraChoice, HttpServer, ServerConfig};
use ropeway::event::Events;
use ropeway::mcp::{ElicitationAnswer, Handlers, Mcp};
use ropeway::tool::{Arguments, CallContext, ToolDefinition};
use serde::Deserialize;
use serde_json::{Map, Value, json};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let url = env::args().nth(1).context("usage: conformance-client URL")?;
    let scenario = env::var("MCP_CONFORMANCE_SCENARIO").context("`MCP_CONFORMANCE_SCENARIO` is not set")?;
    let (mut server, mut handlers) = (HttpServer::new(url), handlers());
    if scenario.starts_with("auth/") {
        server = server.with_auth(auth::settings(&scenario)?);
        handlers = auth::with_person(handlers);
    }
    let mut config = ServerConfig::new("conformance", server);
    config.era = match env::var("MCP_CONFORMANCE_PROTOCOL_VERSION").as_deref() {
        Ok("2026-07-28") => EraChoice::Modern,
        _ => EraChoice::Legacy,
    };
    config.reconnect.enabled = false;
    let client = Client(Mcp::with_host(config, handlers, Events::default()));
    client.0.connect().await?;
    let done = tokio::time::timeout(Duration::from_secs(25), client.run(&scenario)).await;
    client.0.close().await;
    done.context("the scenario timed out")?
}

/// Returns handlers that accept every elicitation without values, so that defaults apply.
fn handlers() -> Handlers {
    Handlers::new()
        .on_elicitation(|_| async { Ok(ElicitationAnswer::Accept(Map::new())) })
        .on_sampling(|_| async {
            Ok(json!({
                "role": "assistant",
                "content": {"type": "text", "text": "a sampled answer"},
                "model": "none",
                "stopReason": "endTurn",
            }))
        })
        .on_roots(|| async { Ok(Vec::new()) })
}

struct Client(Mcp);

/// The `MCP_CONFORMANCE_CONTEXT` contents for `http-custom-headers`.
#[derive(Deserialize)]
struct Calls {
    #[serde(rename = "toolCalls")]
    calls: Vec<Call>,
}

#[derive(Deserialize)]
struct Call {
    name: String,
    arguments: Arguments,
}

impl Client {
    async fn run(&self, scenario: &str) -> Result<()> {
        let tools = self.0.list_tool_definitions().await?;
        match scenario {
            "initialize" | "request-metadata" | "json-schema-ref-no-deref" => Ok(()),
            "tools_call" => self.call("add_numbers", json!({"a": 5, "b": 3})).await,
            "elicitation-sep1034-client-defaults" => self.call("test_client_elicitation_defaults", json!({})).await,
            "sse-retry" => self.call("test_reconnection", json!({})).await,
            "sep-2322-client-request-state" => self.call_with_input().await,
            "http-standard-headers" => self.use_every_method(&tools).await,
            "http-custom-headers" => self.call_from_context().await,
            "http-invalid-tool-headers" => self.call_every_tool(&tools).await,
            "json-schema-2020-12-preservation" => self.echo_schema(&tools).await,
            name if name.starts_with("auth/") => self.call_every_tool(&tools).await,
            _ => bail!("unknown scenario `{scenario}`"),
        }
    }

    async fn call(&self, tool: &str, arguments: Value) -> Result<()> {
        let Value::Object(arguments) = arguments else { bail!("the arguments of `{tool}` are not an object") };
        let output = self.0.call_tool_with(tool, arguments, &CallContext::default()).await?;
        if output.is_error {
            bail!("`{tool}` answered with an error: {}", output.plain_text().unwrap_or_default());
        }
        Ok(())
    }

    async fn request(&self, method: &str, params: Value) -> Result<Value> {
        let Value::Object(params) = params else { bail!("the params of `{method}` are not an object") };
        Ok(self.0.request(method, params, &CallContext::default()).await?)
    }

    /// Concurrently: one call's state must not leak into another.
    async fn call_with_input(&self) -> Result<()> {
        tokio::try_join!(
            self.call("test_mrtr_echo_state", json!({})),
            self.call("test_mrtr_no_state", json!({})),
            self.call("test_mrtr_unrelated", json!({})),
            self.call("test_mrtr_no_result_type", json!({})),
        )?;
        Ok(())
    }

    async fn use_every_method(&self, tools: &[ToolDefinition]) -> Result<()> {
        self.call_every_tool(tools).await?;
        for resource in list(&self.request("resources/list", json!({})).await?, "resources")? {
            self.request("resources/read", json!({"uri": resource["uri"]})).await?;
        }
        for prompt in list(&self.request("prompts/list", json!({})).await?, "prompts")? {
            self.request("prompts/get", json!({"name": prompt["name"]})).await?;
        }
        Ok(())
    }

    async fn call_from_context(&self) -> Result<()> {
        let context = env::var("MCP_CONFORMANCE_CONTEXT").context("`MCP_CONFORMANCE_CONTEXT` is not set")?;
        let given: Calls = serde_json::from_str(&context)?;
        for Call { name, arguments } in given.calls {
            self.0.call_tool_with(&name, arguments, &CallContext::default()).await?;
        }
        Ok(())
    }

    async fn call_every_tool(&self, tools: &[ToolDefinition]) -> Result<()> {
        for tool in tools {
            self.call(&tool.name, required_arguments(&tool.input_schema)).await?;
        }
        Ok(())
    }

    async fn echo_schema(&self, tools: &[ToolDefinition]) -> Result<()> {
        let tool = tools.iter().find(|tool| tool.name == "json_schema_2020_12_tool");
        let schema = &tool.context("`json_schema_2020_12_tool` is not listed")?.input_schema;
        self.call("json_schema_echo", json!({ "schema": **schema })).await
    }
}

/// Returns a text for each required argument, which is enough for the suite's tools.
fn required_arguments(schema: &Value) -> Value {
    let names = schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str);
    Value::Object(names.map(|name| (name.to_owned(), json!("value"))).collect::<Map<_, _>>())
}

fn list<'a>(result: &'a Value, key: &str) -> Result<&'a Vec<Value>> {
    result[key].as_array().with_context(|| format!("the result has no `{key}`"))
}
