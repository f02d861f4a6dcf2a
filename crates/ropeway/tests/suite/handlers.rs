//! Requests of servers to the client, and tasks.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use ropeway::config::{EraChoice, ServerConfig, Transport};
use ropeway::mcp::{ClientRoot, Elicitation, ElicitationAnswer, ElicitationMode, Handlers, Mcp};
use ropeway::testing::{Script, ScriptedServer};
use ropeway::tool::{CallContext, CallError, CancelToken};
use ropeway_testing::HttpScript;
use serde_json::{Map, Value, json};

use crate::fast_config::{
    SOON, arguments, at, call, call_in, chain, connect, connect_with, fast_config, in_era, listening, ms, still_works,
    text, until,
};
use crate::scene::scene;

/// Runs a test over every transport that carries server requests, concurrently, each with its own server.
async fn over_every_way(script: Script, test: impl AsyncFn(EraChoice, &ScriptedServer, ServerConfig)) {
    let pipe = async |era| {
        let scripted = ScriptedServer::new(script.clone());
        test(era, &scripted, in_era(era, scripted.in_process())).await;
    };
    let http = async |era| {
        let http = listening(script.clone()).await;
        test(era, &http, in_era(era, at(http.url()))).await;
    };
    let sse = async {
        let http = listening(script.clone()).await;
        test(EraChoice::Legacy, &http, fast_config(Transport::Sse(at(http.sse_url())))).await;
    };
    let (legacy, modern) = (EraChoice::Legacy, EraChoice::Modern);
    tokio::join!(pipe(legacy), pipe(modern), http(legacy), http(modern), sse);
}

fn answering(answer: ElicitationAnswer) -> Handlers {
    Handlers::new().on_elicitation(move |_| {
        let answer = answer.clone();
        async move { Ok(answer) }
    })
}

fn parsed(text: &str) -> Value {
    serde_json::from_str(text).expect("JSON")
}

#[test]
fn a_form_is_answered_with_defaults_for_missing_values() {
    scene(|_| async {
        over_every_way(Script::default(), async |_, _, config| {
            let asked: Arc<Mutex<Vec<Elicitation>>> = Arc::default();
            let sink = asked.clone();
            let handlers = Handlers::new().on_elicitation(move |elicitation| {
                sink.lock().expect("no panic").push(elicitation);
                async { Ok(ElicitationAnswer::Accept(Map::new())) }
            });
            let server = connect_with(handlers, config).await;
            let answer = text(&server, "elicit", json!({"message": "Who?"})).await;
            assert_eq!(parsed(&answer), json!({"action": "accept", "content": {"name": "nobody"}}));
            let asked = asked.lock().expect("no panic").remove(0);
            assert_eq!((asked.server.to_string().as_str(), asked.message.as_str()), ("peer", "Who?"));
            let ElicitationMode::Form { schema } = asked.mode else { panic!("no form: {asked:?}") };
            assert_eq!(schema["required"], json!(["name"]));
            server.close().await;
        })
        .await;
    });
}

#[test]
fn the_users_answer_reaches_the_server() {
    scene(|_| async {
        let content = arguments(json!({"name": "Ada"}));
        for (did, told) in [
            (ElicitationAnswer::Accept(content), json!({"action": "accept", "content": {"name": "Ada"}})),
            (ElicitationAnswer::Decline, json!({"action": "decline"})),
            (ElicitationAnswer::Cancel, json!({"action": "cancel"})),
        ] {
            over_every_way(Script::default(), async |_, _, config| {
                let server = connect_with(answering(did.clone()), config).await;
                assert_eq!(parsed(&text(&server, "elicit", json!({})).await), told);
                server.close().await;
            })
            .await;
        }
    });
}

#[test]
fn a_url_elicitation_needs_no_id_and_no_content() {
    scene(|_| async {
        over_every_way(Script::default(), async |_, _, config| {
            let handlers = Handlers::new().on_elicitation(|asked| async move {
                assert_eq!(asked.mode, ElicitationMode::Url { url: "https://example.com/form".to_owned() });
                Ok(ElicitationAnswer::Accept(Map::new()))
            });
            let server = connect_with(handlers, config).await;
            let answer = text(&server, "elicit", json!({"mode": "url"})).await;
            assert_eq!(parsed(&answer), json!({"action": "accept"}));
            server.close().await;
        })
        .await;
    });
}

#[test]
fn sampling_and_roots_are_answered_by_handlers() {
    scene(|_| async {
        let message = json!({"role": "assistant", "model": "m", "content": {"type": "text", "text": "Hello."}});
        over_every_way(Script::default(), async |_, _, config| {
            let answer = message.clone();
            let handlers = Handlers::new()
                .on_sampling(move |asked| {
                    assert_eq!(asked.server.as_str(), "peer");
                    assert_eq!(asked.params["messages"][0]["content"]["text"], "Say hi.");
                    let answer = answer.clone();
                    async move { Ok(answer) }
                })
                .on_roots(|| async {
                    let work = ClientRoot { uri: "file:///project".to_owned(), name: Some("work".to_owned()) };
                    Ok(vec![work, ClientRoot { uri: "file:///tmp".to_owned(), name: None }])
                });
            let server = connect_with(handlers, config).await;
            assert_eq!(parsed(&text(&server, "sample", json!({"prompt": "Say hi."})).await), message);
            let roots = json!({"roots": [{"uri": "file:///project", "name": "work"}, {"uri": "file:///tmp"}]});
            assert_eq!(parsed(&text(&server, "roots", json!({})).await), roots);
            server.close().await;
        })
        .await;
    });
}

#[test]
fn capabilities_without_a_handler_are_not_declared() {
    scene(|_| async {
        over_every_way(Script::default(), async |era, scripted, config| {
            let server = connect(config.clone()).await;
            for (tool, capability) in [("elicit", "elicitation"), ("sample", "sampling"), ("roots", "roots")] {
                let outcome = call(&server, tool, json!({})).await;
                match era {
                    EraChoice::Legacy => {
                        let output = outcome.expect("an answer");
                        let told = format!("the client does not offer {capability}");
                        assert_eq!((output.is_error, output.plain_text()), (true, Some(told)));
                    }
                    _ => assert_eq!(
                        chain(&outcome.expect_err("a refusal")),
                        format!("server `peer` returned error -32021: the client does not offer `{capability}`")
                    ),
                }
            }
            server.close().await;
            let server = connect_with(answering(ElicitationAnswer::Decline), config).await;
            server.close().await;
            let declared: Vec<Value> = match era {
                EraChoice::Legacy => {
                    let hellos = scripted.received_of("initialize");
                    hellos.iter().map(|hello| hello["params"]["capabilities"].clone()).collect()
                }
                _ => {
                    let hellos = scripted.received_of("server/discover");
                    let key = "io.modelcontextprotocol/clientCapabilities";
                    hellos.iter().map(|hello| hello["params"]["_meta"][key].clone()).collect()
                }
            };
            let mut without = json!({});
            let mut with = json!({"elicitation": {"form": {}, "url": {}}});
            if era == EraChoice::Modern {
                let extensions = json!({"io.modelcontextprotocol/tasks": {}});
                without["extensions"] = extensions.clone();
                with["extensions"] = extensions;
            }
            assert_eq!(declared, [without, with]);
        })
        .await;
    });
}

#[test]
fn a_failing_handler_is_reported_or_ends_the_call() {
    scene(|_| async {
        over_every_way(Script::default(), async |era, _, config| {
            let handlers = Handlers::new()
                .on_elicitation(|_| async { Err("nobody is at home".into()) })
                .on_sampling(|_| async { Err("no model".into()) });
            let server = connect_with(handlers, config).await;
            let elicited = text(&server, "elicit", json!({})).await;
            let sampled = call(&server, "sample", json!({})).await;
            match era {
                EraChoice::Legacy => {
                    assert_eq!(parsed(&elicited), json!({"code": -32603, "message": "nobody is at home"}));
                    let sampled = sampled.expect("an answer").plain_text().expect("text");
                    assert_eq!(parsed(&sampled), json!({"code": -32603, "message": "no model"}));
                }
                _ => {
                    assert_eq!(parsed(&elicited), json!({"action": "cancel"}));
                    let told =
                        "server `peer` returned error -32603: `sampling/createMessage` was not answered: no model";
                    assert_eq!(chain(&sampled.expect_err("no answer")), told);
                }
            }
            still_works(&server).await;
            server.close().await;
        })
        .await;
    });
}

#[test]
fn a_panicking_handler_is_reported_as_an_error() {
    scene(|_| async {
        let scripted = ScriptedServer::new(Script::legacy());
        let handlers = Handlers::new().on_elicitation(|_| async { panic!("on purpose") });
        let server = connect_with(handlers, fast_config(scripted.in_process())).await;
        let answer = text(&server, "elicit", json!({})).await;
        assert_eq!(parsed(&answer), json!({"code": -32603, "message": "the handler of `elicitation/create` panicked"}));
        still_works(&server).await;
        server.close().await;
        // In the modern era, a rejected elicitation is cancelled.
        let handlers = Handlers::new().on_elicitation(|_| async { panic!("on purpose") });
        let modern = ScriptedServer::new(Script::modern());
        let server = connect_with(handlers, fast_config(modern.in_process())).await;
        assert_eq!(parsed(&text(&server, "elicit", json!({})).await), json!({"action": "cancel"}));
        still_works(&server).await;
        server.close().await;
    });
}

#[test]
fn each_input_round_carries_the_previous_state() {
    scene(|_| async {
        over_every_way(Script::default(), async |era, scripted, config| {
            let asked = Arc::new(AtomicUsize::new(0));
            let counter = asked.clone();
            let handlers = Handlers::new().on_elicitation(move |_| {
                counter.fetch_add(1, Ordering::Relaxed);
                async { Ok(ElicitationAnswer::Decline) }
            });
            let server = connect_with(handlers, config).await;
            assert_eq!(parsed(&text(&server, "elicit", json!({"rounds": 3})).await), json!({"action": "decline"}));
            assert_eq!(asked.load(Ordering::Relaxed), 3);
            let calls = scripted.received_of("tools/call");
            if era == EraChoice::Modern {
                let states: Vec<&Value> = calls.iter().map(|call| &call["params"]["requestState"]).collect();
                assert_eq!(states, [&json!(null), &json!("round-1"), &json!("round-2"), &json!("round-3")]);
                assert!(calls[0]["params"].get("inputResponses").is_none());
                let answers = json!({"answer": {"action": "decline"}});
                assert!(calls[1..].iter().all(|call| call["params"]["inputResponses"] == answers), "{calls:?}");
                assert!(calls[1..].iter().all(|call| call["params"]["arguments"] == json!({"rounds": 3})));
                let ids: std::collections::BTreeSet<u64> =
                    calls.iter().filter_map(|call| call["id"].as_u64()).collect();
                assert_eq!(ids.len(), 4, "{calls:?}");
            } else {
                assert_eq!(calls.len(), 1);
            }
            server.close().await;
        })
        .await;
    });
}

#[test]
fn endless_input_rounds_fail_the_call() {
    scene(|_| async {
        let scripted = ScriptedServer::new(Script::modern());
        let mut config = fast_config(scripted.in_process());
        config.limits.input_rounds = 3;
        let server = connect_with(answering(ElicitationAnswer::Decline), config).await;
        let error = call(&server, "elicit", json!({"rounds": 1000})).await.expect_err("no answer");
        assert_eq!(chain(&error), "server `peer` violated the protocol: the server asked for input 4 times");
        assert_eq!(scripted.received_of("tools/call").len(), 4);
        still_works(&server).await;
        server.close().await;
    });
}

#[test]
fn elicitations_are_limited_per_call() {
    scene(|_| async {
        over_every_way(Script::default(), async |_, _, mut config| {
            config.limits.questions = 3;
            config.limits.input_rounds = 1000;
            let asked = Arc::new(AtomicUsize::new(0));
            let counting = asked.clone();
            let handlers = Handlers::new().on_elicitation(move |_| {
                counting.fetch_add(1, Ordering::Relaxed);
                async { Ok(ElicitationAnswer::Decline) }
            });
            let server = connect_with(handlers, config).await;
            for round in 1..=2 {
                let error = call(&server, "elicit", json!({"rounds": 1000})).await.expect_err("no answer");
                assert_eq!(
                    chain(&error),
                    "server `peer` violated the protocol: it asked the user more than 3 questions"
                );
                assert_eq!(asked.load(Ordering::Relaxed), 3 * round);
            }
            // The next call has its own allowance.
            assert_eq!(parsed(&text(&server, "elicit", json!({"rounds": 3})).await), json!({"action": "decline"}));
            assert_eq!(asked.load(Ordering::Relaxed), 9);
            still_works(&server).await;
            server.close().await;
        })
        .await;
    });
}

#[test]
fn an_unanswered_elicitation_ends_at_the_deadline() {
    scene(|_| async {
        over_every_way(Script::default(), async |_, _, mut config| {
            config.timeouts.total = ms(1000);
            let handlers = Handlers::new().on_elicitation(|_| std::future::pending());
            let server = connect_with(handlers, config).await;
            let started = Instant::now();
            let error = call(&server, "elicit", json!({})).await.expect_err("no answer");
            assert!(matches!(error, CallError::Timeout { .. }), "{error:?}");
            assert!(started.elapsed() < SOON / 2, "{:?}", started.elapsed());
            let cancel = CancelToken::new();
            let cx = CallContext::default().with_cancel(cancel.clone());
            let (outcome, ()) = tokio::join!(call_in(&server, "elicit", json!({}), &cx), async {
                tokio::time::sleep(ms(100)).await;
                cancel.cancel();
            });
            assert!(matches!(outcome, Err(CallError::Cancelled)), "{outcome:?}");
            still_works(&server).await;
            server.close().await;
        })
        .await;
    });
}

#[test]
fn an_elicitation_does_not_delay_other_calls() {
    scene(|_| async {
        over_every_way(Script::default(), async |_, _, config| {
            let handlers = Handlers::new().on_elicitation(|_| async {
                tokio::time::sleep(ms(1000)).await;
                Ok(ElicitationAnswer::Decline)
            });
            let server = connect_with(handlers, config).await;
            let asking = tokio::spawn({
                let server = server.clone();
                async move { text(&server, "elicit", json!({})).await }
            });
            for _ in 0..3 {
                still_works(&server).await;
            }
            assert!(!asking.is_finished());
            assert_eq!(parsed(&asking.await.expect("no panic")), json!({"action": "decline"}));
            server.close().await;
        })
        .await;
    });
}

#[test]
fn concurrent_server_requests_are_limited() {
    scene(|_| async {
        let scripted = ScriptedServer::new(Script::legacy());
        let handlers = Handlers::new().on_roots(|| async {
            tokio::time::sleep(ms(300)).await;
            Ok(Vec::new())
        });
        let server = connect_with(handlers, fast_config(scripted.in_process())).await;
        for n in 0..200 {
            scripted.push(json!({"jsonrpc": "2.0", "id": format!("r{n}"), "method": "roots/list"}));
        }
        let answers = |key: &str| {
            let received = scripted.received();
            received.iter().filter(|it| it["id"].is_string() && it.get(key).is_some()).count()
        };
        until("all answers", || answers("result") + answers("error") == 200).await;
        assert!(answers("result") >= 64 && answers("error") > 0, "{} {}", answers("result"), answers("error"));
        still_works(&server).await;
        server.close().await;
    });
}

#[test]
fn elicitations_of_a_lost_server_are_dropped() {
    scene(|_| async {
        let scripted = ScriptedServer::new(Script::legacy());
        let handlers = Handlers::new().on_elicitation(|_| std::future::pending());
        let server = connect_with(handlers, fast_config(scripted.in_process())).await;
        let asking = tokio::spawn({
            let server = server.clone();
            async move { call(&server, "elicit", json!({})).await }
        });
        scripted.wait_for("tools/call", 1).await;
        call(&server, "crash", json!({})).await.expect_err("no answer");
        let error = asking.await.expect("no panic").expect_err("no answer");
        assert!(matches!(error, CallError::Unavailable { .. }), "{error:?}");
        still_works(&server).await;
        server.close().await;
    });
}

// Tasks.

#[test]
fn a_task_is_polled_to_its_end_in_both_eras() {
    scene(|_| async {
        over_every_way(Script::default(), async |_, scripted, config| {
            let server = connect(config).await;
            assert_eq!(text(&server, "task", json!({"ms": 100})).await, "the task is done");
            let error = call(&server, "task", json!({"ms": 30, "fail": true})).await.expect_err("a failure");
            assert_eq!(chain(&error), "server `peer` returned error -32603: the task failed");
            assert_eq!(scripted.received_of("tasks/cancel").len(), 0);
            still_works(&server).await;
            server.close().await;
        })
        .await;
    });
}

#[test]
fn a_server_without_tasks_answers_directly() {
    scene(|_| async {
        let scripted =
            ScriptedServer::new(Script { legacy_versions: vec!["2025-06-18".to_owned()], ..Script::legacy() });
        let server = connect(fast_config(scripted.in_process())).await;
        assert_eq!(text(&server, "task", json!({"ms": 50})).await, "the task is done");
        assert!(scripted.received_of("tools/call").iter().all(|call| call["params"].get("task").is_none()));
        server.close().await;
    });
}

#[test]
fn a_task_can_send_input_requests() {
    scene(|_| async {
        let scripted = ScriptedServer::new(Script::modern());
        let handlers = answering(ElicitationAnswer::Accept(arguments(json!({"answer": "yes"}))));
        let server = connect_with(handlers, fast_config(scripted.in_process())).await;
        assert_eq!(text(&server, "task", json!({"ms": 10, "ask": true})).await, "the task is done");
        let updates = scripted.received_of("tasks/update");
        let answers = json!({"answer": {"action": "accept", "content": {"answer": "yes"}}});
        assert_eq!((updates.len(), &updates[0]["params"]["inputResponses"]), (1, &answers));
        server.close().await;
    });
}

#[test]
fn a_task_is_cancelled_when_its_caller_is_dropped() {
    scene(|_| async {
        over_every_way(Script::default(), async |_, scripted, mut config| {
            config.timeouts.total = ms(1000);
            let server: Mcp = connect(config).await;
            // By the timeout,
            let error = call(&server, "task", json!({"ms": 60_000})).await.expect_err("no answer");
            assert!(matches!(error, CallError::Timeout { .. }), "{error:?}");
            until("the first task's end", || scripted.received_of("tasks/cancel").len() == 1).await;
            // by the cancel token,
            let cancel = CancelToken::new();
            let cx = CallContext::default().with_cancel(cancel.clone());
            let (outcome, ()) = tokio::join!(call_in(&server, "task", json!({"ms": 60_000}), &cx), async {
                scripted.wait_for("tools/call", 2).await;
                tokio::time::sleep(ms(100)).await;
                cancel.cancel();
            });
            assert!(matches!(outcome, Err(CallError::Cancelled)), "{outcome:?}");
            until("the second task's end", || scripted.received_of("tasks/cancel").len() == 2).await;
            // and by dropping the future.
            let left = tokio::spawn({
                let server = server.clone();
                async move { call(&server, "task", json!({"ms": 60_000})).await }
            });
            scripted.wait_for("tools/call", 3).await;
            tokio::time::sleep(ms(100)).await;
            left.abort();
            until("the third task's end", || scripted.received_of("tasks/cancel").len() == 3).await;
            let cancels = scripted.received_of("tasks/cancel");
            let tasks: Vec<&Value> = cancels.iter().map(|cancel| &cancel["params"]["taskId"]).collect();
            assert_eq!(tasks, ["task-1", "task-2", "task-3"]);
            still_works(&server).await;
            server.close().await;
        })
        .await;
    });
}

#[test]
fn a_legacy_json_server_asks_over_the_standalone_stream() {
    scene(|_| async {
        let http = HttpScript { answers: ropeway_testing::ResponseFormat::Json, ..HttpScript::default() };
        let http = listening(Script { http, ..Script::legacy() }).await;
        let server = connect_with(answering(ElicitationAnswer::Decline), fast_config(at(http.url()))).await;
        assert_eq!(parsed(&text(&server, "elicit", json!({})).await), json!({"action": "decline"}));
        server.close().await;
    });
}

/// Sets a flag when dropped.
struct Dropped(Arc<AtomicUsize>);

impl Drop for Dropped {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

#[test]
fn a_request_that_the_server_cancels_ends_its_handler() {
    scene(|_| async {
        let (asked, dropped): (Arc<AtomicUsize>, Arc<AtomicUsize>) = Default::default();
        let waits = {
            let (asked, dropped) = (asked.clone(), dropped.clone());
            move || {
                asked.fetch_add(1, Ordering::SeqCst);
                let guard = Dropped(dropped.clone());
                async move {
                    let _guard = guard;
                    std::future::pending::<()>().await;
                }
            }
        };
        let (form, sample) = (waits.clone(), waits);
        let handlers = Handlers::new()
            .on_elicitation(move |_| {
                let waits = form();
                async move {
                    waits.await;
                    Ok(ElicitationAnswer::Cancel)
                }
            })
            .on_sampling(move |_| {
                let waits = sample();
                async move {
                    waits.await;
                    Ok(json!({}))
                }
            });
        let scripted = ScriptedServer::new(Script::default());
        let server = connect_with(handlers, in_era(EraChoice::Legacy, scripted.in_process())).await;
        let requests = [(json!("q-1"), "elicitation/create"), (json!(2), "sampling/createMessage")];
        for (id, method) in &requests {
            let params = json!({"message": "Who?", "requestedSchema": {}});
            scripted.push(json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}));
        }
        until("both requests", || asked.load(Ordering::SeqCst) == 2).await;
        for (count, (id, _)) in requests.iter().enumerate() {
            let params = json!({"requestId": id, "reason": "too late"});
            scripted.push(json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params}));
            until("the end of the handler", || dropped.load(Ordering::SeqCst) == count + 1).await;
        }
        still_works(&server).await;
        // Neither has an answer.
        let answers = scripted.received().into_iter().filter(|message| message.get("method").is_none()).count();
        assert_eq!(answers, 0);
        server.close().await;
    });
}
