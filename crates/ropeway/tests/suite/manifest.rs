//! Manifests end to end: servers run, filters apply, and warnings are emitted.

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};

use ropeway::bridge::{Bridge, BridgeError};
use ropeway::config::{Config, Secrets, ServerEntry, StdioServer};
use ropeway::event::{Event, EventStream};
use ropeway::registry::ServerState;
use ropeway::testing::{Script, ScriptedServer};
use ropeway::tool::CallContext;
use ropeway_config::ServerSettings;
use serde_json::{Value, json};

use crate::fast_config::{SOON, arguments, child, fast_config, listening};
use crate::scene::scene;

/// Reads a manifest of `tests/manifests` and fills in its placeholders.
pub(crate) fn manifest(name: &str, words: &[(&str, Value)]) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/manifests").join(name);
    let text = fs::read_to_string(path).expect("a manifest");
    words.iter().fold(text, |text, (word, value)| text.replace(word, &value.to_string()))
}

/// Returns the placeholders of a stdio server with their values.
pub(crate) fn program<'a>(names: [&'a str; 3], server: &StdioServer) -> [(&'a str, Value); 3] {
    let env: serde_json::Map<String, Value> =
        server.env.iter().map(|(name, value)| (name.clone(), json!(value.expose()))).collect();
    let args: Vec<String> = server.args.iter().map(|word| word.replace('$', "$$")).collect();
    [(names[0], json!(server.command)), (names[1], json!(args)), (names[2], json!(env))]
}

fn parse(text: &str, secrets: &Secrets) -> Config {
    Config::parse(text, Path::new("nowhere/manifest.yaml"), secrets).unwrap_or_else(|error| panic!("{error}"))
}

async fn started(config: Config) -> Bridge {
    let bridge = Bridge::new(config).expect("a bridge");
    bridge.start().await.expect("a start");
    bridge
}

fn names(bridge: &Bridge) -> Vec<String> {
    bridge.tools().registry.definitions().map(|definition| definition.name.clone()).collect()
}

fn outcome(bridge: &Bridge, alias: &str) -> ServerState {
    let statuses = bridge.statuses();
    statuses.into_iter().find(|status| status.server.as_str() == alias).expect("a status").state
}

/// Returns the warnings that are already available.
fn warnings(events: &mut EventStream) -> Vec<(Option<String>, String)> {
    std::iter::from_fn(|| events.try_next())
        .filter_map(|event| match event {
            Event::Warning { server, message } => Some((server.map(|server| server.to_string()), message)),
            _ => None,
        })
        .collect()
}

/// Returns a server with tools of these names.
fn with_tools(names: &[&str]) -> Script {
    let script = Script { builtin_tools: false, ..Script::default() };
    names.iter().fold(script, |script, name| {
        let definition = json!({"name": name, "inputSchema": {"type": "object"}});
        script.tool(definition, json!({"content": [{"type": "text", "text": name}]}))
    })
}

#[test]
fn the_filters_of_a_manifest_hold_in_every_place_and_narrow_each_other() {
    scene(|scene| async move {
        let server = child(&scene, &with_tools(&["read_file", "write_file", "read_key", "delete"]));
        let [(_, command), (_, args), (_, env)] = program(["", "", ""], &server);
        let entry = |alias: &str, keys: &str| {
            format!(
                "    - {{alias: {alias}, command: {command}, args: {args}, env: {env}, prefix: '{alias}_', {keys}}}\n"
            )
        };
        let text = format!(
            "config:\n  enabled_servers: [a, b, c, d]\n  tool_allowlist: {{a: ['read_*'], b: ['*_file'], c: []}}\n  servers:\n{}{}{}{}{}{}",
            entry("a", "tools: {deny: [read_key]}"),
            entry("b", "tools: {allow: ['*']}, tool_allowlist: ['read_*']"),
            entry("c", "tools: {allow: ['*']}"),
            entry("d", "tool_allowlist: [no_such_tool]"),
            entry("e", ""),
            "    - {alias: f, command: no-such-program, enabled: false}\n",
        );
        let bridge = started(parse(&text, &Secrets::none())).await;
        assert_eq!(names(&bridge), ["a_read_file", "b_read_file"]);
        assert_eq!(outcome(&bridge, "c"), ServerState::FilteredToZero { of: 4 });
        assert_eq!(outcome(&bridge, "d"), ServerState::FilteredToZero { of: 4 });
        assert_eq!((outcome(&bridge, "e"), outcome(&bridge, "f")), (ServerState::Disabled, ServerState::Disabled));
        let expected = "`config.tool_allowlist.c` is empty: all tools of server `c` are hidden";
        assert_eq!(warnings(&mut bridge.events()), [(None, expected.to_owned())]);
        bridge.stop().await;

        let bridge = started(parse(&format!("{text}enabled: false\n"), &Secrets::none())).await;
        assert_eq!(names(&bridge), [""; 0]);
        assert!(bridge.statuses().iter().all(|status| status.state == ServerState::Disabled));
        bridge.stop().await;
    });
}

#[test]
fn grouped_connections_are_reached_with_their_tokens() {
    scene(|scene| async move {
        let (script, http) = (with_tools(&["one"]), listening(with_tools(&["two"])).await);
        let mut words = program(["PROGRAM_COMMAND", "PROGRAM_ARGS", "PROGRAM_ENV"], &child(&scene, &script)).to_vec();
        words.push(("API_URL", json!(http.url())));
        let secrets = Secrets::none().with_fn(|name| (name == "API_TOKEN").then_some("t0ken-from-code"));
        let bridge = started(parse(&manifest("connections.yaml", &words), &secrets)).await;
        assert_eq!(names(&bridge), ["mcp_program_one", "mcp_api_two"]);
        let call = |tool: &'static str| {
            let registry = bridge.tools().registry;
            async move { registry.call_with(tool, arguments(json!({})), &CallContext::default()).await }
        };
        assert!(!call("mcp_program_one").await.meta.is_error);
        assert!(!call("mcp_api_two").await.meta.is_error);
        let requests = http.requests();
        assert!(!requests.is_empty());
        for request in requests {
            assert_eq!(request.header("authorization"), Some("Bearer t0ken-from-code"));
        }
        bridge.stop().await;
    });
}

#[test]
fn warnings_and_skipped_servers_are_reported_once_after_the_start() {
    scene(|_| async move {
        let text = "config:
  servers:
    - {alias: a, command: x, env: {T: '${NO_SUCH_SECRET}'}}
    - {alias: b, command: x, tool_allowlist: [], enabled: false}
";
        let config = parse(text, &Secrets::none());
        let bridge = Bridge::new(config.clone()).expect("a bridge");
        let mut before = bridge.events();
        assert_eq!(warnings(&mut before), [], "nothing is told before the start");
        bridge.start().await.expect("a start");
        let expected = [
            (Some("a".to_owned()), "server `a` is skipped: secret `NO_SUCH_SECRET` is not set".to_owned()),
            (None, "`tool_allowlist` of server `b` is empty: all its tools are hidden".to_owned()),
        ];
        assert_eq!(warnings(&mut before), expected);
        let mut after = bridge.events();
        assert_eq!(warnings(&mut after), expected);
        bridge.start().await.expect("a second start");
        assert_eq!((warnings(&mut before), warnings(&mut after)), (vec![], vec![]));

        // A reload emits the warnings of the new configuration, and a later listener receives only these.
        bridge.reload(Config::default()).await.expect("a reload");
        assert_eq!(warnings(&mut before), []);
        assert_eq!(warnings(&mut bridge.events()), []);
        bridge.reload(config).await.expect("a reload");
        assert_eq!(warnings(&mut before), expected);
        bridge.stop().await;
        assert_eq!(warnings(&mut bridge.events()), []);
    });
}

#[test]
fn skipped_and_invalid_servers_in_code_are_reported_too() {
    scene(|_| async move {
        let missing = ServerEntry::with_settings("a", ServerSettings::Missing { secrets: vec!["TOKEN".into()] });
        let reason = "`oauth` (3:7) is not supported".to_owned();
        let mut invalid = ServerEntry::with_settings("b", ServerSettings::Invalid { reason });
        let config = Config::default().with_server(missing).with_server(invalid.clone());
        let bridge = started(config).await;
        let expected = [
            (Some("a".to_owned()), "server `a` is skipped: secret `TOKEN` is not set".to_owned()),
            (Some("b".to_owned()), "server `b` is not started: `oauth` (3:7) is not supported".to_owned()),
        ];
        assert_eq!(warnings(&mut bridge.events()), expected);
        assert_eq!(bridge.statuses()[1].to_string(), "server `b` is not started: `oauth` (3:7) is not supported");
        bridge.stop().await;

        invalid.required = true;
        let error = Bridge::new(Config::default().with_server(invalid)).expect("a bridge").start().await;
        let error = error.expect_err("no start");
        assert!(matches!(error, BridgeError::RequiredInvalid { .. }), "{error}");
        assert_eq!(error.to_string(), "required server `b` cannot be started: `oauth` (3:7) is not supported");
    });
}

#[test]
fn a_callback_that_panics_or_blocks_does_not_disturb_a_running_bridge() {
    scene(|scene| async move {
        let file = scene.directory().join("manifest.yaml");
        let [(_, command), (_, args), (_, env)] = program(["", "", ""], &child(&scene, &with_tools(&["one"])));
        let write = |prefix: &str, token: &str| {
            let entry = format!(
                "{{alias: a, command: {command}, args: {args}, env: {env}, prefix: {prefix}, description_prefix: x}}"
            );
            let other = format!("{{alias: b, command: x, enabled: false, args: ['{token}']}}");
            fs::write(&file, format!("config: {{servers: [{entry}, {other}]}}\n")).expect("a file");
        };
        let (go, wait) = mpsc::channel::<()>();
        let (wait, blocks) = (std::sync::Mutex::new(wait), Arc::new(AtomicBool::new(false)));
        let is_blocking = blocks.clone();
        let secrets = Secrets::none().with_fn(move |name| match name {
            "PANICS" => panic!("on purpose"),
            "BLOCKS" => {
                is_blocking.store(true, Ordering::SeqCst);
                drop(wait.lock().map(|wait| wait.recv()));
                Some("late")
            }
            name => Some(if name == "FINE" { "fine" } else { "other" }),
        });
        write("one_", "${FINE}");
        let bridge = started(Config::load(&file, &secrets).expect("a configuration")).await;
        assert_eq!(names(&bridge), ["one_one"]);
        let mut events = bridge.events();
        bridge.watch(&file, secrets);

        write("two_", "${PANICS}");
        let told = async {
            loop {
                if let Some(Event::Warning { message, .. }) = events.next().await {
                    return message;
                }
            }
        };
        let told = tokio::time::timeout(SOON, told).await.expect("a warning");
        assert!(
            told.contains("using the previous one") && told.contains("`${PANICS}`: secrets callback panicked"),
            "{told}"
        );
        assert_eq!(names(&bridge), ["one_one"]);

        // While the callback blocks, everything else continues.
        write("three_", "${BLOCKS}");
        let until = tokio::time::Instant::now() + SOON;
        while !blocks.load(Ordering::SeqCst) && tokio::time::Instant::now() < until {
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
        assert!(blocks.load(Ordering::SeqCst), "it was asked");
        let envelope =
            bridge.tools().registry.call_with("one_one", arguments(json!({})), &CallContext::default()).await;
        assert!(!envelope.meta.is_error, "{envelope:?}");
        drop(go);
        let listing = bridge.until(|listing| listing.registry.definitions().any(|tool| tool.name == "three_one"));
        tokio::time::timeout(2 * SOON, listing).await.expect("a reload");
        bridge.stop().await;
    });
}

#[test]
fn an_allowlist_in_code_applies_like_one_in_a_file() {
    scene(|_| async move {
        let mut entry = ServerEntry::new(fast_config(ScriptedServer::new(with_tools(&["one", "two"])).in_process()));
        entry.tools.allowlists = vec![vec!["t*".into()], vec!["*".into()]];
        let bridge = started(Config::default().with_server(entry)).await;
        assert_eq!(names(&bridge), ["mcp_peer_two"]);
        bridge.stop().await;
    });
}
