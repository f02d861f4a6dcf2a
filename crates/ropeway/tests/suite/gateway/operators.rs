//! Operators, and what other principals see: their own servers, tools and calls. Every refusal is in the audit log.

use std::path::Path;

use ropeway::config::{
    AuditSettings, Config, GatewaySettings, JwtSettings, OperatorTokens, ServerConfig, ServerEntry, StdioServer,
};
use ropeway::gateway::Gateway;
use ropeway::testing::{Script, ScriptedServer};
use ropeway_config::AuthSettings;
use ropeway_gateway::{KeyFile, NewKey};
use serde_json::{Value, json};

use super::auth::{KeyedKit, header, initialize, limit, list, with};
use super::issuer::{Issuer, SigningKey};
use super::kit::{GatewayKit, HttpReply, bare, entry, modern, modern_call, post, read_until, request};
use crate::fast_config::until;
use crate::scene::scene;

const HOST: &str = "Host: localhost\r\n";

/// The paths of operators.
const OPERATOR_PATHS: [&str; 3] = ["/metrics", "/api/stats", "/api/events"];

/// Sends a request without a body. Returns the status of an event stream without waiting for its end.
async fn status_of(kit: &GatewayKit, path: &str, headers: &str) -> u16 {
    let mut stream = kit.open(&bare("GET", path, &format!("{HOST}{headers}"))).await;
    let head = read_until(&mut stream, "\r\n").await;
    head.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status")
}

async fn get(kit: &GatewayKit, path: &str, headers: &str) -> HttpReply {
    kit.send(&bare("GET", path, &format!("{HOST}{headers}"))).await
}

#[test]
fn only_the_keys_of_operators_get_metrics_events_and_counts() {
    scene(|_| async move {
        let kit = KeyedKit::start(GatewaySettings::default()).await;
        let alice = kit.key("alice", |_| {});
        // An operator need not be allowed to use tools.
        let ops = kit.key("ops", |new| (new.operator, new.tools) = (true, vec!["none".to_owned()]));
        for path in OPERATOR_PATHS {
            assert_eq!(status_of(&kit, path, &ops).await, 200, "{path}");
            let refused = get(&kit, path, &alice).await;
            assert_eq!(refused.status, 403, "{path}");
            let message = refused.json()["error"]["message"].as_str().expect("a message").to_owned();
            assert!(message.contains("`ropeway key new NAME --operator`"), "the refusal names the fix: {message}");
            assert!(message.contains("`ropeway key set NAME --operator`"), "{message}");
        }
        let status = get(&kit, "/api/status", &alice).await.json();
        assert_eq!((&status["operator"], status.get("counts")), (&json!(false), None), "{status}");
        assert_eq!(status["servers"].as_array().map(Vec::len), Some(2), "a key without restrictions uses all servers");
        let status = get(&kit, "/api/status", &ops).await.json();
        assert!(status["operator"] == true && status["counts"]["connections"].is_u64(), "{status}");
        assert_eq!(status["servers"].as_array().map(Vec::len), Some(2), "{status}");
        // A running gateway applies the change, and the secret stays the same.
        kit.file.set_operator("alice", true).expect("a key");
        assert_eq!(get(&kit, "/metrics", &alice).await.status, 200);
        kit.file.set_operator("alice", false).expect("a key");
        assert_eq!(get(&kit, "/metrics", &alice).await.status, 403);
        kit.stop().await;
    });
}

#[test]
fn without_authentication_the_user_is_the_operator() {
    scene(|_| async move {
        let kit = GatewayKit::start(Script::default()).await;
        for path in OPERATOR_PATHS {
            assert_eq!(status_of(&kit, path, "").await, 200, "{path}");
        }
        let status = get(&kit, "/api/status", "").await.json();
        assert!(status["operator"] == true && status["counts"]["connections"].is_u64(), "{status}");
        kit.stop().await;
    });
}

/// Starts a gateway with keys, a scripted server, and one that prints a secret and ends.
async fn with_failing_server(folder: &Path) -> (GatewayKit, KeyFile) {
    let file = KeyFile::new(folder.join("keys.json"));
    file.add(NewKey::new("first")).expect("a key");
    let auth = AuthSettings::default().with_keys_file(Some(file.path().to_owned()));
    let script = "echo 'handling note of patient 4711' >&2; exit 3";
    let failing = ServerConfig::new("failing", StdioServer::new("sh", ["-c", script]));
    let one = ScriptedServer::new(Script::default());
    let config = Config::default().with_server(entry("one", &one)).with_server(ServerEntry::new(failing));
    let builder = Gateway::builder(config).settings(GatewaySettings::default().with_auth(auth));
    (GatewayKit::launch(one, builder).await, file)
}

#[test]
fn output_and_errors_of_servers_are_shown_to_operators_alone() {
    scene(|_| async move {
        let folder = tempfile::tempdir().expect("a folder");
        let (kit, file) = with_failing_server(folder.path()).await;
        let key = |name: &str, operator: bool, tools: &[&str]| {
            let mut new = NewKey::new(name);
            (new.operator, new.tools) = (operator, tools.iter().map(ToString::to_string).collect());
            header(file.add(new).expect("a key").0.expose())
        };
        let (ops, all) = (key("ops", true, &[]), key("all", false, &[]));
        let some = key("some", false, &["one.echo", "failing.open"]);
        let other = key("other", false, &["one.echo"]);
        let server = |status: &Value, name: &str| {
            let servers = status["servers"].as_array().expect("servers").clone();
            servers.into_iter().find(|server| server["server"] == name).unwrap_or_default()
        };
        for _ in 0..200 {
            let status = get(&kit, "/api/status", &ops).await.json();
            if server(&status, "failing")["stderr"].to_string().contains("patient 4711") {
                break;
            }
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
        let status = get(&kit, "/api/status", &ops).await.json();
        let shown = server(&status, "failing");
        assert!(shown["stderr"].to_string().contains("patient 4711"), "{shown}");
        assert!(shown["last_error"].is_string(), "{shown}");
        let listed = list(&kit, &ops, "/mcp").await.body;
        assert!(listed.contains(r#""alias":"failing""#), "{listed}");
        for key in [&all, &some] {
            let status = get(&kit, "/api/status", key).await;
            assert!(!status.body.contains("4711") && !status.body.contains("exit"), "{}", status.body);
            let shown = server(&status.json(), "failing");
            assert_eq!((&shown["last_error"], &shown["stderr"]), (&Value::Null, &json!([])), "{shown}");
            let listed = list(&kit, key, "/mcp").await.body;
            assert!(listed.contains(r#""alias":"failing""#) && !listed.contains("4711"), "{listed}");
        }
        let listed = list(&kit, &other, "/mcp").await.body;
        assert!(!listed.contains("failing"), "a server that a key may not use has no name: {listed}");
        assert!(!get(&kit, "/api/status", &other).await.body.contains("failing"));
        kit.stop().await;
    });
}

#[test]
fn a_status_counts_the_tools_that_the_key_may_use() {
    scene(|_| async move {
        let kit = KeyedKit::start(GatewaySettings::default()).await;
        let some = kit.key("some", |new| new.tools = vec!["one.echo".to_owned(), "one.add".to_owned()]);
        let status = get(&kit, "/api/status", &some).await.json();
        let server = &status["servers"][0];
        assert_eq!((&server["server"], &server["tools"]), (&json!("one"), &json!(2)), "{status}");
        assert_eq!(server["message"], "is ready with 2 tools", "{status}");
        assert_eq!(status["servers"].as_array().map(Vec::len), Some(1), "{status}");
        kit.stop().await;
    });
}

#[test]
fn names_are_those_of_the_tools_that_the_key_may_use() {
    scene(|_| async move {
        let kit = KeyedKit::start(GatewaySettings::default()).await;
        let some = kit.key("some", |new| new.tools = vec!["one.echo".to_owned()]);
        let names = get(&kit, "/api/names", &some).await.json();
        assert_eq!(names, json!({"tools": {"one_echo": {"server": "one", "tool": "echo"}}}));
        let other = kit.key("other", |new| new.profiles = vec!["two".to_owned()]);
        assert_eq!(get(&kit, "/api/names?profile=one", &other).await.status, 404);
        assert_eq!(get(&kit, "/api/names?profile=two", &other).await.status, 200);
        kit.stop().await;
    });
}

#[test]
fn calls_of_others_are_not_shown() {
    scene(|_| async move {
        let kit = KeyedKit::start(GatewaySettings::default()).await;
        let (alice, ops) = (kit.key("alice", |_| {}), kit.key("ops", |new| new.operator = true));
        let echo = with(&modern_call("one_echo", json!({"message": "hi"})), &alice, "/mcp");
        assert_eq!(kit.send(&echo).await.status, 200);
        let bob = kit.key("bob", |_| {});
        for (key, count) in [(&alice, 1), (&bob, 0), (&ops, 0)] {
            let calls = get(&kit, "/api/calls", key).await.json();
            assert_eq!(calls["calls"].as_array().map(Vec::len), Some(count), "{calls}");
        }
        kit.stop().await;
    });
}

#[test]
fn a_token_is_no_operator_unless_the_configuration_says_so() {
    scene(|_| async move {
        let key = SigningKey::new("a");
        let issuer = Issuer::start(&[&key]).await;
        let token = |name: &str, value: Value| {
            let mut claims = issuer.claims();
            claims[name] = value;
            header(&key.sign(&claims))
        };
        let plain = token("jti", json!("1"));
        let scoped = token("scope", json!("mcp ropeway:operator"));
        let grouped = token("groups", json!(["dev", "ops"]));
        let single = token("groups", json!("ops"));
        let others = [token("scope", json!("ropeway:operators")), token("groups", json!(["ops2", 7, null]))];
        let by_scope = OperatorTokens::Scope("ropeway:operator".to_owned());
        let by_claim = OperatorTokens::Claim { name: "groups".to_owned(), values: vec!["ops".to_owned()] };
        for (operators, accepted) in
            [(None, vec![]), (Some(by_scope), vec![&scoped]), (Some(by_claim), vec![&grouped, &single])]
        {
            let jwt = JwtSettings::new(&*issuer.url, "https://gateway.example/mcp").with_operators(operators);
            let kit = GatewayKit::start_with(Script::default(), GatewaySettings::default().with_jwt(jwt)).await;
            // The right belongs to the token: these are all tokens of one user, in turns.
            for _ in 0..2 {
                for token in [&plain, &scoped, &grouped, &single, &others[0], &others[1]] {
                    let expected = if accepted.contains(&token) { 200 } else { 403 };
                    for path in OPERATOR_PATHS {
                        assert_eq!(status_of(&kit, path, token).await, expected, "{path}");
                    }
                    assert_eq!(list(&kit, token, "/mcp").await.status, 200);
                }
            }
            kit.stop().await;
        }
    });
}

/// Returns the lines of a log.
fn lines(path: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
}

#[test]
fn every_refusal_is_in_the_audit_log_and_in_the_metrics() {
    scene(|_| async move {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("audit.jsonl");
        let kit = KeyedKit::start(GatewaySettings::default().with_audit(AuditSettings::new(path.clone()))).await;
        let ops = kit.key("ops", |new| new.operator = true);
        let ann = kit.key("ann", |new| {
            (new.profiles, new.limits) = (vec!["one".to_owned()], limit(|limits| limits.body = Some(1000)));
        });
        // The profile, over each transport.
        assert_eq!(list(&kit, &ann, "/mcp").await.status, 403);
        assert_eq!(list(&kit, &ann, "/mcp/two").await.status, 403);
        assert_eq!(get(&kit, "/sse", &ann).await.status, 403);
        let mut stream = kit.open(&bare("GET", "/sse/one", &format!("{HOST}{ann}"))).await;
        let opened = read_until(&mut stream, "data: /messages").await;
        let messages = opened.lines().next_back().and_then(|line| line.strip_prefix("data: ")).expect("a path");
        let text = std::fs::read_to_string(kit.file.path()).expect("a file");
        std::fs::write(kit.file.path(), text.replace("\"one\"", "\"two\"")).expect("a file");
        let ping = post("", &request(1, "ping", json!({})));
        assert_eq!(kit.send(&with(&ping, &ann, messages)).await.status, 403);
        drop(stream);
        // The body, its type, and the type of the response.
        let large = with(&modern_call("echo", json!({"message": "x".repeat(2000)})), &ann, "/mcp/two");
        assert_eq!(kit.send(&large).await.status, 413);
        let listing = with(&modern("tools/list", json!({})), &ann, "/mcp/two");
        assert_eq!(kit.send(&listing.replace("application/json\r\nAccept", "text/plain\r\nAccept")).await.status, 415);
        let accept = listing.lines().find(|line| line.starts_with("Accept")).expect("a header").to_owned();
        assert_eq!(kit.send(&listing.replace(&accept, "Accept: image/png")).await.status, 406);
        assert_eq!(get(&kit, "/metrics", &ann).await.status, 403);
        assert_eq!(get(&kit, "/api/status", &format!("{ann}Sec-Fetch-Site: cross-site\r\n")).await.status, 403);
        let page = get(&kit, "/metrics", &ops).await.body;
        kit.stop().await;
        let refused = lines(&path);
        let count = |principal: &str, rule: &str| -> u64 {
            let own = refused.iter().filter(|line| line["principal"] == principal && line["rule"] == rule);
            own.map(|line| line["count"].as_u64().unwrap_or_default()).sum()
        };
        for (principal, rule, expected) in [
            ("key:ann", "profiles", 4),
            ("key:ann", "body", 1),
            ("key:ann", "content_type", 1),
            ("key:ann", "accept", 1),
            ("key:ann", "operators", 1),
            ("", "origin", 1),
        ] {
            assert_eq!(count(principal, rule), expected, "{rule}: {refused:?}");
            let sample = format!("ropeway_limit_rejected_total{{limit=\"{rule}\"}} {expected}\n");
            assert!(page.contains(&sample), "{sample}: {page}");
        }
        let denied = refused.iter().filter(|line| line["rule"].is_string());
        assert!(denied.clone().all(|line| line["decision"] == "deny" && line["outcome"] == "error"), "{refused:?}");
    });
}

#[test]
fn a_refused_session_names_its_limit_in_the_audit_log() {
    scene(|_| async move {
        let kit = KeyedKit::start(GatewaySettings::default()).await;
        let ann = kit.key("ann", |new| new.limits = limit(|limits| limits.sessions = Some(1)));
        let session = initialize(&kit, &ann).await.headers["mcp-session-id"].clone();
        // A session with an open stream does not make room for another one.
        let mut stream = kit.open(&bare("GET", "/mcp", &format!("{HOST}{ann}Mcp-Session-Id: {session}\r\n"))).await;
        read_until(&mut stream, "text/event-stream").await;
        assert_eq!(initialize(&kit, &ann).await.status, 429);
        let record = &kit.gateway.recent_calls(1)[0];
        let shown = ["method", "decision", "rule"].map(|key| record[key].as_str().unwrap_or(""));
        assert_eq!(shown, ["initialize", "deny", "sessions_per_principal"], "{record}");
        drop(stream);
        kit.stop().await;
    });
}

#[test]
fn a_flood_of_wrong_keys_is_a_line_per_second() {
    scene(|_| async move {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("audit.jsonl");
        let kit = KeyedKit::start(GatewaySettings::default().with_audit(AuditSettings::new(path.clone()))).await;
        let started = std::time::Instant::now();
        for number in 0..100 {
            let wrong = header(&format!("rw_{number:08x}_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"));
            assert_eq!(initialize(&kit, &wrong).await.status, 401);
        }
        until("a line", || !lines(&path).is_empty()).await;
        kit.stop().await;
        let refused = lines(&path);
        let bound = started.elapsed().as_secs() + 2;
        assert!(refused.len() as u64 <= bound, "{} lines in {bound} s", refused.len());
        let is_right = |line: &Value| line["rule"] == "authentication" && line["principal"] == "";
        assert!(refused.iter().all(is_right), "{refused:?}");
        assert_eq!(refused.iter().filter_map(|line| line["count"].as_u64()).sum::<u64>(), 100);
        let text = std::fs::read_to_string(&path).expect("a log");
        assert!(!text.contains("rw_"), "a wrong key may be a typing error of a right one: {text}");
    });
}
