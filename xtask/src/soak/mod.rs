//! `cargo xtask soak`: mixed load on the gateway while servers are killed, the configuration changes and it restarts: calls,
//! streams, subscriptions and server requests.

mod chaos;
mod report;

use std::fs;
use std::net::TcpListener;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result, bail};
use serde_json::{Value, json};

use self::chaos::{Chaos, Random};
use self::report::Report;
use crate::background::Background;
use crate::gateway::{self, Gateway};
use crate::process;
use crate::{paths, servers};

/// Number of sessions, half in each era.
const SESSIONS: usize = 24;

/// Runs `soak [--minutes N] [--pause MILLISECONDS] [--seed N]`.
pub fn run(args: &[String]) -> Result<()> {
    let (mut minutes, mut pause, mut seed) = (1.0_f64, 0_u64, now());
    let mut args = args.iter();
    while let Some(flag) = args.next() {
        let value = args.next().with_context(|| format!("`{flag}` needs a value"))?;
        match flag.as_str() {
            "--minutes" => minutes = value.parse().context("`--minutes` is not a number")?,
            "--pause" => pause = value.parse().context("`--pause` is not a number")?,
            "--seed" => seed = value.parse().context("`--seed` is not a number")?,
            _ => bail!("unknown flag `{flag}`"),
        }
    }
    servers::run()?;
    process::build(&["ropeway", "soak-load", "conformance-server", "rmcp-server", "echo-server", "scripted-server"])?;
    test(minutes, pause, seed)
}

/// Runs a one-minute soak. The programs must be built.
pub fn one_minute() -> Result<()> {
    test(1.0, 0, now())
}

fn test(minutes: f64, pause: u64, seed: u64) -> Result<()> {
    println!("soak for {minutes} minutes (seed {seed})");
    let report = soak(Duration::from_secs_f64(minutes * 60.0), pause, Random::new(seed))?;
    print!("{report}");
    report.verdict()
}

fn soak(time: Duration, pause: u64, random: Random) -> Result<Report> {
    let remote = Background::start(&mut Command::new(paths::program("conformance-server")))?;
    let remote_url = remote.url(Duration::from_secs(30))?;
    let folder = paths::target().join("gateway");
    fs::create_dir_all(&folder)?;
    let config = gateway::write_config("soak", &configuration(&remote_url, &folder, false))?;
    let changed = configuration(&remote_url, &folder, true);
    // The port stays the same over restarts, so that clients find the gateway again.
    let listen = TcpListener::bind("127.0.0.1:0")?.local_addr()?.to_string();
    let gateway = Gateway::start(&paths::program("ropeway"), &config, &listen)?;

    let mut load = Command::new(paths::program("soak-load"));
    load.args(["--url", &gateway.url, "--seconds", &time.as_secs().to_string()]);
    load.args(["--sessions", &SESSIONS.to_string(), "--calls", &plan().to_string()]);
    load.args(["--pause", &pause.to_string(), "--watch", &watched().to_string(), "--ask", &asked().to_string()]);
    let mut load = Background::start(&mut load)?;
    let end = Instant::now() + time;
    let mut chaos = Chaos::new(gateway, config, changed, listen, random);
    while Instant::now() < end && load.is_running() {
        chaos.step(end)?;
    }
    // Calls in flight have to end.
    let late = Instant::now() + Duration::from_secs(90);
    while load.is_running() && Instant::now() < late {
        chaos.sample();
        std::thread::sleep(Duration::from_millis(200));
    }
    if load.is_running() {
        bail!("the load did not end");
    }
    // The output readers need a moment after the program has ended.
    std::thread::sleep(Duration::from_millis(200));
    let lines = load.output();
    let observed = chaos.finish()?;
    remote.stop()?;
    Report::new(&lines, observed)
}

/// Returns the configuration; `is_changed` adds a server and a filter, which a reload applies.
fn configuration(remote: &str, folder: &Path, is_changed: bool) -> Value {
    let node = servers::node();
    let everything = paths::servers().join("npm/node_modules/@modelcontextprotocol/server-everything/dist/index.js");
    let memory = paths::servers().join("npm/node_modules/@modelcontextprotocol/server-memory/dist/index.js");
    // Long enough for any soak; the tests' default is two minutes.
    let script = json!({ "name": "scripted", "process": { "lifetime_ms": 86_400_000 } }).to_string();
    let asker = json!({ "name": "asker", "process": { "lifetime_ms": 86_400_000 } }).to_string();
    let mut servers = vec![
        json!({ "alias": "echo", "command": paths::program("echo-server") }),
        json!({ "alias": "rust", "command": paths::program("rmcp-server") }),
        json!({ "alias": "everything", "command": node, "args": [everything] }),
        json!({ "alias": "scripted", "command": paths::program("scripted-server"), "args": [script] }),
        json!({ "alias": "asker", "command": paths::program("scripted-server"), "args": [asker], "isolation": "client" }),
        json!({ "alias": "remote", "url": remote }),
    ];
    if is_changed {
        let store = json!({ "MEMORY_FILE_PATH": folder.join("soak-memory.json") });
        servers.push(json!({ "alias": "memory", "command": node, "args": [memory], "env": store }));
        servers[0]["tools"] = json!({ "deny": ["structured"] });
    }
    json!({ "servers": servers })
}

/// Returns the load's calls: each server, its tool and a word from the result.
fn plan() -> Value {
    let call = |server: &str, tool: &str, arguments: Value, expect: &str| json!({ "server": server, "tool": format!("{server}_{tool}"), "arguments": arguments, "expect": expect });
    let message = json!({ "message": "hello over there" });
    json!([
        call("echo", "echo", message.clone(), "hello over there"),
        call("rust", "echo", message.clone(), "hello over there"),
        call("everything", "echo", message.clone(), "hello over there"),
        call("scripted", "echo", message, "hello over there"),
        call("remote", "greet", json!({ "name": "soak" }), "Hello, soak!"),
        call("rust", "slow", json!({ "steps": 3, "millis": 20 }), "steps done"),
        call("echo", "text", json!({ "bytes": 65_536 }), "content"),
        call("remote", "test_tool_with_progress", json!({}), "executed successfully"),
    ])
}

/// Returns the resources that are watched, and the tools that change them.
fn watched() -> Value {
    json!([{ "server": "remote", "tool": "remote_test_trigger_resource_update", "uri": "test://watched-resource" }])
}

/// Returns the calls whose servers ask the client.
fn asked() -> Value {
    json!([
        { "server": "remote", "tool": "remote_test_elicitation", "arguments": { "message": "who?" }, "expect": "soaked" },
        { "server": "remote", "tool": "remote_test_sampling", "arguments": { "prompt": "hi" }, "expect": "soaked" },
        { "server": "asker", "tool": "asker_elicit", "arguments": {}, "expect": "soaked" },
    ])
}

/// Returns the time in milliseconds, comparable between processes.
fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
