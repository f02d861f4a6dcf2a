//! `ropeway doctor` with broken servers.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use ropeway_testing::{Fault, FaultTrigger, Script};
use serde_json::{Value, json};

use crate::client_files::{Home, demo};
use crate::fault_run::{Site, scripted};
use crate::temp_home::TempHome;
use crate::{Ropeway, Run};

/// Returns the check, the finding and the fix of each note and problem.
fn examine(arguments: &[&str], change: impl FnOnce(&mut std::process::Command)) -> (Option<i32>, Vec<[String; 3]>) {
    let run = Ropeway::new(&[&["doctor", "--json"], arguments].concat()).with(quiet).with(change).run();
    let report = run.json();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let findings = report["servers"][0]["findings"].as_array().expect("findings").iter();
    let bad = findings.filter(|finding| finding["level"] != "ok");
    (run.code, bad.map(|finding| ["check", "found", "fix"].map(|key| text(&finding[key]))).collect())
}

/// Removes the variables that cause findings.
fn quiet(command: &mut std::process::Command) {
    for name in ["HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"] {
        command.env_remove(name).env_remove(name.to_lowercase());
    }
}

fn executable(path: &Path, text: &str) {
    std::fs::write(path, text).expect("a file");
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).expect("permissions");
}

/// Starts a server that sends the same response to every client.
pub(crate) fn answering(answer: &'static str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let host = listener.local_addr().expect("an address").to_string();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten().take(100) {
            let mut stream = stream;
            let _ = stream.read(&mut [0; 4096]);
            let _ = stream.write_all(answer.as_bytes());
        }
    });
    host
}

#[test]
fn a_working_server_has_no_problems() {
    let run = Ropeway::new(&["doctor"]).with(quiet).run().expect(0);
    assert!(run.stdout.starts_with("demo · no problems\n  ● ok  program    `"), "{}", run.stdout);
    assert!(
        run.stdout.contains("  ● ok  handshake  demo ") && run.stdout.contains("MCP 2026-07-28 (modern), ready after")
    );
    assert!(run.stdout.ends_with("  ● ok  tools      6 tools\n"), "{}", run.stdout);
    assert_eq!(run.stderr, "");
    let site = Site::start(&Script::default());
    assert_eq!(examine(&["--url", &site.url], |_| ()), (Some(0), vec![]));
}

#[test]
fn the_doctor_declares_the_capabilities_of_other_commands() {
    let temp_home = TempHome::new();
    // This server has a second tool for clients that declare elicitation.
    executable(
        &temp_home.path().join("server"),
        r#"#!/bin/sh
tools='{"name":"one","inputSchema":{"type":"object"}}'
while read -r line; do
  id=$(printf '%s' "$line" | sed -n 's/.*"id":\([0-9]*\).*/\1/p')
  case "$line" in *'"elicitation"'*) tools='{"name":"one","inputSchema":{"type":"object"}},{"name":"two","inputSchema":{"type":"object"}}';; esac
  case "$line" in
    *'"initialize"'*) result='{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"s","version":"1"}}';;
    *) result="{\"tools\":[$tools]}";;
  esac
  if [ -n "$id" ]; then printf '{"jsonrpc":"2.0","id":%s,"result":%s}\n' "$id" "$result"; fi
done
"#,
    );
    temp_home.write("ropeway.yaml", "servers:\n- {alias: s, command: ./server, era: legacy}\n");
    assert_eq!(temp_home.run("tools --names").expect(0).stdout, "s.one\ns.two\n");
    let run = temp_home.run("doctor").expect(0);
    assert!(run.stdout.contains("2 tools"), "{}", run.stdout);
    let run = temp_home.run("doctor --era legacy --stdio ./server").expect(0);
    assert!(run.stdout.contains("2 tools"), "{}", run.stdout);
}

#[test]
fn filters_without_a_match_are_noted() {
    let notes = |tools: &str| -> Vec<String> {
        let home = Home::with_config(&format!("servers:\n{}    tools: {tools}\n", demo("a")));
        let report = home.run(&["doctor", "--json"]).expect(0).json();
        let findings = report["servers"][0]["findings"].as_array().expect("findings").clone();
        let notes = findings.iter().filter(|finding| finding["level"] == "note");
        notes.map(|finding| finding["found"].as_str().unwrap_or_default().to_owned()).collect()
    };
    assert_eq!(
        notes("{allow: [zzz*]}"),
        ["all tools are filtered out", "patterns in `tools.allow` match no tool: `zzz*`"]
    );
    assert_eq!(
        notes("{deny: [time, 'x*', y], rename: {calculate: same, chart: same, no: b}, describe: {no: x}}"),
        [
            "patterns in `tools.deny` match no tool: `x*`, `y`",
            "patterns in `tools` match no tool: `no`",
            "several tools have the same name: `same`",
        ]
    );
    assert_eq!(notes("[calculate]"), [""; 0]);
}

#[test]
fn a_missing_command_suggests_what_to_install() {
    let folder = tempfile::tempdir().expect("a folder");
    let (code, findings) = examine(&["--stdio", "uvx mcp-server-time"], |command| {
        command.env("PATH", folder.path()).env("HOME", folder.path());
    });
    // It may be installed in a common directory of this machine.
    assert_eq!((code, findings.len()), (Some(3), 1), "{findings:?}");
    assert_eq!(findings[0][..2], ["program", "command `uvx` not found on PATH"].map(str::to_owned));
    let (code, findings) = examine(&["--stdio", "/no/such/program"], |_| ());
    let expected = ["program", "file `/no/such/program` does not exist", "correct the path of the command"];
    assert_eq!((code, findings), (Some(3), vec![expected.map(str::to_owned)]));
}

#[test]
fn an_old_node_is_found_before_the_server_starts() {
    let folder = tempfile::tempdir().expect("a folder");
    executable(&folder.path().join("node"), "#!/bin/sh\necho v12.22.9\n");
    let path = format!("{}:/usr/bin:/bin", folder.path().display());
    let (code, findings) = examine(&["--stdio", "node -e 1"], |command| {
        command.env("PATH", path);
    });
    let found =
        format!("`{}/node` is Node.js 12.22.9, but MCP servers require 18.0.0 or newer", folder.path().display());
    let fix = "install Node.js, for example with `nvm install --lts`, and put it first on PATH".to_owned();
    assert_eq!((code, findings), (Some(3), vec![["node".to_owned(), found, fix]]));
}

#[test]
fn a_missing_interpreter_is_found() {
    let folder = tempfile::tempdir().expect("a folder");
    let script = folder.path().join("server");
    executable(&script, "#!/no/such/ruby\n");
    let shown = script.display().to_string();
    let (code, findings) = examine(&["--stdio", &shown], |_| ());
    let found = format!("interpreter `/no/such/ruby` of `{shown}` not found");
    let fix = "install Ruby: `apt install ruby`, or `brew install ruby`".to_owned();
    assert_eq!((code, findings), (Some(3), vec![["program".to_owned(), found, fix]]));
}

#[test]
fn a_server_that_exits_shows_its_stderr_with_advice() {
    let server = "sh -c 'echo starting >&2; echo \"Error: API_KEY sesame is wrong\" >&2; exit 7'";
    let arguments = ["doctor", "--stdio", server, "--env", "API_KEY=sesame"];
    let run = Ropeway::new(&arguments).with(quiet).run().expect(3);
    let expected = "  \
  ✗ problem  handshake  server exited (exit status: 7)
                        │ starting
                        │ Error: API_KEY *** is wrong
                        → it needs a credential; set it with --env NAME=VALUE, since servers do not inherit the environment
";
    assert!(run.stdout.ends_with(expected), "{}", run.stdout);
}

#[test]
fn a_server_that_exits_without_output_has_advice() {
    let (code, findings) = examine(&["--stdio", "true"], |_| ());
    let expected = ["handshake", "server exited (exit status: 0)", "run its command in a terminal to see why it exits"];
    assert_eq!((code, findings), (Some(3), vec![expected.map(str::to_owned)]));
}

#[test]
fn a_silent_server_times_out() {
    let (code, findings) = examine(&["--stdio", "sleep 60", "--timeout", "1s"], |_| ());
    assert_eq!((code, findings.len()), (Some(5), 1));
    assert!(findings[0][1].starts_with("server was not ready within "), "{findings:?}");
}

#[test]
fn a_closed_port_is_found() {
    let free = TcpListener::bind("127.0.0.1:0").expect("a port");
    let host = free.local_addr().expect("an address").to_string();
    drop(free);
    let (code, findings) = examine(&["--url", &format!("http://{host}/mcp")], |_| ());
    let found = format!("connection refused by `{host}`");
    assert_eq!(
        (code, findings),
        (Some(3), vec![["port".to_owned(), found, "start the server, or correct the port".to_owned()]])
    );
}

#[test]
fn plain_http_behind_an_https_url_is_detected() {
    let site = Site::start(&Script::default());
    let secure = site.url.replace("http://", "https://");
    let (code, findings) = examine(&["--url", &secure], |_| ());
    let found = "the server uses plain HTTP, but the URL starts with https://".to_owned();
    assert_eq!(
        (code, findings),
        (Some(3), vec![["handshake".to_owned(), found.clone(), format!("use `{}`", site.url)]])
    );
    let host = answering("HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
    let (code, findings) = examine(&["--url", &format!("https://{host}/mcp?key=x")], |_| ());
    let fix = format!("use `http://{host}/mcp`");
    assert_eq!((code, findings), (Some(3), vec![["handshake".to_owned(), found, fix]]));
}

#[test]
fn tls_behind_an_http_url_is_detected() {
    // A TLS alert: handshake failure.
    let host = answering("\u{15}\u{3}\u{1}\0\u{2}\u{2}\u{28}");
    let (code, findings) = examine(&["--url", &format!("http://{host}/mcp")], |_| ());
    let found = "the server expects TLS, but the URL starts with http://".to_owned();
    assert_eq!((code, findings), (Some(3), vec![["handshake".to_owned(), found, format!("use `https://{host}/mcp`")]]));
}

/// Starts a server that only performs TLS handshakes.
fn certified(parameters: rcgen::CertificateParams) -> String {
    let key = rcgen::KeyPair::generate().expect("a key");
    let certificate = parameters.self_signed(&key).expect("a certificate");
    let key = rustls::pki_types::PrivatePkcs8KeyDer::from(key.serialize_der());
    let provider = std::sync::Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_no_client_auth()
        .with_single_cert(vec![certificate.der().clone()], key.into())
        .expect("a pair");
    let config = std::sync::Arc::new(config);
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("an address").port();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten().take(100) {
            let mut connection = rustls::ServerConnection::new(config.clone()).expect("a connection");
            // A client that rejects the certificate disconnects.
            let _ = rustls::Stream::new(&mut connection, &mut stream).read(&mut [0; 4096]);
        }
    });
    format!("https://localhost:{port}/mcp")
}

#[test]
fn every_certificate_error_has_its_own_finding() {
    let parameters = || rcgen::CertificateParams::new(["localhost".to_owned()]).expect("names");
    let mut expired = parameters();
    expired.not_after = rcgen::date_time_ymd(2020, 1, 1);
    let mut early = parameters();
    early.not_before = rcgen::date_time_ymd(2500, 1, 1);
    for (parameters, words) in [
        (parameters(), "certificate of `localhost` is not signed by a trusted CA"),
        (expired, "certificate of `localhost` has expired"),
        (early, "certificate of `localhost` is not valid yet"),
    ] {
        let (code, findings) = examine(&["--url", &certified(parameters)], |_| ());
        assert_eq!((code, findings.len()), (Some(3), 1), "{findings:?}");
        assert_eq!(findings[0][1], words);
    }
}

#[test]
fn a_server_that_requires_authentication_suggests_a_token() {
    let who = Fault::header_status(401, "WWW-Authenticate", "Bearer realm=\"here\"");
    let site = Site::start(&Script::default().fault(FaultTrigger::any(), who));
    let (code, findings) = examine(&["--url", &site.url], |_| ());
    assert_eq!(code, Some(4));
    assert_eq!(findings[0][1], "server requires authentication; challenge: Bearer realm=\"here\"");
    assert!(findings[0][2].contains("--bearer TOKEN"), "{findings:?}");
    let (code, findings) = examine(&["--url", &site.url, "--bearer", "sesame"], |_| ());
    assert_eq!(code, Some(4));
    assert!(findings[0][1].starts_with("server rejected the token"), "{findings:?}");
    let forbidden = Site::start(&Script::default().fault(FaultTrigger::any(), Fault::status(403, "no")));
    assert_eq!(examine(&["--url", &forbidden.url], |_| ()).0, Some(4));
}

#[test]
fn a_proxy_that_requires_authentication_has_its_own_fix() {
    let proxy =
        answering("HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
    for (url, variable) in [("http://server.test/mcp", "HTTP_PROXY"), ("https://server.test/mcp", "HTTPS_PROXY")] {
        let fix = format!("add the user and password of the proxy: `{variable}=http://USER:PASSWORD@HOST:PORT`\n");
        for command in ["tools", "health", "doctor"] {
            let with = |command: &mut std::process::Command| {
                command.env(variable, format!("http://{proxy}"));
            };
            let run = Ropeway::new(&[command, url]).with(quiet).with(with).run().expect(4);
            let text = format!("{}{}", run.stdout, run.stderr);
            assert_eq!(text.matches("the proxy requires authentication (HTTP 407)\n").count(), 1, "{command}: {text}");
            assert!(text.contains(&fix) && !text.contains("--bearer"), "{command}: {text}");
        }
    }
}

#[test]
fn a_wrong_path_suggests_the_right_one() {
    let site = Site::start(&Script::default());
    assert!(site.url.ends_with("/mcp"), "{}", site.url);
    let wrong = site.url.replace("/mcp", "/api");
    let (code, findings) = examine(&["--url", &wrong], |_| ());
    let found = "server answered HTTP 404: `/api` is not an MCP endpoint".to_owned();
    let fix = format!("use `{}`, which answers", site.url);
    assert_eq!((code, findings), (Some(3), vec![["handshake".to_owned(), found, fix]]));
}

#[test]
fn a_web_page_is_not_a_server() {
    let page =
        "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 15\r\nConnection: close\r\n\r\n<h1>Welcome</h1";
    let (code, findings) = examine(&["--url", &format!("http://{}/mcp", answering(page))], |_| ());
    assert_eq!((code, findings.len()), (Some(3), 1), "{findings:?}");
    assert!(findings[0][1].contains("web page"), "{findings:?}");
}

#[test]
fn proxies_are_noted() {
    let (code, findings) = examine(&[], |command| {
        command.env("HTTPS_PROXY", "http://user:sesame@127.0.0.1:1");
    });
    let found = "`HTTPS_PROXY` is set, but the server does not inherit it".to_owned();
    let fix = "if it needs the network, use --env HTTPS_PROXY=… or --inherit-env".to_owned();
    assert_eq!((code, findings), (Some(0), vec![["proxy".to_owned(), found, fix]]));
    let (code, findings) = examine(&["--url", "https://example.com/mcp"], |command| {
        command.env("HTTPS_PROXY", "http://user:sesame@127.0.0.1:1");
    });
    let found: Vec<&str> = findings.iter().map(|finding| finding[1].as_str()).collect();
    let expected =
        ["requests use the proxy `127.0.0.1:1` from `HTTPS_PROXY`", "connection refused by the proxy `127.0.0.1:1`"];
    assert_eq!((code, found), (Some(3), expected.to_vec()));
}

#[test]
fn problematic_tools_are_noted() {
    let tool = |name: &str, schema: Value| json!({"name": name, "description": "x", "inputSchema": schema});
    let long = "n".repeat(65);
    let script = Script::default().tool(tool(&long, json!({"type": "object"})), json!({"content": []})).tool(
        tool("odd", json!({"type": "object", "properties": {"a": {"type": "nonsense"}}})),
        json!({"content": []}),
    );
    let (code, findings) = examine(&["--stdio", &scripted(&script)], |_| ());
    assert_eq!(code, Some(0));
    let names: Vec<&str> = findings.iter().map(|finding| finding[0].as_str()).collect();
    assert!(names.contains(&"names") && names.contains(&"schemas"), "{findings:?}");
}

#[test]
fn non_protocol_output_is_noted() {
    let server = "sh -c 'echo Listening; exec \"$0\" demo-server'".replace("$0", env!("CARGO_BIN_EXE_ropeway"));
    let run = Run::of(&["doctor", "--stdio", &server]).expect(0);
    assert!(run.stdout.contains("non-protocol output on standard output: 1 line"), "{}", run.stdout);
}

#[test]
fn all_servers_of_a_file_are_examined_concurrently() {
    let slow = |alias: &str| format!("  - {{alias: {alias}, command: sleep, args: ['60']}}\n");
    let home = Home::with_config(&format!("servers:\n{}{}{}{}", slow("a"), slow("b"), slow("c"), demo("demo")));
    let started = std::time::Instant::now();
    let run = home.run(&["doctor", "--json", "--timeout", "5s"]).expect(5);
    // Sequentially, three silent servers would take three times as long.
    assert!(started.elapsed() < std::time::Duration::from_secs(15), "{:?}", started.elapsed());
    let report = run.json();
    let healthy: Vec<(&Value, &Value)> =
        report["servers"].as_array().expect("servers").iter().map(|one| (&one["server"], &one["healthy"])).collect();
    let expected =
        [("a", false), ("b", false), ("c", false), ("demo", true)].map(|(name, well)| (json!(name), json!(well)));
    assert_eq!(healthy, expected.iter().map(|(name, well)| (name, well)).collect::<Vec<_>>());
}

#[test]
fn some_servers_of_a_file_are_examined_by_name() {
    let home =
        Home::with_config(&format!("servers:\n{}  - {{alias: gone, command: /no/such/program}}\n", demo("demo")));
    let run = home.run(&["doctor", "demo"]).expect(0);
    assert!(run.stdout.starts_with("demo · no problems\n") && !run.stdout.contains("gone"), "{}", run.stdout);
    let run = home.run(&["doctor", "dmeo"]).expect(2);
    assert_eq!(run.stderr, "error: unknown server `dmeo`\n  did you mean `demo`?\n");
    home.run(&["doctor"]).expect(3);
}

#[test]
fn fixes_for_a_server_in_a_file_name_its_keys() {
    let who = Fault::status(401, "who?");
    let site = Site::start(&Script::default().fault(FaultTrigger::any(), who));
    let dies = "echo API_KEY is missing >&2; exit 7";
    let servers = json!({"servers": [
        {"alias": "web", "url": site.url},
        {"alias": "dies", "command": "sh", "args": ["-c", dies]},
        {"alias": "poor", "command": "x", "env": {"KEY": "${NO_SUCH_KEY}"}},
        {"alias": "off", "command": "x", "enabled": false},
    ]});
    let home = Home::with_config(&servers.to_string());
    home.write("work/.env", "OTHER=1\n");
    let report = home.run(&["doctor", "--json"]).expect(3).json();
    let worst = |at: usize| {
        let findings = report["servers"][at]["findings"].as_array().expect("findings");
        let worst = findings.iter().find(|finding| finding["level"] != "ok").expect("a finding");
        ["check", "fix"].map(|key| worst[key].as_str().unwrap_or_default().to_owned())
    };
    let secrets = home.path("work/.env").display().to_string();
    let expected = [
        [
            "handshake",
            "run `ropeway login web` if it uses OAuth; otherwise set a token in `auth.bearer`, such as `bearer: ${TOKEN}`, or \
             a header in `headers`",
        ],
        [
            "handshake",
            "it needs a credential; add `NAME: ${NAME}` to its `env`, since servers do not inherit the environment",
        ],
        ["secrets", &format!("`export NO_SUCH_KEY=…`, or a line `NO_SUCH_KEY=…` in `{secrets}`")],
        ["settings", "set `enabled: true`"],
    ];
    assert_eq!([0, 1, 2, 3].map(worst), expected.map(|pair| pair.map(str::to_owned)));
}

#[test]
fn problems_of_the_file_are_reported_before_those_of_servers() {
    let home = Home::with_config("servers:\n  - alias: a\n    comand: x\n");
    let run = home.run(&["doctor"]).expect(2);
    assert!(run.stdout.contains("  3 │     comand: x\n    │     ^\n"), "{}", run.stdout);
    let run = home.run(&["doctor", "--json"]).expect(2);
    assert!(run.stderr.contains("(did you mean `command`?)"), "{}", run.stderr);
    assert_eq!(run.json()["error"]["kind"], "config");
}
