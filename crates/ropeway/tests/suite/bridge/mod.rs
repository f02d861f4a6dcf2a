//! Bridges with scripted servers.

mod life;
mod lock;
mod sandbox;

use std::collections::BTreeMap;

use ropeway::bridge::{Bridge, BridgeError, ProcessPool, connect_and_discover, discover_and_register};
use ropeway::config::{CollisionPolicy, Config, ServerConfig, ServerEntry, StartMode, ToolOverride, Transport};
use ropeway::event::{Event, EventStream};
use ropeway::registry::{ContextItem, ContextSource, Registry, ServerState, ServerStatus, ToolSource};
use ropeway::testing::{Fault, FaultTrigger, HttpScriptedServer, Script, ScriptedServer};
use ropeway::tool::{Alias, CallContext, CallError, LocalTool, Tool as _, ToolDefinition};
use ropeway_bridge::ToolListing;
use ropeway_config::ServerSettings;
use ropeway_testing::SupportedEras;
use serde_json::{Value, json};

use crate::fast_config::{SOON, arguments, at, chain, child, event, fast_config, listening, ms};
use crate::scene::scene;

fn server(alias: &str, transport: impl Into<Transport>) -> ServerConfig {
    let mut config = fast_config(transport);
    config.alias = alias.into();
    config
}

fn entry(alias: &str, transport: impl Into<Transport>) -> ServerEntry {
    ServerEntry::new(server(alias, transport))
}

fn config(entries: impl IntoIterator<Item = ServerEntry>) -> Config {
    entries.into_iter().fold(Config::default(), Config::with_server)
}

/// A server with one tool, which returns its own name.
fn with_tool(name: &str) -> Script {
    let definition = json!({"name": name, "inputSchema": {"type": "object"}});
    let result = json!({"content": [{"type": "text", "text": name}]});
    Script { builtin_tools: false, ..Script::default() }.tool(definition, result)
}

async fn started(config: Config) -> Bridge {
    let bridge = Bridge::new(config).expect("a bridge");
    bridge.start().await.expect("a start");
    bridge
}

/// Starts a bridge that shares processes with the other bridges of the pool.
async fn started_in(pool: &ProcessPool, config: Config) -> Bridge {
    let bridge = Bridge::builder(config).process_pool(pool).build().expect("a bridge");
    bridge.start().await.expect("a start");
    bridge
}

fn names(listing: &ToolListing) -> Vec<&str> {
    listing.registry.definitions().map(|definition| definition.name.as_str()).collect()
}

fn outcomes(listing: &ToolListing) -> BTreeMap<&str, ServerState> {
    listing.statuses.iter().map(|status| (status.server.as_str(), status.state.clone())).collect()
}

async fn call(registry: &Registry, tool: &str, with: Value) -> Result<String, String> {
    let cx = CallContext::default();
    let call = registry.call_with(tool, arguments(with), &cx);
    let envelope = tokio::time::timeout(2 * SOON, call).await.expect("an envelope in time");
    let text = ropeway::content::plain_text(&envelope.meta.content).expect("text only");
    match &envelope.error {
        Some(error) => Err(chain(&**error)),
        None if envelope.meta.is_error => Err(text),
        None => Ok(text),
    }
}

/// Asks a scripted server for its process id.
async fn pid(bridge: &Bridge, alias: &str) -> i32 {
    let text = call(&bridge.tools().registry, &format!("mcp_{alias}_pid"), json!({})).await.expect("a number");
    let answer: Value = serde_json::from_str(&text).expect("JSON");
    answer["server"].as_i64().and_then(|pid| i32::try_from(pid).ok()).expect("a number")
}

fn kill(pid: i32) {
    let pid = rustix::process::Pid::from_raw(pid).expect("a process");
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).expect("it is alive");
}

async fn until(bridge: &Bridge, done: impl FnMut(&ToolListing) -> bool) -> ToolListing {
    let waited = tokio::time::timeout(2 * SOON, bridge.until(done)).await;
    waited.unwrap_or_else(|_| panic!("not in time: {:?}", bridge.tools().statuses))
}

async fn next_warning(events: &mut EventStream) -> String {
    let warning = async {
        loop {
            if let Some(Event::Warning { message, .. }) = events.next().await {
                return message;
            }
        }
    };
    tokio::time::timeout(SOON, warning).await.expect("a warning in time")
}

#[test]
fn a_bridge_that_is_not_started_has_no_tools() {
    scene(|scene| async move {
        let bridge = Bridge::new(config([entry("a", child(&scene, &with_tool("one")))])).expect("a bridge");
        assert_eq!(names(&bridge.tools()), [""; 0]);
        assert_eq!(outcomes(&bridge.tools()), BTreeMap::from([("a", ServerState::NotStarted)]));
        bridge.start().await.expect("a start");
        assert_eq!(names(&bridge.tools()), ["mcp_a_one"]);
        let held = bridge.tools().registry;
        bridge.stop().await;
        assert_eq!(names(&bridge.tools()), [""; 0]);
        assert_eq!(call(&held, "mcp_a_one", json!({})).await, Err("server `a` is not connected".to_owned()));
        // And again.
        bridge.start().await.expect("a second start");
        assert_eq!(call(&bridge.tools().registry, "mcp_a_one", json!({})).await.as_deref(), Ok("one"));
        bridge.stop().await;
    });
}

#[test]
fn servers_start_concurrently() {
    scene(|scene| async move {
        let mut slow = with_tool("one");
        slow.process.start_delay_ms = 700;
        let entries = (0..8).map(|number| {
            // Different names, since equal commands share a process.
            slow.name = format!("slow {number}");
            entry(&format!("s{number}"), child(&scene, &slow))
        });
        let bridge = Bridge::new(config(entries)).expect("a bridge");
        let begun = std::time::Instant::now();
        bridge.start().await.expect("a start");
        assert!(begun.elapsed() < ms(8 * 700), "one after the other takes longer than {:?}", begun.elapsed());
        assert_eq!(bridge.tools().registry.len(), 8);
        bridge.stop().await;
    });
}

#[test]
fn a_failing_server_does_not_affect_the_others() {
    scene(|scene| async move {
        let (good, stubborn) =
            (ScriptedServer::new(with_tool("one")), Script::default().fault(FaultTrigger::connect(), Fault::exit()));
        let mut missing =
            ServerEntry::with_settings("secretive", ServerSettings::Missing { secrets: vec!["TOKEN".into()] });
        missing.required = false;
        let mut off = entry("off", ScriptedServer::new(with_tool("x")).in_process());
        off.enabled = false;
        let mut picky = entry("picky", ScriptedServer::new(with_tool("y")).in_process());
        picky.tools.deny = vec!["*".into()];
        let bridge = Bridge::new(config([
            entry("absent", scene.stdio("/no/such/program", [""; 0])),
            entry("dying", child(&scene, &stubborn)),
            missing,
            off,
            picky,
            entry("good", good.in_process()),
        ]))
        .expect("a bridge");
        let mut events = bridge.events();
        bridge.start().await.expect("no server is required");
        let listing = bridge.tools();
        assert_eq!(names(&listing), ["mcp_good_one"]);
        assert_eq!(call(&listing.registry, "mcp_good_one", json!({})).await.as_deref(), Ok("one"));
        let outcomes = outcomes(&listing);
        assert_eq!(outcomes["good"], ServerState::Ready { tools: 1 });
        assert_eq!(outcomes["off"], ServerState::Disabled);
        assert_eq!(outcomes["picky"], ServerState::FilteredToZero { of: 1 });
        assert_eq!(outcomes["secretive"], ServerState::Skipped { secrets: vec!["TOKEN".into()] });
        for (alias, words) in [("absent", "/no/such/program"), ("dying", "")] {
            let health = bridge.health_check().await;
            let health = health.servers.into_iter().find(|server| server.server.as_str() == alias).expect("a record");
            assert!(!health.is_healthy() && !health.is_running());
            assert!(health.last_error.expect("an error").contains(words));
        }
        let health = bridge.health_check().await;
        assert!(!health.is_healthy() && health.is_running_healthy(), "{health:?}");
        let skipped = "server `secretive` is skipped: secret `TOKEN` is not set";
        assert_eq!(next_warning(&mut events).await, skipped);
        assert!(next_warning(&mut events).await.contains("not available, retrying"));
        bridge.stop().await;
    });
}

#[test]
fn a_server_that_fails_to_start_is_retried() {
    scene(|scene| async move {
        let state = scene.directory().join("state");
        let late = Script { state_file: Some(state), ..with_tool("one") }
            .fault(FaultTrigger::connect().first(2), Fault::exit());
        let bridge = started(config([entry("late", child(&scene, &late))])).await;
        let listing = until(&bridge, |listing| !listing.registry.is_empty()).await;
        assert_eq!(names(&listing), ["mcp_late_one"]);
        assert_eq!(outcomes(&listing)["late"], ServerState::Ready { tools: 1 });
        bridge.stop().await;
    });
}

#[test]
fn a_failing_required_server_stops_the_bridge() {
    scene(|scene| async move {
        let mut required = entry("absent", scene.stdio("/no/such/program", [""; 0]));
        required.required = true;
        let bridge =
            Bridge::new(config([entry("good", child(&scene, &with_tool("one"))), required])).expect("a bridge");
        let error = bridge.start().await.expect_err("no start");
        assert!(matches!(&error, BridgeError::Required { server, .. } if server.as_str() == "absent"));
        assert!(
            chain(&error)
                .starts_with("required server `absent` is not available: could not connect to server `absent`")
        );
        let listing = bridge.tools();
        let outcomes = outcomes(&listing);
        assert_eq!(outcomes["good"], ServerState::NotStarted);
        let ServerState::Down { cause } = &outcomes["absent"] else { panic!("{outcomes:?}") };
        assert!(cause.contains("/no/such/program"), "{cause}");
        let mut secretive = ServerEntry::with_settings("b", ServerSettings::Missing { secrets: vec!["TOKEN".into()] });
        secretive.required = true;
        let error = started_error(config([secretive])).await;
        assert_eq!(error, "required server `b` lacks secrets: `TOKEN` is not set");
    });
}

async fn started_error(config: Config) -> String {
    chain(&Bridge::new(config).expect("a bridge").start().await.expect_err("no start"))
}

#[test]
fn a_duplicate_alias_is_an_error() {
    let two = config(["a", "a"].map(|alias| entry(alias, ScriptedServer::new(Script::default()).in_process())));
    assert_eq!(Bridge::new(two).expect_err("no bridge").to_string(), "duplicate alias `a`");
}

#[test]
fn a_killed_server_is_restarted_with_its_tools() {
    scene(|scene| async move {
        let bridge = started(config([
            entry("a", child(&scene, &Script::default())),
            entry("b", child(&scene, &with_tool("one"))),
        ]))
        .await;
        let before = bridge.tools();
        let killed = pid(&bridge, "a").await;
        kill(killed);
        until(&bridge, |listing| !matches!(outcomes(listing)["a"], ServerState::Ready { .. })).await;
        // The other servers work, and the tools of the lost one stay listed.
        assert_eq!(call(&before.registry, "mcp_b_one", json!({})).await.as_deref(), Ok("one"));
        let after = until(&bridge, |listing| matches!(outcomes(listing)["a"], ServerState::Ready { .. })).await;
        assert_eq!(names(&after), names(&before));
        assert_ne!(pid(&bridge, "a").await, killed);
        let health = bridge.health_check().await;
        assert!(health.is_healthy(), "{health:?}");
        assert!(health.servers[0].last_error.is_some(), "what happened is not forgotten");
        bridge.stop().await;
    });
}

#[test]
fn a_registry_does_not_change_when_the_tools_do() {
    scene(|_| async move {
        let scripted = ScriptedServer::new(with_tool("one"));
        let bridge = started(config([entry("a", scripted.in_process())])).await;
        let turn = bridge.tools().registry;
        scripted.set(|script| script.extra_tools = with_tool("two").extra_tools);
        scripted.changed("tools");
        let next = until(&bridge, |listing| names(listing) == ["mcp_a_two"]).await;
        assert_eq!(call(&next.registry, "mcp_a_two", json!({})).await.as_deref(), Ok("two"));
        assert_eq!(turn.definitions().map(|tool| tool.name.as_str()).collect::<Vec<_>>(), ["mcp_a_one"]);
        bridge.stop().await;
    });
}

#[test]
fn an_unchanged_bridge_returns_the_same_registry() {
    scene(|_| async move {
        let bridge = started(config([entry("a", ScriptedServer::new(with_tool("one")).in_process())])).await;
        let (one, other) = (bridge.tools().registry, bridge.tools().registry);
        assert!(one.ptr_eq(&other));
        bridge.stop().await;
        assert!(!one.ptr_eq(&bridge.tools().registry));
    });
}

#[test]
fn entries_with_the_same_command_share_a_process() {
    scene(|scene| async move {
        let script = Script::default();
        let pool = ProcessPool::default();
        let one = [entry("a", child(&scene, &script)), entry("b", child(&scene, &script))];
        let one = started_in(&pool, config(one)).await;
        let other = started_in(&pool, config([entry("c", child(&scene, &script))])).await;
        let process = pid(&one, "a").await;
        assert_eq!((pid(&one, "b").await, pid(&other, "c").await), (process, process));
        assert_eq!(one.health_check().await.servers[0].users, 3);
        // Events and errors use the alias of each entry.
        let mut events = other.events();
        let registry = other.tools().registry;
        assert_eq!(call(&registry, "mcp_c_echo", json!({"message": "hi"})).await.as_deref(), Ok("hi"));
        let told = tokio::time::timeout(SOON, events.next()).await.expect("an event").expect("an event");
        assert_eq!(told.server().map(Alias::as_str), Some("c"));
        // Stopping one entry does not affect the other.
        one.stop().await;
        assert_eq!(pid(&other, "c").await, process);
        drop(other);
    });
}

#[test]
fn entries_with_different_settings_have_their_own_processes() {
    scene(|scene| async move {
        let script = Script::default();
        let other_env = child(&scene, &script).with_env("A", "b");
        let bridge = started(config([entry("a", child(&scene, &script)), entry("b", other_env)])).await;
        assert_ne!(pid(&bridge, "a").await, pid(&bridge, "b").await);
        bridge.stop().await;
    });
}

#[test]
fn bridges_without_a_common_pool_have_their_own_processes() {
    scene(|scene| async move {
        let servers = || config([entry("a", child(&scene, &Script::default()))]);
        let (one, other) = (started(servers()).await, started(servers()).await);
        assert_ne!(pid(&one, "a").await, pid(&other, "a").await);
        assert_eq!(one.health_check().await.servers[0].users, 1);
        one.stop().await;
        other.stop().await;
    });
}

#[test]
fn stopping_cancels_calls_on_a_shared_process() {
    scene(|scene| async move {
        let script = Script::default();
        let pool = ProcessPool::default();
        let one = started_in(&pool, config([entry("a", child(&scene, &script))])).await;
        let other = started_in(&pool, config([entry("a", child(&scene, &script))])).await;
        let registry = one.tools().registry;
        let mut events = one.events();
        let (hung, ()) = tokio::join!(call(&registry, "mcp_a_sleep", json!({"ms": 60000})), async {
            tokio::time::sleep(ms(100)).await;
            one.stop().await;
        });
        assert_eq!(hung, Err("server `a` was stopped while the call was in flight".to_owned()));
        let cause = event(&mut events, |event| match event {
            Event::ToolFailed { cause, .. } => Some(cause),
            _ => None,
        });
        assert_eq!(cause.await, "server `a` was stopped while the call was in flight");
        assert_eq!(call(&other.tools().registry, "mcp_a_echo", json!({"message": "hi"})).await.as_deref(), Ok("hi"));
        let late = call(&registry, "mcp_a_echo", json!({"message": "hi"})).await;
        assert_eq!(late, Err("server `a` is not connected".to_owned()), "a call after the end is not in flight");
        other.stop().await;
    });
}

#[test]
fn dropping_the_last_bridge_ends_processes_and_calls() {
    scene(|scene| async move {
        let bridge = started(config([entry("a", child(&scene, &Script::default()))])).await;
        let (clone, registry) = (bridge.clone(), bridge.tools().registry);
        let before = registry.len();
        drop(bridge);
        assert_eq!(call(&registry, "mcp_a_echo", json!({"message": "hi"})).await.as_deref(), Ok("hi"));
        let (hung, ()) = tokio::join!(call(&registry, "mcp_a_sleep", json!({"ms": 60000})), async move {
            tokio::time::sleep(ms(100)).await;
            drop(clone);
        });
        assert_eq!(hung, Err("server `a` was stopped while the call was in flight".to_owned()));
        // The scene checks that the process has ended, although the registry still exists.
        assert_eq!(registry.len(), before);
    });
}

#[test]
fn a_bridge_dropped_while_starting_leaves_no_process() {
    scene(|scene| async move {
        let mut slow = Script::default();
        slow.process.start_delay_ms = 20_000;
        let bridge = Bridge::new(config([entry("a", child(&scene, &slow))])).expect("a bridge");
        let start = tokio::time::timeout(ms(200), bridge.start()).await;
        assert!(start.is_err(), "it takes longer");
        assert_eq!(outcomes(&bridge.tools())["a"], ServerState::Connecting);
        drop(bridge);
    });
}

#[test]
fn a_cached_lazy_server_starts_with_its_first_call() {
    scene(|scene| async move {
        let record = scene.directory().join("record");
        let script = Script { record_file: Some(record.clone()), ..with_tool("one") };
        let mut lazy = entry("a", child(&scene, &script));
        lazy.start = StartMode::Lazy;
        let bridge = || {
            let memory = scene.directory().join("memory");
            Bridge::builder(config([lazy.clone()])).cache_dir(memory).build().expect("a bridge")
        };
        // The cache is empty, so the server is started.
        let first = bridge();
        first.start().await.expect("a start");
        assert_eq!(outcomes(&first.tools())["a"], ServerState::Ready { tools: 1 });
        first.stop().await;
        let asked = std::fs::read(&record).expect("a record").len();

        let second = bridge();
        second.start().await.expect("a start");
        let listing = second.tools();
        assert_eq!(outcomes(&listing)["a"], ServerState::Cached { tools: 1 });
        assert!(second.health_check().await.is_healthy());
        assert_eq!(std::fs::read(&record).expect("a record").len(), asked, "it was not started");
        let calls = tokio::join!(
            call(&listing.registry, "mcp_a_one", json!({})),
            call(&listing.registry, "mcp_a_one", json!({})),
        );
        assert_eq!(calls, (Ok("one".to_owned()), Ok("one".to_owned())));
        assert_eq!(outcomes(&second.tools())["a"], ServerState::Ready { tools: 1 });
        second.stop().await;

        // A call is not necessary.
        let third = bridge();
        third.start().await.expect("a start");
        assert_eq!(outcomes(&third.tools())["a"], ServerState::Cached { tools: 1 });
        third.wake("a").await.expect("it wakes");
        assert_eq!(outcomes(&third.tools())["a"], ServerState::Ready { tools: 1 });
        let unknown = third.wake("b").await.expect_err("there is none");
        assert!(matches!(unknown, CallError::NotConnected { .. }), "{unknown}");
        third.stop().await;
    });
}

#[test]
fn until_statuses_returns_before_slow_servers_are_ready() {
    scene(|scene| async move {
        let slow = Script::default().fault(FaultTrigger::any(), Fault::Hang);
        let mut late = server("late", child(&scene, &slow));
        late.timeouts.connect = 10 * SOON;
        let quick = entry("quick", child(&scene, &with_tool("one")));
        let bridge = Bridge::new(config([ServerEntry::new(late), quick])).expect("a bridge");
        let outcome = |alias: &str| outcomes(&bridge.tools())[alias].clone();
        let statuses = bridge.until_statuses(|statuses| statuses[1].state == ServerState::Ready { tools: 1 });
        tokio::select! {
            statuses = statuses => assert_eq!(statuses, bridge.tools().statuses),
            started = bridge.start() => panic!("nobody is that late: {started:?}"),
        }
        assert_eq!((outcome("late"), outcome("quick")), (ServerState::Connecting, ServerState::Ready { tools: 1 }));
        assert_eq!(bridge.statuses(), bridge.tools().statuses);
        bridge.stop().await;
    });
}

#[test]
fn a_health_check_respects_its_timeout() {
    scene(|scene| async move {
        let silent = Script::legacy().fault(FaultTrigger::method("ping"), Fault::Hang);
        let bridge =
            started(config([entry("a", child(&scene, &silent)), entry("b", child(&scene, &Script::legacy()))])).await;
        let health = tokio::time::timeout(SOON, bridge.health_check_within(ms(200))).await.expect("an answer in time");
        assert_eq!(health.servers.iter().map(|server| server.latency.is_some()).collect::<Vec<_>>(), [false, true]);
        assert_eq!(health.servers[0].last_error.as_deref(), Some("no response to ping within 200 ms"));
        bridge.stop().await;
    });
}

#[test]
fn a_reload_restarts_changed_servers_only() {
    scene(|scene| async move {
        let numbered = |number: u32| Script { name: format!("n{number}"), ..Script::default() };
        let entries =
            || ["a", "b", "c"].into_iter().zip(1..).map(|(alias, n)| entry(alias, child(&scene, &numbered(n))));
        let bridge = started(config(entries())).await;
        let mut events = bridge.events();
        let (a, b) = (pid(&bridge, "a").await, pid(&bridge, "b").await);
        let mut new: Vec<ServerEntry> = entries().take(2).collect();
        // Only the prefix differs: the server is not restarted.
        new[0].prefix = "x_".into();
        new[1] = entry("b", child(&scene, &numbered(7)));
        new.push(entry("d", child(&scene, &with_tool("one"))));
        let reloaded = bridge.reload(config(new)).await.expect("a new configuration");
        let aliases = |list: &[Alias]| list.iter().map(|alias| alias.as_str().to_owned()).collect::<Vec<_>>();
        assert_eq!(aliases(&reloaded.started), ["d"]);
        assert_eq!(aliases(&reloaded.stopped), ["c"]);
        assert_eq!(aliases(&reloaded.restarted), ["a", "b"]);
        let listing = bridge.tools();
        assert!(outcomes(&listing).values().all(|outcome| matches!(outcome, ServerState::Ready { .. })), "{listing:?}");
        let same = call(&listing.registry, "x_pid", json!({})).await.expect("a process");
        assert!(same.contains(&a.to_string()), "{same}");
        assert_ne!(pid(&bridge, "b").await, b);
        assert!(listing.registry.of_server(&"c".into()).next().is_none());
        let told = async {
            loop {
                if let Some(Event::Reloaded { started, .. }) = events.next().await {
                    return started;
                }
            }
        };
        assert_eq!(tokio::time::timeout(SOON, told).await.expect("an event"), [Alias::from("d")]);
        bridge.stop().await;
    });
}

#[test]
fn collisions_are_resolved_by_policy() {
    scene(|_| async move {
        for (policy, expected) in [
            (CollisionPolicy::LastWins, vec![("one", "b")]),
            (CollisionPolicy::Error, vec![("one", "a")]),
            (CollisionPolicy::Suffix, vec![("one", "a"), ("one_2", "b")]),
        ] {
            let twins = ["a", "b"].map(|alias| {
                let mut twin = entry(alias, ScriptedServer::new(with_tool("one")).in_process());
                twin.prefix = String::new();
                twin
            });
            let mut config = config(twins);
            config.collisions = policy;
            let bridge = Bridge::new(config).expect("a bridge");
            let mut events = bridge.events();
            bridge.start().await.expect("a start");
            let registry = bridge.tools().registry;
            let found: Vec<_> = registry
                .definitions()
                .map(|tool| match &tool.origin {
                    ropeway::tool::Origin::Server { server, .. } => (tool.name.as_str(), server.as_str()),
                    ropeway::tool::Origin::Local => (tool.name.as_str(), ""),
                })
                .collect();
            assert_eq!(found, expected, "{policy:?}");
            if policy != CollisionPolicy::Suffix {
                let warning = next_warning(&mut events).await;
                assert!(warning.contains("`one`") && warning.contains("`a`") && warning.contains("`b`"), "{warning}");
            }
            bridge.stop().await;
        }
    });
}

#[test]
fn an_unknown_tool_returns_an_envelope_with_suggestions() {
    scene(|_| async move {
        let bridge = started(config([entry("a", ScriptedServer::new(with_tool("one")).in_process())])).await;
        let error = call(&bridge.tools().registry, "mcp_a_onn", json!({})).await.expect_err("no tool");
        assert!(error.contains("mcp_a_onn"), "{error}");
        let registry = bridge.tools().registry;
        let envelope = registry.call_with("mcp_a_onn", arguments(json!({})), &CallContext::default()).await;
        let words = ropeway::content::plain_text(&envelope.meta.content).expect("text");
        assert!(words.contains("mcp_a_one"), "{words}");
        assert!(matches!(envelope.error.as_deref(), Some(CallError::UnknownTool { .. })));
        bridge.stop().await;
    });
}

#[test]
fn configuration_and_code_filter_and_transform_tools() {
    scene(|_| async move {
        let mut shaped = entry("a", ScriptedServer::new(Script::default()).in_process());
        shaped.tools.allow = vec!["echo".into(), "add".into()];
        shaped.description_prefix = Some("[MCP: {alias}] ".into());
        let bridge = Bridge::builder(config([shaped])).filter(|tool| tool.name != "add").build().expect("a bridge");
        bridge.start().await.expect("a start");
        let listing = bridge.tools();
        assert_eq!(names(&listing), ["mcp_a_echo"]);
        let definition = listing.registry.definitions().next().expect("a tool");
        assert!(definition.description.as_deref().is_some_and(|text| text.starts_with("[MCP: a] ")), "{definition:?}");
        assert_eq!(call(&listing.registry, "mcp_a_echo", json!({"message": "hi"})).await.as_deref(), Ok("hi"));
        bridge.stop().await;
    });
}

#[test]
fn discovered_tools_can_be_registered_by_the_host() {
    scene(|_| async move {
        let mut tools = Registry::default();
        let local = LocalTool::new(ToolDefinition::new("here"), |_, _| async { Ok("local") });
        assert!(tools.register(local).is_none());
        let servers = config([entry("a", ScriptedServer::new(with_tool("one")).in_process())]);
        let statuses = discover_and_register(servers.clone(), &mut tools).await.expect("tools");
        assert_eq!(statuses, [ServerStatus::new("a", ServerState::Ready { tools: 1 })]);
        assert_eq!(call(&tools, "here", json!({})).await.as_deref(), Ok("local"));
        assert_eq!(call(&tools, "mcp_a_one", json!({})).await.as_deref(), Ok("one"));
        assert_eq!(tools.without_server(&"a".into()).len(), 1);
        let (bridge, found) = connect_and_discover(servers).await.expect("tools");
        assert_eq!(found.len(), 1);
        // As a tool source, the bridge starts itself.
        let source: &dyn ToolSource = &bridge;
        source.ready().await;
        assert_eq!(source.registry().len(), 1);
        bridge.stop().await;
    });
}

#[test]
fn a_bridge_without_a_running_server_is_healthy_only_if_none_should_run() {
    scene(|scene| async move {
        let absent = entry("absent", scene.stdio("/no/such/program", [""; 0]));
        let mut off = absent.clone();
        off.enabled = false;
        for (servers, healthy) in [(vec![absent], false), (vec![off], true), (vec![], true)] {
            let bridge = Bridge::new(config(servers)).expect("a bridge");
            bridge.start().await.expect("no server is required");
            let health = bridge.health_check().await;
            assert_eq!((health.is_running_healthy(), health.is_healthy()), (healthy, healthy), "{health:?}");
            bridge.stop().await;
        }
    });
}

#[test]
fn an_invalid_schema_is_a_warning_when_it_is_listed() {
    scene(|_| async move {
        let mut odd = with_tool("odd");
        odd.extra_tools[0].definition["inputSchema"] =
            json!({"type": "object", "properties": {"a": {"type": "strin"}}});
        let bridge = Bridge::new(config([entry("a", ScriptedServer::new(odd).in_process())])).expect("a bridge");
        let mut events = bridge.events();
        bridge.start().await.expect("a start");
        let warning = next_warning(&mut events).await;
        assert!(warning.contains("input schema of tool `odd`") && warning.contains("strin"), "{warning}");
        bridge.stop().await;
    });
}

/// Returns the methods that a scripted server received.
fn methods(scripted: &HttpScriptedServer) -> Vec<String> {
    let method = |message: &Value| message["method"].as_str().map(str::to_owned);
    let methods = scripted.received().iter().filter_map(method).collect::<Vec<_>>();
    methods.into_iter().filter(|method| matches!(method.as_str(), "server/discover" | "initialize")).collect()
}

#[test]
fn a_legacy_server_is_not_probed_again() {
    scene(|scene| async move {
        let http = listening(Script::legacy()).await;
        let folder = scene.directory().join("memory");
        let start = async || {
            let servers = config([entry("a", at(http.url()))]);
            let bridge = Bridge::builder(servers).cache_dir(&folder).build().expect("a bridge");
            bridge.start().await.expect("a start");
            assert_eq!(names(&bridge.tools()).first().map(|name| &**name), Some("mcp_a_echo"));
            bridge.stop().await;
        };
        start().await;
        assert_eq!(methods(&http), ["server/discover", "initialize"]);
        start().await;
        assert_eq!(methods(&http), ["server/discover", "initialize", "initialize"]);
    });
}

#[test]
fn an_updated_modern_server_is_detected_in_one_connection() {
    scene(|scene| async move {
        let (legacy, folder) = (listening(Script::legacy()).await, scene.directory().join("memory"));
        let bridge = |url: String| {
            let mut entry = entry("a", at(url));
            entry.required = true;
            Bridge::builder(config([entry])).cache_dir(&folder).build().expect("a bridge")
        };
        let first = bridge(legacy.url());
        first.start().await.expect("a start");
        first.stop().await;
        legacy.set(|script| *script = Script::modern());
        let second = bridge(legacy.url());
        second.start().await.expect("a start although the era is another one");
        second.stop().await;
        assert_eq!(methods(&legacy), ["server/discover", "initialize", "initialize", "server/discover"]);
        let third = bridge(legacy.url());
        third.start().await.expect("a start");
        third.stop().await;
        assert_eq!(methods(&legacy).last().map(String::as_str), Some("server/discover"));
    });
}

#[test]
fn a_server_that_rejects_the_cached_era_is_probed_again() {
    scene(|scene| async move {
        let http = listening(Script::legacy()).await;
        let folder = scene.directory().join("memory");
        let start = async |connect: std::time::Duration| {
            let mut entry = entry("a", at(http.url()));
            if let ServerSettings::Known(config) = &mut entry.settings {
                config.timeouts.connect = connect;
            }
            let bridge = Bridge::builder(config([entry])).cache_dir(&folder).build().expect("a bridge");
            bridge.start().await.expect("no server is required");
            let outcome = bridge.statuses().remove(0).state;
            bridge.stop().await;
            outcome
        };
        assert!(matches!(start(SOON).await, ServerState::Ready { .. }));
        http.set(|script| *script = Script::modern().fault(FaultTrigger::method("initialize"), Fault::Hang));
        // After a timeout, the server no longer counts as legacy.
        assert!(matches!(start(ms(600)).await, ServerState::Down { .. }));
        assert!(matches!(start(SOON).await, ServerState::Ready { .. }));

        // A process that exits on `initialize` is started again and probed.
        let file = scene.directory().join("script.json");
        let program = env!("CARGO_BIN_EXE_scripted-server");
        let command = format!("exec {program} \"$(cat {})\"", file.display());
        for script in [Script::legacy(), Script::modern().fault(FaultTrigger::method("initialize"), Fault::exit())] {
            std::fs::write(&file, serde_json::to_string(&script).expect("a script")).expect("a file");
            let servers = config([entry("b", scene.stdio("sh", ["-c", &command]))]);
            let bridge = Bridge::builder(servers).cache_dir(&folder).build().expect("a bridge");
            bridge.start().await.expect("no server is required");
            let statuses = bridge.statuses();
            assert!(matches!(statuses[0].state, ServerState::Ready { .. }), "{statuses:?}");
            bridge.stop().await;
        }
    });
}

#[test]
fn registered_tools_keep_connections_alive() {
    scene(|scene| async move {
        let mut tools = Registry::default();
        let servers = config([entry("a", child(&scene, &with_tool("one")))]);
        discover_and_register(servers, &mut tools).await.expect("tools");
        assert_eq!(scene.processes().len(), 1);
        assert_eq!(call(&tools, "mcp_a_one", json!({})).await.as_deref(), Ok("one"));
        let without = tools.without_server(&"a".into());
        drop(tools);
        assert!(without.is_empty());
        crate::fast_config::until("the process is gone", || scene.processes().is_empty()).await;
    });
}

#[test]
fn discovered_tools_have_own_names_and_get_the_prefix_on_registering() {
    scene(|_| async move {
        let servers = config([entry("a", ScriptedServer::new(Script::default()).in_process())]);
        let (bridge, found) = connect_and_discover(servers).await.expect("tools");
        let mut tools = Registry::default();
        for tool in found {
            match tool.definition().name.as_str() {
                "echo" => assert!(tool.register_exposed(&mut tools).is_none()),
                "add" => {
                    let rename = ToolOverride::default().with_name_prefix("my_".to_owned());
                    let tool = tool.transformed(rename).expect("a tool");
                    assert_eq!((tool.definition().name.as_str(), tool.exposed_name()), ("my_add", "mcp_a_my_add"));
                    assert!(tools.register(tool).is_none());
                }
                "sleep" => {
                    let rename = |tool: ToolDefinition| Some(tool.with_name("wait"));
                    let tool = tool.transformed(rename).expect("a tool");
                    assert_eq!(tool.definition().own_name(), "sleep", "the server hears its own name");
                    assert!(tool.register_exposed(&mut tools).is_none());
                }
                _ => {}
            }
        }
        // The tools keep the connection alive.
        drop(bridge);
        let names: Vec<&str> = tools.definitions().map(|definition| definition.name.as_str()).collect();
        assert_eq!(names, ["mcp_a_echo", "my_add", "mcp_a_wait"]);
        assert_eq!(call(&tools, "mcp_a_echo", json!({"message": "hi"})).await.as_deref(), Ok("hi"));
        assert_eq!(call(&tools, "my_add", json!({"a": 1, "b": 2})).await.as_deref(), Ok("{\"sum\":3.0}"));
    });
}

#[test]
fn a_failing_server_is_reported_and_the_others_registered() {
    scene(|scene| async move {
        let mut tools = Registry::default();
        let mut dead = server("dead", scene.stdio("/no/such/program", [""; 0]));
        // During the next attempt, it would be connecting.
        dead.reconnect.enabled = false;
        let servers = config([
            entry("a", ScriptedServer::new(with_tool("one")).in_process()),
            ServerEntry::new(dead),
            entry("b", ScriptedServer::new(with_tool("two")).in_process()),
        ]);
        let statuses = discover_and_register(servers, &mut tools).await.expect("tools");
        assert!(
            matches!(&statuses[1].state, ServerState::Down { cause } if cause.contains("/no/such/program")),
            "{statuses:?}"
        );
        assert_eq!(call(&tools, "mcp_a_one", json!({})).await.as_deref(), Ok("one"));
        assert_eq!(call(&tools, "mcp_b_two", json!({})).await.as_deref(), Ok("two"));
        assert_eq!(tools.len(), 2);
    });
}

#[test]
fn resources_and_prompts_can_be_exposed_as_tools() {
    scene(|_| async move {
        let mut extras =
            entry("a", ScriptedServer::new(Script { builtin_tools: false, ..Script::default() }).in_process());
        assert_eq!(names(&started(config([extras.clone()])).await.tools()), [""; 0]);
        extras.resources.tools = true;
        extras.prompt_tools = true;
        let bridge = started(config([extras])).await;
        let listing = bridge.tools();
        let names = names(&listing);
        assert!(names.starts_with(&["mcp_a_list_resources", "mcp_a_read_resource"]), "{names:?}");
        assert!(names[2].starts_with("mcp_a_get_prompt_"), "{names:?}");
        let cx = CallContext::default();
        let listed = listing.registry.call_with("mcp_a_list_resources", arguments(json!({})), &cx).await;
        let uri = listed.meta.structured_content.as_ref().expect("a list")["resources"][0]["uri"].clone();
        let read = listing.registry.call_with("mcp_a_read_resource", arguments(json!({"uri": uri})), &cx).await;
        assert!(!read.meta.is_error && !read.meta.content.is_empty(), "{read:?}");
        let prompt = listing.registry.call_with(names[2], arguments(json!({"name": "x"})), &cx).await;
        assert!(prompt.error.is_none(), "{prompt:?}");
        bridge.stop().await;
    });
}

#[test]
fn context_is_cached_until_the_server_reports_a_change() {
    scene(|_| async move {
        let scripted = ScriptedServer::new(Script { instructions: Some("Be kind.".into()), ..Script::default() });
        let mut contextual = entry("a", scripted.in_process());
        contextual.resources.context = vec!["*".into()];
        contextual.resources.context_bytes = 200;
        contextual.instructions = true;
        let bridge = started(config([contextual])).await;
        let reads = || scripted.received().iter().filter(|message| message["method"] == "resources/read").count();
        let first = bridge.context().await;
        assert_eq!(first[0], ContextItem::instructions("a", "Be kind."));
        assert!(first.len() > 1, "{first:?}");
        assert!(first[1..].iter().all(|item| !item.is_instructions), "{first:?}");
        // A resource that was read before the subscription was confirmed may be stale, so it is read again.
        let cached = async {
            let mut before = 0;
            while reads() != before {
                before = reads();
                tokio::time::sleep(ms(10)).await;
                assert_eq!(bridge.context().await, first);
            }
        };
        tokio::time::timeout(SOON, cached).await.expect("resources are cached");
        let after_first = reads();
        assert_eq!(bridge.context().await, first);
        assert_eq!(reads(), after_first, "unchanged resources are not read again");
        let bytes: usize =
            first[1..].iter().map(|item| serde_json::to_string(&item.content).expect("JSON").len()).sum();
        assert!(bytes < 4000, "{bytes}");
        let uri = first[1].name.clone();
        scripted.touched(&uri);
        let read_again = async {
            while reads() == after_first {
                bridge.context().await;
                tokio::time::sleep(ms(10)).await;
            }
        };
        tokio::time::timeout(SOON, read_again).await.expect("it is read again");
        bridge.stop().await;
    });
}

#[test]
fn resources_without_a_confirmed_subscription_are_not_cached() {
    scene(|_| async move {
        let script = Script { eras: SupportedEras::Legacy, ..Script::default() };
        let scripted = ScriptedServer::new(script.fault(FaultTrigger::method("resources/subscribe"), Fault::Hang));
        let mut contextual = entry("a", scripted.in_process());
        contextual.resources.context = vec!["*".into()];
        let bridge = started(config([contextual])).await;
        let reads = || scripted.received().iter().filter(|message| message["method"] == "resources/read").count();
        for _ in 0..3 {
            let before = reads();
            let context = bridge.context().await;
            assert!(!context.is_empty());
            assert_eq!(reads(), before + context.len());
        }
        bridge.stop().await;
    });
}

#[test]
fn fifty_failing_servers_do_not_affect_150_others() {
    scene(|scene| async move {
        let entries = (0..200).map(|number| {
            let alias = format!("s{number}");
            match number % 4 {
                0 => entry(&alias, scene.stdio(format!("/no/such/program-{number}"), [""; 0])),
                _ => entry(&alias, ScriptedServer::new(with_tool("one")).in_process()),
            }
        });
        let bridge = started(config(entries)).await;
        let listing = bridge.tools();
        assert_eq!(listing.registry.len(), 150);
        let down = listing
            .statuses
            .iter()
            .filter(|status| matches!(status.state, ServerState::Down { .. } | ServerState::Connecting));
        assert_eq!(down.count(), 50);
        bridge.stop().await;
    });
}

#[test]
fn truncated_names_are_all_kept() {
    scene(|_| async move {
        let long = |number: u32| format!("{}{number}", "a_very_long_name_".repeat(6));
        let script = (0..20).fold(Script { builtin_tools: false, ..Script::default() }, |script, number| {
            let result = json!({"content": [{"type": "text", "text": number.to_string()}]});
            script.tool(json!({"name": long(number), "inputSchema": {"type": "object"}}), result)
        });
        let bridge = started(config([entry("a", ScriptedServer::new(script).in_process())])).await;
        let listing = bridge.tools();
        assert_eq!(listing.registry.len(), 20);
        assert!(names(&listing).iter().all(|name| name.len() <= 64));
        for (number, name) in names(&listing).into_iter().enumerate() {
            assert_eq!(call(&listing.registry, name, json!({})).await, Ok(number.to_string()));
        }
        bridge.stop().await;
    });
}

#[test]
fn http_and_sse_servers_are_bridged() {
    scene(|scene| async move {
        let web = listening(with_tool("one")).await;
        let bridge = started(config([
            entry("web", at(web.url())),
            entry("old", Transport::Sse(at(web.sse_url()))),
            entry("here", child(&scene, &with_tool("one"))),
        ]))
        .await;
        assert_eq!(names(&bridge.tools()), ["mcp_web_one", "mcp_old_one", "mcp_here_one"]);
        let health = bridge.health_check().await;
        assert!(health.is_healthy(), "{health:?}");
        let transports: Vec<_> = health.servers.iter().map(|server| server.transport).collect();
        assert_eq!(transports, [Some("http"), Some("sse"), Some("stdio")]);
        bridge.stop().await;
    });
}

#[test]
fn a_bridge_can_be_stopped_while_starting() {
    scene(|scene| async move {
        let mut slow = Script::default();
        slow.process.start_delay_ms = 20_000;
        let bridge = Bridge::new(config([entry("a", child(&scene, &slow))])).expect("a bridge");
        let both = async {
            tokio::join!(bridge.start(), async {
                tokio::time::sleep(ms(200)).await;
                bridge.stop().await;
            })
        };
        let (started, ()) = tokio::time::timeout(SOON, both).await.expect("in time");
        assert_eq!(started.expect("nothing is required")[0].state, ServerState::NotStarted);
    });
}

#[test]
fn after_tools_changed_the_new_tools_are_listed() {
    scene(|_| async move {
        let scripted = ScriptedServer::new(with_tool("one"));
        let bridge = started(config([entry("a", scripted.in_process())])).await;
        let mut events = bridge.events();
        scripted.set(|script| script.extra_tools = with_tool("two").extra_tools);
        scripted.changed("tools");
        let changed = async {
            while !matches!(events.next().await, Some(Event::ToolsChanged { .. })) {}
            bridge.tools()
        };
        let listing = tokio::time::timeout(SOON, changed).await.expect("an event");
        assert_eq!(names(&listing), ["mcp_a_two"]);
        bridge.stop().await;
    });
}

#[test]
fn calls_on_a_shared_process_have_their_own_timeouts() {
    scene(|scene| async move {
        let script = Script::default();
        let pool = ProcessPool::default();
        let one = started_in(&pool, config([entry("a", child(&scene, &script))])).await;
        let mut hurried = server("b", child(&scene, &script));
        hurried.timeouts.total = ms(100);
        let other = started_in(&pool, config([ServerEntry::new(hurried)])).await;
        let late = call(&other.tools().registry, "mcp_b_sleep", json!({"ms": 5000})).await.expect_err("too late");
        assert!(late.starts_with("server `b` timed out after "), "{late}");
        call(&one.tools().registry, "mcp_a_sleep", json!({"ms": 200})).await.expect("no hurry here");
        one.stop().await;
        other.stop().await;
    });
}
