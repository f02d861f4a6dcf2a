//! A hand-written MCP server over stdio for benchmarks, as fast as possible.
//!
//! `echo-server [--tools N] [--delay-ms N] [--name NAME]`. Supports the legacy era only, and answers all complete lines from
//! one read in one write. `--delay-ms` delays the start. `--name` makes commands differ: a bridge starts equal commands once.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use ropeway_peers::payloads;
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

/// Responses larger than this are written directly instead of being copied.
const LARGE: usize = 64 << 10;

#[derive(Deserialize)]
struct Request<'a> {
    #[serde(borrow)]
    id: Option<&'a RawValue>,
    #[serde(borrow, default)]
    method: Cow<'a, str>,
    #[serde(borrow)]
    params: Option<Params<'a>>,
}

#[derive(Deserialize)]
struct Params<'a> {
    #[serde(borrow, default)]
    name: Cow<'a, str>,
    #[serde(borrow)]
    arguments: Option<Arguments<'a>>,
    #[serde(borrow, rename = "protocolVersion")]
    version: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Arguments<'a> {
    #[serde(borrow)]
    message: Option<&'a RawValue>,
    bytes: Option<usize>,
}

fn main() -> Result<()> {
    let options = Options::from_args(std::env::args().skip(1))?;
    std::thread::sleep(options.delay);
    // The standard handles buffer and lock; plain files do neither.
    let mut stdin = File::from(std::io::stdin().as_fd().try_clone_to_owned()?);
    let stdout = File::from(std::io::stdout().as_fd().try_clone_to_owned()?);
    let mut server = Server {
        name: options.name,
        tools: tool_list(options.tools),
        prebuilt: HashMap::new(),
        answers: Vec::new(),
        stdout,
    };
    let mut input = vec![0; LARGE];
    let mut filled = 0;
    loop {
        if filled == input.len() {
            input.resize(filled * 2, 0);
        }
        let read = stdin.read(&mut input[filled..])?;
        if read == 0 {
            return Ok(());
        }
        filled += read;
        let Some(end) = input[..filled].iter().rposition(|byte| *byte == b'\n') else { continue };
        for line in input[..end].split(|byte| *byte == b'\n') {
            server.answer(line)?;
        }
        server.flush()?;
        input.copy_within(end + 1..filled, 0);
        filled -= end + 1;
    }
}

struct Options {
    tools: usize,
    delay: Duration,
    name: String,
}

impl Options {
    fn from_args(args: impl IntoIterator<Item = String>) -> Result<Self> {
        let mut options = Self { tools: 4, delay: Duration::ZERO, name: "echo-server".to_owned() };
        let mut args = args.into_iter();
        while let Some(flag) = args.next() {
            let value = args.next().with_context(|| format!("`{flag}` needs a value"))?;
            let number = || value.parse::<u32>().with_context(|| format!("`{value}` is not a number"));
            match flag.as_str() {
                "--tools" => options.tools = number()?.try_into()?,
                "--delay-ms" => options.delay = Duration::from_millis(number()?.into()),
                "--name" => options.name = value,
                _ => bail!("unknown flag `{flag}`"),
            }
        }
        Ok(options)
    }
}

fn tool_list(count: usize) -> Vec<u8> {
    result(&serde_json::json!({ "tools": payloads::tools(count) }).to_string())
}

/// Returns the part of a response after its id.
fn result(json: &str) -> Vec<u8> {
    format!(",\"result\":{json}}}\n").into_bytes()
}

struct Server {
    name: String,
    tools: Vec<u8>,
    /// Large results by tool and size, built once: only the id differs.
    prebuilt: HashMap<(&'static str, usize), Vec<u8>>,
    answers: Vec<u8>,
    stdout: File,
}

impl Server {
    fn answer(&mut self, line: &[u8]) -> Result<()> {
        let Ok(request) = serde_json::from_slice::<Request>(line) else { return Ok(()) };
        // Notifications and responses get no response.
        let Some(id) = request.id else { return Ok(()) };
        self.answers.extend_from_slice(b"{\"jsonrpc\":\"2.0\",\"id\":");
        self.answers.extend_from_slice(id.get().as_bytes());
        match (&*request.method, request.params) {
            ("tools/call", Some(params)) => self.call(&params),
            ("tools/list", _) => self.send_list(),
            ("initialize", Some(Params { version: Some(version), .. })) => self.small(&format!(
                "{{\"protocolVersion\":{version},\"capabilities\":{{\"tools\":{{}}}},\
                 \"serverInfo\":{{\"name\":{name},\"version\":\"0.1.0\"}}}}",
                name = Value::from(self.name.as_str()),
            )),
            ("ping", _) => self.small("{}"),
            _ => self.error(-32601, "method not found"),
        }
    }

    fn call(&mut self, params: &Params) -> Result<()> {
        let arguments = params.arguments.as_ref();
        let bytes = arguments.and_then(|arguments| arguments.bytes).unwrap_or_default();
        match (&*params.name, arguments.and_then(|arguments| arguments.message)) {
            ("echo", Some(message)) => {
                self.answers.extend_from_slice(b",\"result\":{\"content\":[{\"type\":\"text\",\"text\":");
                self.answers.extend_from_slice(message.get().as_bytes());
                self.answers.extend_from_slice(b"}]}}\n");
                Ok(())
            }
            ("text", _) => self.big("text", bytes),
            ("image", _) => self.big("image", bytes),
            ("structured", _) => self.big("structured", 0),
            _ => self.error(-32602, "unknown tool"),
        }
    }

    fn small(&mut self, json: &str) -> Result<()> {
        self.answers.extend_from_slice(&result(json));
        Ok(())
    }

    fn error(&mut self, code: i32, message: &str) -> Result<()> {
        let error = format!(",\"error\":{{\"code\":{code},\"message\":\"{message}\"}}}}\n");
        self.answers.extend_from_slice(error.as_bytes());
        Ok(())
    }

    fn send_list(&mut self) -> Result<()> {
        send(&mut self.answers, &self.tools, &mut self.stdout)
    }

    fn big(&mut self, tool: &'static str, bytes: usize) -> Result<()> {
        let prebuilt = self.prebuilt.entry((tool, bytes)).or_insert_with(|| build(tool, bytes));
        send(&mut self.answers, prebuilt, &mut self.stdout)
    }

    fn flush(&mut self) -> Result<()> {
        self.stdout.write_all(&self.answers)?;
        self.answers.clear();
        Ok(())
    }
}

fn send(answers: &mut Vec<u8>, body: &[u8], stdout: &mut File) -> Result<()> {
    if body.len() < LARGE {
        answers.extend_from_slice(body);
        return Ok(());
    }
    stdout.write_all(answers)?;
    answers.clear();
    stdout.write_all(body)?;
    Ok(())
}

fn build(tool: &str, bytes: usize) -> Vec<u8> {
    let json = match tool {
        "text" => serde_json::json!({"content": [{"type": "text", "text": payloads::text(bytes)}]}),
        "image" => serde_json::json!({
            "content": [{"type": "image", "data": payloads::base64(bytes), "mimeType": "image/png"}],
        }),
        _ => serde_json::json!({
            "content": [{"type": "text", "text": "see the structured content"}],
            "structuredContent": payloads::table(),
        }),
    };
    result(&json.to_string())
}
