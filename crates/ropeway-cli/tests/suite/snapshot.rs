//! Snapshots: what every command looks like in a narrow and in a wide window, with colours and without.

use std::path::{Path, PathBuf};

use crate::completions::commands;
use crate::home::copy_clients;
use crate::place::Place;
use crate::terminal::{Screen, Terminal};

/// The widths of the windows.
const NARROW: u16 = 80;
const WIDE: u16 = 200;

/// A port that nobody listens at.
const CLOSED: &str = "http://127.0.0.1:1/mcp";

#[test]
fn snapshots_of_the_welcome_and_the_tools() {
    keep("welcome", "ropeway");
    keep("tools", "ropeway tools");
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

/// A file with a mistake of every kind, one of them far out in a long line, one beside a secret.
const BROKEN: &str = "\
servers:
  - alias: files
    transport: stdoi
    command: npx
  - alias: files
    comand: npx
  - {alias: web, url: 'https://example.com/mcp', headers: {Authorization: Bearer s3cret-s3cret}, timeouts: {connect: soon}}
";

/// Servers of every fate.
const MANY: &str = "\
servers:
  - {alias: clock, command: ropeway, args: [demo-server]}
  - {alias: gone, command: /no/such/program}
  - {alias: github, url: 'https://example.com/mcp', auth: {bearer: '${GITHUB_TOKEN}'}}
  - {alias: old, command: old-server, enabled: false}
  - {alias: web, url: 'http://127.0.0.1:1/mcp'}
";

/// A file with comments.
const COMMENTED: &str = "\
servers:
  # The clock.
  - alias: time
    command: uvx
    args: [mcp-server-time]
";

fn file(place: &Path, text: &str) {
    let text = text.replace("command: ropeway", &format!("command: {}", place.join("ropeway").display()));
    std::fs::write(place.join("ropeway.yaml"), text).expect("a file");
}

#[test]
fn snapshots_of_the_configuration() {
    keep("config-path", "ropeway config path");
    keep_in("config-path-used", "ropeway config path", &|place| file(place, COMMENTED));
    keep_in("config-check", "ropeway config check", &|place| file(place, MANY));
    keep_in("config-check-connect", "ropeway config check --connect", &|place| file(place, MANY));
    keep_in("config-check-problems", "ropeway config check", &|place| file(place, BROKEN));
    keep_in("config-check-json", "ropeway config check --json", &|place| file(place, BROKEN));
    keep_in("doctor-many", "ropeway doctor", &|place| file(place, MANY));
    keep_in("doctor-problems", "ropeway doctor", &|place| file(place, BROKEN));
}

#[test]
fn snapshots_of_changes_to_the_configuration() {
    keep("add", "ropeway add time -- uvx mcp-server-time");
    keep_in("add-another", "ropeway add files --lazy -- npx -y server", &|place| file(place, COMMENTED));
    keep("add-secret", "ropeway add github --url https://example.com/mcp --bearer s3cret-s3cret");
    keep_in("add-taken", "ropeway add time -- uvx mcp-server-time", &|place| file(place, COMMENTED));
    keep_in("remove", "ropeway remove time", &|place| file(place, COMMENTED));
    keep_in("remove-unknown", "ropeway remove tmie", &|place| file(place, COMMENTED));
}

#[test]
fn snapshots_of_the_servers_of_other_clients() {
    keep("import-nothing", "ropeway import");
    keep_in("import", "ropeway import --secrets", &copy_clients);
    keep_in("import-dry-run", "ropeway import --dry-run", &copy_clients);
    keep_in("import-broken", "ropeway import --from cursor --from zed", &|place| {
        copy_clients(place);
        std::fs::write(place.join(".cursor/mcp.json"), "{\"mcpServers\": {\n  oops\n}").expect("a file");
    });
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
    let source = include_str!("snapshot.rs");
    let known = |name: &str| {
        let help = name.strip_prefix("help-").is_some_and(|command| commands().iter().any(|known| known == command));
        help || ["keep", "keep_in"].iter().any(|keep| source.contains(&format!("{keep}(\"{name}\"")))
    };
    let files = std::fs::read_dir(folder()).expect("the folder of snapshots").flatten();
    let names = files.filter_map(|file| Some(file.path().file_stem()?.to_str()?.to_owned()));
    let left: Vec<String> = names.filter(|name| !known(name)).collect();
    assert_eq!(left, Vec::<String>::new());
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/snapshots")
}

/// Compares what a command looks like with the kept file; `UPDATE_SNAPSHOTS` keeps what it looks like now.
fn keep(name: &str, typed: &str) {
    keep_in(name, typed, &|_| ());
}

/// The same of a command in a folder where something was put before.
fn keep_in(name: &str, typed: &str, prepare: &dyn Fn(&Path)) {
    let [narrow, wide] = [NARROW, WIDE].map(|columns| {
        let plain = show(typed, Terminal { columns, coloured: false }, prepare);
        let coloured = show(typed, Terminal { columns, coloured: true }, prepare);
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

/// Runs what is typed, in a place where nothing of this machine shows.
fn show(typed: &str, terminal: Terminal, prepare: &dyn Fn(&Path)) -> Screen {
    let words = shlex::split(typed).expect("words of a shell");
    let place = Place::new();
    prepare(place.path());
    // The doctor tells where the program lies, and a path of another length would be wrapped elsewhere.
    let program = place.path().join("ropeway");
    std::fs::hard_link(env!("CARGO_BIN_EXE_ropeway"), &program)
        .or_else(|_| std::fs::copy(env!("CARGO_BIN_EXE_ropeway"), &program).map(drop))
        .expect("a copy of the program");
    let ropeway = place.of(&program, &words[1..]).with(|command| {
        use std::os::unix::process::CommandExt as _;
        command.arg0("ropeway").env("PATH", "/usr/bin:/bin");
        for name in ["HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"] {
            command.env_remove(name).env_remove(name.to_lowercase());
        }
    });
    let Screen { text, code } = terminal.show(ropeway);
    let shown = place.path().display().to_string();
    Screen { text: normalise(&text.replace(&shown, "/tmp/ropeway-XXXXXX")), code }
}

/// Puts words in place of what differs from run to run.
fn normalise(text: &str) -> String {
    let text = text.replace(env!("CARGO_PKG_VERSION"), "VERSION");
    let text = replace_behind(&text, "ready after ", "TIME", |c| matches!(c, '\n' | '\r' | '"'));
    replace_behind(&text, "\"took_ms\": ", "TIME", |c| matches!(c, ',' | '\n' | '\r'))
}

/// Replaces what stands between a mark and the next end.
fn replace_behind(text: &str, mark: &str, word: &str, is_end: fn(char) -> bool) -> String {
    let mut parts = text.split(mark);
    let mut replaced = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let rest = part.find(is_end).map_or("", |end| &part[end..]);
        replaced.push_str(&format!("{mark}{word}{rest}"));
    }
    replaced
}

/// Escapes as signs that can be read.
fn readable(text: &str) -> String {
    text.replace('\u{1b}', "␛").replace('\r', "␍")
}

/// The first lines that differ.
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
fn what_differs_from_run_to_run_is_put_into_words() {
    assert_eq!(normalise("a, ready after 12 ms\nb"), "a, ready after TIME\nb");
    assert_eq!(normalise("{\"took_ms\": 1.25,\n"), "{\"took_ms\": TIME,\n");
    assert_eq!(readable("\u{1b}[1ma\u{1b}[0m"), "␛[1ma␛[0m");
    assert_eq!(difference("a\nb", "a\nc"), "kept: b\nnow:  c");
}
