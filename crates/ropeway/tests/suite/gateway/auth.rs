//! Keys of clients: who may connect, what they may use, and how much.

use std::time::Duration;

use ropeway::config::{AuditSettings, Config, GatewaySettings, PrincipalLimits, ProfileSettings, Rate};
use ropeway::gateway::{Gateway, GatewayError};
use ropeway::testing::{Script, ScriptedServer};
use ropeway_config::AuthSettings;
use ropeway_gateway::{KeyFile, KeyLimits, NewKey};
use serde_json::{Value, json};

use super::kit::{GatewayKit, HttpReply, bare, call, entry, modern, modern_call, read_until, request};
use crate::fast_config::{SOON, until};
use crate::scene::scene;

/// A gateway whose clients need keys.
pub(super) struct KeyedKit {
    kit: GatewayKit,
    pub(super) file: KeyFile,
    _folder: tempfile::TempDir,
}

impl std::ops::Deref for KeyedKit {
    type Target = GatewayKit;

    fn deref(&self) -> &GatewayKit {
        &self.kit
    }
}

impl KeyedKit {
    /// Starts a gateway with the servers `one` and `two`, and these settings.
    pub(super) async fn start(settings: GatewaySettings) -> Self {
        Self::start_with(Script::default(), settings).await
    }

    /// Starts a gateway whose server `one` has a script.
    pub(super) async fn start_with(script: Script, settings: GatewaySettings) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let file = KeyFile::new(folder.path().join("keys.json"));
        file.add(NewKey::new("first")).expect("a key");
        let auth = AuthSettings::default().with_keys_file(Some(file.path().to_owned()));
        let (one, two) = (ScriptedServer::new(script), ScriptedServer::new(Script::default()));
        let config = Config::default().with_server(entry("one", &one)).with_server(entry("two", &two));
        let builder = Gateway::builder(config).settings(settings.with_auth(auth));
        Self { kit: GatewayKit::launch(one, builder).await, file, _folder: folder }
    }

    /// Makes a key, and returns the header with it.
    pub(super) fn key(&self, name: &str, change: impl FnOnce(&mut NewKey)) -> String {
        let mut new = NewKey::new(name);
        change(&mut new);
        header(self.file.add(new).expect("a key").0.expose())
    }

    /// Starts a legacy session with a key, and returns the headers of its requests.
    pub(super) async fn session_as(&self, key: &str, capabilities: Value) -> String {
        let info = json!({"name": "kit", "version": "0"});
        let params = json!({"protocolVersion": "2025-11-25", "capabilities": capabilities, "clientInfo": info});
        let reply = self.post(key, &request(0, "initialize", params)).await;
        let headers = format!("{key}Mcp-Session-Id: {}\r\n", reply.headers["mcp-session-id"]);
        let reply = self.post(&headers, &json!({"jsonrpc": "2.0", "method": "notifications/initialized"})).await;
        assert_eq!(reply.status, 202, "{reply:?}");
        headers
    }

    pub(super) async fn stop(self) {
        self.kit.stop().await;
    }
}

pub(super) fn header(token: &str) -> String {
    format!("Authorization: Bearer {token}\r\n")
}

/// Adds a header to a request, and changes its path.
pub(super) fn with(request: &str, header: &str, path: &str) -> String {
    let request = request.replacen("\r\n", &format!("\r\n{header}"), 1);
    request.replacen("/mcp ", &format!("{path} "), 1)
}

pub(super) async fn list(kit: &GatewayKit, header: &str, path: &str) -> HttpReply {
    kit.send(&with(&modern("tools/list", json!({})), header, path)).await
}

fn names(reply: &HttpReply, kind: &str) -> Vec<String> {
    let entries = reply.json()["result"][kind].as_array().cloned().unwrap_or_else(|| panic!("{reply:?}"));
    entries.iter().map(|entry| entry["name"].as_str().or(entry["uri"].as_str()).expect("a name").to_owned()).collect()
}

pub(super) async fn initialize(kit: &GatewayKit, header: &str) -> HttpReply {
    let info = json!({"name": "kit", "version": "0"});
    let params = json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": info});
    kit.post(header, &request(0, "initialize", params)).await
}

#[test]
fn a_request_without_a_valid_key_is_refused() {
    scene(|_| async move {
        let kit = KeyedKit::start(GatewaySettings::default()).await;
        let key = kit.key("alice", |_| {});
        assert_eq!(list(&kit, &key, "/mcp").await.status, 200);
        let missing = list(&kit, "", "/mcp").await;
        assert_eq!((missing.status, &*missing.headers["www-authenticate"]), (401, "Bearer"));
        assert_eq!(missing.json()["error"]["message"], "authentication is required");
        let changed = format!("{}x\r\n", key.trim_end());
        let expired = kit.key("old", |new| new.lifetime = Some(Duration::ZERO));
        for (name, header) in [
            ("a wrong key", &*header("rw_00000000_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA")),
            ("a changed key", &*changed),
            ("an expired key", &*expired),
            ("a digest", &*header(&kit.file.read().expect("keys")[0].sha256)),
            ("another scheme", "Authorization: Basic YTpi\r\n"),
            ("no token", "Authorization: Bearer \r\n"),
            ("a token with more words", &*key.replace("\r\n", " admin\r\n")),
            ("two headers", &*format!("{key}{key}")),
            ("bytes that are not text", "Authorization: Bearer rw_\u{ff}\r\n"),
        ] {
            let reply = list(&kit, header, "/mcp").await;
            assert_eq!(reply.status, 401, "{name}: {reply:?}");
            assert!(
                reply.headers["www-authenticate"].starts_with("Bearer error=\"invalid_token\""),
                "{name}: {reply:?}"
            );
        }
        // Everything but the probes needs a key.
        for request in ["GET /mcp", "DELETE /mcp", "GET /sse", "POST /messages?session=x", "GET /mcp/one"] {
            let (method, path) = request.split_once(' ').expect("a path");
            assert_eq!(kit.send(&bare(method, path, "Host: localhost\r\n")).await.status, 401, "{request}");
        }
        for path in ["/health", "/ready"] {
            assert_eq!(kit.send(&bare("GET", path, "Host: localhost\r\n")).await.status, 200, "{path}");
        }
        kit.stop().await;
    });
}

#[test]
fn a_revoked_key_and_its_sessions_end_at_the_next_request() {
    scene(|_| async move {
        let kit = KeyedKit::start(GatewaySettings::default()).await;
        let (alice, bob) = (kit.key("alice", |_| {}), kit.key("bob", |_| {}));
        let session = initialize(&kit, &alice).await.headers["mcp-session-id"].clone();
        let session = format!("Mcp-Session-Id: {session}\r\n");
        let echo = call(1, "one_echo", json!({"message": "hi"}));
        assert_eq!(kit.post(&format!("{alice}{session}"), &echo).await.status, 200);
        // The session of a principal is unknown to others.
        assert_eq!(kit.post(&format!("{bob}{session}"), &echo).await.status, 404);
        assert_eq!(kit.post(&session, &echo).await.status, 401);
        kit.file.revoke("alice").expect("a key");
        assert_eq!(kit.post(&format!("{alice}{session}"), &echo).await.status, 401);
        assert_eq!(kit.post(&format!("{bob}{session}"), &echo).await.status, 404);
        assert_eq!(list(&kit, &bob, "/mcp").await.status, 200);
        kit.stop().await;
    });
}

#[test]
fn a_broken_key_file_leaves_the_previous_keys_in_use() {
    scene(|_| async move {
        let kit = KeyedKit::start(GatewaySettings::default()).await;
        let key = kit.key("alice", |_| {});
        assert_eq!(list(&kit, &key, "/mcp").await.status, 200);
        std::fs::write(kit.file.path(), "{\"version\": 1, \"keys\": [").expect("a file");
        assert_eq!(list(&kit, &key, "/mcp").await.status, 200);
        assert_eq!(list(&kit, "", "/mcp").await.status, 401);
        kit.stop().await;
        // It cannot be started with such a file.
        let folder = tempfile::tempdir().expect("a folder");
        let auth = AuthSettings::default().with_keys_file(Some(folder.path().join("keys.json")));
        let builder = Gateway::builder(Config::default()).settings(GatewaySettings::default().with_auth(auth));
        assert!(matches!(builder.build(), Err(GatewayError::ClientKeys(_))));
    });
}

#[test]
fn a_key_selects_the_profiles_that_it_is_for() {
    scene(|_| async move {
        let coding = ProfileSettings::new("coding").with_servers(vec!["one".into()]);
        let kit = KeyedKit::start(GatewaySettings::default().with_profile(coding)).await;
        let key = kit.key("alice", |new| new.profiles = vec!["coding".to_owned(), "two".to_owned()]);
        for (path, status) in
            [("/mcp/coding", 200), ("/mcp/two", 200), ("/mcp", 403), ("/mcp/one", 403), ("/mcp/x", 403)]
        {
            assert_eq!(list(&kit, &key, path).await.status, status, "{path}");
        }
        let sse = kit.send(&bare("GET", "/sse", &format!("Host: localhost\r\n{key}"))).await;
        assert_eq!(sse.status, 403);
        kit.stop().await;
    });
}

#[test]
fn tools_of_others_are_hidden_and_refused() {
    scene(|_| async move {
        let search = ProfileSettings::new("search").with_search(true);
        let kit = KeyedKit::start(GatewaySettings::default().with_profile(search)).await;
        let key = kit.key("alice", |new| new.tools = vec!["one.echo".to_owned(), "one.ad?".to_owned()]);
        assert_eq!(names(&list(&kit, &key, "/mcp").await, "tools"), ["one_echo", "one_add"]);
        let run = async |path: &str, tool: &str, arguments: Value| {
            kit.send(&with(&modern_call(tool, arguments), &key, path)).await.json()
        };
        assert!(run("/mcp", "one_echo", json!({"message": "hi"})).await["result"].is_object());
        for (tool, decision) in [("one_fail", "deny"), ("two_echo", "deny"), ("one_echo2", "allow"), ("echo", "allow")]
        {
            let refused = run("/mcp", tool, json!({})).await;
            assert_eq!(refused["error"]["code"], -32602, "{tool}: {refused}");
            let message = refused["error"]["message"].as_str().expect("a message");
            assert!(message.starts_with("Unknown tool") && !message.contains("`two_"), "{message}");
            // Only the audit log tells a tool that exists from one that does not.
            let record = &kit.gateway.recent_calls(1)[0];
            let rule = if decision == "deny" { json!("tools") } else { Value::Null };
            assert_eq!((&record["decision"], &record["rule"]), (&json!(decision), &rule), "{tool}: {record}");
        }
        // The search finds and calls the same tools.
        let found = run("/mcp/search", "find_tools", json!({"query": "echo message", "limit": 20})).await.to_string();
        assert!(found.contains("one_echo") && !found.contains("two_echo"), "{found}");
        let inner = |name: &str| json!({"name": name, "arguments": {"message": "hi"}});
        assert!(run("/mcp/search", "call_tool", inner("one_echo")).await["result"].is_object());
        let refused = run("/mcp/search", "call_tool", inner("two_echo")).await;
        assert!(refused["result"]["isError"] == true && !refused.to_string().contains("`two_"), "{refused}");
        assert_eq!(kit.gateway.recent_calls(1)[0]["rule"], "tools");
        assert_eq!(run("/mcp/two", "echo", json!({"message": "hi"})).await["error"]["code"], -32602);
        kit.stop().await;
    });
}

#[test]
fn prompts_and_resources_of_hidden_servers_are_hidden() {
    scene(|_| async move {
        let kit = KeyedKit::start(GatewaySettings::default()).await;
        let key = kit.key("alice", |new| new.tools = vec!["one.echo".to_owned()]);
        let ask =
            async |method: &str, params: Value, path: &str| kit.send(&with(&modern(method, params), &key, path)).await;
        let prompts = names(&ask("prompts/list", json!({}), "/mcp").await, "prompts");
        assert!(!prompts.is_empty() && prompts.iter().all(|prompt| prompt.starts_with("one_")), "{prompts:?}");
        let all = names(
            &kit.send(&with(&modern("resources/list", json!({})), &kit.key("bob", |_| {}), "/mcp")).await,
            "resources",
        );
        let own = names(&ask("resources/list", json!({}), "/mcp").await, "resources");
        assert!(!own.is_empty() && own.len() < all.len(), "{own:?} {all:?}");
        for (method, params, path) in [
            ("prompts/get", json!({"name": "two_plain"}), "/mcp"),
            ("prompts/get", json!({"name": "plain"}), "/mcp/two"),
            ("resources/read", json!({"uri": "ropeway://two/test://counter"}), "/mcp"),
            ("resources/read", json!({"uri": "test://counter"}), "/mcp/two"),
        ] {
            let reply = ask(method, params.clone(), path).await;
            assert!(reply.json()["error"].is_object(), "{method} {params}: {reply:?}");
        }
        let read = ask("resources/read", json!({"uri": "test://counter"}), "/mcp").await;
        assert!(read.json()["result"].is_object(), "{read:?}");
        // The other server is not described either.
        let hello = initialize(&kit, &key).await.body;
        assert!(!hello.contains("two"), "{hello}");
        kit.stop().await;
    });
}

#[test]
fn new_rights_apply_to_open_sessions() {
    scene(|_| async move {
        let kit = KeyedKit::start(GatewaySettings::default()).await;
        let key = kit.key("alice", |_| {});
        let session = initialize(&kit, &key).await.headers["mcp-session-id"].clone();
        let headers = format!("{key}Mcp-Session-Id: {session}\r\n");
        let echo = call(1, "two_echo", json!({"message": "hi"}));
        assert!(kit.post(&headers, &echo).await.json()["result"].is_object());
        let text = std::fs::read_to_string(kit.file.path()).expect("a file");
        std::fs::write(kit.file.path(), text.replace("\"created\"", "\"tools\": [\"one.*\"], \"created\""))
            .expect("a file");
        assert_eq!(kit.post(&headers, &echo).await.json()["error"]["code"], -32602);
        let echo = call(2, "one_echo", json!({"message": "hi"}));
        assert!(kit.post(&headers, &echo).await.json()["result"].is_object());
        kit.stop().await;
    });
}

#[test]
fn requests_over_the_rate_are_in_the_audit_log_as_one_line_with_a_count() {
    scene(|_| async move {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("audit.jsonl");
        let limits = PrincipalLimits::default().with_rate("1/h".parse::<Rate>().ok());
        let settings =
            GatewaySettings::default().with_principal_limits(limits).with_audit(AuditSettings::new(path.clone()));
        let kit = KeyedKit::start(settings).await;
        let alice = kit.key("alice", |_| {});
        let started = std::time::Instant::now();
        for number in 0..30 {
            assert_eq!(list(&kit, &alice, "/mcp").await.status, if number == 0 { 200 } else { 429 });
        }
        let seconds = started.elapsed().as_secs();
        kit.stop().await;
        let text = std::fs::read_to_string(&path).expect("a log");
        let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
        let refused: Vec<Value> = lines.filter(|line| line["rule"] == "rate").collect();
        let is_right = |line: &Value| line["decision"] == "deny" && line["principal"] == "key:alice";
        assert!(refused.iter().all(is_right) && refused[0]["key_id"].is_string(), "{refused:?}");
        assert_eq!(refused.iter().filter_map(|line| line["count"].as_u64()).sum::<u64>(), 29, "{refused:?}");
        // The last one is written at the end.
        assert!(refused.len() as u64 <= seconds + 2, "{refused:?}");
    });
}

#[test]
fn a_rate_limit_answers_429_with_the_id_and_the_time_to_wait() {
    scene(|_| async move {
        let limits = PrincipalLimits::default().with_rate("3/m".parse::<Rate>().ok());
        let kit = KeyedKit::start(GatewaySettings::default().with_principal_limits(limits)).await;
        let alice = kit.key("alice", |_| {});
        let bob = kit.key("bob", |new| new.limits = limit(|limits| limits.rate = Some(Rate::per_second(1000))));
        for _ in 0..3 {
            assert_eq!(list(&kit, &alice, "/mcp").await.status, 200);
        }
        let limited = list(&kit, &alice, "/mcp").await;
        assert_eq!(limited.status, 429, "{limited:?}");
        let wait: u64 = limited.headers["retry-after"].parse().expect("seconds");
        assert!((1..=20).contains(&wait), "{limited:?}");
        let message = limited.json();
        assert_eq!((&message["id"], &message["error"]["code"]), (&json!(7), &json!(-32000)), "{message}");
        assert_eq!(message["error"]["message"], "too many requests (limit: 3/m)");
        let wait_ms = message["error"]["data"]["retryAfterMs"].as_u64().expect("a time");
        assert!(wait_ms > 0 && wait_ms.div_ceil(1000) == wait, "{message}");
        assert_eq!(kit.send(&bare("GET", "/mcp", &format!("Host: localhost\r\n{alice}"))).await.status, 429);
        // Others are not affected.
        for _ in 0..10 {
            assert_eq!(list(&kit, &bob, "/mcp").await.status, 200);
        }
        let operator = kit.key("operator", |new| new.operator = true);
        let metrics = kit.send(&bare("GET", "/metrics", &format!("Host: localhost\r\n{operator}"))).await.body;
        assert!(metrics.contains(r#"ropeway_limit_rejected_total{limit="rate"} 2"#), "{metrics}");
        kit.stop().await;
    });
}

pub(super) fn limit(change: impl FnOnce(&mut KeyLimits)) -> KeyLimits {
    let mut limits = KeyLimits::default();
    change(&mut limits);
    limits
}

#[test]
fn calls_of_one_key_are_limited_over_all_its_clients() {
    scene(|_| async move {
        let kit = KeyedKit::start(GatewaySettings::default()).await;
        let alice = kit.key("alice", |new| new.limits = limit(|limits| limits.calls = Some(1)));
        let bob = kit.key("bob", |_| {});
        let slow = with(&modern_call("one_sleep", json!({"ms": 60_000})), &alice, "/mcp");
        let running = kit.open(&slow).await;
        until("the call", || kit.gateway.status().requests == 1).await;
        let busy = list(&kit, &alice, "/mcp").await;
        assert_eq!((busy.status, &*busy.headers["retry-after"]), (429, "1"), "{busy:?}");
        assert_eq!(busy.json()["error"]["data"], json!({"retryAfterMs": 1000}));
        assert_eq!(list(&kit, &bob, "/mcp").await.status, 200);
        drop(running);
        until("the end of the call", || kit.gateway.status().requests == 0).await;
        assert_eq!(list(&kit, &alice, "/mcp").await.status, 200);
        kit.stop().await;
    });
}

#[test]
fn sessions_bodies_and_results_of_one_key_are_limited() {
    scene(|_| async move {
        let kit = KeyedKit::start(GatewaySettings::default()).await;
        let key = kit.key("alice", |new| {
            new.limits = limit(|limits| {
                (limits.sessions, limits.body, limits.result) = (Some(2), Some(2000), Some(1000));
            });
        });
        // The oldest idle session makes room, and is revived by its id.
        for _ in 0..5 {
            assert_eq!(initialize(&kit, &key).await.status, 200);
        }
        assert_eq!(kit.gateway.status().sessions, 2);
        let echo = |size: usize| with(&modern_call("one_echo", json!({"message": "x".repeat(size)})), &key, "/mcp");
        assert!(kit.send(&echo(500)).await.json()["result"].is_object());
        let large = kit.send(&echo(1200)).await.json();
        assert_eq!(large["error"]["data"]["reason"], "result_too_large", "{large}");
        assert_eq!(kit.send(&echo(3000)).await.status, 413);
        let bob = kit.key("bob", |_| {});
        assert_eq!(kit.send(&echo(3000).replace(key.trim_end(), bob.trim_end())).await.status, 200);
        kit.stop().await;
    });
}

#[test]
fn requests_to_one_server_are_limited() {
    scene(|_| async move {
        let scripted = ScriptedServer::new(Script::default());
        let mut limited = entry("scripted", &scripted);
        if let Some(config) = limited.config_mut() {
            config.limits.rate = "2/m".parse().ok();
        }
        let kit = GatewayKit::launch(scripted, Gateway::builder(Config::default().with_server(limited))).await;
        let echo = modern_call("echo", json!({"message": "hi"}));
        for _ in 0..2 {
            assert_eq!(kit.send(&echo).await.status, 200);
        }
        let refused = kit.send(&echo).await;
        assert_eq!(refused.status, 429, "{refused:?}");
        assert!(
            refused.headers["retry-after"].parse::<u64>().is_ok_and(|wait| (2..=30).contains(&wait)),
            "{refused:?}"
        );
        assert_eq!(refused.json()["error"]["message"], "too many requests to server `scripted` (limit: 2/m)");
        let record = &kit.gateway.recent_calls(1)[0];
        assert_eq!(
            [&record["decision"], &record["rule"], &record["server"]],
            ["deny", "server", "scripted"],
            "{record}"
        );
        kit.stop().await;
    });
}

#[test]
fn messages_of_legacy_sse_belong_to_the_key_that_opened_the_stream() {
    scene(|_| async move {
        let kit = KeyedKit::start(GatewaySettings::default()).await;
        let (alice, bob) = (kit.key("alice", |_| {}), kit.key("bob", |_| {}));
        let mut stream = kit.open(&bare("GET", "/sse", &format!("Host: localhost\r\n{alice}"))).await;
        let opened = read_until(&mut stream, "data: /messages").await;
        let path = opened.lines().next_back().and_then(|line| line.strip_prefix("data: ")).expect("a path");
        let ping = super::kit::post("", &request(1, "ping", json!({})));
        for (header, status) in [("", 401), (&*bob, 404), (&*alice, 202)] {
            assert_eq!(kit.send(&with(&ping, header, path)).await.status, status, "{header}");
        }
        read_until(&mut stream, "\"result\"").await;
        drop(stream);
        kit.stop().await;
    });
}

#[test]
fn other_machines_can_connect_only_with_authentication() {
    scene(|_| async move {
        let listener = || std::net::TcpListener::bind("0.0.0.0:0").expect("a port");
        let open = Gateway::builder(Config::default()).build().expect("a gateway");
        assert!(matches!(open.serve_http(listener()).await, Err(GatewayError::NotLocal { .. })));
        let folder = tempfile::tempdir().expect("a folder");
        let file = KeyFile::new(folder.path().join("keys.json"));
        file.add(NewKey::new("a")).expect("a key");
        let auth = AuthSettings::default().with_keys_file(Some(file.path().to_owned()));
        let builder = Gateway::builder(Config::default()).settings(GatewaySettings::default().with_auth(auth));
        let keyed = builder.build().expect("a gateway");
        let serving = tokio::spawn({
            let (keyed, listener) = (keyed.clone(), listener());
            async move { keyed.serve_http(listener).await }
        });
        keyed.drain(SOON).await;
        assert!(tokio::time::timeout(SOON, serving).await.expect("an end").expect("no panic").is_ok());
    });
}

#[test]
fn pipes_need_no_key() {
    scene(|_| async move {
        let kit = KeyedKit::start(GatewaySettings::default()).await;
        let mut pipe = super::kit::Pipe::open(&kit);
        pipe.send(&request(1, "ping", json!({}))).await;
        assert_eq!(pipe.receive().await["result"], json!({}));
        drop(pipe);
        kit.stop().await;
    });
}

#[test]
fn the_streams_of_a_revoked_key_end() {
    scene(|_| async move {
        let kit = KeyedKit::start(GatewaySettings::default()).await;
        let (alice, bob) = (kit.key("alice", |_| {}), kit.key("bob", |_| {}));
        let session = initialize(&kit, &alice).await.headers["mcp-session-id"].clone();
        let headers = format!("Host: localhost\r\n{alice}Mcp-Session-Id: {session}\r\n");
        let standing = kit.open(&bare("GET", "/mcp", &headers)).await;
        let legacy = kit.open(&bare("GET", "/sse", &format!("Host: localhost\r\n{alice}"))).await;
        let listen = modern("subscriptions/listen", json!({"notifications": {"toolsListChanged": true}}));
        let mut listening = kit.open(&with(&listen, &alice, "/mcp")).await;
        read_until(&mut listening, "acknowledged").await;
        kit.file.revoke("alice").expect("a key");
        // Any request makes the gateway read the file.
        assert_eq!(list(&kit, &bob, "/mcp").await.status, 200);
        for stream in [standing, legacy, listening] {
            super::kit::read_rest(stream).await;
        }
        kit.stop().await;
    });
}
