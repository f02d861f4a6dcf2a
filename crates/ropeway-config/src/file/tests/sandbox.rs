//! Sandboxes of servers.

use std::path::{Path, PathBuf};

use super::{known, parse, parse_with, problems};
use crate::{Config, Sandbox, SandboxMode, SandboxPath, Secrets, Transport};

fn sandboxes(config: &Config) -> Vec<Option<Sandbox>> {
    config.servers.iter().map(|entry| entry.sandbox().cloned()).collect()
}

/// Returns a path relative to the file.
fn path(text: &str, path: impl AsRef<Path>) -> SandboxPath {
    SandboxPath { path: std::path::absolute(Path::new("nowhere").join(path)).unwrap(), text: text.to_owned() }
}

#[test]
fn a_sandbox_is_resolved_relative_to_the_file() {
    let text = "servers:
- {alias: a, command: a, sandbox: true}
- {alias: b, command: b, sandbox: false}
- alias: c
  command: c
  sandbox: {mode: best-effort, read: [docs, '${DATA}/x', /srv], write: [.], network: true, unix_sockets: true, memory: 512M, processes: 64, files: 256}
";
    let config = parse_with(text, &Secrets::from_map([("DATA", "/data")])).unwrap();
    let full = Sandbox {
        mode: SandboxMode::BestEffort,
        read: vec![path("docs", "docs"), path("${DATA}/x", "/data/x"), path("/srv", "/srv")],
        write: vec![path(".", ".")],
        network: true,
        unix_sockets: true,
        memory: Some(512 << 20),
        processes: Some(64),
        files: Some(256),
        launcher: None,
    };
    assert_eq!(sandboxes(&config), [Some(Sandbox::new()), None, Some(full)]);
}

#[test]
fn a_manifest_and_the_defaults_may_have_a_sandbox() {
    let config = parse("config: {servers: [{name: a, command: a, sandbox: {network: true}}]}").unwrap();
    assert_eq!(sandboxes(&config), [Some(Sandbox::new().with_network(true))]);
    let config = parse(
        "defaults: {sandbox: {files: 64}}\nservers: [{alias: a, command: a}, {alias: b, command: b, sandbox: {network: true}}, \
         {alias: c, command: c, sandbox: false}]",
    );
    let limited = Sandbox::new().with_files(64);
    let expected = [Some(limited.clone()), Some(limited.with_network(true)), None];
    assert_eq!(sandboxes(&config.unwrap()), expected);
}

#[test]
fn a_sandbox_without_a_command_is_ignored_with_a_warning() {
    let config = parse("servers: [{alias: a, url: 'http://a/', sandbox: true}]").unwrap();
    assert_eq!(config.warnings, ["ignored `sandbox` of server `a` (1:40): it applies to a `command`"]);
}

#[test]
fn invalid_sandboxes_are_problems_with_their_line() {
    let text = "servers:
- alias: a
  command: a
  sandbox: {mode: strict, files: 0, reads: [x]}
- alias: b
  command: b
  sandbox: {read: ['', '${EMPTY:-}'], memory: lots}
- alias: c
  command: c
  sandbox: {files: 0, write: ['']}
- {alias: d, command: d, sandbox: [x]}
";
    let found = problems(text).join("\n");
    for words in [
        "4:19",
        "`strict`",
        "unknown key `reads`",
        "7:",
        "`lots`",
        "a number of bytes",
        "10:",
        "path is empty",
        "a positive number",
        "11:",
        "`true`, `false` or a map",
    ] {
        assert!(found.contains(words), "{words}\n{found}");
    }
    let empty = problems("servers: [{alias: a, command: a, sandbox: {read: ['${EMPTY:-}']}}]").join("\n");
    assert!(empty.contains("servers[0].sandbox.read[0]") && empty.contains("path is empty"), "{empty}");
}

#[test]
fn a_sandbox_without_a_value_is_a_problem() {
    for text in [
        "servers:\n- alias: a\n  command: a\n  sandbox:\n",
        "servers: [{alias: a, command: a, sandbox: null}]",
        "defaults: {sandbox: true}\nservers: [{alias: a, command: a, sandbox: ~}]",
        "defaults: {sandbox: null}\nservers: [{alias: a, command: a}]",
    ] {
        let found = problems(text).join("\n");
        assert!(found.contains("`true`, `false` or a map"), "{text}\n{found}");
    }
}

#[test]
fn a_missing_variable_of_a_path_skips_the_server() {
    let config = parse("servers: [{alias: a, command: a, sandbox: {read: ['${DATA}']}}]").unwrap();
    assert_eq!(config.warnings, ["server `a` is skipped: secret `DATA` is not set"]);
}

#[test]
fn sandboxed_paths_do_not_depend_on_the_working_directory() {
    let config = parse("servers: [{alias: a, command: a, cwd: sub, sandbox: {read: [docs]}}]").unwrap();
    let Transport::Stdio(server) = &known(&config.servers[0]).transport else { panic!("a command") };
    assert_eq!(server.cwd, Some(PathBuf::from("nowhere/sub")));
    let read = &server.sandbox.as_ref().unwrap().read[0].path;
    assert!(read.is_absolute() && read.ends_with("nowhere/docs"), "{read:?}");
}
