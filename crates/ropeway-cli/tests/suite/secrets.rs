//! Secrets on the command line: they are redacted everywhere except in the result of a tool.

use std::path::Path;

use ropeway_testing::{Fault, FaultTrigger, HttpFault, Script};
use serde_json::{Value, json};

use crate::fault_run::Site;
use crate::temp_home::{TempHome, entry, having};
use crate::{Ropeway, Run};

/// A word in all secrets, so that one search finds each of them in any encoding.
const MARK: &str = "S3CRET";

const URL: &str = "S3CRET-url";
const HEADER: &str = "S3CRET \"header\\";
const BEARER: &str = "S3CRET-bearer";
const ENV: &str = "S3CRET-env é \"quoted\"";
const ARGUMENT: &str = "S3CRET 'argument'";

/// The variables in the configuration and their values, by source.
const FROM_ENVIRONMENT: [(&str, &str); 3] = [("URL_KEY", URL), ("BEARER", BEARER), ("ENV_TOKEN", ENV)];
const FROM_FILE: [(&str, &str); 2] = [("HEADER_KEY", HEADER), ("ARGUMENT_KEY", ARGUMENT)];

/// Returns a text with all secrets.
fn words() -> String {
    [URL, HEADER, BEARER, ENV, ARGUMENT].join(" and ")
}

fn notification(method: &str, params: Value) -> Value {
    json!({"jsonrpc": "2.0", "method": method, "params": params})
}

/// Returns a server that repeats all secrets in every message.
fn talkative(words: &str) -> Script {
    let error = json!({"code": -32000, "message": words, "data": {"all": [words], "json": json!([words]).to_string()}});
    let log = json!({"level": "error", "logger": words, "data": {"text": words, words: 1}});
    let said = Fault::Before(vec![
        notification("notifications/message", log),
        notification("notifications/resources/updated", json!({"uri": words})),
    ]);
    let told = json!({"content": [{"type": "text", "text": words}]});
    let schema =
        json!({"type": "object", "properties": {"x": {"type": "string", "description": words, "default": words}}});
    let script = Script { instructions: Some(words.to_owned()), ..Script::default() };
    script
        .tool(json!({"name": "tell", "description": words, "inputSchema": schema}), told)
        .fault(FaultTrigger::tool("refuse"), Fault::Error(error))
        .fault(FaultTrigger::tool("tell"), said.clone())
        .fault(FaultTrigger::method("tools/list"), said)
}

/// Returns a server that also writes the secrets to standard error.
fn talkative_process() -> Script {
    talkative(&words())
        .fault(FaultTrigger::connect(), Fault::StderrLine(words()))
        .fault(FaultTrigger::tool("crash"), Fault::StderrLine(words()))
}

/// A place with these servers in its configuration.
struct Stage {
    temp_home: TempHome,
    _site: Site,
    _strict: Site,
}

impl Stage {
    fn new() -> Self {
        let site = Site::start(&talkative(&words()));
        let challenge = vec![("WWW-Authenticate".to_owned(), format!("Bearer realm=\"{BEARER}\", at={URL}"))];
        let refusal = HttpFault::Status { status: 401, headers: challenge, body: words() };
        let strict = Site::start(&Script::default().fault(FaultTrigger::any(), refusal));
        let child = entry("child", &talkative_process());
        let mut arguments = child["args"].clone();
        arguments.as_array_mut().expect("arguments").extend([json!("--api-key"), json!("${ARGUMENT_KEY}")]);
        let web = |url: &str| {
            json!({"url": format!("{url}?api_key=${{URL_KEY}}"), "headers": {"X-Api-Key": "${HEADER_KEY}"},
                "auth": {"bearer": "${BEARER}"}})
        };
        let temp_home = TempHome::with(&[
            having(child, json!({"args": arguments, "env": {"API_TOKEN": "${ENV_TOKEN}"}})),
            having(web(&site.url), json!({"alias": "web"})),
            having(web(&strict.url), json!({"alias": "strict"})),
            json!({"alias": "dead", "command": "sh", "args": ["-c", "echo \"$0 $API_TOKEN\" >&2; exit 7", "${ARGUMENT_KEY}"],
                "env": {"API_TOKEN": "${ENV_TOKEN}"}}),
            json!({"alias": "nowhere", "command": "/no/such/program", "args": ["${ARGUMENT_KEY}"]}),
            json!({"alias": "closed", "url": "http://127.0.0.1:1/mcp?api_key=${URL_KEY}"}),
        ]);
        let quoted =
            |(name, value): &(&str, &str)| format!("{name}=\"{}\"\n", value.replace('\\', "\\\\").replace('"', "\\\""));
        temp_home.write(".env", &FROM_FILE.iter().map(quoted).collect::<String>());
        Self { temp_home, _site: site, _strict: strict }
    }

    fn ropeway(&self, arguments: &[&str]) -> Ropeway {
        self.temp_home.ropeway(arguments).with(|command| {
            command.envs(FROM_ENVIRONMENT);
        })
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.temp_home.path().join("log")).expect("a log")
    }
}

/// Asserts that a text contains no secret.
#[track_caller]
fn is_clean(what: &str, text: &str) {
    if let Some(at) = text.find(MARK) {
        let (start, end) = (text.floor_char_boundary(at.saturating_sub(300)), text.ceil_char_boundary(at + 100));
        panic!("{what}: a secret came to light: {}", &text[start..end]);
    }
}

#[track_caller]
fn run_is_clean(typed: &[&str], run: &Run) {
    is_clean(&format!("{typed:?} on standard output"), &run.stdout);
    is_clean(&format!("{typed:?} on standard error"), &run.stderr);
}

#[test]
fn no_secret_appears_in_output_or_logs() {
    let stage = Stage::new();
    let commands: &[&[&str]] = &[
        &["tools"],
        &["tools", "--find", "echo"],
        &["tools", "child"],
        &["tools", "strict"],
        &["tools", "dead"],
        &["tools", "nowhere"],
        &["tools", "closed"],
        &["health"],
        &["resources"],
        &["prompts"],
        &["read", "web", "test://no-such"],
        &["call", "child.refuse"],
        &["call", "web.refuse"],
        &["call", "child.crash"],
        &["call", "child.echo", "mesage=x"],
        &["call", "no-such-tool"],
        &["events", "--timeout", "2s"],
        &["config", "check"],
        &["doctor"],
        &["doctor", "dead"],
        &[],
    ];
    let mut hidden = 0;
    for command in commands {
        for more in [&["-vv"][..], &["--json"], &["--json", "-vv"]] {
            let typed = [command, more, &["--log-file", "log"]].concat();
            let run = stage.ropeway(&typed).run();
            assert!(matches!(run.code, Some(0..=5)), "{typed:?}: {:?}\n{}", run.code, run.stderr);
            run_is_clean(&typed, &run);
            hidden += usize::from(run.stdout.contains("***")) + usize::from(run.stderr.contains("***"));
        }
    }
    assert!(hidden > 20, "only {hidden} times something was hidden: do the servers still talk?");
    let log = stage.log();
    is_clean("the log file", &log);
    assert!(log.contains("***"), "{log}");
    remembers_nothing(stage.temp_home.path());
}

#[test]
fn only_tool_results_are_not_redacted() {
    let stage = Stage::new();
    for server in ["child", "web"] {
        let tool = format!("{server}.tell");
        let run = stage.ropeway(&["call", &tool, "-vv", "--log-file", "log", "--log-payloads"]).run().expect(0);
        assert_eq!(run.stdout.trim_end_matches('\n'), words());
        is_clean("standard error", &run.stderr);
        let run = stage.ropeway(&["call", &tool, "-vv", "--json", "--log-file", "log"]).run().expect(0);
        assert_eq!(run.json()["data"], json!(words()));
        is_clean("standard error", &run.stderr);
    }
    let log = stage.log();
    is_clean("the log file", &log);
    assert!(log.contains("***") && log.contains("mcp.tool_called"), "{log}");
}

#[test]
fn a_secret_on_the_command_line_is_redacted() {
    let site = Site::start(&talkative(&[URL, HEADER, BEARER].join(" and ")));
    let url = format!("{}?api_key={URL}", site.url);
    let header = format!("X-Api-Key: {HEADER}");
    let to = ["--url", &url, "--header", &header, "--bearer", BEARER, "-vv"];
    for command in [&["tools"][..], &["call", "refuse"], &["health"], &["doctor"]] {
        let typed = [command, &to].concat();
        let run = Ropeway::new(&typed).run();
        is_clean("standard output", &run.stdout);
        is_clean("standard error", &run.stderr);
        assert!(command != ["call", "refuse"] || run.stderr.contains("***"), "{}", run.stderr);
    }
}

/// Asserts that no written file contains a secret, except for the file that defines them and the scripts.
fn remembers_nothing(folder: &Path) {
    for file in folder.read_dir().expect("a folder").flatten() {
        let path = file.path();
        match path.is_dir() {
            true => remembers_nothing(&path),
            false if [".env", "ropeway.yaml"].iter().any(|name| file.file_name() == *name) => {}
            false => {
                is_clean(&path.display().to_string(), &String::from_utf8_lossy(&std::fs::read(&path).expect("a file")))
            }
        }
    }
}

/// Returns a server that repeats these words in all its definitions and log messages.
fn saying(words: &str) -> Script {
    let log = json!({"level": "error", "logger": words, "data": {"text": words, "number": 123456, "flag": true}});
    let schema = json!({"type": "object", "properties": {
        "x": {"type": "integer", "description": words, "default": 123456}, "y": {"type": "boolean", "default": true}}});
    let said = Fault::Before(vec![notification("notifications/message", log)]);
    Script::default()
        .tool(json!({"name": "tell", "description": words, "inputSchema": schema}), json!({"content": []}))
        .fault(FaultTrigger::method("tools/list"), said.clone())
        .fault(FaultTrigger::tool("tell"), said)
}

#[test]
fn json_stays_json_whatever_the_secret_is() {
    for secret in ["123456", "true", "description", "\"text\"", "\\u00e9\\"] {
        let words = format!("it is {secret}, is it not?");
        let peer = having(entry("peer", &saying(&words)), json!({"env": {"API_TOKEN": "${THE_TOKEN}"}}));
        let temp_home = TempHome::with(&[peer]);
        for command in [&["tools"][..], &["health"], &["events", "--timeout", "1s"]] {
            let typed = [command, &["--json", "--log-file", "log"]].concat();
            let ropeway = temp_home.ropeway(&typed).with(|command| {
                command.env("THE_TOKEN", secret);
            });
            let run = ropeway.run();
            let documents: Vec<&str> =
                if command[0] == "events" { run.stdout.lines().collect() } else { vec![&run.stdout] };
            for document in documents {
                let value: Value = serde_json::from_str(document)
                    .unwrap_or_else(|error| panic!("{secret} {typed:?}: {error}\n{document}\n{}", run.stderr));
                let shown = value.to_string();
                assert!(secret == "true" || !shown.contains(json!(words).to_string().trim_matches('"')), "{shown}");
                // The structure is unchanged: keys are not redacted.
                assert!(command[0] != "tools" || shown.contains("\"description\":"), "{shown}");
            }
        }
        let log = std::fs::read_to_string(temp_home.path().join("log")).expect("a log");
        assert!(!log.is_empty());
        for line in log.lines() {
            serde_json::from_str::<Value>(line).unwrap_or_else(|error| panic!("{secret}: {error}\n{line}"));
        }
    }
}

#[test]
fn logs_contain_no_terminal_escapes() {
    let words = "safe\u{202e}txt\u{2066}\r\0\u{9b}31m\u{1b}[2J\u{85}\u{2028}end";
    let script = saying(words).fault(FaultTrigger::connect(), Fault::StderrLine(words.replace('\r', " ")));
    let temp_home = TempHome::with(&[entry("peer", &script)]);
    for command in [&["tools"][..], &["call", "peer.tell"], &["call", "peer.no-such"], &["health"]] {
        for more in [&["-vv"][..], &["-v", "--json"]] {
            let run = temp_home.ropeway(&[command, more, &["--log-file", "log"]].concat()).run();
            let log = std::fs::read_to_string(temp_home.path().join("log")).expect("a log");
            for (what, text) in [("standard error", &run.stderr), ("the log", &log)] {
                let harmful = |c: char| {
                    (c.is_control() && c != '\n' && c != '\t')
                        || matches!(c, '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
                };
                if let Some(at) = text.find(harmful) {
                    let (start, end) =
                        (text.floor_char_boundary(at.saturating_sub(100)), text.ceil_char_boundary(at + 50));
                    panic!("{command:?}: {what} holds {:?}", &text[start..end.min(text.len())]);
                }
            }
            assert!(log.contains("\\u202e"), "{log}");
        }
    }
}

#[test]
fn a_flood_of_escapes_does_not_hold_up_another_server() {
    // 4 MB in a log message, too large for the script of a server.
    let flood = "printf '{\"jsonrpc\":\"2.0\",\"method\":\"notifications/message\",\"params\":{\"level\":\"info\",\"data\":\"'; \
        head -c 4000000 /dev/zero | tr '\\0' '&'; printf '\"}}\\n'; exec cat > /dev/null";
    let bad =
        json!({"alias": "bad", "command": "sh", "args": ["-c", flood], "env": {"API_TOKEN": "a-token-that-is-known"}});
    let temp_home = TempHome::with(&[bad, entry("good", &Script::default())]);
    let began = std::time::Instant::now();
    let run = temp_home.ropeway(&["events", "--timeout", "5s", "--json"]).run();
    let took = began.elapsed();
    // This took minutes, during which timeouts had no effect.
    assert!(took.as_secs() < 40, "{took:?}");
    let events: Vec<Value> = run.stdout.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let is = |event: &Value, server: &str, name: &str| event["server"] == server && event["event"] == name;
    assert!(events.iter().any(|event| is(event, "good", "server.ready")), "{}", run.stderr);
    let log = events.iter().find(|event| is(event, "bad", "log")).expect("a log message");
    let data = log["data"].as_str().expect("text");
    assert!(data.len() < 100_000 && data.ends_with(" more bytes)"), "{} bytes", data.len());
}
