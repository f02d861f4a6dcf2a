//! A server on the official Rust SDK, in both protocol eras, over stdio or Streamable HTTP.
//!
//! `rmcp-server [--tools N] [--http PORT]`. With `--http` it prints its URL as the first line; port 0 selects a free one. With the
//! variable `MODERN_ONLY`, it rejects `initialize`.

use std::borrow::Cow;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use anyhow::{Context, Result};
use axum::serve::ListenerExt;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, ElicitRequest, ElicitRequestParams,
    ElicitationSchema, Implementation, InputRequest, InputRequests, InputRequiredResult, ListToolsResult,
    PaginatedRequestParams, ProgressNotificationParam, ProtocolVersion, ServerCapabilities, ServerConfig, Tool,
};
use rmcp::service::{RequestContext, ServerInitializeError};
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::{StreamableHttpServerConfig, StreamableHttpService};
use rmcp::{ErrorData, RoleServer, ServerHandler, ServiceExt};
use ropeway_peers::payloads;
use serde_json::{Map, Value, json};

#[tokio::main]
async fn main() -> Result<()> {
    let (mut tools, mut port) = (4, None);
    let mut args = std::env::args().skip(1);
    while let Some(flag) = args.next() {
        let value = args.next().with_context(|| format!("`{flag}` needs a value"))?;
        match flag.as_str() {
            "--tools" => tools = value.parse()?,
            "--http" => port = Some(value.parse()?),
            _ => anyhow::bail!("unknown flag `{flag}`"),
        }
    }
    let server = Server { tools: tool_list(tools)? };
    match port {
        Some(port) => serve_http(server, port).await,
        None => serve_stdio(server).await,
    }
}

async fn serve_stdio(server: Server) -> Result<()> {
    match server.serve(rmcp::transport::stdio_pipes()).await {
        Ok(running) => drop(running.waiting().await?),
        // A modern client may send `server/discover` and disconnect.
        Err(ServerInitializeError::ConnectionClosed(_)) => {}
        Err(error) => return Err(error.into()),
    }
    Ok(())
}

async fn serve_http(server: Server, port: u16) -> Result<()> {
    let sessions = Arc::new(LocalSessionManager::default());
    let service =
        StreamableHttpService::new(move || Ok(server.clone()), sessions, StreamableHttpServerConfig::default());
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", port)).await?;
    println!("http://{}/mcp", listener.local_addr()?);
    // Otherwise every response on a kept-alive connection is delayed by 40 ms (delayed ACK).
    let listener = listener.tap_io(|stream| drop(stream.set_nodelay(true)));
    axum::serve(listener, axum::Router::new().route_service("/mcp", service)).await?;
    Ok(())
}

/// Returns `count` benchmark tools. A short list also has the tools that tests use.
fn tool_list(count: usize) -> Result<Arc<[Tool]>> {
    let mut tools = payloads::tools(count);
    if count <= 4 {
        tools.extend(tested_tools());
    }
    Ok(tools.into_iter().map(serde_json::from_value).collect::<Result<Vec<Tool>, _>>()?.into())
}

fn tested_tools() -> [Value; 4] {
    [
        json!({
            "name": "add",
            "description": "Adds two numbers.",
            "inputSchema": {
                "type": "object",
                "properties": {"a": {"type": "number"}, "b": {"type": "number"}},
                "required": ["a", "b"],
            },
            "outputSchema": {"type": "object", "properties": {"sum": {"type": "number"}}, "required": ["sum"]},
        }),
        json!({
            "name": "slow",
            "description": "Runs in steps and reports progress.",
            "inputSchema": {
                "type": "object",
                "properties": {"steps": {"type": "integer"}, "millis": {"type": "integer", "description": "per step"}},
            },
        }),
        json!({"name": "fail", "description": "Always fails.", "inputSchema": {"type": "object"}}),
        json!({"name": "ask", "description": "Asks for a name, then says hello.", "inputSchema": {"type": "object"}}),
    ]
}

#[derive(Clone)]
struct Server {
    tools: Arc<[Tool]>,
}

impl ServerHandler for Server {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
            .with_server_info(Implementation::new("rmcp-server", "0.1.0"))
            .with_instructions("A server for tests.")
    }

    fn supported_protocol_versions(&self) -> Cow<'static, [ProtocolVersion]> {
        const MODERN: &[ProtocolVersion] = &[ProtocolVersion::V_2026_07_28];
        let is_modern_only = std::env::var_os("MODERN_ONLY").is_some();
        Cow::Borrowed(if is_modern_only { MODERN } else { ProtocolVersion::KNOWN_VERSIONS })
    }

    fn get_tool(&self, name: &str) -> Option<Tool> {
        self.tools.iter().find(|tool| tool.name == name).cloned()
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        Ok(ListToolsResult::with_all_items(self.tools.to_vec()))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        if request.name == "ask" {
            return ask(request, context).await;
        }
        let arguments = request.arguments.unwrap_or_default();
        let bytes = usize::try_from(integer(&arguments, "bytes", 0)).unwrap_or_default();
        let result = match &*request.name {
            "echo" => text(arguments.get("message").and_then(Value::as_str).unwrap_or_default()),
            "text" => text(payloads::text(bytes)),
            "image" => CallToolResult::success(vec![ContentBlock::image(payloads::base64(bytes), "image/png")]),
            "structured" => structured("see the structured content", table().clone()),
            "add" => {
                let sum = number(&arguments, "a")? + number(&arguments, "b")?;
                structured(&sum.to_string(), json!({ "sum": sum }))
            }
            "slow" => slow(&arguments, &context).await,
            "fail" => CallToolResult::error(vec![ContentBlock::text("this tool always fails")]),
            name => return Err(ErrorData::invalid_params(format!("Unknown tool: {name}"), None)),
        };
        Ok(result.into())
    }
}

fn text(text: impl Into<String>) -> CallToolResult {
    CallToolResult::success(vec![ContentBlock::text(text)])
}

fn structured(summary: &str, value: Value) -> CallToolResult {
    let mut result = text(summary);
    result.structured_content = Some(value);
    result
}

fn table() -> &'static Value {
    static TABLE: OnceLock<Value> = OnceLock::new();
    TABLE.get_or_init(payloads::table)
}

fn integer(arguments: &Map<String, Value>, name: &str, absent: u64) -> u64 {
    arguments.get(name).and_then(Value::as_u64).unwrap_or(absent)
}

fn number(arguments: &Map<String, Value>, name: &str) -> Result<f64, ErrorData> {
    let value = arguments.get(name).and_then(Value::as_f64);
    value.ok_or_else(|| ErrorData::invalid_params(format!("`{name}` must be a number"), None))
}

async fn slow(arguments: &Map<String, Value>, context: &RequestContext<RoleServer>) -> CallToolResult {
    let (steps, millis) = (integer(arguments, "steps", 5), integer(arguments, "millis", 20));
    let token = context.meta.get_progress_token();
    for step in 1..=steps {
        tokio::select! {
            () = context.ct.cancelled() => return CallToolResult::error(vec![ContentBlock::text("cancelled")]),
            () = tokio::time::sleep(Duration::from_millis(millis)) => {}
        }
        if let Some(token) = token.clone() {
            let progress = ProgressNotificationParam::new(token, step as f64)
                .with_total(steps as f64)
                .with_message(format!("step {step}"));
            // Fails if the client is gone.
            let _ = context.peer.notify_progress(progress).await;
        }
    }
    text(format!("{steps} steps done"))
}

/// Asks with a request in the legacy era, and with an `input_required` result in the modern one.
async fn ask(
    request: CallToolRequestParams,
    context: RequestContext<RoleServer>,
) -> Result<CallToolResponse, ErrorData> {
    let modern = context.protocol_version().is_some_and(|version| version >= ProtocolVersion::V_2026_07_28);
    let answer = match request.input_responses {
        Some(mut responses) => responses.remove("who").unwrap_or_default(),
        None if modern => {
            let question = InputRequest::Elicitation(ElicitRequest::new(question()?));
            let questions = InputRequests::from([("who".to_owned(), question)]);
            return Ok(InputRequiredResult::new(Some(questions), Some("asked".to_owned())).into());
        }
        None => {
            let answer = context.peer.create_elicitation(question()?).await;
            let answer = answer.map_err(|error| ErrorData::internal_error(error.to_string(), None))?;
            json!(answer)
        }
    };
    let hello = match answer["action"].as_str() {
        Some("accept") => format!("hello {}", answer["content"]["name"].as_str().unwrap_or("nobody")),
        other => format!("no answer: {}", other.unwrap_or("nothing")),
    };
    Ok(text(hello).into())
}

fn question() -> Result<ElicitRequestParams, ErrorData> {
    let schema = json!({
        "type": "object",
        "properties": {"name": {"type": "string", "description": "Your name", "default": "friend"}},
    });
    let schema: ElicitationSchema =
        serde_json::from_value(schema).map_err(|error| ErrorData::internal_error(error.to_string(), None))?;
    Ok(ElicitRequestParams::FormElicitationParams {
        meta: None,
        message: "Who is there?".into(),
        requested_schema: schema,
    })
}
