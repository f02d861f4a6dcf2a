//! The web page and its API.

use ropeway::config::{Config, GatewaySettings, ProfileSettings};
use ropeway::gateway::Gateway;
use ropeway::testing::{Fault, FaultTrigger, Script, ScriptedServer};
use serde_json::{Value, json};

use super::kit::{GatewayKit, HttpReply, bare, entry, modern_call, read_until};
use crate::fast_config::{ms, until};
use crate::scene::scene;

const HOST: &str = "Host: localhost\r\n";

/// The files that the page consists of.
const FILES: [&str; 21] = [
    "/",
    "/ui/app.css",
    "/ui/app.js",
    "/ui/call.js",
    "/ui/calls.js",
    "/ui/catalog.js",
    "/ui/charts.js",
    "/ui/client.js",
    "/ui/command.js",
    "/ui/content.js",
    "/ui/dom.js",
    "/ui/features.js",
    "/ui/form.js",
    "/ui/history.js",
    "/ui/icon.svg",
    "/ui/list.js",
    "/ui/markdown.js",
    "/ui/monitor.js",
    "/ui/questions.js",
    "/ui/roots.js",
    "/ui/schema.js",
];

impl GatewayKit {
    async fn get(&self, path: &str, headers: &str) -> HttpReply {
        self.send(&bare("GET", path, &format!("{HOST}{headers}"))).await
    }

    async fn calls(&self) -> Vec<Value> {
        let reply = self.get("/api/calls", "").await;
        assert_eq!(reply.status, 200, "{reply:?}");
        reply.json()["calls"].as_array().expect("calls").clone()
    }
}

#[test]
fn the_page_is_small_and_allows_only_its_own_files() {
    scene(|_| async move {
        let kit = GatewayKit::start(Script::default()).await;
        let mut size = 0;
        for path in FILES {
            let reply = kit.get(path, "").await;
            assert_eq!(reply.status, 200, "{path}: {reply:?}");
            size += reply.body.len();
            let policy = &reply.headers["content-security-policy"];
            for rule in ["default-src 'none'", "script-src 'self'", "style-src 'self'", "connect-src 'self'"] {
                assert!(policy.contains(rule), "{path}: {policy}");
            }
            for rule in ["base-uri 'none'", "form-action 'none'", "frame-ancestors 'none'", "trusted-types 'none'"] {
                assert!(policy.contains(rule), "{path}: {policy}");
            }
            assert!(!policy.contains("unsafe"), "{path}: {policy}");
            assert_eq!(reply.headers["x-content-type-options"], "nosniff", "{path}");
            assert_eq!(reply.headers["referrer-policy"], "no-referrer", "{path}");
            assert_eq!(reply.headers["cross-origin-resource-policy"], "same-origin", "{path}");
            assert_eq!(reply.headers["cache-control"], "no-cache", "{path}");
        }
        assert!(size < 150_000, "{size} bytes");
        kit.stop().await;
    });
}

#[test]
fn a_browser_loads_a_file_again_only_if_it_has_changed() {
    scene(|_| async move {
        let kit = GatewayKit::start(Script::default()).await;
        let first = kit.get("/ui/app.js", "").await;
        assert!(first.headers["content-type"].starts_with("text/javascript"), "{first:?}");
        let tag = &first.headers["etag"];
        for tags in [tag.clone(), format!("\"other\", W/{tag}")] {
            let known = kit.get("/ui/app.js", &format!("If-None-Match: {tags}\r\n")).await;
            assert_eq!((known.status, known.body.as_str()), (304, ""), "{known:?}");
        }
        let outdated = kit.get("/ui/app.js", "If-None-Match: \"0\"\r\n").await;
        assert_eq!((outdated.status, &outdated.body), (200, &first.body));
        kit.stop().await;
    });
}

#[test]
fn without_the_page_its_paths_are_not_found() {
    scene(|_| async move {
        let settings = GatewaySettings::default().with_page(false);
        let kit = GatewayKit::start_with(Script::default(), settings).await;
        for path in ["/", "/ui/app.js", "/ui/app.css", "/api/status", "/api/events", "/api/calls", "/api/names"] {
            assert_eq!(kit.get(path, "").await.status, 404, "{path}");
        }
        assert_eq!(kit.modern("tools/list", json!({})).await.status, 200);
        kit.stop().await;
    });
}

#[test]
fn other_sites_cannot_use_the_page_or_its_api() {
    scene(|_| async move {
        let kit = GatewayKit::start(Script::default()).await;
        for path in ["/", "/ui/app.js", "/api/status", "/api/calls", "/api/events", "/api/names"] {
            for headers in ["Host: localhost\r\nOrigin: https://evil.example\r\n", "Host: evil.example\r\n", ""] {
                let reply = kit.send(&bare("GET", path, headers)).await;
                assert_eq!(reply.status, 403, "{path} {headers}: {reply:?}");
            }
        }
        // An image element of another page sends no origin.
        for (headers, status) in [
            ("Sec-Fetch-Site: cross-site\r\n", 403),
            ("Sec-Fetch-Site: same-site\r\n", 403),
            ("Sec-Fetch-Site: cross-site\r\nOrigin: http://localhost:6274\r\n", 200),
            ("Sec-Fetch-Site: same-origin\r\n", 200),
            ("Sec-Fetch-Site: none\r\n", 200),
        ] {
            let reply = kit.get("/api/status", headers).await;
            assert_eq!(reply.status, status, "{headers}: {reply:?}");
            let allowed = reply.headers.get("access-control-allow-origin").map(String::as_str);
            assert_eq!(allowed, headers.contains("Origin").then_some("http://localhost:6274"), "{headers}");
        }
        for path in ["/metrics", "/api/stats", "/api/calls", "/api/events", "/sse"] {
            let reply = kit.get(path, "Sec-Fetch-Site: cross-site\r\n").await;
            assert_eq!(reply.status, 403, "{path}: {reply:?}");
        }
        for path in ["/metrics", "/api/stats", "/api/status", "/api/calls"] {
            let reply = kit.get(path, "").await;
            assert_eq!(reply.headers["x-content-type-options"], "nosniff", "{path}");
            assert_eq!(reply.headers["cross-origin-resource-policy"], "same-origin", "{path}");
        }
        assert_eq!(kit.send(&bare("POST", "/api/status", HOST)).await.status, 405);
        kit.stop().await;
    });
}

#[test]
fn the_status_describes_servers_and_profiles() {
    scene(|_| async move {
        let scripted = ScriptedServer::new(Script::default());
        let other = ScriptedServer::new(Script::default());
        let settings = GatewaySettings::default()
            .with_profile(ProfileSettings::new("reading").with_servers(vec!["b".into()]).with_search(true));
        let config = Config::default().with_server(entry("b", &scripted)).with_server(entry("a", &other));
        let kit = GatewayKit::launch(scripted, Gateway::builder(config).settings(settings)).await;
        let reply = kit.get("/api/status", "").await;
        assert_eq!((reply.status, reply.headers["cache-control"].as_str()), (200, "no-store"), "{reply:?}");
        let status = reply.json();
        assert_eq!((&status["name"], &status["state"]), (&json!("ropeway"), &json!("ready")));
        assert_eq!(status["counts"]["connections"], 1);
        let server = &status["servers"][0];
        assert_eq!((&server["server"], &server["state"]), (&json!("b"), &json!("ready")), "{status}");
        assert!(server["tools"].as_u64().is_some_and(|tools| tools > 0), "{server}");
        assert!(server["latency_ms"].as_f64().is_some_and(|latency| latency > 0.0), "{server}");
        assert!(server["protocol_version"].is_string() && server["era"].is_string(), "{server}");
        let profiles = status["profiles"].as_array().expect("profiles").iter();
        let profiles: Vec<_> = profiles.map(|profile| (profile["name"].as_str(), profile["kind"].as_str())).collect();
        let expected = [("default", "default"), ("reading", "profile"), ("b", "server"), ("a", "server")];
        assert_eq!(profiles, expected.map(|(name, kind)| (Some(name), Some(kind))));
        assert_eq!((&status["profiles"][1]["tools"], &status["profiles"][1]["search"]), (&json!(2), &json!(true)));
        kit.stop().await;
    });
}

#[test]
fn names_tell_the_server_of_each_tool_and_its_own_name() {
    scene(|_| async move {
        let (one, two) = (ScriptedServer::new(Script::default()), ScriptedServer::new(Script::default()));
        let settings = GatewaySettings::default()
            .with_profile(ProfileSettings::new("a b").with_servers(vec!["two".into()]))
            .with_profile(ProfileSettings::new("search").with_search(true));
        let config = Config::default().with_server(entry("one", &one)).with_server(entry("two", &two));
        let kit = GatewayKit::launch(one, Gateway::builder(config).settings(settings)).await;
        let names = kit.get("/api/names", "").await.json();
        assert_eq!(names["tools"]["one_echo"], json!({"server": "one", "tool": "echo"}), "{names}");
        assert_eq!(names["tools"]["two_echo"], json!({"server": "two", "tool": "echo"}), "{names}");
        let names = kit.get("/api/names?x=1&profile=a%20b", "").await.json();
        let owners = names["tools"].as_object().expect("tools").values();
        assert!(owners.clone().count() > 0 && owners.clone().all(|owner| owner["server"] == "two"), "{names}");
        assert_eq!(kit.get("/api/names?profile=search", "").await.json(), json!({"tools": {}}));
        assert_eq!(kit.get("/api/names?profile=unknown", "").await.status, 404);
        kit.stop().await;
    });
}

#[test]
fn the_status_does_not_wait_for_a_server_that_hangs() {
    scene(|_| async move {
        let hanging = Script::legacy().fault(FaultTrigger::method("ping"), Fault::Hang);
        let kit = GatewayKit::start(hanging).await;
        let started = tokio::time::Instant::now();
        let status = kit.get("/api/status", "").await.json();
        assert!(started.elapsed() < ms(2_000), "{:?}", started.elapsed());
        assert_eq!(status["servers"][0]["latency_ms"], Value::Null, "{status}");
        kit.stop().await;
    });
}

#[test]
fn calls_are_recorded_with_their_clients_and_outcomes() {
    scene(|_| async move {
        let kit = GatewayKit::start(Script::default()).await;
        assert_eq!(kit.calls().await, Vec::<Value>::new());
        kit.send(&modern_call("echo", json!({"message": "hi"}))).await;
        kit.send(&modern_call("<script>alert(1)</script>", json!({}))).await;
        let hanging = kit.open(&modern_call("sleep", json!({"ms": 600_000}))).await;
        until("a call in progress", || kit.gateway.status().requests == 1).await;
        drop(hanging);
        kit.idle().await;
        let calls = kit.calls().await;
        assert_eq!(calls.len(), 3, "{calls:?}");
        assert_eq!((&calls[0]["tool"], &calls[0]["outcome"]), (&json!("sleep"), &json!("cancelled")));
        assert_eq!((&calls[1]["tool"], &calls[1]["outcome"]), (&json!("<script>alert(1)</script>"), &json!("error")));
        let echoed = &calls[2];
        for (key, value) in [
            ("method", json!("tools/call")),
            ("tool", json!("echo")),
            ("server", json!("scripted")),
            ("profile", json!("default")),
            ("client_name", json!("unknown")),
            ("era", json!("modern")),
            ("outcome", json!("ok")),
        ] {
            assert_eq!(echoed[key], value, "{key}: {echoed}");
        }
        assert!(
            echoed["ms"].is_number() && echoed["bytes_in"].as_u64() > Some(0) && echoed["bytes_out"].as_u64() > Some(0),
            "{echoed}"
        );
        kit.stop().await;
    });
}

#[test]
fn only_the_latest_calls_are_kept() {
    scene(|_| async move {
        let kit = GatewayKit::start(Script::default()).await;
        for _ in 0..205 {
            kit.send(&modern_call("echo", json!({"message": "x".repeat(1000)}))).await;
        }
        let calls = kit.calls().await;
        assert_eq!(calls.len(), 200);
        let ids: std::collections::HashSet<String> = calls.iter().map(|call| call["call_id"].to_string()).collect();
        assert_eq!(ids.len(), 200, "each call has an id of its own");
        kit.stop().await;
    });
}

#[test]
fn events_arrive_until_the_gateway_stops() {
    scene(|_| async move {
        let kit = GatewayKit::start(Script::default()).await;
        let mut stream = kit.open(&bare("GET", "/api/events", HOST)).await;
        let head = read_until(&mut stream, ": connected").await;
        assert!(head.contains("text/event-stream"), "{head}");
        kit.send(&modern_call("echo", json!({"message": "hi"}))).await;
        let called = read_until(&mut stream, "mcp.tool_called").await;
        let data = called.lines().find_map(|line| line.strip_prefix("data: ")).expect("an event");
        let event: Value = serde_json::from_str(data).expect("JSON");
        assert_eq!((&event["server"], &event["tool"]), (&json!("scripted"), &json!("echo")), "{event}");
        assert!(event["time"].is_string(), "{event}");
        kit.stop().await;
    });
}
