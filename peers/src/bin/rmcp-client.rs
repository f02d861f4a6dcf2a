//! The official Rust SDK as the gateway's client.
//!
//! `rmcp-client ENDPOINT SPEC`, where ENDPOINT is `{"url": …, "headers": …}` or `{"command": […]}`: runs the
//! specification's checks and prints one JSON line per check. `MCP_ERA=legacy` forces the handshake.

#![allow(deprecated, reason = "sampling, roots and logging are deprecated in the protocol, and tested here")]

use std::process::Stdio;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, bail};
use rmcp::model::{
    CallToolRequest, ClientConfig, ClientRequest, CreateMessageRequestParams, CreateMessageResult, ElicitRequestParams,
    ElicitResult, ErrorData, ListRootsResult, LoggingMessageNotificationParam, PaginatedRequestParams, PingRequest,
    ProgressNotificationParam, ProtocolVersion, RequestMetaObject, ResourceUpdatedNotificationParam,
};
use rmcp::service::{
    ClientLifecycleMode, ClientServiceExt as _, NotificationContext, PeerRequestOptions, RequestContext, RoleClient,
    RunningService,
};
use rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig;
use rmcp::transport::{StreamableHttpClientTransport, TokioChildProcess};
use rmcp::{ClientHandler, ServiceExt as _};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::io::AsyncBufReadExt as _;
use tokio::time::{Instant, sleep, timeout};

/// Maximum time until a notification arrives.
const PATIENCE: Duration = Duration::from_secs(8);
/// Maximum pages in a list.
const MAX_PAGES: usize = 100;

/// What the server sent, as `method` and parameters, and what it asked for.
type Log = Arc<Mutex<Vec<(&'static str, String)>>>;

#[derive(Clone, Debug)]
struct Handler {
    root: String,
    seen: Log,
}

impl Handler {
    fn note(&self, method: &'static str, params: String) {
        self.seen.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push((method, params));
    }
}

/// Converts JSON to an SDK type, which cannot be constructed otherwise.
fn typed<T: DeserializeOwned>(value: Value) -> Result<T, ErrorData> {
    serde_json::from_value(value).map_err(|error| ErrorData::internal_error(error.to_string(), None))
}

impl ClientHandler for Handler {
    fn get_info(&self) -> ClientConfig {
        let era = if is_legacy() { "rmcp-legacy" } else { "rmcp" };
        let capabilities =
            json!({ "roots": { "listChanged": true }, "sampling": {}, "elicitation": { "form": {}, "url": {} } });
        let info = json!({ "protocolVersion": "2025-11-25", "capabilities": capabilities,
            "clientInfo": { "name": era, "version": "1.0.0" } });
        typed(info).unwrap_or_default()
    }

    async fn create_message(
        &self,
        _: CreateMessageRequestParams,
        _: RequestContext<RoleClient>,
    ) -> Result<CreateMessageResult, ErrorData> {
        self.note("sampling", String::new());
        typed(json!({ "role": "assistant", "model": "none", "content": { "type": "text", "text": "sampled answer" } }))
    }

    async fn list_roots(&self, _: RequestContext<RoleClient>) -> Result<ListRootsResult, ErrorData> {
        typed(json!({ "roots": [{ "uri": self.root, "name": "root" }] }))
    }

    async fn create_elicitation(
        &self,
        request: ElicitRequestParams,
        _: RequestContext<RoleClient>,
    ) -> Result<ElicitResult, ErrorData> {
        self.note("elicitation", String::new());
        let is_url = json!(request)["mode"] == "url";
        typed(if is_url {
            json!({ "action": "accept" })
        } else {
            json!({ "action": "accept", "content": { "name": "Ada" } })
        })
    }

    async fn on_progress(&self, params: ProgressNotificationParam, _: NotificationContext<RoleClient>) {
        self.note("progress", json!(params).to_string());
    }

    async fn on_logging_message(&self, params: LoggingMessageNotificationParam, _: NotificationContext<RoleClient>) {
        self.note("message", json!(params).to_string());
    }

    async fn on_resource_updated(&self, params: ResourceUpdatedNotificationParam, _: NotificationContext<RoleClient>) {
        self.note("resources/updated", json!(params).to_string());
    }

    async fn on_resource_list_changed(&self, _: NotificationContext<RoleClient>) {
        self.note("resources/list_changed", String::new());
    }

    async fn on_tool_list_changed(&self, _: NotificationContext<RoleClient>) {
        self.note("tools/list_changed", String::new());
    }
}

fn is_legacy() -> bool {
    std::env::var("MCP_ERA").is_ok_and(|era| era == "legacy")
}

#[tokio::main]
async fn main() -> Result<()> {
    let mut args = std::env::args().skip(1);
    let mut next = || args.next().context("usage: rmcp-client ENDPOINT SPEC");
    let (endpoint, spec): (Value, Value) = (serde_json::from_str(&next()?)?, serde_json::from_str(&next()?)?);
    // The workspace builds reqwest without one; a second installation fails, which does not matter.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let seen = Log::default();
    let handler = Handler { root: spec["root"].as_str().unwrap_or_default().to_owned(), seen: Arc::clone(&seen) };
    let client = match timeout(Duration::from_secs(60), connect(handler, &endpoint)).await {
        Ok(Ok(client)) => client,
        Ok(Err(error)) => {
            print("connect", "failed", &format!("{error:#}"));
            return Ok(());
        }
        Err(_) => {
            print("connect", "failed", "no answer in 60 s");
            return Ok(());
        }
    };
    let is_modern = client.peer_info().is_some_and(|info| info.protocol_version >= ProtocolVersion::V_2026_07_28);
    let checks = Checks { client, seen, is_modern };
    if spec["wait"] == true {
        checks.all_tools().await?;
        print("ready", "ok", "");
        let mut line = String::new();
        tokio::io::BufReader::new(tokio::io::stdin()).read_line(&mut line).await?;
    }
    print("connect", "ok", if is_modern { "modern" } else { "legacy" });
    let time = Duration::from_millis(spec["timeout"].as_u64().unwrap_or(20_000));
    for (name, wanted) in spec["checks"].as_object().into_iter().flatten() {
        if name == "terminate" {
            // The SDK does not expose its session's id.
            print(name, "unsupported", "");
            continue;
        }
        match timeout(time, checks.check(name, wanted)).await {
            Ok(Ok(())) => print(name, "ok", ""),
            Ok(Err(error)) => print(name, "failed", &format!("{error:#}")),
            Err(_) => print(name, "failed", &format!("no answer in {time:?}")),
        }
    }
    // Fails if the connection has ended.
    let _ = timeout(Duration::from_secs(2), checks.client.cancel()).await;
    Ok(())
}

fn print(check: &str, outcome: &str, detail: &str) {
    let detail: String = detail.chars().take(300).collect();
    println!("{}", json!({ "check": check, "outcome": outcome, "detail": detail }));
}

async fn connect(handler: Handler, endpoint: &Value) -> Result<RunningService<RoleClient, Handler>> {
    let lifecycle = ClientLifecycleMode::Auto {
        preferred_versions: vec![ProtocolVersion::V_2026_07_28],
        legacy_version: Some(ProtocolVersion::V_2025_11_25),
    };
    let Some(url) = endpoint["url"].as_str() else {
        let words: Vec<&str> = endpoint["command"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        let (program, rest) = words.split_first().context("`command` is empty")?;
        let mut command = tokio::process::Command::new(program);
        command.args(rest);
        let (transport, _) = TokioChildProcess::builder(command).stderr(Stdio::null()).spawn()?;
        return Ok(if is_legacy() {
            handler.serve(transport).await?
        } else {
            handler.serve_with_lifecycle(transport, lifecycle).await?
        });
    };
    let mut config = StreamableHttpClientTransportConfig::with_uri(url);
    if let Some(key) = endpoint["headers"]["Authorization"].as_str() {
        config = config.auth_header(key.trim_start_matches("Bearer "));
    }
    let transport = StreamableHttpClientTransport::from_config(config);
    Ok(if is_legacy() {
        handler.serve(transport).await?
    } else {
        handler.serve_with_lifecycle(transport, lifecycle).await?
    })
}

struct Checks {
    client: RunningService<RoleClient, Handler>,
    seen: Log,
    is_modern: bool,
}

impl Checks {
    async fn check(&self, name: &str, wanted: &Value) -> Result<()> {
        match name {
            "tools" | "roots" | "elicitation-url" => self.call_checked(wanted).await.map(drop),
            "structured" => contains(&self.call_checked(wanted).await?["structuredContent"].to_string(), wanted),
            "image" => contains(&self.call(wanted).await?.to_string(), wanted),
            "big" => self.big(wanted).await,
            "progress" => self.progress(wanted).await,
            "cancel" => self.cancel(wanted).await,
            "log" => self.log(wanted).await,
            "file-roots" => self.file_roots(wanted).await,
            "sampling" | "elicitation" => self.asked(name, wanted).await,
            "subscribe" => self.subscribe(wanted).await,
            "list-changed" => self.list_changed(wanted).await,
            "completion" => self.completion(wanted).await,
            "prompts" => self.prompts(wanted).await,
            "resources" => self.resources(wanted).await,
            "template" => self.template(wanted).await,
            "pagination" => self.pagination(wanted).await,
            "ping" => self.ping().await,
            "unknown-tool" => self.unknown_tool(wanted).await,
            _ => bail!("unknown check"),
        }
    }

    async fn call(&self, wanted: &Value) -> Result<Value> {
        let name = self.tool(wanted["tool"].as_str().unwrap_or_default()).await?;
        let mut params = json!({ "name": name, "arguments": wanted["arguments"] });
        if let Some(meta) = wanted.get("_meta") {
            params["_meta"] = meta.clone();
        }
        Ok(json!(self.client.call_tool(typed(params)?).await?))
    }

    async fn call_checked(&self, wanted: &Value) -> Result<Value> {
        let result = self.call(wanted).await?;
        if result["isError"] == true {
            bail!("{result}");
        }
        if wanted.get("expect").is_some() {
            contains(&result.to_string().replace("\\\"", "\""), wanted)?;
        }
        Ok(result)
    }

    async fn big(&self, wanted: &Value) -> Result<()> {
        let mut wanted = wanted.clone();
        let bytes = usize::try_from(wanted["bytes"].as_u64().unwrap_or_default())?;
        if let Some(name) = wanted["fill"].as_str().map(str::to_owned) {
            wanted["arguments"][name] = json!("x".repeat(bytes));
        }
        let length = text(&self.call(&wanted).await?).len();
        if length < bytes {
            bail!("{length} bytes");
        }
        Ok(())
    }

    async fn progress(&self, wanted: &Value) -> Result<()> {
        let from = self.position();
        contains(&text(&self.call(wanted).await?), wanted)?;
        let steps = usize::try_from(wanted["steps"].as_u64().unwrap_or_default())?;
        let count = || self.since(from).iter().filter(|(method, _)| *method == "progress").count();
        self.until(|| count() + 1 >= steps, || format!("{} steps", count())).await
    }

    async fn cancel(&self, wanted: &Value) -> Result<()> {
        let count = async || match wanted["count"].as_str() {
            Some(tool) => self.call(&json!({ "tool": tool, "arguments": {} })).await.map(|result| text(&result)),
            None => Ok(String::new()),
        };
        let before = count().await?;
        let name = self.tool(wanted["tool"].as_str().unwrap_or_default()).await?;
        let params = typed(json!({ "name": name, "arguments": wanted["arguments"] }))?;
        let request = ClientRequest::CallToolRequest(CallToolRequest::new(params));
        let handle = self.client.send_cancellable_request(request, PeerRequestOptions::no_options()).await?;
        sleep(Duration::from_millis(700)).await;
        handle.cancel(Some("not needed any more".to_owned())).await?;
        if wanted.get("count").is_none() {
            return Ok(());
        }
        let end = Instant::now() + PATIENCE;
        while Instant::now() < end {
            if count().await? != before {
                return Ok(());
            }
            sleep(Duration::from_millis(50)).await;
        }
        bail!("the server was not told")
    }

    async fn log(&self, wanted: &Value) -> Result<()> {
        let mut wanted = wanted.clone();
        if self.is_modern {
            wanted["_meta"] = json!({ "io.modelcontextprotocol/logLevel": "debug" });
        } else {
            self.client.set_level(typed(json!({ "level": "debug" }))?).await?;
        }
        let from = self.position();
        self.call(&wanted).await?;
        let expected = wanted["expect"].as_str().unwrap_or_default().to_owned();
        self.arrives(from, "message", &expected).await
    }

    async fn file_roots(&self, wanted: &Value) -> Result<()> {
        let end = Instant::now() + PATIENCE;
        loop {
            let said = text(&self.call(wanted).await?);
            match contains(&said, wanted) {
                Err(error) if Instant::now() >= end => return Err(error),
                Err(_) => sleep(Duration::from_millis(50)).await,
                Ok(()) => return Ok(()),
            }
        }
    }

    async fn asked(&self, name: &str, wanted: &Value) -> Result<()> {
        let from = self.position();
        self.call_checked(wanted).await?;
        if !self.since(from).iter().any(|(method, _)| *method == name) {
            bail!("the client was not asked");
        }
        Ok(())
    }

    async fn subscribe(&self, wanted: &Value) -> Result<()> {
        let uri = wanted["uri"].as_str().unwrap_or_default();
        let from = self.position();
        if !self.is_modern {
            self.client.subscribe(typed(json!({ "uri": uri }))?).await?;
            self.call(wanted).await?;
            return self.arrives(from, "resources/updated", uri).await;
        }
        let mut stream = self.client.listen(typed(json!({ "resourceSubscriptions": [uri] }))?).await?;
        self.call(wanted).await?;
        let event = timeout(PATIENCE, stream.next()).await.map_err(|_| anyhow!("no update"))??;
        stream.cancel().await?;
        let event = json!(event.context("the stream ended")?).to_string();
        contains(&event, &json!({ "expect": uri }))
    }

    async fn list_changed(&self, wanted: &Value) -> Result<()> {
        let list = wanted["list"].as_str().unwrap_or_default();
        let count = async || match list {
            "tools" => self.all_tools().await.map(|tools| tools.len()),
            _ => self.all_resources().await.map(|resources| resources.len()),
        };
        let (from, before) = (self.position(), count().await?);
        let number = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH)?.as_nanos();
        let wanted: Value = serde_json::from_str(&wanted.to_string().replace("{RANDOM}", &number.to_string()))?;
        if self.is_modern {
            let mut stream = self.client.listen(typed(json!({ (format!("{list}ListChanged")): true }))?).await?;
            self.call(&wanted).await?;
            timeout(PATIENCE, stream.next()).await.map_err(|_| anyhow!("no change"))??.context("the stream ended")?;
            stream.cancel().await?;
        } else {
            self.call(&wanted).await?;
            let method = if list == "tools" { "tools/list_changed" } else { "resources/list_changed" };
            self.arrives(from, method, "").await?;
        }
        let after = count().await?;
        if after <= before {
            bail!("{before} entries before, {after} after");
        }
        Ok(())
    }

    async fn completion(&self, wanted: &Value) -> Result<()> {
        let word = |name: &str| wanted[name].as_str().unwrap_or_default().to_owned();
        let prompt = self.prompt(Some(&word("prompt"))).await?;
        let values = self.client.complete_prompt_simple(prompt, word("argument"), word("value")).await?;
        contains(&json!(values).to_string(), wanted)
    }

    async fn prompts(&self, wanted: &Value) -> Result<()> {
        let name = self.prompt(wanted["prompt"].as_str()).await?;
        let mut params = json!({ "name": name });
        if let Some(arguments) = wanted.get("arguments") {
            params["arguments"] = arguments.clone();
        }
        contains(&json!(self.client.get_prompt(typed(params)?).await?).to_string(), wanted)
    }

    async fn resources(&self, wanted: &Value) -> Result<()> {
        let uris = self.all_resources().await?;
        let first = uris.first().cloned().unwrap_or_default();
        let uri = wanted["uri"].as_str().unwrap_or(&first);
        if !uris.iter().any(|listed| listed == uri) {
            bail!("`{uri}` is not listed");
        }
        self.read(uri, wanted).await
    }

    async fn template(&self, wanted: &Value) -> Result<()> {
        let listed = json!(self.client.list_all_resource_templates().await?).to_string();
        contains(&listed, &json!({ "expect": wanted["template"] }))?;
        self.read(wanted["uri"].as_str().unwrap_or_default(), wanted).await
    }

    async fn read(&self, uri: &str, wanted: &Value) -> Result<()> {
        let read = self.client.read_resource(typed(json!({ "uri": uri }))?).await?;
        contains(&json!(read).to_string(), wanted)
    }

    async fn pagination(&self, wanted: &Value) -> Result<()> {
        let uris = self.all_resources().await?;
        let distinct: std::collections::HashSet<&String> = uris.iter().collect();
        if (distinct.len() as u64) < wanted["count"].as_u64().unwrap_or_default() || distinct.len() != uris.len() {
            bail!("{uris:?}");
        }
        Ok(())
    }

    async fn ping(&self) -> Result<()> {
        if self.is_modern {
            self.client.discover(RequestMetaObject::default()).await?;
        } else {
            self.client.send_request(ClientRequest::PingRequest(PingRequest::default())).await?;
        }
        Ok(())
    }

    async fn unknown_tool(&self, wanted: &Value) -> Result<()> {
        let params = typed(json!({ "name": wanted["tool"], "arguments": {} }))?;
        match self.client.call_tool(params).await {
            Ok(result) if json!(result)["isError"] != true => bail!("it was called"),
            Ok(_) | Err(_) => Ok(()),
        }
    }

    /// Returns a tool's name, which has a prefix if the gateway has several servers.
    async fn tool(&self, name: &str) -> Result<String> {
        find(&self.all_tools().await?, name)
    }

    async fn prompt(&self, name: Option<&str>) -> Result<String> {
        let prompts = json!(self.client.list_all_prompts().await?);
        let prompts: Vec<&Value> = prompts.as_array().into_iter().flatten().collect();
        let Some(name) = name else {
            let is_plain = |prompt: &&&Value| {
                let mut arguments = prompt["arguments"].as_array().into_iter().flatten();
                !arguments.any(|argument| argument["required"] == true)
            };
            let plain = prompts.iter().find(is_plain).context("no prompt without arguments")?;
            return Ok(plain["name"].as_str().unwrap_or_default().to_owned());
        };
        let names: Vec<String> =
            prompts.iter().filter_map(|prompt| prompt["name"].as_str().map(str::to_owned)).collect();
        find(&names, name)
    }

    async fn all_tools(&self) -> Result<Vec<String>> {
        let (mut names, mut cursor) = (Vec::new(), None);
        for _ in 0..MAX_PAGES {
            let page = self.client.list_tools(Some(PaginatedRequestParams::default().with_cursor(cursor))).await?;
            names.extend(page.tools.iter().map(|tool| tool.name.to_string()));
            cursor = page.next_cursor;
            if cursor.is_none() {
                return Ok(names);
            }
        }
        bail!("the list has no end")
    }

    async fn all_resources(&self) -> Result<Vec<String>> {
        let (mut uris, mut cursor) = (Vec::new(), None);
        for _ in 0..MAX_PAGES {
            let page = self.client.list_resources(Some(PaginatedRequestParams::default().with_cursor(cursor))).await?;
            uris.extend(page.resources.iter().map(|resource| resource.uri.clone()));
            cursor = page.next_cursor;
            if cursor.is_none() {
                return Ok(uris);
            }
        }
        bail!("the list has no end")
    }

    fn position(&self) -> usize {
        self.seen.lock().unwrap_or_else(std::sync::PoisonError::into_inner).len()
    }

    fn since(&self, from: usize) -> Vec<(&'static str, String)> {
        self.seen.lock().unwrap_or_else(std::sync::PoisonError::into_inner)[from..].to_vec()
    }

    async fn arrives(&self, from: usize, wanted: &str, expected: &str) -> Result<()> {
        let is = |(method, params): &(&'static str, String)| *method == wanted && params.contains(expected);
        self.until(|| self.since(from).iter().any(is), || format!("not in {:?}", self.since(from))).await
    }

    async fn until(&self, holds: impl Fn() -> bool, detail: impl Fn() -> String) -> Result<()> {
        let end = Instant::now() + PATIENCE;
        while Instant::now() < end {
            if holds() {
                return Ok(());
            }
            sleep(Duration::from_millis(50)).await;
        }
        bail!("{}", detail())
    }
}

fn find(names: &[String], name: &str) -> Result<String> {
    let suffix = format!("_{name}");
    let found = names.iter().find(|listed| *listed == name || listed.ends_with(&suffix));
    found.cloned().with_context(|| format!("no `{name}` in {names:?}"))
}

fn text(result: &Value) -> String {
    let parts = result["content"].as_array().into_iter().flatten();
    parts.filter_map(|part| part["text"].as_str()).collect::<Vec<_>>().join("\n")
}

fn contains(said: &str, wanted: &Value) -> Result<()> {
    let expected = wanted["expect"].as_str().unwrap_or_default();
    if !said.contains(expected) {
        bail!("`{expected}` is not in {said:.250}");
    }
    Ok(())
}
