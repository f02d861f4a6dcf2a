//! Baseline: a minimal hand-written agent loop over a socket.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use memchr::memmem;
use ropeway_peers::agent_case::{AgentCase, ListedTool, PROMPT, Report, SYSTEM, TurnMeter, TurnResult};
use serde::Deserialize;
use serde_json::Value;

/// Runs the case.
pub(super) fn run(case: &AgentCase) -> Result<Report> {
    let expected = case.expected(0)?;
    let mut baseline = Baseline::new(case)?;
    for _ in 0..case.warm_up {
        baseline.turn()?.check(&expected)?;
    }
    let mut laps = TurnMeter::start(case.turns);
    for _ in 0..case.turns {
        let began = laps.begin();
        let turn = baseline.turn()?;
        laps.end(began);
        turn.check(&expected)?;
    }
    Ok(laps.finish())
}

struct Baseline {
    stream: TcpStream,
    path: String,
    /// A request's parts before and after its messages.
    around: [String; 2],
    received: Vec<u8>,
}

#[derive(Deserialize)]
struct Chunk {
    choices: Vec<Choice>,
}

#[derive(Deserialize)]
struct Choice {
    delta: Delta,
}

#[derive(Deserialize)]
struct Delta {
    content: Option<String>,
    #[serde(default)]
    tool_calls: Vec<CallPiece>,
}

#[derive(Deserialize)]
struct CallPiece {
    index: usize,
    id: Option<String>,
    function: FunctionPiece,
}

#[derive(Deserialize)]
struct FunctionPiece {
    name: Option<String>,
    #[serde(default)]
    arguments: String,
}

#[derive(Default)]
struct Call {
    id: String,
    tool: String,
    arguments: String,
}

#[derive(Deserialize)]
struct Echo {
    message: String,
}

#[derive(Deserialize)]
struct Wait {
    milliseconds: u64,
}

impl Baseline {
    fn new(case: &AgentCase) -> Result<Self> {
        let address = case.url.strip_prefix("http://").context("the URL of the model is not `http:`")?;
        let (host, path) = address.split_once('/').context("the URL of the model has no path")?;
        let stream = TcpStream::connect(host)?;
        stream.set_nodelay(true)?;
        let tools = case.listed()?.into_iter().map(|ListedTool { name, description, parameters }| {
            let function = format!(
                r#""name":{},"description":{},"parameters":{}"#,
                Value::from(name),
                Value::from(description),
                parameters
            );
            format!(r#"{{"type":"function","function":{{{function}}}}}"#)
        });
        let tools: Vec<String> = tools.collect();
        let model = Value::from(case.model.as_str());
        let around = [
            format!(r#"{{"model":{model},"stream":true,"stream_options":{{"include_usage":true}},"messages":["#),
            format!(r#"],"tools":[{}]}}"#, tools.join(",")),
        ];
        Ok(Self { stream, path: format!("/{path}/chat/completions"), around, received: vec![0; 64 << 10] })
    }

    fn turn(&mut self) -> Result<TurnResult> {
        let (system, prompt) = (Value::from(SYSTEM), Value::from(PROMPT));
        let mut messages = format!(r#"{{"role":"system","content":{system}}},{{"role":"user","content":{prompt}}}"#);
        let mut made = 0;
        loop {
            let (text, calls) = self.ask(&messages)?;
            if calls.is_empty() {
                return Ok(TurnResult { text, calls: made });
            }
            made += calls.len();
            let results = match calls.as_slice() {
                [call] => vec![call.make()?],
                calls => std::thread::scope(|scope| {
                    let running: Vec<_> = calls.iter().map(|call| scope.spawn(|| call.make())).collect();
                    let join = |call: std::thread::ScopedJoinHandle<'_, Result<String>>| {
                        call.join().unwrap_or_else(|_| bail!("a call panicked"))
                    };
                    running.into_iter().map(join).collect::<Result<_>>()
                })?,
            };
            let asked = calls.iter().map(|Call { id, tool, arguments }| {
                let arguments = Value::from(arguments.as_str());
                format!(r#"{{"id":"{id}","type":"function","function":{{"name":"{tool}","arguments":{arguments}}}}}"#)
            });
            let asked: Vec<String> = asked.collect();
            messages += &format!(r#",{{"role":"assistant","content":null,"tool_calls":[{}]}}"#, asked.join(","));
            for (call, result) in calls.iter().zip(results) {
                let content = Value::from(result);
                messages += &format!(r#",{{"role":"tool","tool_call_id":"{}","content":{content}}}"#, call.id);
            }
        }
    }

    /// Sends one request and returns the reply's text and calls.
    fn ask(&mut self, messages: &str) -> Result<(String, Vec<Call>)> {
        let [before, after] = &self.around;
        let length = before.len() + messages.len() + after.len();
        let path = &self.path;
        let head = "Host: 127.0.0.1\r\nContent-Type: application/json\r\nAccept: text/event-stream";
        let request =
            format!("POST {path} HTTP/1.1\r\n{head}\r\nContent-Length: {length}\r\n\r\n{before}{messages}{after}");
        self.stream.write_all(request.as_bytes())?;
        let mut filled = 0;
        while !self.received[..filled].ends_with(b"\r\n0\r\n\r\n") {
            if filled == self.received.len() {
                self.received.resize(filled * 2, 0);
            }
            let read = self.stream.read(&mut self.received[filled..])?;
            if read == 0 {
                bail!("the connection was closed during a reply");
            }
            filled += read;
        }
        let answer = &self.received[..filled];
        if !answer.starts_with(b"HTTP/1.1 200 ") {
            bail!("the model refused: {}", String::from_utf8_lossy(answer));
        }
        let (mut text, mut calls) = (String::new(), Vec::new());
        for line in answer[memmem::find(answer, b"\r\n\r\n").unwrap_or_default()..].split(|byte| *byte == b'\n') {
            let Some(frame) = line.strip_prefix(b"data: ").filter(|frame| frame.starts_with(b"{")) else { continue };
            let chunk: Chunk = serde_json::from_slice(frame)?;
            for Choice { delta } in chunk.choices {
                text += &delta.content.unwrap_or_default();
                for CallPiece { index, id, function } in delta.tool_calls {
                    if calls.len() <= index {
                        calls.resize_with(index + 1, Call::default);
                    }
                    let call = &mut calls[index];
                    call.id += &id.unwrap_or_default();
                    call.tool += &function.name.unwrap_or_default();
                    call.arguments += &function.arguments;
                }
            }
        }
        Ok((text, calls))
    }
}

impl Call {
    fn make(&self) -> Result<String> {
        match self.tool.as_str() {
            "echo" => Ok(serde_json::from_str::<Echo>(&self.arguments)?.message),
            "wait" => {
                let Wait { milliseconds } = serde_json::from_str(&self.arguments)?;
                std::thread::sleep(Duration::from_millis(milliseconds));
                Ok("waited".to_owned())
            }
            tool => bail!("unknown tool `{tool}`"),
        }
    }
}
