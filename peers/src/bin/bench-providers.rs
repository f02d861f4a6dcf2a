//! Measures lowering real tools, encoding a turn and decoding a long stream.
//!
//! `bench-providers --corpus FOLDER` takes its tools from recorded lists, `--servers FILE` from real servers that it starts.
//! Prints one JSON line.

use std::fs;
use std::hint::black_box;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use ropeway::bridge::Bridge;
use ropeway::config::{Config, Secrets};
use ropeway::lowering::Toolset;
use ropeway::message::{AssistantMessage, Conversation, Dialect};
use ropeway::provider::{ChatRequest, ProviderSettings};
use ropeway::tool::ToolDefinition;
use ropeway_core::lowering::lower;
use ropeway_peers::recorded_tools::{RecordedTool, recorded_tools};
use ropeway_providers::encode;
use serde_json::{Map, Value, json};

/// Number of lowered tools.
const TOOLS: usize = 1600;

/// Number of tools in a turn.
const TURN_TOOLS: usize = 200;

/// Number of text deltas in a stream.
const DELTAS: usize = 100_000;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let real = match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["--corpus", folder] => recorded_tools(Path::new(folder))?,
        ["--servers", file] => offered(Path::new(file)).await?,
        _ => bail!("usage: bench-providers --corpus FOLDER | --servers FILE"),
    };
    if real.is_empty() {
        bail!("no tools found");
    }
    let mut report = Map::new();
    report.insert("distinct_tools".to_owned(), real.len().min(TOOLS).into());
    for dialect in Dialect::ALL {
        // Fresh definitions, whose schemas are not parsed yet, as from a server.
        let definitions: Vec<ToolDefinition> = (0..TOOLS).map(|at| real[at % real.len()].definition(at)).collect();
        let started = Instant::now();
        let lowered = lower(&definitions, dialect);
        let took = started.elapsed();
        add(&mut report, "lower", dialect, took);
        report.insert(format!("left_out_{dialect}"), lowered.omitted.len().into());
        black_box(lowered);
        turn(&mut report, dialect, definitions.into_iter().take(TURN_TOOLS).collect())?;
        stream(&mut report, dialect)?;
    }
    println!("{}", Value::Object(report));
    Ok(())
}

/// Adds a duration to the report and returns it in microseconds.
fn add(report: &mut Map<String, Value>, what: &str, dialect: Dialect, took: Duration) -> f64 {
    let micros = took.as_nanos() as f64 / 1000.0;
    report.insert(format!("{what}_{dialect}_us"), micros.into());
    micros
}

/// Returns the real servers' tools, from a table with their commands.
async fn offered(file: &Path) -> Result<Vec<RecordedTool>> {
    let table: Map<String, Value> = serde_json::from_str(&fs::read_to_string(file)?)?;
    let folder = std::env::temp_dir().join(format!("ropeway-bench-{}", std::process::id()));
    fs::create_dir_all(&folder)?;
    let mut servers = Map::new();
    for name in ["everything", "filesystem", "memory", "time", "git", "fetch", "sqlite"] {
        let Some(server) = table.get(name) else { continue };
        let text = server.to_string().replace("{DIR}", &folder.to_string_lossy());
        servers.insert(name.to_owned(), serde_json::from_str(&text)?);
    }
    let config = json!({"mcpServers": servers}).to_string();
    let bridge = Bridge::new(Config::parse(&config, Path::new("bench.json"), &Secrets::none())?)?;
    bridge.start().await?;
    let registry = bridge.tools().registry;
    let real = registry.definitions().map(|definition| {
        let schema = serde_json::value::to_raw_value(&definition.input_schema)?;
        Ok(RecordedTool { name: definition.name.clone(), description: definition.description.clone(), schema })
    });
    let real = real.collect::<Result<Vec<RecordedTool>>>();
    bridge.stop().await;
    let _ = fs::remove_dir_all(&folder);
    real
}

/// Encodes two turns in a row with the same tools.
fn turn(report: &mut Map<String, Value>, dialect: Dialect, definitions: Vec<ToolDefinition>) -> Result<()> {
    let mut conversation = Conversation::new().with_system("Be brief.");
    for turn in 0..10 {
        conversation.push(format!("question {turn}: {}", "what about it? ".repeat(20)));
        conversation.push(AssistantMessage::text("that is so. ".repeat(50)));
    }
    conversation.push("and now?");
    let tools = Toolset::new(definitions);
    let mut settings = ProviderSettings::new(dialect).with_key("key");
    settings.quirks.max_tools = Some(TURN_TOOLS);
    let request = ChatRequest::new("model", &conversation).with_tools(&tools);
    let mut encode = |what: &str| -> Result<f64> {
        let started = Instant::now();
        black_box(encode(&settings, &request)?);
        Ok(add(report, what, dialect, started.elapsed()))
    };
    let (first, again) = (encode("encode_first")?, encode("encode_again")?);
    report.insert(format!("encode_{dialect}_again_of_first"), (again / first).into());
    Ok(())
}

/// Decodes a long text stream, and parses the same frames into JSON values.
fn stream(report: &mut Map<String, Value>, dialect: Dialect) -> Result<()> {
    let frames = frames(dialect);
    let conversation = Conversation::new().with("go");
    let encoded = encode(&ProviderSettings::new(dialect), &ChatRequest::new("model", &conversation))?;

    let started = Instant::now();
    for frame in &frames {
        black_box(serde_json::from_str::<Value>(frame)?);
    }
    let values = add(report, "values", dialect, started.elapsed());

    let started = Instant::now();
    let mut decoder = encoded.decoder();
    let mut events = Vec::new();
    let mut told = 0;
    for frame in &frames {
        decoder.frame(frame.as_bytes(), &mut events)?;
        told += black_box(&events).len();
        events.clear();
    }
    let reply = decoder.end(&mut events)?;
    let decode = add(report, "decode", dialect, started.elapsed());
    report.insert(format!("decode_{dialect}_of_values"), (decode / values).into());

    let text = reply.message.to_text();
    if told < DELTAS || text.len() < 6 * DELTAS {
        bail!("{dialect}: {told} events and {} bytes of text are too few", text.len());
    }
    Ok(())
}

/// A long answer's frames, with all that real providers put into each.
fn frames(dialect: Dialect) -> Vec<String> {
    let word = |at: usize| format!(" word{at}\n\"é");
    let deltas = 0..DELTAS;
    let mut frames: Vec<Value> = Vec::new();
    match dialect {
        Dialect::Anthropic => {
            frames.push(json!({"type": "message_start", "message": {"id": "msg_1", "type": "message", "role": "assistant", "model": "m", "content": [], "usage": {"input_tokens": 9, "output_tokens": 1}}}));
            frames.push(
                json!({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}),
            );
            frames.extend(deltas.map(|at| json!({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": word(at)}})));
            frames.push(json!({"type": "content_block_stop", "index": 0}));
            frames.push(json!({"type": "message_delta", "delta": {"stop_reason": "end_turn", "stop_sequence": null}, "usage": {"output_tokens": 7}}));
            frames.push(json!({"type": "message_stop"}));
        }
        Dialect::Responses => {
            let item = "msg_68af40337e58819392e935fb404414d0";
            frames.push(json!({"type": "response.created", "sequence_number": 0, "response": {"id": "resp_1", "status": "in_progress", "output": []}}));
            frames.push(json!({"type": "response.output_item.added", "sequence_number": 1, "output_index": 0, "item": {"id": item, "type": "message", "status": "in_progress", "content": [], "role": "assistant"}}));
            frames.extend(deltas.map(|at| json!({"type": "response.output_text.delta", "sequence_number": at + 2, "item_id": item, "output_index": 0, "content_index": 0, "delta": word(at), "logprobs": [], "obfuscation": "aZ3k9x"})));
            let whole: String = (0..DELTAS).map(word).collect();
            let done = json!({"id": item, "type": "message", "status": "completed", "content": [{"type": "output_text", "annotations": [], "logprobs": [], "text": whole}], "role": "assistant"});
            frames.push(json!({"type": "response.output_item.done", "sequence_number": DELTAS + 2, "output_index": 0, "item": done}));
            frames.push(json!({"type": "response.completed", "sequence_number": DELTAS + 3, "response": {"id": "resp_1", "status": "completed", "output": [done], "usage": {"input_tokens": 9, "output_tokens": 7, "total_tokens": 16}}}));
        }
        Dialect::Gemini => {
            let chunk = |text: String, finish: Option<&str>| {
                let mut candidate = json!({"content": {"parts": [{"text": text}], "role": "model"}, "index": 0});
                if let Some(finish) = finish {
                    candidate["finishReason"] = finish.into();
                }
                json!({"candidates": [candidate], "usageMetadata": {"promptTokenCount": 9, "candidatesTokenCount": 7, "totalTokenCount": 16, "promptTokensDetails": [{"modality": "TEXT", "tokenCount": 9}]}, "modelVersion": "gemini-3", "responseId": "mR8MaaTUMI2A2roP3umSgQc"})
            };
            frames.extend(deltas.map(|at| chunk(word(at), None)));
            frames.push(chunk(String::new(), Some("STOP")));
        }
        _ => {
            let chunk = |delta: Value, finish: Option<&str>| json!({"id": "chatcmpl-B9MBs8CjcvOU2jLn4n570S5qMJKcT", "object": "chat.completion.chunk", "created": 1_794_700_000, "model": "m", "service_tier": "default", "system_fingerprint": "fp_a1b2c3", "choices": [{"index": 0, "delta": delta, "logprobs": null, "finish_reason": finish}], "usage": null, "obfuscation": "q"});
            frames.push(chunk(json!({"role": "assistant", "content": "", "refusal": null}), None));
            frames.extend(deltas.map(|at| chunk(json!({"content": word(at)}), None)));
            frames.push(chunk(json!({}), Some("stop")));
        }
    }
    frames.iter().map(Value::to_string).collect()
}
