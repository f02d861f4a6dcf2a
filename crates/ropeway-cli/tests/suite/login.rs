//! Signing in to a server with OAuth: `ropeway login`, `logout` and `auth`, and sign-ins that a call offers.

#[path = "../../../ropeway/tests/suite/oauth/authorization_server.rs"]
#[allow(dead_code, reason = "other tests use the rest")]
mod authorization_server;
#[path = "../../../ropeway/tests/suite/oauth/endpoints.rs"]
mod endpoints;
#[path = "../../../ropeway/tests/suite/oauth/proofs.rs"]
#[allow(dead_code, reason = "other tests use the rest")]
mod proofs;
#[cfg(target_os = "linux")]
mod real;
#[path = "../../../ropeway/tests/suite/oauth/wire.rs"]
#[allow(dead_code, reason = "other tests use the rest")]
mod wire;

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use ropeway_testing::{Script, ScriptedReply};
use serde_json::{Value, json};
use tokio::sync::oneshot;
use url::Url;

use self::authorization_server::AuthorizationServer;
use self::wire::Answer;
use crate::chat::Model;
use crate::chat_terminal::{CTRL_D, PROMPT, Window};
use crate::fault_run::Site;
use crate::process_marker::signal;
use crate::serve::Serving;
use crate::temp_home::TempHome;
use crate::{Ropeway, Run, Running};

/// Beginnings of the tokens and secrets that the server issues.
const SECRETS: [&str; 5] = ["access-0", "refresh-0", "code-0", "device-0", "secret-0"];

/// How long a test waits for a process.
const PATIENCE: Duration = Duration::from_secs(60);

/// A protected MCP server and its authorization server, on a thread.
struct Protected {
    server: Arc<AuthorizationServer>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Protected {
    fn start() -> Self {
        let (send, started) = mpsc::channel();
        let (stop, stopped) = oneshot::channel::<()>();
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
            runtime.block_on(async {
                let server = Arc::new(AuthorizationServer::start().await);
                send.send(server).expect("a test");
                let _ = stopped.await;
            });
        });
        Self { server: started.recv().expect("a server"), stop: Some(stop), thread: Some(thread) }
    }

    /// Creates a place whose configuration has the server as `web`.
    fn temp_home(&self) -> TempHome {
        TempHome::with(&[json!({"alias": "web", "url": self.server.mcp()})])
    }
}

impl Drop for Protected {
    fn drop(&mut self) {
        drop(self.stop.take());
        drop(self.thread.take().map(JoinHandle::join));
    }
}

/// Sends a GET request as a browser does, and returns the whole response.
fn get(url: &str) -> String {
    let url = Url::parse(url).expect("a URL");
    let host = format!("{}:{}", url.host_str().expect("a host"), url.port().expect("a port"));
    let mut stream = TcpStream::connect(&host).expect("a connection");
    let target = &url[url::Position::BeforePath..url::Position::AfterQuery];
    write!(stream, "GET {target} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n").expect("a request");
    let mut response = String::new();
    stream.read_to_string(&mut response).expect("a response");
    response
}

/// Signs in on the page of the authorization server, and returns the callback.
fn approve(url: &str) -> String {
    let response = get(url);
    let location = response.lines().find_map(|line| line.strip_prefix("location: "));
    location.unwrap_or_else(|| panic!("no redirect: {response}")).trim().to_owned()
}

/// Returns the URL with another value of a query parameter.
fn with_query(url: &str, name: &str, value: &str) -> String {
    let mut url = Url::parse(url).expect("a URL");
    let pairs: Vec<(String, String)> = url.query_pairs().into_owned().filter(|(own, _)| own != name).collect();
    url.query_pairs_mut().clear().extend_pairs(pairs).append_pair(name, value);
    url.to_string()
}

/// Starts a command and waits for the line of standard error with a URL of the server.
fn start_and_find_url(ropeway: Ropeway, server: &AuthorizationServer) -> (Running, String, JoinHandle<String>) {
    let mut running = ropeway.start();
    let mut lines = BufReader::new(running.child.stderr.take().expect("standard error"));
    let mut seen = String::new();
    let url = loop {
        let mut line = String::new();
        assert!(lines.read_line(&mut line).expect("a line") > 0, "no URL: {seen}");
        seen.push_str(&line);
        if line.trim().starts_with(&server.url) {
            break line.trim().to_owned();
        }
    };
    let rest = std::thread::spawn(move || {
        let _ = lines.read_to_string(&mut seen);
        seen
    });
    (running, url, rest)
}

/// Ends a command of [`start_and_find_url`].
fn end(running: Running, rest: JoinHandle<String>) -> Run {
    let run = running.end();
    Run { stderr: rest.join().expect("standard error"), ..run }
}

/// Signs in to `web`.
fn log_in(temp_home: &TempHome, server: &AuthorizationServer, more: &[&str]) -> Run {
    let words = [&["login", "web", "--no-browser"], more].concat();
    sign_in_with(temp_home.ropeway(&words), server)
}

/// Signs in with a command that prints the URL.
fn sign_in_with(ropeway: Ropeway, server: &AuthorizationServer) -> Run {
    let (running, url, rest) = start_and_find_url(ropeway, server);
    let page = get(&approve(&url));
    assert!(page.contains("Sign-in received"), "{page}");
    end(running, rest).expect(0)
}

/// Returns the URL that a window shows next.
fn shown_url(window: &mut Window) -> String {
    window.see("\r\n  http");
    format!("http{}", window.see("\r\n").trim())
}

/// Asserts that no token is shown.
fn assert_no_secrets(run: &Run) {
    let output = format!("{}{}", run.stdout, run.stderr);
    for secret in SECRETS {
        assert!(!output.contains(secret), "{secret}: {output}");
    }
}

fn mode(path: &Path) -> u32 {
    std::fs::metadata(path).expect("a file").permissions().mode() & 0o777
}

fn tokens_folder(temp_home: &TempHome) -> PathBuf {
    temp_home.path().join(".local/state/ropeway/tokens")
}

#[test]
fn a_sign_in_with_a_browser_lets_calls_work() {
    let protected = Protected::start();
    let temp_home = protected.temp_home();
    let refused = temp_home.run("call web.scopes").expect(4);
    assert!(refused.stderr.contains("server `web` needs authentication\n"), "{}", refused.stderr);
    assert!(refused.stderr.contains("run `ropeway login web`"), "{}", refused.stderr);

    let browser = temp_home.write("browser", "#!/bin/sh\nprintf '%s' \"$1\" > url.part\nmv url.part url\n");
    std::fs::set_permissions(&browser, std::fs::Permissions::from_mode(0o755)).expect("permissions");
    let running = temp_home.ropeway(&["login", "web", "--scope", "files:read"]).with(|command| {
        command.env("BROWSER", &browser);
    });
    let running = running.start();
    let (file, began) = (temp_home.path().join("url"), Instant::now());
    while !file.exists() {
        assert!(began.elapsed() < PATIENCE, "no browser was opened");
        std::thread::sleep(Duration::from_millis(10));
    }
    let callback = approve(&std::fs::read_to_string(&file).expect("a URL"));
    assert!(get(&callback).starts_with("HTTP/1.1 200 OK\r\n"));
    let run = running.end().expect(0);
    assert_eq!(run.stdout, "signed in to `web` · scopes: files:read · stored: 0600 file\n");
    assert_no_secrets(&run);

    let run = temp_home.run("call web.scopes").expect(0);
    assert_eq!(run.stdout, "files:read\n");
    let verbose = temp_home.run("call web.scopes -vv").expect(0);
    assert_no_secrets(&verbose);
    let folder = tokens_folder(&temp_home);
    assert_eq!(mode(&folder), 0o700);
    for entry in std::fs::read_dir(&folder).expect("a folder") {
        assert_eq!(mode(&entry.expect("an entry").path()), 0o600);
    }
}

#[test]
fn a_url_needs_no_configuration() {
    let protected = Protected::start();
    let temp_home = TempHome::new();
    let url = protected.server.mcp();
    let refused = temp_home.run(&format!("call {url} scopes")).expect(4);
    assert!(refused.stderr.contains(&format!("run `ropeway login {url}`")), "{}", refused.stderr);
    let (running, page, rest) =
        start_and_find_url(temp_home.ropeway(&["login", &url, "--no-browser", "--json"]), &protected.server);
    get(&approve(&page));
    let run = end(running, rest).expect(0);
    let document = run.json();
    assert_eq!(document["server"], url);
    assert_eq!((&document["issuer"], &document["stored"]), (&json!(protected.server.url), &json!("0600 file")));
    assert_no_secrets(&run);
    temp_home.run(&format!("call {url} scopes")).expect(0);
}

#[test]
fn other_requests_to_the_callback_do_not_disturb_a_sign_in() {
    let protected = Protected::start();
    let temp_home = protected.temp_home();
    let (running, url, rest) =
        start_and_find_url(temp_home.ropeway(&["login", "web", "--no-browser"]), &protected.server);
    let callback = approve(&url);
    let origin = Url::parse(&callback).expect("a URL").origin().ascii_serialization();
    assert!(get(&format!("{origin}/favicon.ico")).starts_with("HTTP/1.1 404"));
    let page = get(&with_query(&callback, "state", "of-another-page"));
    assert!(page.starts_with("HTTP/1.1 400") && page.contains("another sign-in"), "{page}");
    assert!(!page.contains("of-another-page"), "{page}");
    // It never sends a request.
    let idle = TcpStream::connect(origin.trim_start_matches("http://")).expect("a connection");
    let page = get(&callback);
    assert!(page.contains("Content-Security-Policy: default-src 'none'"), "{page}");
    drop(idle);
    let run = end(running, rest).expect(0);
    assert_no_secrets(&run);
    assert_eq!(protected.server.token_requests("authorization_code").len(), 1);
}

#[test]
fn a_second_callback_is_answered_and_ignored() {
    let protected = Protected::start();
    let temp_home = protected.temp_home();
    let (running, url, rest) =
        start_and_find_url(temp_home.ropeway(&["login", "web", "--no-browser"]), &protected.server);
    let callback = approve(&url);
    // The server answers no request before the second callback.
    let paused = protected.server.state();
    assert!(get(&callback).contains("Sign-in received"));
    let again = get(&with_query(&callback, "code", "code-of-another-page"));
    assert!(again.contains("Sign-in already received"), "{again}");
    drop(paused);
    end(running, rest).expect(0);
    let codes: Vec<String> =
        protected.server.token_requests("authorization_code").iter().map(|form| form["code"].clone()).collect();
    let url = Url::parse(&callback).expect("a URL");
    let code = url.query_pairs().find(|(name, _)| name == "code").expect("a code").1.into_owned();
    assert_eq!(codes, [code]);
}

#[test]
fn a_refused_sign_in_ends_with_4() {
    let protected = Protected::start();
    protected.server.change(|behaviour| behaviour.denies = true);
    let temp_home = protected.temp_home();
    let (running, url, rest) =
        start_and_find_url(temp_home.ropeway(&["login", "web", "--no-browser"]), &protected.server);
    assert!(get(&approve(&url)).contains("Sign-in refused"));
    let run = end(running, rest).expect(4);
    assert!(run.stderr.contains("could not sign in to `web`"), "{}", run.stderr);
}

#[test]
fn a_sign_in_that_nothing_finishes_times_out() {
    let protected = Protected::start();
    let temp_home = protected.temp_home();
    let run = temp_home.run("login web --no-browser --timeout 1s").expect(5);
    assert!(run.stderr.contains("was not finished within 1 s"), "{}", run.stderr);
    assert!(run.stderr.contains("`ropeway login web`"), "{}", run.stderr);
    protected.server.answer("/token", Answer::Silent);
    let (running, url, rest) =
        start_and_find_url(temp_home.ropeway(&["login", "web", "--no-browser", "--timeout", "5s"]), &protected.server);
    get(&approve(&url));
    end(running, rest).expect(5);
}

#[test]
fn a_token_endpoint_that_answers_html_is_named() {
    let protected = Protected::start();
    protected.server.answer("/token", Answer::html(200));
    let temp_home = protected.temp_home();
    let (running, url, rest) =
        start_and_find_url(temp_home.ropeway(&["login", "web", "--no-browser"]), &protected.server);
    get(&approve(&url));
    let run = end(running, rest).expect(3);
    assert!(run.stderr.contains("/token"), "{}", run.stderr);
}

#[test]
fn a_callback_is_pasted_at_a_terminal() {
    let protected = Protected::start();
    let temp_home = protected.temp_home();
    let mut window = Window::sized(temp_home.ropeway(&["login", "web", "--paste"]), 2000, |command| {
        command.env("NO_COLOR", "1");
    });
    window.see("in a browser on any machine:");
    let shown = window.see("paste the URL here: ");
    let url = shown.lines().map(str::trim).find(|line| line.starts_with(&protected.server.url)).expect("a URL");
    let callback = approve(url);
    window.press(&format!("{}\r", with_query(&callback, "state", "wrong")));
    window.see("this is not the URL of this sign-in");
    window.see("paste the URL here: ");
    // The query alone is enough.
    let query = callback.split_once('?').expect("a query").1;
    window.press(&format!("{query}\r"));
    window.see("signed in to `web`");
    window.end().expect(0);
    assert_eq!(temp_home.run("call web.scopes").expect(0).stdout, "");
}

#[test]
fn a_callback_is_pasted_through_a_pipe() {
    let protected = Protected::start();
    let temp_home = protected.temp_home();
    let ropeway = temp_home.ropeway(&["login", "web", "--paste"]).with(|command| {
        command.stdin(Stdio::piped());
    });
    let (mut running, url, rest) = start_and_find_url(ropeway, &protected.server);
    let mut input = running.child.stdin.take().expect("standard input");
    writeln!(input, "{}", approve(&url)).expect("a reader");
    end(running, rest).expect(0);
}

#[test]
fn a_device_code_signs_in_without_a_browser() {
    let protected = Protected::start();
    let temp_home = protected.temp_home();
    let mut window = Window::open(temp_home.ropeway(&["login", "web"]));
    // Without a browser, a server with a device flow uses it.
    window.see("on any device: visit");
    window.see(&format!("{}/activate", protected.server.url));
    window.see("enter the code WDJB-MJHT");
    window.see("signed in to `web`");
    window.end().expect(0);
    temp_home.run("call web.scopes").expect(0);
}

#[test]
fn sign_ins_are_listed_moved_and_removed() {
    let protected = Protected::start();
    let temp_home = protected.temp_home();
    assert_eq!(temp_home.run("auth status").expect(0).stdout, "no sign-ins; sign in with `ropeway login SERVER`\n");
    temp_home.run("auth export tokens.txt").expect(2);
    log_in(&temp_home, &protected.server, &["--scope", "a", "--scope", "b"]);
    log_in(&temp_home, &protected.server, &["--account", "work"]);
    let status = temp_home.run("auth status").expect(0);
    for words in ["● signed in", "web", "work", &protected.server.url, "a b", "0600 file"] {
        assert!(status.stdout.contains(words), "{words}\n{}", status.stdout);
    }
    assert_no_secrets(&status);
    let status = temp_home.run("auth status --json").expect(0);
    assert_no_secrets(&status);
    let entries = status.json()["sign_ins"].as_array().cloned().expect("a list");
    assert_eq!(entries.len(), 2);
    assert_eq!(entries[0]["name"], "web");
    assert_eq!((&entries[0]["account"], &entries[1]["account"]), (&Value::Null, &json!("work")));
    assert_eq!(entries[0]["state"], "valid");

    let passphrase = temp_home.write("passphrase", "correct horse\nignored\n");
    let passphrase = passphrase.display();
    let run = temp_home.run(&format!("auth export tokens.txt --passphrase-file {passphrase}")).expect(0);
    assert!(run.stderr.starts_with("exported 2 sign-ins to tokens.txt"), "{}", run.stderr);
    let exported = temp_home.path().join("tokens.txt");
    assert_eq!(mode(&exported), 0o600);
    let text = std::fs::read_to_string(&exported).expect("a file");
    assert!(SECRETS.iter().all(|secret| !text.contains(secret)));

    let other = protected.temp_home();
    other.write("tokens.txt", &text);
    other.write("wrong", "wrong horse\n");
    let wrong = other.run("auth import tokens.txt --passphrase-file wrong").expect(2);
    assert!(wrong.stderr.contains("passphrase"), "{}", wrong.stderr);
    other.run("auth import tokens.txt").expect(2);
    let run = other.run(&format!("auth import tokens.txt --passphrase-file {passphrase}")).expect(0);
    assert_eq!(run.stderr, "imported 2 sign-ins\n");
    assert_eq!(other.run("call web.scopes").expect(0).stdout, "a b\n");

    let run = temp_home.run("logout web --account work").expect(0);
    assert_eq!(run.stdout, "signed out of `web` as `work` · tokens revoked\n");
    assert!(!protected.server.requests("/revoke").is_empty());
    assert_eq!(temp_home.run("logout web --account work").expect(0).stdout, "not signed in to `web`\n");
    protected.server.answer("/revoke", Answer::html(500));
    let run = temp_home.run("logout --all").expect(0);
    assert!(run.stdout.contains("signed out of `web` · tokens not revoked"), "{}", run.stdout);
    assert!(run.stderr.contains("may stay valid"), "{}", run.stderr);
    assert_no_secrets(&run);
    temp_home.run("call web.scopes").expect(4);
}

#[test]
fn entries_with_accounts_use_their_own_sign_ins() {
    let protected = Protected::start();
    let entry = |alias: &str| {
        let auth = json!({"oauth": {"account": alias, "scopes": [alias]}});
        json!({"alias": alias, "url": protected.server.mcp(), "auth": auth})
    };
    let temp_home = TempHome::with(&[entry("work"), entry("home")]);
    let log_in = |alias: &str| {
        let (running, url, rest) =
            start_and_find_url(temp_home.ropeway(&["login", alias, "--no-browser"]), &protected.server);
        get(&approve(&url));
        end(running, rest).expect(0)
    };
    assert!(log_in("work").stdout.contains("signed in to `work` as `work`"));
    assert_eq!(temp_home.run("call work.scopes").expect(0).stdout, "work\n");
    temp_home.run("call home.scopes").expect(4);
    let status = temp_home.run("auth status --json").expect(0).json();
    assert_eq!((&status["sign_ins"][0]["name"], &status["sign_ins"][0]["account"]), (&json!("work"), &json!("work")));
    assert_eq!(status["not_signed_in"][0]["name"], "home");
    log_in("home");
    assert_eq!(temp_home.run("call home.scopes").expect(0).stdout, "home\n");
    assert!(temp_home.run("logout work").expect(0).stdout.contains("signed out of `work` as `work`"));
    temp_home.run("call work.scopes").expect(4);
    assert_eq!(temp_home.run("call home.scopes").expect(0).stdout, "home\n");
    log_in("work");
    let removed = temp_home.run("logout --all").expect(0).stdout;
    for words in ["signed out of `work` as `work` · ", "signed out of `home` as `home` · "] {
        assert!(removed.contains(words), "{removed}");
    }
}

#[test]
fn a_sign_out_states_which_tokens_are_revoked() {
    let protected = Protected::start();
    let temp_home = protected.temp_home();
    protected.server.change(|behaviour| behaviour.revokes_access_tokens = false);
    log_in(&temp_home, &protected.server, &[]);
    let run = temp_home.run("logout web").expect(0);
    let expected = "signed out of `web` · refresh token revoked; the access token may stay valid for ";
    assert!(run.stdout.starts_with(expected), "{}", run.stdout);
    assert_no_secrets(&run);
    log_in(&temp_home, &protected.server, &[]);
    let removed = temp_home.run("logout web --json").expect(0).json()["removed"][0].clone();
    assert_eq!(
        (&removed["revoked"], &removed["refresh_token_revoked"], &removed["access_token_revoked"]),
        (&json!(false), &json!(true), &json!(false))
    );
    protected.server.change(|behaviour| behaviour.issues_refresh_tokens = false);
    protected.server.change(|behaviour| behaviour.revokes_access_tokens = true);
    log_in(&temp_home, &protected.server, &[]);
    assert_eq!(temp_home.run("logout web").expect(0).stdout, "signed out of `web` · access token revoked\n");
}

#[test]
fn only_the_default_folder_of_tokens_is_made_private() {
    let protected = Protected::start();
    let temp_home = protected.temp_home();
    let chosen = temp_home.path().join("chosen");
    let tokens = tokens_folder(&temp_home);
    let parent = tokens.parent().expect("a folder");
    for folder in [parent, &tokens, &chosen] {
        std::fs::create_dir_all(folder).expect("a folder");
        std::fs::set_permissions(folder, std::fs::Permissions::from_mode(0o755)).expect("permissions");
    }
    log_in(&temp_home, &protected.server, &[]);
    assert_eq!((mode(&tokens), mode(parent)), (0o700, 0o755), "the folder above is left as it is");
    let ropeway = temp_home.ropeway(&["login", "web", "--no-browser"]).with(|command| {
        command.env("ROPEWAY_TOKENS_DIR", &chosen);
    });
    let (running, url, rest) = start_and_find_url(ropeway, &protected.server);
    get(&approve(&url));
    end(running, rest).expect(0);
    assert_eq!(mode(&chosen), 0o755);
    assert!(std::fs::read_dir(&chosen).expect("a folder").next().is_some());
}

#[test]
fn a_passphrase_is_typed_without_echo() {
    let protected = Protected::start();
    let temp_home = protected.temp_home();
    log_in(&temp_home, &protected.server, &[]);
    let mut window = Window::open(temp_home.ropeway(&["auth", "export", "tokens.txt"]));
    window.see("Passphrase: ");
    window.press("open sesame\r");
    let shown = window.see("Repeat the passphrase: ");
    assert!(!shown.contains("sesame"), "{shown}");
    window.press("open sesame\r");
    let shown = window.see("exported 1 sign-in");
    assert!(!shown.contains("sesame"), "{shown}");
    assert!(window.is_loud());
    window.end().expect(0);
}

#[test]
fn a_call_offers_a_sign_in_and_goes_on() {
    let protected = Protected::start();
    let temp_home = protected.temp_home();
    let mut window = Window::sized(temp_home.ropeway(&["call", "web.scopes"]), 2000, |command| {
        command.env("NO_COLOR", "1").env("BROWSER", "true");
    });
    window.see("web needs a sign-in");
    window.see("Sign in now? [y]es / [n]o: ");
    window.press("y\r");
    window.see("opening a browser");
    get(&approve(&shown_url(&mut window)));
    window.see("signed in to `web`");
    window.end().expect(0);
    // The sign-in is stored.
    temp_home.run("call web.scopes").expect(0);
}

#[test]
fn a_declined_sign_in_ends_the_call_with_4() {
    let protected = Protected::start();
    let temp_home = protected.temp_home();
    let mut window = Window::open(temp_home.ropeway(&["call", "web.scopes"]));
    window.see("Sign in now? [y]es / [n]o: ");
    window.press("n\r");
    window.see("`ropeway login web`");
    window.end().expect(4);
}

#[test]
fn a_call_that_needs_a_scope_offers_it_and_goes_on() {
    let protected = Protected::start();
    let temp_home = protected.temp_home();
    log_in(&temp_home, &protected.server, &["--scope", "read"]);
    protected.server.change(|behaviour| behaviour.required_scope = Some("write".to_owned()));
    temp_home.run("call web.scopes").expect(4);
    let mut window = Window::sized(temp_home.ropeway(&["call", "web.scopes"]), 2000, |command| {
        command.env("NO_COLOR", "1").env("BROWSER", "true");
    });
    window.see("web asks for further permissions (scopes: ");
    window.see("Sign in now? [y]es / [n]o: ");
    window.press("y\r");
    get(&approve(&shown_url(&mut window)));
    window.see("write");
    window.end().expect(0);
}

#[test]
fn a_chat_offers_a_sign_in_and_uses_the_tools() {
    let protected = Protected::start();
    let call = ScriptedReply::call("a", "scopes", json!({}));
    let model = Model::saying([call, ScriptedReply::text("No scopes.")]);
    model.temp_home.configure(&[json!({"alias": "web", "url": protected.server.mcp(), "prefix": ""})]);
    let mut window = Window::sized(model.chat(&["--yes"]), 2000, |command| {
        command.env("NO_COLOR", "1").env("BROWSER", "true");
    });
    window.see("Sign in now? [y]es / [n]o: ");
    window.press("y\r");
    get(&approve(&shown_url(&mut window)));
    window.see("signed in to `web`");
    window.see("1 tool");
    window.say("which scopes?");
    window.see("No scopes.");
    window.see(PROMPT);
    window.press(CTRL_D);
    window.end().expect(0);
}

#[test]
fn a_chat_without_a_terminal_never_asks() {
    let protected = Protected::start();
    let model = Model::saying([]);
    model.temp_home.configure(&[json!({"alias": "web", "url": protected.server.mcp()})]);
    let run = model.run(&["-p", "hi"]).expect(4);
    assert!(run.stderr.contains("run `ropeway login web`"), "{}", run.stderr);
}

#[test]
fn a_server_with_its_own_tokens_needs_no_sign_in() {
    let protected = Protected::start();
    protected.server.add_client("ci", Some("ci-s3cret"), "client_secret_basic");
    let oauth = json!({"grant": "client_credentials", "client_id": "ci", "client_secret": "ci-s3cret"});
    let temp_home = TempHome::with(&[json!({"alias": "web", "url": protected.server.mcp(), "auth": {"oauth": oauth}})]);
    let run = temp_home.run("login web").expect(0);
    assert_eq!(run.stderr, "server `web` needs no sign-in: its entry obtains tokens without a sign-in\n");
    assert_eq!(run.stdout, "connected to `web` with a token\n");
    assert!(!format!("{}{}", run.stdout, run.stderr).contains("s3cret"));
    temp_home.run("call web.scopes").expect(0);
}

#[test]
fn servers_that_cannot_use_a_sign_in_are_refused() {
    let temp_home = TempHome::with(&[
        json!({"alias": "program", "command": "true"}),
        json!({"alias": "token", "url": "http://127.0.0.1:9/mcp", "auth": {"bearer": "t0ken-t0ken"}}),
    ]);
    for (words, expected) in [
        ("login program", "server `program` is a stdio server and needs no sign-in"),
        ("login token", "has a token in its configuration"),
        ("login toekn", "did you mean `token`?"),
        ("login https://", "is not an http:// or https:// URL"),
    ] {
        let run = temp_home.run(words).expect(2);
        assert!(run.stderr.contains(expected), "{words}: {}", run.stderr);
    }
    assert_eq!(temp_home.run("login http://127.0.0.1:9/mcp").expect(3).stdout, "");
}

#[test]
fn a_server_that_asks_for_no_authentication_needs_no_sign_in() {
    let site = Site::start(&Script::default());
    let run = TempHome::new().run(&format!("login {}", site.url)).expect(0);
    assert!(
        run.stdout.contains("does not ask for authentication: no sign-in is needed"),
        "{}{}",
        run.stdout,
        run.stderr
    );
}

#[test]
fn a_running_gateway_notices_a_sign_in() {
    let protected = Protected::start();
    let temp_home = protected.temp_home();
    let mut serving = Serving::in_place(&temp_home, &[]);
    let mut errors = BufReader::new(serving.running.child.stderr.take().expect("standard error"));
    let mut seen = String::new();
    while !seen.contains("server `web` needs authentication; run `ropeway login web`") {
        assert!(errors.read_line(&mut seen).expect("a line") > 0, "{seen}");
    }
    log_in(&temp_home, &protected.server, &[]);
    let began = Instant::now();
    let client = TempHome::new();
    while !client.run(&format!("tools --names --url {}", serving.url)).stdout.contains("scopes") {
        assert!(began.elapsed() < PATIENCE, "the gateway does not connect");
        std::thread::sleep(Duration::from_millis(200));
    }
    signal("TERM", serving.running.child.id());
    serving.running.end().expect(0);
}
