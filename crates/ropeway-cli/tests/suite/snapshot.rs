//! Snapshots of the output of every command, in a narrow and a wide window, with and without colours.

use std::path::{Path, PathBuf};

use ropeway_testing::{Fault, FaultTrigger, HttpFault, Script};
use serde_json::{Value, json};

use crate::completions::commands;
use crate::fault_run::Site;
use crate::temp_home::{TempHome, entry, having};
use crate::terminal::{Screen, Terminal};

/// The widths of the windows.
const NARROW: u16 = 80;
const WIDE: u16 = 200;

/// A port without a listener.
const CLOSED: &str = "http://127.0.0.1:1/mcp";

#[test]
fn snapshots_of_the_welcome_and_the_tools() {
    keep("welcome", "ropeway");
    keep("tools", "ropeway tools");
    keep("tools-one", "ropeway tools demo.statistics");
    keep("tools-names", "ropeway tools --names");
    keep("tools-no-configuration", "ropeway tools github");
    keep("tools-json", "ropeway tools --json --era legacy");
}

#[test]
fn snapshots_of_calls() {
    keep("call-text", "ropeway call calculate expression='2^10 / 3'");
    keep("call-structured", "ropeway call statistics values='[3, 1, 4, 1, 5]'");
    keep("call-json", "ropeway call calculate expression=1+2 --json");
    keep("call-picture", "ropeway call chart values='[3, 1, 4]' title=Digits");
    keep("call-tool-error", "ropeway call fail message='on purpose'");
    keep("call-unknown-tool", "ropeway call chrat values='[1]'");
    keep("call-unlike-any-tool", "ropeway call xylophone");
    keep("call-wrong-arguments", "ropeway call chart values='[]' kind=pie");
    keep("call-unknown-argument", "ropeway call chart values='[1]' titel=x");
    keep("call-wrong-type", "ropeway call chart values=many");
    keep("call-no-argument", "ropeway call chart values");
    keep("call-two-objects", "ropeway call chart '{}' '{}'");
}

#[test]
fn snapshots_of_servers_that_are_not_there() {
    keep("no-such-program", "ropeway tools --stdio '/no/such/program --flag'");
    keep("dead-server", "ropeway tools --stdio \"sh -c 'echo one >&2; echo no licence >&2; exit 7'\"");
    keep("closed-port", &format!("ropeway tools --url {CLOSED}"));
}

#[test]
fn snapshots_of_the_doctor() {
    keep("doctor", "ropeway doctor");
    keep("doctor-json", &format!("ropeway doctor --json --url {CLOSED}"));
    keep("doctor-no-such-program", "ropeway doctor --stdio '/no/such/program --flag'");
    keep("doctor-dead-server", "ropeway doctor --stdio \"sh -c 'echo DATABASE_URL is not set >&2; exit 7'\"");
    keep("doctor-closed-port", &format!("ropeway doctor --url {CLOSED}"));
}

/// A server with three tools, one with a long description.
fn files() -> Value {
    let read = json!({"name": "read_file", "annotations": {"readOnlyHint": true},
        "description": "Reads a file as text. Only within the folders that are allowed.\n\nArgs:\n  path: where it is",
        "inputSchema": {"type": "object", "required": ["path"], "properties": {
            "path": {"type": "string", "description": "Where it is"},
            "head": {"type": "integer"}, "encoding": {"enum": ["utf-8", "latin-1"], "default": "utf-8"}}}});
    let edit = json!({"name": "edit_file", "annotations": {"destructiveHint": true},
        "description": "Changes lines of a file, e.g. one by one, and shows what it has changed in the form that everybody \
            knows from version control",
        "inputSchema": {"type": "object", "required": ["path", "edits"], "properties": {
            "path": {"type": "string"},
            "edits": {"type": "array", "items": {"type": "object", "required": ["old", "new"], "properties": {
                "old": {"type": "string"}, "new": {"type": "string"}}}},
            "dry_run": {"type": "boolean", "default": false}}}});
    let list = json!({"name": "list_folders", "inputSchema": {"type": "object"},
        "outputSchema": {"type": "object", "properties": {"folders": {"type": "array", "items": {"type": "string"}}}}});
    let script = Script { name: "file-server".to_owned(), builtin_tools: false, ..Script::legacy() };
    let answer = json!({"content": [{"type": "text", "text": "done"}]});
    entry("files", &script.tool(read, answer.clone()).tool(edit, answer.clone()).tool(list, answer))
}

/// A server with one renamed tool.
fn clock() -> Value {
    let tell = json!({"name": "get_current_time", "description": "Tells the time.", "inputSchema": {"type": "object",
        "properties": {"zone": {"type": "string", "default": "UTC"}}}});
    let script = Script { name: "clock".to_owned(), builtin_tools: false, ..Script::default() };
    let entry = entry("clock", &script.tool(tell, json!({"content": [{"type": "text", "text": "noon"}]})));
    having(entry, json!({"tools": {"rename": {"get_current_time": "now"}}}))
}

fn config(servers: &[Value]) -> String {
    json!({ "servers": servers }).to_string()
}

/// Two available servers.
fn well() -> String {
    config(&[files(), clock()])
}

/// Servers in every state.
fn ill(strict: &Site) -> String {
    let dies = "echo starting up >&2; echo DATABASE_URL is not set >&2; exit 7";
    config(&[
        clock(),
        json!({"alias": "broken", "command": "/no/such/program", "args": ["--flag"]}),
        json!({"alias": "dies", "command": "sh", "args": ["-c", dies]}),
        json!({"alias": "github", "command": "true", "env": {"A": "${GITHUB_TOKEN}", "B": "${GITHUB_HOST}"}}),
        json!({"alias": "off", "command": "true", "enabled": false}),
        having(files(), json!({"alias": "unwanted", "tools": ["write_*"]})),
        json!({"alias": "strict", "url": strict.url}),
    ])
}

fn strict() -> Site {
    let challenge = vec![("WWW-Authenticate".to_owned(), "Bearer realm=\"api\"".to_owned())];
    let refusal = HttpFault::Status { status: 401, headers: challenge, body: String::new() };
    Site::start(&Script::default().fault(FaultTrigger::any(), refusal))
}

#[test]
fn snapshots_of_many_servers() {
    let well = well();
    keep_in("many-welcome", "ropeway", &well);
    keep_in("many-tools", "ropeway tools", &well);
    keep_in("many-tools-one", "ropeway tools files", &well);
    keep_in("many-tools-tool", "ropeway tools files.edit_file", &well);
    keep_in("many-call-help", "ropeway call files.read_file --help", &well);
    keep_in("many-tools-unknown-tool", "ropeway tools files.raed_file", &well);
    keep_in("many-tools-find", "ropeway tools --find 'change a file'", &well);
    keep_in("many-tools-find-nothing", "ropeway tools --find xylophone", &well);
    keep_in("many-tools-json", "ropeway tools clock --json", &well);
    keep_in("many-tools-none-configured", "ropeway tools", &config(&[]));
    keep_in("many-call", "ropeway call clock.now", &well);
    keep_in("many-call-unknown-tool", "ropeway call files.raed_file", &well);
    keep_in("many-call-no-argument", "ropeway call files.read_file", &well);
    keep_in("many-unknown-server", "ropeway tools flies", &well);
    keep_in("many-resources", "ropeway resources", &well);
    keep_in("many-resources-one", "ropeway resources files", &well);
    keep_in("many-prompts", "ropeway prompts", &well);
    keep_in("many-prompt", "ropeway prompt files.greet name=Ada", &well);
    keep_in("many-read", "ropeway read files test://hello", &well);
    keep_in("many-read-picture", "ropeway read files test://picture", &well);
    keep_in("many-health", "ropeway health", &well);
    keep_in("many-events", "ropeway events files --timeout 1s", &well);
    keep_in("many-events-json", "ropeway events files --json --timeout 1s", &well);
}

#[test]
fn snapshots_of_many_servers_of_which_some_are_not_there() {
    let strict = strict();
    let ill = ill(&strict);
    keep_in("ill-tools", "ropeway tools", &ill);
    keep_in("ill-tools-find", "ropeway tools --find time", &ill);
    keep_in("ill-tools-skipped", "ropeway tools github", &ill);
    keep_in("ill-tools-disabled", "ropeway tools off", &ill);
    keep_in("ill-tools-unwanted", "ropeway tools unwanted", &ill);
    keep_in("ill-tools-dies", "ropeway tools dies", &ill);
    keep_in("ill-tools-strict", "ropeway tools strict", &ill);
    keep_in("ill-call-unknown-tool", "ropeway call nwo", &ill);
    keep_in("ill-resources", "ropeway resources", &ill);
    keep_in("ill-prompts", "ropeway prompts", &ill);
    keep_in("ill-health", "ropeway health", &ill);
    let hangs = Script::default().fault(FaultTrigger::any(), Fault::Hang);
    let late = config(&[clock(), entry("slow", &hangs)]);
    keep_in("late-tools", "ropeway tools --timeout 1500ms", &late);
    keep_in("late-health", "ropeway health --timeout 1500ms", &late);
}

#[test]
fn snapshots_of_invalid_configurations() {
    let tools = "ropeway tools";
    keep_in("config-missing-alias", tools, "servers:\n  - command: npx\n");
    keep_in("config-unknown-transport", tools, "servers:\n  - alias: a\n    transport: stdoi\n    command: npx\n");
    keep_in("config-doubled-alias", tools, "servers:\n  - {alias: a, command: npx}\n  - {alias: a, command: uvx}\n");
    keep_in("config-not-yaml", tools, "servers: [\n  - alias: {\n");
    keep_in("config-two-problems", tools, "servers:\n  - alias: a\n    comand: npx\n  - alias: b\n    url: 7\n");
    keep("config-no-such-file", "ropeway tools --config /no/such/ropeway.yaml");
}

#[test]
fn snapshots_of_the_gateway() {
    keep("serve-not-local", "ropeway serve --listen 0.0.0.0:8931");
    keep("serve-unknown-profile", "ropeway serve --profile coding");
    keep("up-no-configuration", "ropeway up");
    keep("down-not-running", "ropeway down");
    keep("status-not-running", "ropeway status");
    keep("key-no-file", "ropeway key list");
    keep_after("key-list", "ropeway key list --file keys.json", &write_keys);
    keep_after("key-revoke-unknown", "ropeway key revoke alicia --file keys.json", &write_keys);
    keep_in("install-dry-run", "ropeway install cursor --dry-run", &well());
    keep("install-no-http", "ropeway install claude-desktop --http");
    keep_in("install", "ropeway install zed", &well());
}

/// Writes a file with two keys, of which one has expired.
fn write_keys(place: &Path) {
    let key = |name: &str, digit: &str, more: Value| {
        let mut key = json!({"id": format!("0000000{digit}"), "name": name, "sha256": digit.repeat(64), "created": 1_790_000_000});
        key.as_object_mut().expect("a map").extend(more.as_object().expect("a map").clone());
        key
    };
    let limits = json!({"rate": "10/s", "calls": 4});
    let restricted =
        json!({"expires": 4_100_000_000_u64, "profiles": ["coding"], "tools": ["git.*", "read_*"], "limits": limits});
    let keys = [key("alice", "1", restricted), key("ci", "2", json!({"expires": 1_790_000_001, "operator": true}))];
    let path = place.join("keys.json");
    std::fs::write(&path, json!({"version": 1, "keys": keys}).to_string()).expect("a file");
    std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o600)).expect("a mode");
}

#[test]
fn snapshots_of_the_help_of_every_command() {
    keep("help", "ropeway --help");
    for command in commands() {
        keep(&format!("help-{command}"), &format!("ropeway {command} --help"));
    }
    keep("usage-unknown-command", "ropeway tolos");
    keep("usage-unknown-option", "ropeway tools --jsno");
}

#[test]
fn every_snapshot_belongs_to_a_test() {
    let source = concat!(include_str!("snapshot.rs"), include_str!("snapshot_config.rs"));
    let known = |name: &str| {
        let help = name.strip_prefix("help-").is_some_and(|command| commands().iter().any(|known| known == command));
        help || ["keep", "keep_in", "keep_after"].iter().any(|keep| source.contains(&format!("{keep}(\"{name}\"")))
    };
    let files = std::fs::read_dir(folder()).expect("the folder of snapshots").flatten();
    let names = files.filter_map(|file| Some(file.path().file_stem()?.to_str()?.to_owned()));
    let left: Vec<String> = names.filter(|name| !known(name)).collect();
    assert_eq!(left, Vec::<String>::new());
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/snapshots")
}

/// Compares the output of a command with the stored snapshot. `UPDATE_SNAPSHOTS` overwrites the snapshot.
pub(crate) fn keep(name: &str, typed: &str) {
    keep_after(name, typed, &|_| ());
}

/// Like [`keep`], with a configuration file.
fn keep_in(name: &str, typed: &str, config: &str) {
    keep_after(name, typed, &|place| std::fs::write(place.join("ropeway.yaml"), config).expect("a file"));
}

/// Like [`keep`], in a prepared folder.
pub(crate) fn keep_after(name: &str, typed: &str, prepare: &dyn Fn(&Path)) {
    let [narrow, wide] = [NARROW, WIDE].map(|columns| {
        let plain = show(typed, prepare, Terminal { columns, coloured: false });
        let coloured = show(typed, prepare, Terminal { columns, coloured: true });
        assert_eq!(anstream::adapter::strip_str(&coloured.text).to_string(), plain.text, "{typed}: colour moves text");
        assert!(!plain.text.contains('\u{1b}'), "{typed}: colour where none is wanted");
        (plain, coloured)
    });
    let section = |title: &str, text: &str| format!("──── {title} ────\n{}", readable(text));
    let code = narrow.0.code.map_or_else(|| "a signal".to_owned(), |code| code.to_string());
    let mut snapshot = format!("$ {typed}\n{}", section("80 columns", &narrow.0.text));
    if wide.0.text != narrow.0.text {
        snapshot.push_str(&section("200 columns", &wide.0.text));
    }
    snapshot.push_str(&section("80 columns, in colour", &narrow.1.text));
    snapshot.push_str(&format!("──── ends with {code} ────\n"));

    let path = folder().join(format!("{name}.txt"));
    if std::env::var_os("UPDATE_SNAPSHOTS").is_some() {
        std::fs::create_dir_all(folder()).expect("the folder of snapshots");
        std::fs::write(&path, &snapshot).expect("a snapshot can be written");
    }
    let kept = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        kept == snapshot,
        "`{typed}` looks different from tests/snapshots/{name}.txt; \
         run `UPDATE_SNAPSHOTS=1 cargo test -p ropeway-cli snapshot` and look at what changed\n\n{}",
        difference(&kept, &snapshot)
    );
}

/// Runs a command line in an isolated place.
fn show(typed: &str, prepare: &dyn Fn(&Path), terminal: Terminal) -> Screen {
    let words = shlex::split(typed).expect("words of a shell");
    let place = TempHome::new();
    prepare(place.path());
    // `doctor` prints the path of the program, and a path of another length would wrap differently.
    let program = place.path().join("ropeway");
    std::fs::hard_link(env!("CARGO_BIN_EXE_ropeway"), &program)
        .or_else(|_| std::fs::copy(env!("CARGO_BIN_EXE_ropeway"), &program).map(drop))
        .expect("a copy of the program");
    let ropeway = place.of(&program, &words[1..]).with(|command| {
        use std::os::unix::process::CommandExt as _;
        command.arg0("ropeway").env("PATH", format!("{}:/usr/bin:/bin", place.path().join("bin").display()));
        for name in ["HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"] {
            command.env_remove(name).env_remove(name.to_lowercase());
        }
    });
    let Screen { text, code } = terminal.show(ropeway);
    let shown = place.path().display().to_string();
    Screen { text: normalise(&text.replace(&shown, "/tmp/ropeway-XXXXXX")), code }
}

/// Replaces values that differ between runs.
fn normalise(text: &str) -> String {
    let text = text.replace(env!("CARGO_PKG_VERSION"), "VERSION");
    let text = replace_behind(&text, "ready after ", "TIME", |c| matches!(c, '\n' | '\r' | '"'));
    let text = replace_behind(&text, "\"took_ms\": ", "TIME", |c| matches!(c, ',' | '\n' | '\r'));
    let text = replace_behind(&text, "\"time\":\"", "TIME", |c| c == '"');
    replace_times(&text)
}

/// Replaces every measured time, such as `3.4 ms` in a table or `0.012s` before an event, and keeps the alignment of the
/// following columns.
fn replace_times(text: &str) -> String {
    let mut replaced = String::new();
    let mut rest = text;
    while let Some(at) = rest.find(|c: char| c.is_ascii_digit()) {
        let (before, number) = rest.split_at(at);
        replaced.push_str(before);
        let end = number.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(number.len());
        let (number, behind) = number.split_at(end);
        let unit = [" µs", " ms", " s"].into_iter().find(|unit| behind.starts_with(unit));
        let is_cell = |unit: &str| behind[unit.len()..].trim_start_matches("\u{1b}[0m").starts_with("  ");
        let is_stamp = number.split_once('.').is_some_and(|(_, part)| part.len() == 3) && behind.starts_with('s');
        match unit.filter(|unit| is_cell(unit)) {
            Some(unit) => {
                let space = " ".repeat((number.len() + unit.chars().count()).saturating_sub(4));
                let (_, behind) = behind.split_at(unit.len());
                let reset = if behind.starts_with('\u{1b}') { "\u{1b}[0m" } else { "" };
                replaced.push_str(&format!("TIME{reset}{space}"));
                rest = &behind[reset.len()..];
            }
            None => {
                replaced.push_str(if is_stamp { "0.000" } else { number });
                rest = behind;
            }
        }
    }
    replaced + rest
}

/// Replaces the text between a prefix and the next end character.
fn replace_behind(text: &str, mark: &str, word: &str, is_end: fn(char) -> bool) -> String {
    let mut parts = text.split(mark);
    let mut replaced = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let rest = part.find(is_end).map_or("", |end| &part[end..]);
        replaced.push_str(&format!("{mark}{word}{rest}"));
    }
    replaced
}

/// Replaces escape characters with visible ones.
fn readable(text: &str) -> String {
    text.replace('\u{1b}', "␛").replace('\r', "␍")
}

/// Returns the first lines that differ.
fn difference(kept: &str, now: &str) -> String {
    let (mut kept, mut now) = (kept.lines(), now.lines());
    loop {
        match (kept.next(), now.next()) {
            (None, None) => return "only the ends of lines differ".to_owned(),
            (a, b) if a == b => {}
            (a, b) => {
                return format!("kept: {}\nnow:  {}", a.unwrap_or("(the end)"), b.unwrap_or("(the end)"));
            }
        }
    }
}

#[test]
fn values_that_differ_between_runs_are_replaced() {
    assert_eq!(normalise("a, ready after 12 ms\nb"), "a, ready after TIME\nb");
    assert_eq!(normalise("{\"took_ms\": 1.25,\n"), "{\"took_ms\": TIME,\n");
    assert_eq!(normalise("3.4 ms   13\n120 ms   2"), "TIME     13\nTIME     2");
    assert_eq!(normalise("\u{1b}[2m12 ms\u{1b}[0m    13"), "\u{1b}[2mTIME\u{1b}[0m     13");
    assert_eq!(normalise("   1.234s ● a"), "   0.000s ● a");
    assert_eq!(normalise("within 1.5s, MCP 2025-11-25"), "within 1.5s, MCP 2025-11-25");
    assert_eq!(readable("\u{1b}[1ma\u{1b}[0m"), "␛[1ma␛[0m");
    assert_eq!(difference("a\nb", "a\nc"), "kept: b\nnow:  c");
}
