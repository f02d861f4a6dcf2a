//! Servers that start slowly: the answer to `initialize` decides the era once it has been sent, and no connection is of both eras.

use std::time::Duration;

use ropeway::config::ServerConfig;
use ropeway::mcp::{ConnectionState, Era, Mcp};
use ropeway::testing::{Fault, FaultTrigger, Script, ScriptedServer};
use serde_json::{Value, json};

use crate::fast_config::{at, call, chain, connect, listening, silent_at_probe, still_works};
use crate::scene::scene;

/// A connection attempt with the default timeouts: `initialize` is sent 5 s after `server/discover`.
struct Attempt {
    server: Mcp,
    scripted: ScriptedServer,
}

impl Attempt {
    /// Starts a server whose first connection has these faults, once each: a server that has started answers quickly.
    fn new(script: Script, discover: &[Fault], initialize: &[Fault]) -> Self {
        let mut script = script;
        for (method, faults) in [("server/discover", discover), ("initialize", initialize)] {
            for fault in faults {
                script = script.fault(FaultTrigger::method(method).connection(1).first(1), fault.clone());
            }
        }
        let scripted = ScriptedServer::new(script);
        Self { server: Mcp::new(ServerConfig::new("peer", scripted.in_process())), scripted }
    }

    fn count(&self, method: &str) -> usize {
        self.scripted.received_of(method).len()
    }

    /// Asserts that every request after the handshake has the form of the era.
    async fn is(&self, era: Era, connections: u32, case: &str) {
        let outcome = self.server.connect().await;
        assert!(outcome.is_ok(), "{case}: {outcome:?}");
        self.serves(era, connections, case).await;
        self.server.close().await;
    }

    async fn serves(&self, era: Era, connections: u32, case: &str) {
        still_works(&self.server).await;
        let info = self.server.server_info().expect("a connected server");
        assert_eq!((info.era, self.scripted.connections()), (era, connections), "{case}");
        for call in self.scripted.received_of("tools/call") {
            let version = call.pointer("/params/_meta/io.modelcontextprotocol~1protocolVersion");
            assert_eq!(version.is_some(), era == Era::Modern, "{case}: {call}");
        }
        assert_eq!(self.count("notifications/initialized"), usize::from(era == Era::Legacy), "{case}");
    }
}

fn refusal(code: i64) -> Fault {
    Fault::Error(json!({"code": code, "message": "not so"}))
}

fn late(seconds: u64) -> Fault {
    Fault::late(1000 * seconds)
}

#[tokio::test(start_paused = true)]
async fn an_accepted_initialize_decides_in_every_order() {
    // Delays count from the request: `initialize` is sent at 5 s.
    for (discover, initialize, case) in [
        (vec![late(7)], vec![late(3)], "discover at 7 s, initialize at 8 s"),
        (vec![late(7)], vec![late(2)], "both at 7 s"),
        (vec![late(9)], vec![late(2)], "initialize at 7 s, discover at 9 s"),
        (vec![late(20)], vec![late(15)], "both at 20 s"),
        (vec![late(50)], vec![late(45)], "both at 50 s"),
        (vec![late(7), refusal(-32601)], vec![late(3)], "discover refused at 7 s, initialize at 8 s"),
        (vec![late(9), refusal(-32601)], vec![late(3)], "initialize at 8 s, discover refused at 9 s"),
        (vec![Fault::Hang], vec![late(3)], "discover is ignored"),
    ] {
        Attempt::new(Script::default(), &discover, &initialize).is(Era::Legacy, 1, case).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_refused_initialize_leaves_the_answer_to_discover() {
    for (discover, initialize, case) in [
        (vec![late(7)], vec![late(3), refusal(-32022)], "discover at 7 s, initialize refused at 8 s"),
        (vec![late(7)], vec![late(2), refusal(-32022)], "both at 7 s"),
        (vec![late(9)], vec![late(2), refusal(-32022)], "initialize refused at 7 s, discover at 9 s"),
        (vec![late(50)], vec![late(46), refusal(-32600)], "discover at 50 s, initialize refused at 51 s"),
    ] {
        Attempt::new(Script::default(), &discover, &initialize).is(Era::Modern, 1, case).await;
    }
    // Servers on the Python SDK 2.x use the era of the first request.
    let pinned = Script { first_message_settles_era: true, ..Script::default() };
    Attempt::new(pinned, &[late(7)], &[]).is(Era::Modern, 1, "pinned by the probe").await;
    let case = "both refused";
    let faults = [late(7), refusal(-32601)];
    Attempt::new(Script::legacy(), &faults, &[late(3), refusal(-32600)]).is(Era::Legacy, 2, case).await;
}

#[tokio::test(start_paused = true)]
async fn a_modern_server_that_is_lost_at_initialize_is_restarted_as_modern() {
    let exit = |after_ms| Fault::Exit { after_ms, code: 1 };
    let version = Fault::set("/result/protocolVersion", "2026-07-28");
    for (initialize, case) in [
        (vec![Fault::Hang], "initialize is ignored"),
        (vec![late(15)], "initialize is answered 13 s after discover"),
        (vec![exit(3000)], "the server exits at initialize"),
        (vec![late(3), refusal(-32022), Fault::ExitAfterAnswer], "the server refuses initialize and exits"),
        (vec![late(3), version], "initialize is answered with a modern version"),
        (vec![late(3), Fault::Result(Value::from(7))], "the answer to initialize is not an object"),
    ] {
        let attempt = Attempt::new(Script::default(), &[late(7)], &initialize);
        attempt.is(Era::Modern, 2, case).await;
        assert_eq!(attempt.count("initialize"), 1, "{case}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_modern_server_that_started_slowly_is_modern_at_its_next_start() {
    let attempt = Attempt::new(Script::default(), &[late(7)], &[late(3)]);
    attempt.server.connect().await.expect("a connection");
    attempt.serves(Era::Legacy, 1, "the first start").await;
    call(&attempt.server, "crash", json!({})).await.expect_err("no answer");
    still_works(&attempt.server).await;
    let info = attempt.server.server_info().expect("a connected server");
    assert_eq!((info.era, attempt.count("initialize")), (Era::Modern, 1));
    attempt.server.close().await;
}

#[tokio::test(start_paused = true)]
async fn a_restart_that_takes_too_long_is_repeated_in_the_same_era() {
    let on = |method: &str, connection| FaultTrigger::method(method).connection(connection);
    let legacy = Script::legacy()
        .fault(on("server/discover", 1), Fault::Exit { after_ms: 50_000, code: 1 })
        .fault(on("initialize", 1), Fault::Hang)
        .fault(on("initialize", 2), late(50))
        .fault(on("initialize", 3), late(50));
    let modern = Script::modern()
        .fault(on("server/discover", 1), late(50))
        .fault(on("initialize", 1), Fault::Exit { after_ms: 46_000, code: 1 })
        .fault(on("server/discover", 2), late(50))
        .fault(on("server/discover", 3), late(50));
    for (script, era, other) in [(legacy, Era::Legacy, "server/discover"), (modern, Era::Modern, "initialize")] {
        let scripted = ScriptedServer::new(script);
        let server = Mcp::new(ServerConfig::new("peer", scripted.in_process()));
        let error = chain(&server.connect().await.expect_err("no time for a second start"));
        assert!(error.contains("was not ready within"), "{error}");
        let mut state = server.state();
        let ready = state.wait_for(|state| matches!(state, ConnectionState::Ready { .. }));
        tokio::time::timeout(Duration::from_secs(600), ready).await.expect("in time").expect("a connection");
        assert_eq!(server.server_info().expect("a server").era, era);
        assert_eq!((scripted.connections(), scripted.received_of(other).len()), (3, 1));
        server.close().await;
    }
}

#[test]
fn a_modern_http_server_that_started_slowly_is_not_remembered_as_legacy() {
    scene(|_| async {
        let script = Script::default().fault(FaultTrigger::method("server/discover").nth(1), Fault::late(20_000));
        let http = listening(script).await;
        let server = connect(silent_at_probe(at(http.url()))).await;
        assert_eq!(server.server_info().map(|info| info.era), Some(Era::Legacy));
        still_works(&server).await;
        http.forget_sessions();
        still_works(&server).await;
        assert_eq!(server.server_info().map(|info| info.era), Some(Era::Modern));
        server.close().await;

        // A server that ignores the probe is remembered as legacy.
        let http = listening(Script::default().fault(FaultTrigger::method("server/discover"), Fault::Hang)).await;
        let server = connect(silent_at_probe(at(http.url()))).await;
        let probes = http.received_of("server/discover").len();
        http.forget_sessions();
        still_works(&server).await;
        assert_eq!(server.server_info().map(|info| info.era), Some(Era::Legacy));
        assert_eq!(http.received_of("server/discover").len(), probes);
        server.close().await;
    });
}
