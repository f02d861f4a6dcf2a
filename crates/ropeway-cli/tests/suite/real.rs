//! Real servers on the command line: the same commands print the same output over every transport.

use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::Run;
use crate::events::Following;
use crate::process_marker::{ProcessMarker, command_line, signal};
use crate::temp_home::TempHome;
use crate::up::Background;

/// Maximum time until a server listens.
const START: Duration = Duration::from_secs(30);

/// The start command of a server, from the table that `cargo xtask servers` writes.
struct Launch {
    command: Vec<String>,
    env: Vec<(String, String)>,
    url: String,
    // The working folder of the server, which must exist as long as the server runs.
    folder: TempDir,
}

impl Launch {
    fn of(name: &str, port: u16) -> Self {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).with_file_name("servers").join("servers.json");
        let text = std::fs::read_to_string(path).expect("the servers are not installed: run cargo xtask servers");
        let table: Value = serde_json::from_str(&text).expect("servers.json is JSON");
        let entry = table.get(name).unwrap_or_else(|| panic!("there is no server `{name}`: run cargo xtask servers"));

        let folder = tempfile::tempdir().expect("a folder");
        let fill = |value: &Value| {
            let text = value.as_str().unwrap_or_default();
            text.replace("{PORT}", &port.to_string()).replace("{DIR}", &folder.path().to_string_lossy())
        };
        let arguments = entry["args"].as_array().into_iter().flatten();
        let command = std::iter::once(&entry["command"]).chain(arguments).map(fill).collect();
        let env = entry["env"].as_object().into_iter().flatten().map(|(name, value)| (name.clone(), fill(value)));
        Self { command, env: env.collect(), url: fill(&entry["url"]), folder }
    }
}

/// Returns the folder of a server's program, for a PATH.
pub(crate) fn folder(server: &str) -> PathBuf {
    Path::new(&Launch::of(server, 0).command[0]).with_file_name("")
}

/// Returns the command of a server as one quoted word for `--stdio`.
pub(crate) fn stdio_words(server: &str) -> String {
    let launch = Launch::of(server, 0);
    let command = shlex::try_join(launch.command.iter().map(String::as_str)).expect("words of a shell");
    shlex::try_quote(&command).expect("words of a shell").into_owned()
}

/// A listening server. Dropping it terminates the server.
struct Listening {
    child: Child,
    launch: Launch,
    // Dropped last, when the server has exited.
    _mark: ProcessMarker,
}

impl Listening {
    fn start(name: &str) -> Self {
        // Another process may take the free port before the server does.
        (0..3).find_map(|_| Self::try_start(name)).unwrap_or_else(|| panic!("`{name}` does not listen"))
    }

    fn try_start(name: &str) -> Option<Self> {
        let port = free_port();
        let launch = Launch::of(name, port);
        let mut command = Command::new(&launch.command[0]);
        command.args(&launch.command[1..]).envs(launch.env.iter().cloned());
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let process_marker = ProcessMarker::new();
        process_marker.put_on(&mut command);
        let child = command.spawn().unwrap_or_else(|error| panic!("could not start {command:?}: {error}"));
        let mut server = Self { child, launch, _mark: process_marker };
        let started = Instant::now();
        while started.elapsed() < START && server.child.try_wait().is_ok_and(|end| end.is_none()) {
            if TcpStream::connect(("127.0.0.1", port)).is_ok() {
                return Some(server);
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        None
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        // An error means that it has already exited.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns a free port below the ephemeral range. The client's own connection attempt could be assigned a port of that range.
fn free_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let start = u16::try_from(std::process::id() % 100).expect("it is below 100") * 100;
    let mut ports = (0..1000).map(|_| 20_000 + start + NEXT.fetch_add(1, Ordering::Relaxed));
    ports.find(|port| TcpListener::bind(("127.0.0.1", *port)).is_ok()).expect("a free port")
}

/// Lists the tools of the reference server `everything`, calls two of them and checks the output.
fn is_everything(server: &[&str]) {
    let run = |command: &[&str]| Run::of(&[command, server].concat()).expect(0);
    let tools = run(&["tools"]);
    for words in ["mcp-servers/everything ", "\necho(message: string)\n", "get-sum(a: number, b: number)"] {
        assert!(tools.stdout.contains(words), "{words}\n{}", tools.stdout);
    }
    let call = run(&["call", "echo", "message=hello"]);
    assert_eq!((call.stdout.as_str(), call.stderr.as_str()), ("Echo: hello\n", ""));
    let sum = run(&["call", "get-sum", "a=2", "b=3", "--json"]).json();
    assert_eq!(sum["data"], "The sum of 2 and 3 is 5.");
}

#[test]
fn everything_is_listed_and_called_over_stdio() {
    let launch = Launch::of("everything", 0);
    let command = shlex::try_join(launch.command.iter().map(String::as_str)).expect("words of a shell");
    is_everything(&["--stdio", &command]);
}

#[test]
fn everything_is_listed_and_called_over_streamable_http() {
    let server = Listening::start("everything-http");
    for transport in ["auto", "http"] {
        is_everything(&["--url", &server.launch.url, "--transport", transport]);
    }
    is_everything(&["--url", &server.launch.url]);
}

#[test]
fn everything_is_listed_and_called_over_legacy_sse() {
    let server = Listening::start("everything-sse");
    for transport in ["auto", "sse"] {
        is_everything(&["--url", &server.launch.url, "--transport", transport]);
    }
}

/// Returns the configuration entry of a server.
fn entry(alias: &str, launch: &Launch) -> Value {
    let env: Value = launch.env.iter().map(|(name, value)| (name.clone(), json!(value))).collect();
    json!({"alias": alias, "command": launch.command[0], "args": launch.command[1..], "env": env})
}

/// Returns the configuration entry of a server, and the folder that it may use.
pub(crate) fn real_entry(server: &str, alias: &str) -> (Value, TempDir) {
    let launch = Launch::of(server, 0);
    (entry(alias, &launch), launch.folder)
}

/// Returns the configuration entry of the filesystem server, and the folder that it serves.
pub(crate) fn filesystem(alias: &str) -> (Value, TempDir) {
    real_entry("filesystem", alias)
}

/// Creates a place with real servers in its configuration. The second value keeps their folders alive.
pub(crate) fn configured(names: &[&str]) -> (TempHome, impl Sized) {
    let launches: Vec<Launch> = names.iter().map(|name| Launch::of(name, 0)).collect();
    let servers: Vec<Value> = names.iter().zip(&launches).map(|(name, launch)| entry(name, launch)).collect();
    (TempHome::with(&servers), launches)
}

/// Checks the output of all commands for the five servers.
fn is_all_there(temp_home: &TempHome) {
    let run = |typed: &str| temp_home.run(typed).expect(0).stdout;
    // Without a limit, a server with cached tools gets five seconds, which a busy machine may exceed.
    let tools = run("tools --timeout 60");
    for words in [
        "● everything · 15 tools · mcp-servers/everything",
        "  everything.get-sum(a: number, b: number)\n",
        "● files · 14 tools",
        "  files.list_directory(path: string)\n",
        "● memory · 9 tools",
        "● time · 2 tools",
        "● web · ",
    ] {
        assert!(tools.contains(words), "{words}\n{tools}");
    }
    let health = temp_home.run("health --json").expect(0).json();
    let states = health["servers"].as_array().expect("servers").iter().map(|server| {
        assert!(server["latency_ms"].as_f64().is_some_and(|latency| latency > 0.0), "{server}");
        json!([server["server"], server["status"]["state"], server["transport"]])
    });
    let expected = json!([
        ["everything", "ready", "stdio"],
        ["files", "ready", "stdio"],
        ["memory", "ready", "stdio"],
        ["time", "ready", "stdio"],
        ["web", "ready", "http"]
    ]);
    assert_eq!(states.collect::<Value>(), expected);
    assert_eq!(run("call everything.get-sum a=2 b=3"), "The sum of 2 and 3 is 5.\n");
    assert_eq!(temp_home.run("call time.get_current_time timezone=UTC").expect(0).json()["timezone"], "UTC");
    assert_eq!(temp_home.run("call read_graph").expect(0).json(), json!({"entities": [], "relations": []}));
    let resources = run("resources");
    assert!(resources.contains("  demo://resource/static/document/features.md  text/markdown\n"), "{resources}");
    assert!(run("read demo://resource/static/document/features.md").starts_with("# Everything Server"));
    assert!(run("prompts").contains("everything.args-prompt(city, state?)\n"));
    assert_eq!(run("prompt everything.args-prompt city=Lisbon"), "user:\nWhat's weather in Lisbon?\n");
}

#[test]
fn five_servers_from_one_file_work_before_and_after_one_is_killed() {
    let web = Listening::start("typescript-http");
    let names = [("everything", "everything"), ("files", "filesystem"), ("memory", "memory"), ("time", "time")];
    let launches: Vec<(&str, Launch)> = names.map(|(alias, name)| (alias, Launch::of(name, 0))).into();
    let mut servers: Vec<Value> = launches.iter().map(|(alias, launch)| entry(alias, launch)).collect();
    servers.push(json!({"alias": "web", "url": web.launch.url}));
    let temp_home = TempHome::with(&servers);
    is_all_there(&temp_home);

    let mut following = Following::start(&temp_home, &["events"]);
    following.until(|line| line.contains("● time        ready"));
    let is_time = |id: &u32| command_line(*id).contains("mcp-server-time");
    let time: Vec<u32> = following.running.others().into_iter().filter(is_time).collect();
    assert!(!time.is_empty(), "it runs");
    time.into_iter().for_each(|id| signal("KILL", id));
    following.until(|line| line.contains("✗ time        down"));
    following.until(|line| line.contains("● time        ready"));
    is_all_there(&temp_home);
    following.end();
}

#[test]
fn npx_and_uvx_download_a_server_at_its_first_start() {
    // The home folder is empty, and so are the caches of both runners.
    let temp_home = TempHome::new();
    let uvx = folder("time").join("uvx");
    temp_home.configure(&[
        json!({"alias": "memory", "command": "npx", "args": ["-y", "@modelcontextprotocol/server-memory@2026.8.31"]}),
        json!({"alias": "clock", "command": uvx, "args": ["mcp-server-time@2026.10.19", "--local-timezone", "UTC"]}),
    ]);
    let path = std::env::var_os("PATH").unwrap_or_default();
    let node = Path::new(&Launch::of("memory", 0).command[0]).with_file_name("");
    let path = std::env::join_paths(std::iter::once(node).chain(std::env::split_paths(&path))).expect("folders");
    let run = temp_home
        .ropeway(&["tools"])
        .with(|command| {
            command.env("PATH", path);
        })
        .run()
        .expect(0);
    for words in ["● memory · 9 tools", "● clock · 2 tools"] {
        assert!(run.stdout.contains(words), "{words}\n{}{}", run.stdout, run.stderr);
    }
}

#[test]
fn a_stateful_server_remembers_calls_between_commands() {
    let launch = Launch::of("thinking", 0);
    let up = Background::new(&[entry("thinking", &launch)]);
    let count = || {
        let words = ["thought=hm", "nextThoughtNeeded=true", "thoughtNumber=1", "totalThoughts=3", "--json"];
        let result = up.run(&[&["call", "thinking.sequentialthinking"], &words[..]].concat()).expect(0).json();
        result["data"]["thoughtHistoryLength"].as_u64().unwrap_or_else(|| panic!("{result}"))
    };
    assert_eq!([count(), count()], [1, 1], "each command starts its own server");
    up.run(&["up"]).expect(0);
    assert_eq!([count(), count(), count()], [1, 2, 3]);
    up.run(&["down"]).expect(0);
    assert_eq!(count(), 1);
}
