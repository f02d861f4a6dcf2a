//! The official Rust SDK as a client of the gateway.
//!
//! `rmcp-client ENDPOINT TOOL ARGUMENTS`, where ENDPOINT is `{"url": …}` or `{"command": […]}`: lists the tools, calls one,
//! reads the first resource, gets the first prompt without required arguments, and prints one line of JSON.

use anyhow::{Context, Result};
use rmcp::ServiceExt as _;
use rmcp::model::{CallToolRequestParams, GetPromptRequestParams, ReadResourceRequestParams, ResourceContents};
use rmcp::service::{RoleClient, RunningService};
use rmcp::transport::{StreamableHttpClientTransport, TokioChildProcess};
use serde_json::{Map, Value, json};

#[tokio::main]
async fn main() -> Result<()> {
    let mut args = std::env::args().skip(1);
    let mut next = || args.next().context("usage: rmcp-client ENDPOINT TOOL ARGUMENTS");
    let (endpoint, tool, arguments) = (next()?, next()?, next()?);
    let endpoint: Value = serde_json::from_str(&endpoint)?;
    // The workspace builds reqwest without one; a second installation fails, which does not matter.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let client: RunningService<RoleClient, ()> = match endpoint["url"].as_str() {
        Some(url) => ().serve(StreamableHttpClientTransport::from_uri(url.to_owned())).await?,
        None => {
            let words: Vec<&str> =
                endpoint["command"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
            let (program, rest) = words.split_first().context("`command` is empty")?;
            let mut command = tokio::process::Command::new(program);
            command.args(rest);
            ().serve(TokioChildProcess::new(command)?).await?
        }
    };
    let seen = visit(&client, tool, serde_json::from_str(&arguments)?).await?;
    println!("{seen}");
    client.cancel().await?;
    Ok(())
}

async fn visit(client: &RunningService<RoleClient, ()>, tool: String, arguments: Map<String, Value>) -> Result<Value> {
    let info = json!(client.peer_info());
    let has = &info["capabilities"];
    let tools = client.list_all_tools().await?;
    let names: Vec<_> = tools.iter().map(|tool| tool.name.clone()).collect();
    let called = client.call_tool(CallToolRequestParams::new(tool).with_arguments(arguments)).await?;
    let called = json!(called);
    let parts = called["content"].as_array().into_iter().flatten();
    let text: Vec<_> = parts.map(|part| part["text"].as_str().unwrap_or_default()).collect();
    let mut seen = json!({ "client": "rmcp", "server": info["serverInfo"]["name"],
        "protocol": info["protocolVersion"], "tools": names,
        "call": text.join("\n"), "is_error": called["isError"].as_bool().unwrap_or_default() });
    if has.get("resources").is_some_and(|it| !it.is_null()) {
        let resources = client.list_all_resources().await?;
        seen["resources"] = json!(resources.len());
        if let Some(resource) = resources.first() {
            let read = client.read_resource(ReadResourceRequestParams::new(resource.uri.clone())).await?;
            let length = match read.contents.first() {
                Some(ResourceContents::TextResourceContents { text, .. }) => text.len(),
                Some(ResourceContents::BlobResourceContents { blob, .. }) => blob.len(),
                _ => 0,
            };
            seen["resource"] = json!({ "uri": resource.uri, "length": length });
        }
    }
    if has.get("prompts").is_some_and(|it| !it.is_null()) {
        let prompts = client.list_all_prompts().await?;
        seen["prompts"] = json!(prompts.len());
        let plain = prompts.iter().find(|prompt| {
            let mut arguments = prompt.arguments.iter().flatten();
            !arguments.any(|argument| argument.required.unwrap_or_default())
        });
        if let Some(prompt) = plain {
            let messages = client.get_prompt(GetPromptRequestParams::new(prompt.name.clone())).await?.messages.len();
            seen["prompt"] = json!({ "name": prompt.name, "messages": messages });
        }
    }
    Ok(seen)
}
