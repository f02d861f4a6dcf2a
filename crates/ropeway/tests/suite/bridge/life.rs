//! Lifecycle of a bridge: concurrent, late and failing operations.

use std::fs;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use ropeway::bridge::{Bridge, ProcessPool};
use ropeway::config::{CollisionPolicy, Config, Secrets, ServerConfig, ServerEntry, StartMode};
use ropeway::event::{Event, EventStream};
use ropeway::registry::{ContextSource, ServerState, ToolSource};
use ropeway::testing::{Fault, FaultTrigger, Script, ScriptedServer};
use ropeway_bridge::ToolListing;
use serde_json::{Value, json};

use super::{call, config, entry, names, started, started_in, until};
use crate::fast_config::{SOON, at, child, listening, ms};
use crate::scene::{Scene, scene};

fn known(entry: &mut ServerEntry) -> &mut ServerConfig {
    match &mut entry.settings {
        ropeway_config::ServerSettings::Known(config) => config,
        _ => panic!("nothing is missing"),
    }
}

/// Returns a server without built-in tools.
fn bare() -> Script {
    Script { builtin_tools: false, ..Script::default() }
}

fn outcome(listing: &ToolListing, alias: &str) -> ServerState {
    listing.statuses.iter().find(|status| status.server.as_str() == alias).expect("a status").state.clone()
}

/// Returns the first matching event.
async fn event<T>(events: &mut EventStream, mut is_meant: impl FnMut(Event) -> Option<T>) -> T {
    let found = async {
        loop {
            if let Some(found) = is_meant(events.next().await.expect("an event")) {
                return found;
            }
        }
    };
    tokio::time::timeout(2 * SOON, found).await.expect("the event in time")
}

fn warning(event: Event) -> Option<String> {
    match event {
        Event::Warning { message, .. } => Some(message),
        _ => None,
    }
}

#[test]
fn concurrent_start_and_stop_leaves_no_process() {
    scene(|scene| async move {
        for round in 0..10_u32 {
            let entries = (0..4).map(|number| {
                let script = Script { name: format!("{round} {number}"), ..bare() };
                entry(&format!("s{number}"), child(&scene, &script))
            });
            let bridge = Bridge::new(config(entries)).expect("a bridge");
            let (start, stop) = (bridge.clone(), bridge.clone());
            let start = tokio::spawn(async move { start.start().await.map(drop) });
            let stop = tokio::spawn(async move {
                tokio::time::sleep(Duration::from_micros(u64::from(round) * 300)).await;
                stop.stop().await;
            });
            let _ = tokio::join!(start, stop);
            drop(bridge);
        }
    });
}

#[test]
fn a_bridge_can_be_restarted_after_a_dropped_stop() {
    scene(|scene| async move {
        let mut stubborn = Script::default();
        stubborn.process.ignore_eof = true;
        let bridge = started(config([entry("a", child(&scene, &stubborn))])).await;
        let stopped = tokio::time::timeout(ms(20), bridge.stop()).await;
        assert!(stopped.is_err(), "it takes longer");
        bridge.start().await.expect("a start");
        assert_eq!(call(&bridge.tools().registry, "mcp_a_echo", json!({"message": "hi"})).await.as_deref(), Ok("hi"));
        bridge.stop().await;
    });
}

#[test]
fn entries_with_different_timeouts_share_a_process() {
    scene(|scene| async move {
        let mut short = entry("short", child(&scene, &Script::default()));
        known(&mut short).timeouts.total = ms(1500);
        let pool = ProcessPool::default();
        let one = started_in(&pool, config([short])).await;
        let mut long = entry("long", child(&scene, &Script::default()));
        known(&mut long).timeouts.total = Duration::MAX;
        let other = started_in(&pool, config([long])).await;
        assert_eq!(one.health_check().await.servers[0].users, 2, "one process");
        call(&one.tools().registry, "mcp_short_sleep", json!({"ms": 9000})).await.expect_err("too late");
        call(&other.tools().registry, "mcp_long_sleep", json!({"ms": 2000})).await.expect("time enough");
        one.stop().await;
        other.stop().await;
    });
}

#[test]
fn a_failed_tool_list_is_requested_again() {
    scene(|_| async move {
        let error = json!({"code": -32603, "message": "not yet"});
        let script = Script::default().fault(FaultTrigger::method("tools/list").first(2), Fault::Error(error));
        let scripted = ScriptedServer::new(script);
        let bridge = Bridge::new(config([entry("a", scripted.in_process())])).expect("a bridge");
        let mut events = bridge.events();
        bridge.start().await.expect("nothing is required");
        let first = outcome(&bridge.tools(), "a");
        assert!(matches!(&first, ServerState::Down { cause } if cause.contains("not yet")), "{first:?}");
        let listing = until(&bridge, |listing| !listing.registry.is_empty()).await;
        assert!(matches!(outcome(&listing, "a"), ServerState::Ready { .. }));
        // The event reports it.
        event(&mut events, |event| matches!(event, Event::ToolsChanged { .. }).then_some(())).await;
        bridge.stop().await;
    });
}

#[test]
fn every_server_is_listed_once_at_start() {
    scene(|_| async move {
        let scripted = ScriptedServer::new(Script::default());
        let mut entry = entry("a", scripted.in_process());
        entry.prompt_tools = true;
        let bridge = started(config([entry])).await;
        assert_eq!(scripted.received_of("tools/list").len(), 1);
        assert_eq!(scripted.received_of("prompts/list").len(), 1);
        bridge.stop().await;
    });
}

#[test]
fn a_late_server_emits_tools_changed() {
    scene(|scene| async move {
        let state = scene.directory().join("state");
        let late = Script { state_file: Some(state), ..Script::default() }
            .fault(FaultTrigger::connect().first(2), Fault::exit());
        let bridge = Bridge::new(config([entry("a", child(&scene, &late))])).expect("a bridge");
        let mut events = bridge.events();
        bridge.start().await.expect("nothing is required");
        event(&mut events, |event| matches!(event, Event::ToolsChanged { .. }).then_some(())).await;
        assert!(!bridge.tools().registry.is_empty());
        bridge.stop().await;
    });
}

#[test]
fn a_server_that_requires_authentication_has_its_own_state() {
    scene(|_| async move {
        let refusal = Fault::header_status(401, "WWW-Authenticate", "Bearer realm=\"x\"");
        let web = listening(Script::default().fault(FaultTrigger::any(), refusal)).await;
        let bridge = started(config([entry("a", at(web.url()))])).await;
        assert_eq!(outcome(&bridge.tools(), "a"), ServerState::NeedsAuth);
        assert!(!bridge.health_check().await.is_healthy());
        bridge.stop().await;
    });
}

#[test]
fn tools_stay_listed_while_a_server_needs_authentication() {
    scene(|_| async move {
        let refusal = Fault::header_status(401, "WWW-Authenticate", "Bearer realm=\"x\"");
        let web = listening(Script::default().fault(FaultTrigger::tool("echo").nth(1), refusal)).await;
        let bridge = started(config([entry("a", at(web.url()))])).await;
        let listing = bridge.tools();
        for _ in 0..2 {
            let error = call(&bridge.tools().registry, "mcp_a_echo", json!({"message": "hi"})).await;
            assert_eq!(error, Err("server `a` needs authentication".to_owned()));
            until(&bridge, |listing| outcome(listing, "a") == ServerState::NeedsAuth).await;
            assert_eq!(names(&bridge.tools()), names(&listing));
        }
        assert!(!bridge.health_check().await.is_healthy());
        bridge.stop().await;
    });
}

#[test]
fn a_changed_collision_policy_takes_effect_at_once() {
    scene(|_| async move {
        let twins = ["a", "b"].map(|alias| {
            let mut twin = entry(alias, ScriptedServer::new(Script::default()).in_process());
            twin.prefix = String::new();
            twin.tools.allow = vec!["echo".into()];
            twin
        });
        let mut both = config(twins);
        let bridge = started(both.clone()).await;
        assert_eq!(names(&bridge.tools()), ["echo"]);
        both.collisions = CollisionPolicy::Suffix;
        let reloaded = bridge.reload(both).await.expect("a configuration");
        assert_eq!(reloaded.kept.len(), 2);
        assert_eq!(names(&bridge.tools()), ["echo", "echo_2"]);
        bridge.stop().await;
    });
}

#[test]
fn calls_continue_when_only_the_prefix_changes() {
    scene(|scene| async move {
        let mut server = entry("a", child(&scene, &Script::default()));
        let bridge = started(config([server.clone()])).await;
        let turn = bridge.tools().registry;
        server.prefix = "x_".into();
        let (slept, reloaded) = tokio::join!(call(&turn, "mcp_a_sleep", json!({"ms": 300})), async {
            tokio::time::sleep(ms(50)).await;
            bridge.reload(config([server])).await
        });
        assert_eq!(reloaded.expect("a configuration").restarted, ["a".into()]);
        slept.expect("the call that was under way");
        assert_eq!(call(&turn, "mcp_a_echo", json!({"message": "old"})).await.as_deref(), Ok("old"));
        assert_eq!(call(&bridge.tools().registry, "x_echo", json!({"message": "new"})).await.as_deref(), Ok("new"));
        bridge.stop().await;
        assert!(call(&turn, "mcp_a_echo", json!({"message": "gone"})).await.is_err());
    });
}

#[test]
fn a_hanging_server_does_not_delay_a_reload() {
    scene(|scene| async move {
        let good = || entry("good", child(&scene, &Script::default()));
        let bridge = started(config([good()])).await;
        let mut hanging = Script::default();
        hanging.process.start_delay_ms = 30_000;
        let reload = bridge.reload(config([good(), entry("hangs", child(&scene, &hanging))]));
        let (_, ()) = tokio::join!(tokio::time::timeout(2 * SOON, reload), async {
            tokio::time::sleep(ms(200)).await;
            assert_eq!(outcome(&bridge.tools(), "hangs"), ServerState::Connecting);
            tokio::time::timeout(SOON, bridge.stop()).await.expect("a stop in time");
        });
    });
}

#[test]
fn resources_and_prompts_of_a_lazy_server_are_cached() {
    scene(|scene| async move {
        let mut lazy = entry("a", child(&scene, &Script { instructions: Some("Be kind.".into()), ..bare() }));
        lazy.start = StartMode::Lazy;
        lazy.resources.tools = true;
        lazy.prompt_tools = true;
        lazy.instructions = true;
        let bridge = || {
            let memory = scene.directory().join("memory");
            Bridge::builder(config([lazy.clone()])).cache_dir(memory).build().expect("a bridge")
        };
        let first = bridge();
        first.start().await.expect("a start");
        let known: Vec<String> = names(&first.tools()).into_iter().map(str::to_owned).collect();
        assert_eq!(known.len(), 4, "{known:?}");
        first.stop().await;
        let second = bridge();
        second.start().await.expect("a start");
        assert_eq!(names(&second.tools()), known);
        assert_eq!(outcome(&second.tools(), "a"), ServerState::Cached { tools: 4 });
        // Reading context starts the server.
        assert_eq!(second.context().await.len(), 1);
        assert_eq!(outcome(&second.tools(), "a"), ServerState::Ready { tools: 4 });
        second.stop().await;
    });
}

#[test]
fn a_call_of_a_lazy_server_that_cannot_start_has_the_cause() {
    scene(|scene| async move {
        let program = scene.directory().join("server");
        fs::copy(env!("CARGO_BIN_EXE_scripted-server"), &program).expect("a copy");
        let mut lazy = entry("a", scene.stdio(program.to_string_lossy(), [""; 0]));
        lazy.start = StartMode::Lazy;
        let bridge = || {
            let memory = scene.directory().join("memory");
            Bridge::builder(config([lazy.clone()])).cache_dir(memory).build().expect("a bridge")
        };
        let first = bridge();
        first.start().await.expect("a start");
        assert!(!first.tools().registry.is_empty());
        first.stop().await;
        fs::remove_file(&program).expect("it is gone");
        let second = bridge();
        let mut events = second.events();
        second.start().await.expect("a start");
        let error =
            call(&second.tools().registry, "mcp_a_echo", json!({"message": "hi"})).await.expect_err("no server");
        assert!(error.starts_with("server `a` is unavailable: could not start"), "{error}");
        let cause = event(&mut events, |event| match event {
            Event::ToolFailed { cause, .. } => Some(cause),
            _ => None,
        });
        assert_eq!(cause.await, error);
        assert!(matches!(outcome(&second.tools(), "a"), ServerState::Down { .. } | ServerState::Connecting));
        second.stop().await;
    });
}

#[test]
fn allowlists_do_not_apply_to_generated_tools() {
    scene(|_| async move {
        let own = json!({"name": "read_resource", "description": "Its own.", "inputSchema": {"type": "object"}});
        let script = Script::default().tool(own, json!({"content": []}));
        let mut extras = entry("a", ScriptedServer::new(script).in_process());
        extras.tools.allow = vec!["echo".into(), "read_resource".into()];
        extras.resources.tools = true;
        let bridge = started(config([extras])).await;
        let listing = bridge.tools();
        assert_eq!(names(&listing), ["mcp_a_echo", "mcp_a_read_resource", "mcp_a_list_resources"]);
        let description = listing.registry.get("mcp_a_read_resource").expect("a tool").definition().description.clone();
        assert_eq!(description.as_deref(), Some("Its own."));
        bridge.stop().await;
    });
}

#[test]
fn a_failed_prompt_list_is_a_warning() {
    scene(|_| async move {
        let refusal = json!({"code": -32603, "message": "no prompts today"});
        let script = Script::default().fault(FaultTrigger::method("prompts/list"), Fault::Error(refusal));
        let mut entry = entry("a", ScriptedServer::new(script).in_process());
        entry.prompt_tools = true;
        let bridge = Bridge::new(config([entry])).expect("a bridge");
        let mut events = bridge.events();
        bridge.start().await.expect("a start");
        assert!(names(&bridge.tools()).contains(&"mcp_a_echo"));
        let told = event(&mut events, warning).await;
        assert!(told.starts_with("could not list prompts:") && told.contains("no prompts today"), "{told}");
        bridge.stop().await;
    });
}

#[test]
fn a_second_caller_waits_for_the_same_start() {
    scene(|scene| async move {
        let mut slow = Script::default();
        slow.process.start_delay_ms = 400;
        let bridge = Bridge::new(config([entry("a", child(&scene, &slow))])).expect("a bridge");
        let sources: [&dyn ToolSource; 2] = [&bridge, &bridge];
        let ready = async |source: &dyn ToolSource| {
            source.ready().await;
            source.registry().len()
        };
        let (one, other) = tokio::join!(ready(sources[0]), ready(sources[1]));
        assert!(one > 0);
        assert_eq!(one, other);
        bridge.stop().await;
    });
}

#[test]
fn a_pattern_without_matches_is_a_warning() {
    scene(|_| async move {
        let mut contextual = entry("a", ScriptedServer::new(Script::default()).in_process());
        contextual.resources.context = vec!["nothing://*".into(), "test://items/a?b=[c]".into()];
        let bridge = started(config([contextual])).await;
        let mut events = bridge.events();
        let items: Vec<String> = bridge.context().await.into_iter().map(|item| item.name).collect();
        assert_eq!(items, ["test://items/a?b=[c]"]);
        assert_eq!(event(&mut events, warning).await, "no resource matches `nothing://*`");
        bridge.stop().await;
    });
}

#[test]
fn warnings_are_redacted() {
    scene(|_| async move {
        let refusal = json!({"code": -32002, "message": "no s3cr3t-value here"});
        let script = Script::default().fault(FaultTrigger::method("resources/read"), Fault::Error(refusal));
        let mut contextual = entry("a", ScriptedServer::new(script).in_process());
        contextual.resources.context = vec!["test://s3cr3t-value".into()];
        known(&mut contextual).redactor =
            ropeway::secret::Redactor::new([&ropeway::secret::Secret::new("s3cr3t-value")]);
        let bridge = started(config([contextual])).await;
        let mut events = bridge.events();
        assert_eq!(bridge.context().await, []);
        let told = event(&mut events, warning).await;
        assert!(told.contains("could not read resource") && told.contains("***") && !told.contains("s3cr3t"), "{told}");
        bridge.stop().await;
    });
}

/// Writes the configuration of one scripted server with a secret in its environment.
fn write(scene: &Scene, path: &Path, prefix: &str) {
    let server = child(scene, &Script::default());
    let mut env: serde_json::Map<String, Value> =
        server.env.iter().map(|(name, value)| (name.clone(), json!(value.expose()))).collect();
    env.insert("TOKEN".to_owned(), json!("${TOKEN}"));
    // Escapes references in the script.
    let args: Vec<String> = server.args.iter().map(|word| word.replace('$', "$$")).collect();
    let servers = json!([{"alias": "a", "command": server.command, "args": args, "env": env, "prefix": prefix}]);
    fs::write(path, json!({"servers": servers}).to_string()).expect("a file");
}

#[test]
fn a_watched_file_is_reloaded_and_an_invalid_one_is_not() {
    scene(|scene| async move {
        let file = scene.directory().join("ropeway.yaml");
        write(&scene, &file, "one_");
        let bridge = Bridge::new(Config::load(&file, &Secrets::none()).expect("a configuration")).expect("a bridge");
        bridge.watch(&file, Secrets::none());
        bridge.start().await.expect("nothing is required");
        assert_eq!(outcome(&bridge.tools(), "a"), ServerState::Skipped { secrets: vec!["TOKEN".into()] });

        // The secret is set.
        fs::write(scene.directory().join(".env"), "TOKEN=t0ken-t0ken\n").expect("a file");
        let listing = until(&bridge, |listing| !listing.registry.is_empty()).await;
        assert!(names(&listing).contains(&"one_echo"));

        // The file becomes invalid.
        let mut events = bridge.events();
        fs::write(&file, "servers: [\n  {alias: a, comand: x}\n").expect("a file");
        let told = event(&mut events, warning).await;
        assert!(told.starts_with("configuration not reloaded, using the previous one:"), "{told}");
        assert!(told.contains("ropeway.yaml:"), "{told}");
        assert!(names(&bridge.tools()).contains(&"one_echo"));

        // And valid again.
        write(&scene, &file, "two_");
        let listing = until(&bridge, |listing| names(listing).contains(&"two_echo")).await;
        assert_eq!(call(&listing.registry, "two_echo", json!({"message": "hi"})).await.as_deref(), Ok("hi"));
        bridge.stop().await;
    });
}

#[test]
fn a_watched_file_is_used_only_if_its_text_is_accepted() {
    scene(|scene| async move {
        let file = scene.directory().join("ropeway.yaml");
        fs::write(scene.directory().join(".env"), "TOKEN=t0ken-t0ken\n").expect("a file");
        write(&scene, &file, "one_");
        let bridge = Bridge::new(Config::load(&file, &Secrets::none()).expect("a configuration")).expect("a bridge");
        let accepted = Arc::new(Mutex::new(vec![fs::read_to_string(&file).expect("a file")]));
        let known = accepted.clone();
        bridge.watch_accepted(&file, Secrets::none(), move |text| {
            let is_known = known.lock().expect("texts").iter().any(|known| known == text);
            if is_known { Ok(()) } else { Err("nobody has accepted it".into()) }
        });
        bridge.start().await.expect("nothing is required");
        until(&bridge, |listing| names(listing).contains(&"one_echo")).await;

        let mut events = bridge.events();
        write(&scene, &file, "two_");
        let told = event(&mut events, warning).await;
        let expected = "configuration not reloaded, using the previous one: nobody has accepted it";
        assert_eq!(told, expected);
        assert!(names(&bridge.tools()).contains(&"one_echo"));

        // It is accepted later, without another change.
        accepted.lock().expect("texts").push(fs::read_to_string(&file).expect("a file"));
        until(&bridge, |listing| names(listing).contains(&"two_echo")).await;
        bridge.stop().await;
    });
}

#[test]
fn a_reload_reports_enabled_servers_as_started() {
    scene(|_| async move {
        let server = entry("a", ScriptedServer::new(Script::default()).in_process());
        let missing = ropeway_config::ServerSettings::Missing { secrets: vec!["TOKEN".into()] };
        let mut skipped = server.clone();
        skipped.settings = missing;
        let bridge = started(config([skipped.clone()])).await;
        let reloaded = bridge.reload(config([server])).await.expect("a configuration");
        assert_eq!((&reloaded.started[..], &reloaded.restarted[..]), (&["a".into()][..], &[][..]));
        let reloaded = bridge.reload(config([skipped])).await.expect("a configuration");
        assert_eq!(reloaded.stopped, ["a".into()]);
        let reloaded = bridge.reload(Config::default()).await.expect("a configuration");
        assert_eq!(reloaded, ropeway::bridge::ReloadReport::default());
    });
}

/// Writes a configuration with a server of each alias. Those named `slow…` never answer.
fn write_servers(scene: &Scene, path: &Path, aliases: &[&str]) {
    let servers: Vec<Value> = aliases
        .iter()
        .map(|alias| {
            let mut script = Script::default();
            script.process.start_delay_ms = if alias.starts_with("slow") { 600_000 } else { 0 };
            let server = child(scene, &script);
            let env: Value = scene.mark().into_iter().map(|(name, value)| (name.to_owned(), json!(value))).collect();
            let args: Vec<String> = server.args.iter().map(|word| word.replace('$', "$$")).collect();
            json!({"alias": alias, "command": server.command, "args": args, "env": env})
        })
        .collect();
    fs::write(path, json!({"servers": servers}).to_string()).expect("a file");
}

#[test]
fn a_change_of_the_file_does_not_wait_for_the_servers_of_the_change_before() {
    scene(|scene| async move {
        let file = scene.directory().join("ropeway.yaml");
        write_servers(&scene, &file, &["a"]);
        let bridge = Bridge::new(Config::load(&file, &Secrets::none()).expect("a configuration")).expect("a bridge");
        bridge.watch(&file, Secrets::none());
        bridge.start().await.expect("nothing is required");
        let mut events = bridge.events();
        let mut reloaded = async || {
            let is_reload = |event: Event| match event {
                Event::Reloaded { started, stopped, .. } => Some((started, stopped)),
                _ => None,
            };
            event(&mut events, is_reload).await
        };
        write_servers(&scene, &file, &["a", "slow"]);
        assert_eq!(reloaded().await, (vec!["slow".into()], vec![]));
        let began = Instant::now();
        write_servers(&scene, &file, &["a", "slow", "b"]);
        assert_eq!(reloaded().await, (vec!["b".into()], vec![]));
        until(&bridge, |listing| names(listing).iter().any(|name| name.contains("_b_"))).await;
        write_servers(&scene, &file, &["b"]);
        let (_, stopped) = reloaded().await;
        assert_eq!(stopped, ["a".into(), "slow".into()]);
        assert!(began.elapsed() < SOON, "{:?}", began.elapsed());
        tokio::time::timeout(SOON, bridge.stop()).await.expect("a stop in time");
        // A process that was killed may take a moment to exit.
        crate::fast_config::until("the processes are gone", || scene.processes().is_empty()).await;
    });
}

#[test]
fn reloads_in_a_row_stop_each_server_before_the_next_one_starts() {
    scene(|scene| async move {
        let log = scene.directory().join("log");
        // Writes a line when it starts and ends, and takes its time to end.
        let entry_of = |number: usize| {
            let words =
                format!("echo +{number} >> {0}; \"$0\" \"$1\"; sleep 0.3; echo -{number} >> {0}", log.display());
            let server = child(&scene, &Script::default());
            let args = ["-c".to_owned(), words, server.command.clone()].into_iter().chain(server.args.clone());
            let mut entry = entry("a", scene.stdio("sh", args));
            known(&mut entry).timeouts.close = SOON;
            entry
        };
        let bridge = started(config([entry_of(0)])).await;
        let reloads = (1..=3).map(|number| bridge.reload(config([entry_of(number)])));
        // Each one is applied when it is polled first.
        let mut reloads: Vec<_> = reloads.map(Box::pin).collect();
        for reload in &mut reloads {
            assert!(futures_now(reload.as_mut()).is_none());
        }
        for reload in reloads {
            reload.await.expect("a configuration");
        }
        until(&bridge, |listing| !listing.registry.is_empty()).await;
        bridge.stop().await;
        // A server that is replaced while it starts is terminated, and writes no second line.
        let text = fs::read_to_string(&log).expect("a log");
        assert!(text.starts_with("+0\n-0\n") && text.ends_with("+3\n-3\n"), "{text}");
    });
}

/// Polls a future once.
fn futures_now<F: Future>(future: std::pin::Pin<&mut F>) -> Option<F::Output> {
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    match future.poll(&mut context) {
        std::task::Poll::Ready(output) => Some(output),
        std::task::Poll::Pending => None,
    }
}
