//! The agent test: a real model uses a file server, a time server and a local tool.

use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, Result, ensure};
use ropeway::agent::{Agent, ModelOptions, Step, TurnEnd, TurnLimits};
use ropeway::bridge::Bridge;
use ropeway::config::{Config, ServerConfig, ServerEntry, StdioServer};
use ropeway::envelope::{Envelope, EnvelopeData};
use ropeway::provider::{Provider, StopReason};
use ropeway::tool::{LocalTool, ToolDefinition};
use serde_json::{Value, json};

/// The file's contents, which only the file server knows.
const SECRET: &str = "The meeting is in the Lighthouse room at noon.";

/// A number that only the local tool knows.
const CRATES: u32 = 4711;

/// Two servers and a local tool.
pub(crate) struct ToolAgent {
    bridge: Bridge,
    folder: tempfile::TempDir,
}

impl ToolAgent {
    /// Configures the file server over a folder with one file, and the time server, from `servers.json`.
    pub(crate) async fn open(servers: &Path) -> Result<Self> {
        let servers: Value = serde_json::from_slice(&fs::read(servers)?)?;
        let folder = tempfile::tempdir()?;
        fs::write(folder.path().join("note.txt"), SECRET)?;
        let server = |name: &str, tool: &str| -> Result<ServerEntry> {
            let command = servers[name]["command"].as_str().with_context(|| format!("unknown server `{name}`"))?;
            let args = servers[name]["args"].as_array().into_iter().flatten().filter_map(Value::as_str);
            let args = args.map(|arg| arg.replace("{DIR}", &folder.path().display().to_string()));
            let mut entry = ServerEntry::new(ServerConfig::new(name, StdioServer::new(command, args)));
            // A small model works best with few tools.
            entry.tools.allow = vec![tool.to_owned()];
            Ok(entry)
        };
        let config = Config::default()
            .with_server(server("filesystem", "read_text_file")?)
            .with_server(server("time", "get_current_time")?);
        let bridge = Bridge::new(config)?;
        Ok(Self { bridge, folder })
    }

    /// Sends three questions that require the tools.
    pub(crate) async fn ask(&self, provider: &Provider) -> Result<()> {
        let note = self.folder.path().join("note.txt");
        let question = format!("Read the file {} and tell me the name of the room.", note.display());
        let (text, calls) = self.turn(provider, &question).await?;
        ensure!(called(&calls, "mcp_filesystem_read_text_file"), "the file was not read");
        ensure!(text.contains("Lighthouse"), "the reply does not name the room");

        let (text, calls) = self.turn(provider, "What time is it in Tokyo right now?").await?;
        let time = calls.iter().find(|call| call.tool == "mcp_time_get_current_time" && !call.meta.is_error);
        let time = time.context("the time server was not called")?;
        let said = match time.data() {
            EnvelopeData::Json(value) => value.to_string(),
            EnvelopeData::Text(text) => text.into_owned(),
            _ => String::new(),
        };
        ensure!(said.contains("Asia/Tokyo"), "the clock of another city was looked at: {said}");
        let time = said.match_indices('T').find_map(|(at, _)| said.get(at + 1..at + 3)?.parse::<u32>().ok());
        let hour = time.context("the clock tells no hour")?;
        let (long, short) = (format!("{hour:02}:"), format!("{}:", (hour + 11) % 12 + 1));
        ensure!(text.contains(&long) || text.contains(&short), "the answer tells another hour than {long}");

        let (text, calls) = self.turn(provider, "How many crates are in warehouse B?").await?;
        ensure!(called(&calls, "count_crates"), "count_crates was not called");
        ensure!(text.replace([',', '.', ' '], "").contains(&CRATES.to_string()), "the number is not {CRATES}");
        Ok(())
    }

    async fn turn(&self, provider: &Provider, question: &str) -> Result<(String, Vec<Arc<Envelope>>)> {
        println!("> {question}");
        let mut options = ModelOptions::default();
        (options.max_tokens, options.temperature) = (Some(150), Some(0.0));
        let agent = Agent::builder()
            .provider(provider.clone())
            .model("local")
            .system("You answer briefly. Use a tool where it helps.")
            .tool(count_crates())
            .bridge(self.bridge.clone())
            .options(options)
            .limits(TurnLimits::default().with_steps(4))
            .build()?;
        let mut turn = agent.send(question);
        let mut calls = Vec::new();
        while let Some(step) = turn.next().await {
            match step {
                Step::Text { text } => print!("{text}"),
                Step::CallStarted { tool, arguments, .. } => {
                    print!("\n@ {tool} {}", serde_json::to_string(&arguments)?)
                }
                Step::CallFinished { envelope, .. } => {
                    println!("\n= {}", serde_json::to_string(&envelope.data())?);
                    calls.push(envelope);
                }
                Step::Warning { message } => println!("[{message}]"),
                _ => {}
            }
            std::io::stdout().flush()?;
        }
        let outcome = turn.finish().await?;
        let usage = outcome.usage;
        println!("\n  ({:?}, {} steps, {} in, {} out)", outcome.end, outcome.steps, usage.input, usage.output);
        ensure!(outcome.end == TurnEnd::Done(StopReason::EndTurn), "unexpected end of the turn");
        Ok((outcome.text, calls))
    }

    /// Stops the servers.
    pub(crate) async fn close(self) {
        self.bridge.stop().await;
    }
}

fn called(calls: &[Arc<Envelope>], tool: &str) -> bool {
    calls.iter().any(|call| call.tool == tool && !call.meta.is_error)
}

fn count_crates() -> LocalTool {
    let schema = json!({
        "type": "object",
        "properties": {"warehouse": {"type": "string", "description": "The letter of the warehouse."}},
        "required": ["warehouse"],
    });
    let definition = ToolDefinition::new("count_crates")
        .with_description("Counts the crates in a warehouse.")
        .with_input_schema(schema);
    LocalTool::new(definition, |arguments, _| async move {
        let warehouse = arguments["warehouse"].as_str().unwrap_or_default();
        Ok(format!("There are {CRATES} crates in warehouse {warehouse}."))
    })
}
