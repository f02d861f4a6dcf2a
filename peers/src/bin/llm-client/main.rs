//! Tests a real model over every dialect that its server has: text, a tool call, the reply after its result, schema JSON, and one
//! conversation over all dialects. Prints the conversation and fails at the first unexpected reply.
//!
//! `llm-client ADDRESS [--record FILE] [--corpus FOLDER] [--servers FILE]`: `--record` records the exchanges, `--corpus` checks
//! that the server accepts each tool in recorded lists, and `--servers` runs an agent with two installed servers.

mod agent;

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use ropeway::content::ContentPart;
use ropeway::lowering::Toolset;
use ropeway::message::{CallArguments, Conversation, Dialect, ToolCall, ToolResult};
use ropeway::provider::{ChatRequest, Provider, ProviderSettings, Recorder, Reply, ReplyEvent, StopReason};
use ropeway::tool::ToolDefinition;
use ropeway_peers::recorded_tools::{RecordedTool, recorded_tools};
use ropeway_providers::encode;
use serde_json::{Value, json};

/// llama-server does not support Gemini's dialect.
const DIALECTS: [Dialect; 3] = [Dialect::Chat, Dialect::Responses, Dialect::Anthropic];

/// A name that is invalid in every dialect, so that it must be translated.
const TOOL: &str = "weather.now/city";

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let address =
        arguments.next().context("usage: llm-client ADDRESS [--record FILE] [--corpus FOLDER] [--servers FILE]")?;
    let (mut recorder, mut corpus, mut servers) = (None, None, None);
    while let Some(flag) = arguments.next() {
        let value = arguments.next().map(PathBuf::from).with_context(|| format!("`{flag}` needs a value"))?;
        match flag.as_str() {
            "--record" => recorder = Some(Recorder::to_file(value)?),
            "--corpus" => corpus = Some(value),
            "--servers" => servers = Some(value),
            _ => bail!("unknown flag `{flag}`"),
        }
    }
    let clients = DIALECTS.map(|dialect| DialectClient::new(&address, dialect, recorder.clone()));
    let clients = clients.into_iter().collect::<Result<Vec<_>>>()?;
    for client in &clients {
        println!("\n== {}", client.provider.dialect());
        client.text().await?;
        let conversation = client.call().await?;
        client.answer(conversation).await?;
        client.json().await?;
    }
    println!("\n== one conversation over all of them");
    relay(&clients).await?;
    if let Some(servers) = servers {
        // Not recorded: the agent's requests contain this run's folder and time.
        let agent = agent::ToolAgent::open(&servers).await?;
        for dialect in DIALECTS {
            println!("\n== agent over {dialect}");
            agent.ask(&DialectClient::new(&address, dialect, None)?.provider).await?;
        }
        agent.close().await;
    }
    if let Some(folder) = corpus {
        println!("\n== tools of real servers");
        check_tools(&address, &recorded_tools(&folder)?)?;
    }
    println!("\nall replies are as expected");
    Ok(())
}

/// A client for one dialect.
struct DialectClient {
    provider: Provider,
}

impl DialectClient {
    fn new(address: &str, dialect: Dialect, recorder: Option<Recorder>) -> Result<Self> {
        let base = match dialect {
            Dialect::Anthropic => address.to_owned(),
            _ => format!("{address}/v1"),
        };
        let mut settings = ProviderSettings::new(dialect).with_base_url(base).with_key("no-key-is-needed");
        // The last version that accepts a temperature.
        settings.quirks.anthropic_version = Some("2023-06-01".to_owned());
        let mut provider = Provider::new(settings)?;
        if let Some(recorder) = recorder {
            provider = provider.with_recorder(recorder);
        }
        Ok(Self { provider })
    }

    /// Sends a request and prints the reply as it arrives.
    async fn ask(&self, request: ChatRequest<'_>) -> Result<Reply> {
        let request = request.with_max_tokens(100).with_temperature(0.0);
        let started = Instant::now();
        let mut stream = self.provider.stream(&request);
        print!("< ");
        while let Some(event) = stream.next().await {
            match event? {
                ReplyEvent::Text(text) => print!("{text}"),
                ReplyEvent::ToolCallStarted { name, .. } => print!("{name} "),
                ReplyEvent::ToolCallDelta { json, .. } => print!("{json}"),
                ReplyEvent::Warning(warning) => print!("[{warning}] "),
                ReplyEvent::Finished(reply) => {
                    let usage = reply.usage;
                    println!(
                        "\n  ({:?}, {} in, {} out, {:.1?})",
                        reply.stop,
                        usage.input,
                        usage.output,
                        started.elapsed()
                    );
                    return Ok(*reply);
                }
                _ => {}
            }
            std::io::stdout().flush()?;
        }
        bail!("the stream ended without a reply")
    }

    async fn text(&self) -> Result<()> {
        let conversation =
            said(Conversation::new().with_system("You answer in one word."), "What is the capital of France?");
        let reply = self.ask(ChatRequest::new("local", &conversation)).await?;
        ensure!(reply.message.to_text().contains("Paris"), "the reply is not Paris");
        ensure!(reply.stop == StopReason::EndTurn, "unexpected stop reason");
        ensure!(reply.usage.input > 0 && reply.usage.output > 0, "no usage");
        Ok(())
    }

    async fn call(&self) -> Result<Conversation> {
        let mut conversation = said(Conversation::new(), "What is the weather in Tokyo right now?");
        let call = self.expect_call(&mut conversation).await?;
        let result = format!("{} in {}", "24 degrees and rain", city(&call));
        println!("= {result}");
        conversation.push(vec![ToolResult::new(&call, vec![ContentPart::text(result)])]);
        Ok(conversation)
    }

    /// Sends a request, expects exactly one call to the tool, and appends the reply to the conversation.
    async fn expect_call(&self, conversation: &mut Conversation) -> Result<ToolCall> {
        let tools = tools();
        let reply = self.ask(ChatRequest::new("local", conversation).with_tools(&tools)).await?;
        ensure!(reply.stop == StopReason::ToolUse, "the model did not stop for a call");
        let calls: Vec<ToolCall> = reply.message.calls().cloned().collect();
        let [call] = &calls[..] else { bail!("{} calls instead of one", calls.len()) };
        ensure!(call.name == TOOL, "the tool is called `{}`", call.name);
        ensure!(!city(call).is_empty(), "the call names no city: {:?}", call.arguments);
        conversation.push(reply.message);
        Ok(call.clone())
    }

    async fn answer(&self, mut conversation: Conversation) -> Result<()> {
        let tools = tools();
        let reply = self.ask(ChatRequest::new("local", &conversation).with_tools(&tools)).await?;
        ensure!(reply.message.to_text().contains("24"), "the reply does not contain the result");
        conversation.push(reply.message);
        let saved = serde_json::to_string(&conversation)?;
        ensure!(serde_json::from_str::<Conversation>(&saved)? == conversation, "the conversation cannot be saved");
        Ok(())
    }

    async fn json(&self) -> Result<()> {
        let schema = json!({
            "type": "object",
            "properties": {"city": {"type": "string"}, "population": {"type": "integer"}},
            "required": ["city", "population"],
            "additionalProperties": false,
        });
        // llama-server ignores a schema in the other dialects.
        if self.provider.dialect() != Dialect::Chat {
            return Ok(());
        }
        let conversation = said(Conversation::new(), "Name a city and its population, as JSON.");
        let reply = self.ask(ChatRequest::new("local", &conversation).with_output("city", schema)).await?;
        let value: Value = serde_json::from_str(&reply.message.to_text()).context("the reply is not JSON")?;
        ensure!(
            value["city"].is_string() && value["population"].is_i64(),
            "the reply does not match the schema: {value}"
        );
        Ok(())
    }
}

/// Continues one conversation from dialect to dialect, also within a turn.
async fn relay(clients: &[DialectClient]) -> Result<()> {
    let mut conversation = Conversation::new();
    for (at, client) in clients.iter().enumerate() {
        let next = &clients[(at + 1) % clients.len()];
        println!("({} asks, {} continues)", client.provider.dialect(), next.provider.dialect());
        conversation = said(conversation, ["What is the weather in Oslo?", "And in Rome?", "And in Cairo?"][at]);
        let call = client.expect_call(&mut conversation).await?;
        let result = format!("{} degrees in {}", 11 * (at + 1), city(&call));
        println!("= {result}");
        conversation.push(vec![ToolResult::new(&call, vec![ContentPart::text(result)])]);
        let tools = tools();
        let request = ChatRequest::new("local", &conversation).with_tools(&tools);
        let reply = next.ask(request).await?;
        ensure!(
            reply.message.to_text().contains(&(11 * (at + 1)).to_string()),
            "the reply does not contain the result"
        );
        conversation.push(reply.message);
    }
    Ok(())
}

/// Checks that the server accepts every tool. It compiles each schema to a grammar and refuses those that it cannot parse.
fn check_tools(address: &str, tools: &[RecordedTool]) -> Result<()> {
    let conversation = Conversation::new().with("hello");
    let settings = ProviderSettings::new(Dialect::Chat).with_base_url(format!("{address}/v1"));
    let (mut accepted, mut refused) = (0, Vec::new());
    for (at, tool) in tools.iter().enumerate() {
        let tools = Toolset::new([tool.definition(at)]);
        let encoded = encode(&settings, &ChatRequest::new("local", &conversation).with_tools(&tools))?;
        ensure!(encoded.warnings.is_empty(), "`{}`: {:?}", tool.name, encoded.warnings);
        // Renders the template and compiles the grammar without running the model.
        match post(address, "/apply-template", &encoded.request.body)? {
            (200, _) => accepted += 1,
            (status, body) => refused.push(format!("`{}`: {status} {body}", tool.name)),
        }
    }
    println!("{accepted} of {} tools are accepted", tools.len());
    ensure!(refused.is_empty(), "{} tools are refused:\n{}", refused.len(), refused.join("\n"));
    Ok(())
}

/// Returns a plain POST request's status and body.
fn post(address: &str, path: &str, body: &[u8]) -> Result<(u16, String)> {
    let host = address.trim_start_matches("http://");
    let mut stream = TcpStream::connect(host)?;
    stream.set_read_timeout(Some(Duration::from_secs(30)))?;
    let length = body.len();
    write!(stream, "POST {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n")?;
    stream.write_all(body)?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let status = answer.get(9..12).and_then(|status| status.parse().ok()).context("the response has no status")?;
    let body = answer.split_once("\r\n\r\n").map(|(_, body)| body.chars().take(300).collect());
    Ok((status, body.unwrap_or_default()))
}

fn said(mut conversation: Conversation, text: &str) -> Conversation {
    println!("> {text}");
    conversation.push(text);
    conversation
}

fn tools() -> Toolset {
    let schema = json!({"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]});
    Toolset::new([ToolDefinition::new(TOOL)
        .with_description("The weather in a city, right now")
        .with_input_schema(schema)])
}

fn city(call: &ToolCall) -> &str {
    match &call.arguments {
        CallArguments::Object(arguments) => arguments.get("city").and_then(Value::as_str).unwrap_or_default(),
        CallArguments::Broken { .. } => "",
    }
}
