//! Baseline: a minimal, hand-written blocking client over stdio.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde::Deserialize;
use serde_json::Value;

use crate::bench_case::{IN_FLIGHT, Scenario, check, message};

#[derive(Deserialize)]
struct Answer<T> {
    id: usize,
    result: T,
}

#[derive(Deserialize)]
struct Called {
    content: Vec<Block>,
    #[serde(rename = "structuredContent")]
    structured: Option<Value>,
}

#[derive(Deserialize)]
struct Block {
    text: Option<String>,
    data: Option<String>,
}

#[derive(Deserialize)]
struct ListedTool {
    tools: Vec<Definition>,
}

#[derive(Deserialize)]
#[allow(dead_code, reason = "parsed as in any client, but not used")]
struct Definition {
    name: String,
    description: Option<String>,
    #[serde(rename = "inputSchema")]
    input_schema: Value,
}

impl Called {
    fn size(&self) -> usize {
        if let Some(structured) = &self.structured {
            return structured["rows"].as_array().map_or(0, Vec::len);
        }
        self.content.iter().map(|block| block.text.as_ref().or(block.data.as_ref()).map_or(0, String::len)).sum()
    }
}

/// A connection to one server.
#[derive(Debug)]
pub struct Client {
    child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
    request: Vec<u8>,
    line: Vec<u8>,
    next_id: usize,
}

impl Client {
    /// Starts a server and connects to it.
    pub fn connect(server: &[String]) -> Result<Self> {
        let mut client = Self::start(server)?;
        client.greet()?;
        Ok(client)
    }

    /// Starts a server and sends `initialize`, without waiting for the result.
    pub fn start(server: &[String]) -> Result<Self> {
        let (program, args) = server.split_first().context("no server is given")?;
        let mut child = Command::new(program).args(args).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let stdin = child.stdin.take().context("no stdin")?;
        let stdout = BufReader::with_capacity(64 << 10, child.stdout.take().context("no stdout")?);
        let mut client = Self { child, stdin, stdout, request: Vec::new(), line: Vec::new(), next_id: 1 };
        client.send(
            "initialize",
            r#"{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"baseline","version":"0.1.0"}}"#,
        )?;
        Ok(client)
    }

    /// Receives the `initialize` result and completes the handshake.
    pub fn greet(&mut self) -> Result<()> {
        self.receive()?;
        self.stdin.write_all(b"{\"jsonrpc\":\"2.0\",\"method\":\"notifications/initialized\"}\n")?;
        Ok(())
    }

    /// Sends a request in one write.
    fn send(&mut self, method: &str, params: &str) -> Result<()> {
        self.request.clear();
        push_request(&mut self.request, self.next_id, method, params)?;
        self.next_id += 1;
        self.stdin.write_all(&self.request)?;
        Ok(())
    }

    /// Reads one line.
    fn receive(&mut self) -> Result<()> {
        self.line.clear();
        if self.stdout.read_until(b'\n', &mut self.line)? == 0 {
            bail!("the server closed the connection");
        }
        Ok(())
    }

    fn call(&mut self, tool: &str, arguments: &str) -> Result<usize> {
        self.send("tools/call", &format!("{{\"name\":\"{tool}\",\"arguments\":{arguments}}}"))?;
        self.receive()?;
        let answer: Answer<Called> = serde_json::from_slice(&self.line)?;
        check("id", self.next_id - 1, answer.id)?;
        Ok(answer.result.size())
    }

    fn echo(&mut self, number: usize) -> Result<()> {
        let message = message(number);
        let size = self.call("echo", &format!("{{\"message\":\"{message}\"}}"))?;
        check("echo", message.len(), size)
    }

    /// Requests the tool list, without waiting for it.
    pub fn ask_list(&mut self) -> Result<()> {
        self.send("tools/list", "{}")
    }

    /// Receives the requested tool list and returns its length.
    pub fn take_list(&mut self) -> Result<usize> {
        self.receive()?;
        let answer: Answer<ListedTool> = serde_json::from_slice(&self.line)?;
        Ok(answer.result.tools.len())
    }

    /// Makes one call or fetches one list, depending on the scenario.
    pub fn step(&mut self, scenario: Scenario, number: usize) -> Result<()> {
        if scenario == Scenario::List200 {
            self.ask_list()?;
            return check("list", 200, self.take_list()?);
        }
        let Some(call) = scenario.big_call() else { return self.echo(number) };
        let arguments = serde_json::to_string(&call.arguments)?;
        check(call.tool, call.size, self.call(call.tool, &arguments)?)
    }

    /// Keeps 32 calls in flight: parses all received results, and sends as many new calls in one write.
    pub fn in_flight(&mut self, rounds: usize) -> Result<Vec<Duration>> {
        let first = self.next_id;
        let mut started: Vec<Instant> = Vec::with_capacity(rounds);
        let mut laps = Vec::with_capacity(rounds);
        let mut input = vec![0; 64 << 10];
        let mut filled = 0;
        while laps.len() < rounds {
            self.request.clear();
            while started.len() < rounds.min(laps.len() + IN_FLIGHT) {
                let params =
                    format!("{{\"name\":\"echo\",\"arguments\":{{\"message\":\"{}\"}}}}", message(started.len()));
                push_request(&mut self.request, self.next_id, "tools/call", &params)?;
                self.next_id += 1;
                started.push(Instant::now());
            }
            self.stdin.write_all(&self.request)?;
            let read = self.stdout.get_mut().read(&mut input[filled..])?;
            if read == 0 {
                bail!("the server closed the connection");
            }
            filled += read;
            let Some(end) = input[..filled].iter().rposition(|byte| *byte == b'\n') else { continue };
            for line in input[..end].split(|byte| *byte == b'\n') {
                let answer: Answer<Called> = serde_json::from_slice(line)?;
                let number = answer.id - first;
                check("echo", message(number).len(), answer.result.size())?;
                laps.push(started.get(number).context("a result without a call")?.elapsed());
            }
            input.copy_within(end + 1..filled, 0);
            filled -= end + 1;
        }
        Ok(laps)
    }

    /// Stops the server.
    pub fn close(mut self) -> Result<()> {
        drop(self.stdin);
        self.child.wait()?;
        Ok(())
    }
}

fn push_request(buffer: &mut Vec<u8>, id: usize, method: &str, params: &str) -> Result<()> {
    writeln!(buffer, "{{\"jsonrpc\":\"2.0\",\"id\":{id},\"method\":\"{method}\",\"params\":{params}}}")?;
    Ok(())
}
