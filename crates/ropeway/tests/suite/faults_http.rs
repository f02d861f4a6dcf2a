//! HTTP servers: error statuses, interrupted connections, expired sessions and headers.

use std::time::{Duration, Instant, SystemTime};

use ropeway::config::{EraChoice, HttpServer, Transport};
use ropeway::event::Event;
use ropeway::mcp::{ConnectionState, Era, Mcp};
use ropeway::testing::{Fault, FaultTrigger, HttpScriptedServer, Script};
use ropeway::tool::{CallContext, CallError};
use ropeway_testing::{
    FaultRule, HttpFault, HttpScript, OfferedTransports, ResponseFormat, UnknownSession, WriteStyle,
};
use serde_json::json;

use crate::fast_config::{
    SOON, at, call, call_in, cannot_connect, chain, connect, echo, echo_fails, event, fast_config, in_era, listening,
    ms, names, state, still_works, text, until, warnings,
};
use crate::scene::scene;

const BOTH: [EraChoice; 2] = [EraChoice::Legacy, EraChoice::Modern];

fn with_http(http: HttpScript) -> Script {
    Script { http, ..Script::default() }
}

/// Connects to a server whose first response to `echo` has a fault.
async fn spoiled(era: EraChoice, answers: ResponseFormat, fault: impl Into<Fault>) -> (HttpScriptedServer, Mcp) {
    let script =
        with_http(HttpScript { answers, ..HttpScript::default() }).fault(FaultTrigger::tool("echo").nth(1), fault);
    let http = listening(script).await;
    let server = connect(in_era(era, at(http.url()))).await;
    (http, server)
}

fn calls(http: &HttpScriptedServer) -> usize {
    let is_call = |body: &[u8]| String::from_utf8_lossy(body).contains("\"tools/call\"");
    http.requests().iter().filter(|request| is_call(&request.body)).count()
}

#[test]
fn an_unauthorized_connection_enters_needs_auth() {
    scene(|_| async {
        let challenge = "Bearer resource_metadata=\"https://example.com/meta\"";
        for status in [401, 403] {
            for era in [EraChoice::Auto, EraChoice::Legacy, EraChoice::Modern] {
                let refusal = Fault::header_status(status, "WWW-Authenticate", challenge);
                let http = listening(Script::default().fault(FaultTrigger::any(), refusal)).await;
                let server = Mcp::new(in_era(era, at(http.url())));
                let mut events = server.events();
                let reported = cannot_connect(&server).await;
                assert_eq!(reported, "could not connect to server `peer`: the server needs authentication");
                let state = server.state().borrow().clone();
                assert!(
                    matches!(state, ConnectionState::NeedsAuth { challenge: Some(ref it) } if it == challenge),
                    "{state:?}"
                );
                event(&mut events, |event| matches!(event, Event::NeedsAuth { .. }).then_some(())).await;
                let error = call(&server, "echo", json!({})).await.expect_err("no answer");
                assert_eq!(error.to_string(), "server `peer` needs authentication");
                assert!(matches!(error, CallError::NeedsAuth { challenge: Some(it), .. } if it == challenge));
                http.set(|script| script.faults.clear());
                server.connect().await.expect("a connection by hand");
                still_works(&server).await;
                server.close().await;
            }
        }
    });
}

#[test]
fn an_unauthorized_call_enters_needs_auth() {
    scene(|_| async {
        for transport in ["legacy", "modern", "sse"] {
            let refusal = Fault::header_status(401, "WWW-Authenticate", "Bearer");
            let http = listening(Script::default().fault(FaultTrigger::tool("echo").nth(1), refusal)).await;
            let server = connect(match transport {
                "legacy" => in_era(EraChoice::Legacy, at(http.url())),
                "modern" => in_era(EraChoice::Modern, at(http.url())),
                _ => fast_config(Transport::Sse(at(http.sse_url()))),
            })
            .await;
            let error = call(&server, "echo", json!({"message": "hi"})).await.expect_err("no answer");
            assert!(matches!(error, CallError::NeedsAuth { .. }), "{transport}: {error:?}");
            state(&server, |state| matches!(state, ConnectionState::NeedsAuth { .. })).await;
            server.connect().await.expect("a connection by hand");
            still_works(&server).await;
            server.close().await;
        }
    });
}

/// The challenge of a server whose fixed token lacks a scope.
const NO_SCOPE: &str = "Bearer error=\"insufficient_scope\", scope=\"write\"";

#[test]
fn a_fixed_token_that_lacks_a_scope_fails_one_call_and_not_the_session() {
    scene(|_| async {
        for transport in ["legacy", "modern", "sse"] {
            let refusal = Fault::header_status(403, "WWW-Authenticate", NO_SCOPE);
            let http = listening(Script::default().fault(FaultTrigger::tool("echo").nth(1), refusal)).await;
            let server = connect(match transport {
                "legacy" => in_era(EraChoice::Legacy, at(http.url()).with_bearer("t-456")),
                "modern" => in_era(EraChoice::Modern, at(http.url()).with_header("Authorization", "Bearer t-456")),
                _ => fast_config(Transport::Sse(at(http.sse_url()).with_bearer("t-456"))),
            })
            .await;
            let is_handshake = |body: &[u8]| {
                let body = String::from_utf8_lossy(body);
                body.contains("\"initialize\"") || body.contains("\"server/discover\"")
            };
            let handshakes = || http.requests().iter().filter(|request| is_handshake(&request.body)).count();
            let before = handshakes();
            let error = call(&server, "echo", json!({"message": "hi"})).await.expect_err("no answer");
            assert!(
                matches!(&error, CallError::NeedsAuth { challenge: Some(it), .. } if it == NO_SCOPE),
                "{transport}: {error:?}"
            );
            assert!(matches!(*server.state().borrow(), ConnectionState::Ready { .. }), "{transport}");
            still_works(&server).await;
            assert_eq!(handshakes(), before, "{transport}: the session goes on");
            server.close().await;
        }
    });
}

#[test]
fn a_fixed_token_that_lacks_a_scope_for_the_handshake_is_a_failed_start() {
    scene(|_| async {
        for message in ["initialize", "notifications/initialized"] {
            let refusal = Fault::header_status(403, "WWW-Authenticate", NO_SCOPE);
            let http = listening(Script::default().fault(FaultTrigger::method(message), refusal)).await;
            let server = Mcp::new(in_era(EraChoice::Legacy, at(http.url()).with_bearer("t-456")));
            let reported = cannot_connect(&server).await;
            assert_eq!(reported, "could not connect to server `peer`: the server needs authentication", "{message}");
            assert!(matches!(*server.state().borrow(), ConnectionState::NeedsAuth { .. }), "{message}");
            server.close().await;
        }
    });
}

#[test]
fn headers_and_tokens_are_sent_and_never_shown() {
    scene(|_| async {
        let http = listening(Script::default()).await;
        let secret = |url: String| HttpServer::new(url).with_header("X-Key", "k-123").with_bearer("t-456");
        for config in [
            in_era(EraChoice::Legacy, secret(http.url())),
            in_era(EraChoice::Modern, secret(http.url())),
            fast_config(Transport::Sse(secret(http.sse_url()))),
        ] {
            assert!(!format!("{config:?}").contains("k-123") && !format!("{config:?}").contains("t-456"));
            let server = connect(config).await;
            still_works(&server).await;
            server.close().await;
        }
        let requests = http.requests();
        assert!(requests.len() > 8);
        for request in requests {
            assert_eq!(request.header("x-key"), Some("k-123"), "{request:?}");
            assert_eq!(request.header("authorization"), Some("Bearer t-456"), "{request:?}");
        }
    });
}

#[test]
fn an_error_status_is_reported_with_its_body() {
    scene(|_| async {
        for era in BOTH {
            for (fault, reported) in [
                (Fault::status(403, "Host not allowed"), "the server answered HTTP 403: `Host not allowed`"),
                (Fault::status(500, "<html>\n  <h1>Sorry</h1>\n</html>"), "the server answered HTTP 500: `Sorry`"),
                (Fault::status(502, ""), "the server answered HTTP 502"),
                (Fault::status(413, "too big"), "the server answered HTTP 413: `too big`"),
            ] {
                let (_http, server) = spoiled(era, ResponseFormat::Sse, fault.clone()).await;
                assert_eq!(echo_fails(&server).await, format!("server `peer` is unavailable: {reported}"), "{fault:?}");
                assert!(server.is_connected());
                still_works(&server).await;
                server.close().await;
            }
        }
    });
}

#[test]
fn a_json_rpc_error_in_an_error_body_is_reported() {
    scene(|_| async {
        for era in BOTH {
            for status in [400, 404, 500] {
                // In a session, 404 means that the session has expired.
                if era == EraChoice::Legacy && status == 404 {
                    continue;
                }
                for body in [
                    json!({"jsonrpc": "2.0", "error": {"code": -32000, "message": "no luck"}}),
                    json!({"jsonrpc": "2.0", "id": null, "error": {"code": -32000, "message": "no luck"}}),
                    json!({"jsonrpc": "2.0", "id": 999_999, "error": {"code": -32000, "message": "no luck"}}),
                ] {
                    let (_http, server) = spoiled(era, ResponseFormat::Sse, Fault::json_status(status, &body)).await;
                    assert_eq!(echo_fails(&server).await, "server `peer` returned error -32000: no luck");
                    still_works(&server).await;
                    server.close().await;
                }
            }
            for answers in [ResponseFormat::Json, ResponseFormat::Sse] {
                let (_http, server) = spoiled(era, answers, Fault::idless_error(-32000, "no luck")).await;
                assert_eq!(echo_fails(&server).await, "server `peer` returned error -32000: no luck");
                still_works(&server).await;
                server.close().await;
            }
        }
    });
}

#[test]
fn a_busy_server_is_retried_after_retry_after() {
    scene(|_| async {
        let busy = async |status, era| {
            let (http, server) =
                spoiled(era, ResponseFormat::Sse, Fault::header_status(status, "Retry-After", "1")).await;
            let started = Instant::now();
            still_works(&server).await;
            assert!((ms(1000)..SOON / 2).contains(&started.elapsed()), "{:?}", started.elapsed());
            assert_eq!(calls(&http), 2);
            server.close().await;
        };
        let (legacy, modern) = (EraChoice::Legacy, EraChoice::Modern);
        tokio::join!(busy(429, legacy), busy(429, modern));
    });
}

#[test]
fn a_call_answered_with_503_is_not_repeated() {
    scene(|_| async {
        let lost = async |era| {
            let (http, server) = spoiled(era, ResponseFormat::Sse, Fault::header_status(503, "Retry-After", "0")).await;
            assert_eq!(echo_fails(&server).await, "server `peer` is unavailable: the server answered HTTP 503");
            assert_eq!(calls(&http), 1);
            server.close().await;
        };
        tokio::join!(lost(EraChoice::Legacy), lost(EraChoice::Modern));
    });
}

/// Formats a date in the future as in HTTP headers.
fn http_date(ahead: Duration) -> String {
    let seconds = (SystemTime::now() + ahead).duration_since(SystemTime::UNIX_EPOCH).expect("after 1970").as_secs();
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    let weekday = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"][(days % 7) as usize];
    // Civil days from a count of days, after Howard Hinnant.
    let z = days + 719_468;
    let (era, doe) = (z / 146_097, z % 146_097);
    let yoe = (doe - doe / 1460 + doe / 36_524 - doe / 146_096) / 365;
    let doy = doe - (365 * yoe + yoe / 4 - yoe / 100);
    let mp = (5 * doy + 2) / 153;
    let (day, month) = (doy - (153 * mp + 2) / 5 + 1, if mp < 10 { mp + 3 } else { mp - 9 });
    let year = yoe + era * 400 + u64::from(month <= 2);
    let names = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let month = names[(month - 1) as usize];
    format!("{weekday}, {day:02} {month} {year} {:02}:{:02}:{:02} GMT", rest / 3600, rest / 60 % 60, rest % 60)
}

#[test]
fn a_busy_server_with_a_json_error_is_retried() {
    scene(|_| async {
        let words = json!({"error": "too many requests"});
        let once = Script::default().fault(FaultTrigger::tool("echo").nth(1), Fault::json_status(429, &words));
        let http = listening(once).await;
        let server = connect(fast_config(at(http.url()))).await;
        still_works(&server).await;
        http.set(|script| {
            script.faults = vec![FaultRule { on: FaultTrigger::tool("echo"), fault: Fault::json_status(503, &words) }]
        });
        let error = call(&server, "echo", json!({"message": "hi"})).await.expect_err("a busy server");
        assert!(matches!(error, CallError::Unavailable { .. }), "{error:?}");
        server.close().await;
    });
}

#[test]
fn retry_after_may_be_a_date() {
    scene(|_| async {
        let due = SystemTime::now() + Duration::from_secs(2);
        let date = http_date(Duration::from_secs(2));
        let (http, server) =
            spoiled(EraChoice::Modern, ResponseFormat::Sse, Fault::header_status(429, "Retry-After", date)).await;
        still_works(&server).await;
        // Dates have whole seconds.
        let late = SystemTime::now().duration_since(due - Duration::from_secs(1)).expect("not before the date");
        assert!(late < SOON / 2, "{late:?}");
        assert_eq!(calls(&http), 2);
        server.close().await;
    });
}

#[test]
fn retries_of_a_busy_server_are_limited() {
    scene(|_| async {
        let script = Script::default().fault(FaultTrigger::tool("echo"), Fault::header_status(429, "Retry-After", "0"));
        let http = listening(script).await;
        let server = connect(in_era(EraChoice::Modern, at(http.url()))).await;
        assert_eq!(echo_fails(&server).await, "server `peer` is unavailable: the server answered HTTP 429");
        assert!((2..=5).contains(&calls(&http)), "{}", calls(&http));
        server.close().await;
    });
}

#[test]
fn a_retry_after_beyond_the_deadline_fails_at_once() {
    scene(|_| async {
        let script =
            Script::default().fault(FaultTrigger::tool("echo"), Fault::header_status(429, "Retry-After", "3600"));
        let http = listening(script).await;
        let server = connect(in_era(EraChoice::Modern, at(http.url()))).await;
        let started = Instant::now();
        assert_eq!(echo_fails(&server).await, "server `peer` is unavailable: the server answered HTTP 429");
        assert!(started.elapsed() < SOON / 2, "{:?}", started.elapsed());
        server.close().await;
    });
}

#[test]
fn a_wrong_content_type_is_ignored() {
    scene(|_| async {
        for era in BOTH {
            for (answers, lie) in [
                (ResponseFormat::Json, "text/html"),
                (ResponseFormat::Json, "text/event-stream"),
                (ResponseFormat::Json, "application/octet-stream"),
                (ResponseFormat::Sse, "application/json"),
                (ResponseFormat::Sse, "text/plain"),
                (ResponseFormat::Sse, "text/event-stream;charset=utf-8"),
            ] {
                let (_http, server) = spoiled(era, answers, HttpFault::ContentType(lie.to_owned())).await;
                assert_eq!(echo(&server).await.as_deref(), Ok("hi"), "{answers:?} as {lie}");
                server.close().await;
            }
        }
    });
}

#[test]
fn a_web_page_is_a_protocol_error() {
    scene(|_| async {
        let (_http, server) =
            spoiled(EraChoice::Modern, ResponseFormat::Json, Fault::status(200, "<h1>Please log in</h1>")).await;
        assert_eq!(
            echo_fails(&server).await,
            "server `peer` violated the protocol: the response is a web page, not MCP: `Please log in`"
        );
        still_works(&server).await;
        server.close().await;
    });
}

#[test]
fn an_interrupted_response_fails_and_is_not_repeated() {
    scene(|_| async {
        for era in BOTH {
            for answers in [ResponseFormat::Json, ResponseFormat::Sse] {
                for fault in [HttpFault::Truncate, HttpFault::Reset, HttpFault::ResetAfterHead] {
                    let script = with_http(HttpScript { answers, ..HttpScript::default() });
                    let http = listening(script.fault(FaultTrigger::tool("sleep").nth(1), fault.clone())).await;
                    let server = connect(in_era(era, at(http.url()))).await;
                    let started = Instant::now();
                    let error = call(&server, "sleep", json!({"ms": 1})).await.expect_err("no answer");
                    let reported = chain(&error);
                    assert!(reported.starts_with("server `peer` is unavailable: the "), "{fault:?}: {reported}");
                    assert!(error.is_transient());
                    assert!(started.elapsed() < SOON / 2, "{fault:?}: {:?}", started.elapsed());
                    assert_eq!(calls(&http), 1, "{fault:?}");
                    still_works(&server).await;
                    server.close().await;
                }
            }
        }
    });
}

#[test]
fn idempotent_requests_are_repeated_after_a_connection_error() {
    scene(|_| async {
        for era in BOTH {
            let http =
                listening(Script::default().fault(FaultTrigger::method("tools/list").nth(1), HttpFault::Reset)).await;
            let server = connect(in_era(era, at(http.url()))).await;
            assert_eq!(names(&server).await.len(), 16);
            server.close().await;
        }
    });
}

#[test]
fn a_stream_without_a_response_fails_the_call() {
    scene(|_| async {
        for era in BOTH {
            let cut = HttpFault::CutStream { after: 0, retry_ms: 10, resumable: false };
            let (http, server) = spoiled(era, ResponseFormat::Sse, cut).await;
            let cx = CallContext::default().with_idle_timeout(ms(500));
            let started = Instant::now();
            let error = call_in(&server, "echo", json!({"message": "hi"}), &cx).await.expect_err("no answer");
            match era {
                // The response may be on the resumed stream, so the timeout decides.
                EraChoice::Legacy => assert!(matches!(error, CallError::Timeout { .. }), "{error:?}"),
                _ => assert_eq!(chain(&error), "server `peer` is unavailable: the server closed the connection"),
            }
            assert!(started.elapsed() < SOON / 2, "{:?}", started.elapsed());
            assert_eq!(calls(&http), 1);
            still_works(&server).await;
            server.close().await;
        }
    });
}

#[test]
fn an_interrupted_stream_is_resumed_after_the_servers_delay() {
    scene(|_| async {
        let cut = HttpFault::CutStream { after: 1, retry_ms: 300, resumable: true };
        let http = listening(Script::default().fault(FaultTrigger::tool("sleep"), cut)).await;
        let server = connect(in_era(EraChoice::Legacy, at(http.url()))).await;
        let heard = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
        let sink = heard.clone();
        let cx = CallContext::default().with_progress(move |at| sink.lock().expect("no panic").push(at.progress));
        let started = Instant::now();
        let output = call_in(&server, "sleep", json!({"ms": 100, "steps": 4}), &cx).await.expect("an answer");
        assert_eq!(output.plain_text().as_deref(), Some("slept 100 ms"));
        assert!(started.elapsed() >= ms(300), "{:?}", started.elapsed());
        assert_eq!(*heard.lock().expect("no panic"), [1.0, 2.0, 3.0, 4.0]);
        let resumed: Vec<_> =
            http.requests().into_iter().filter(|request| request.header("last-event-id").is_some()).collect();
        assert_eq!((resumed.len(), resumed[0].method.as_str()), (1, "GET"));
        assert!(resumed[0].header("last-event-id").is_some_and(|id| id.ends_with("-1")), "{resumed:?}");
        assert!(resumed[0].header("mcp-session-id").is_some());
        assert_eq!(calls(&http), 1);
        server.close().await;
    });
}

#[test]
fn comments_on_a_stream_do_not_reset_the_idle_timeout() {
    scene(|_| async {
        let http = HttpScript { comment_every_ms: Some(20), ..HttpScript::default() };
        let http = listening(with_http(http).fault(FaultTrigger::tool("echo").nth(1), Fault::Hang)).await;
        let server = connect(in_era(EraChoice::Modern, at(http.url()))).await;
        let cx = CallContext::default().with_idle_timeout(ms(200));
        let error = call_in(&server, "echo", json!({"message": "hi"}), &cx).await.expect_err("no answer");
        assert!(matches!(error, CallError::Timeout { .. }), "{error:?}");
        still_works(&server).await;
        server.close().await;
    });
}

#[test]
fn a_slow_response_head_is_read_within_the_timeouts() {
    scene(|_| async {
        for era in BOTH {
            let (_http, server) = spoiled(era, ResponseFormat::Json, HttpFault::SlowHead { ms: 2 }).await;
            still_works(&server).await;
            server.close().await;
            let (_http, server) = spoiled(era, ResponseFormat::Json, HttpFault::SlowHead { ms: 50 }).await;
            let cx = CallContext::default().with_timeout(ms(200));
            let error = call_in(&server, "echo", json!({"message": "hi"}), &cx).await.expect_err("no answer");
            assert!(matches!(error, CallError::Timeout { .. }), "{error:?}");
            still_works(&server).await;
            server.close().await;
        }
    });
}

#[test]
fn responses_in_any_chunks_are_read() {
    scene(|_| async {
        for answers in [ResponseFormat::Json, ResponseFormat::Sse] {
            let http = HttpScript { answers, chunked: true, event_ids: true, ..HttpScript::default() };
            let writing = WriteStyle { split: Some(5), ..WriteStyle::default() };
            let http = listening(Script { writing, ..with_http(http) }).await;
            for era in BOTH {
                let server = connect(in_era(era, at(http.url()))).await;
                still_works(&server).await;
                server.close().await;
            }
        }
    });
}

#[test]
fn only_same_origin_redirects_that_keep_the_request_are_followed() {
    scene(|_| async {
        let elsewhere = listening(Script::default()).await;
        for era in BOTH {
            for status in [307, 308] {
                let (_http, server) = spoiled(era, ResponseFormat::Sse, Fault::redirect(status, "/moved/mcp")).await;
                still_works(&server).await;
                server.close().await;
            }
            for (status, location) in [(307, elsewhere.url()), (308, elsewhere.url()), (302, "/moved/mcp".to_owned())] {
                let (_http, server) =
                    spoiled(era, ResponseFormat::Sse, Fault::redirect(status, location.clone())).await;
                let reported = echo_fails(&server).await;
                let expected = format!("the server answered HTTP {status}, a redirect to {location}");
                assert_eq!(reported, format!("server `peer` is unavailable: {expected}"));
                still_works(&server).await;
                server.close().await;
            }
        }
        assert!(elsewhere.requests().is_empty());
    });
}

#[test]
fn an_expired_session_is_renewed_and_the_call_repeated() {
    scene(|_| async {
        for unknown_session in [UnknownSession::NotFound, UnknownSession::BadRequest, UnknownSession::NotInitialized] {
            let http = listening(with_http(HttpScript { unknown_session, ..HttpScript::default() })).await;
            let server = connect(in_era(EraChoice::Legacy, at(http.url()))).await;
            still_works(&server).await;
            for round in 1..=3 {
                http.forget_sessions();
                still_works(&server).await;
                assert_eq!(http.received_of("initialize").len(), 1 + round, "{unknown_session:?}");
            }
            // Each was rejected once and answered once, except for the first, which was only answered.
            assert_eq!(calls(&http), 1 + 2 * 3, "{unknown_session:?}");
            server.close().await;
            until("the end of the session", || http.sessions() == 0).await;
        }
    });
}

#[test]
fn a_repeatedly_expiring_session_fails_with_backoff() {
    scene(|_| async {
        let http = listening(Script::default().fault(FaultTrigger::tool("echo"), HttpFault::ForgetSession)).await;
        let server = connect(in_era(EraChoice::Legacy, at(http.url()))).await;
        let started = Instant::now();
        assert_eq!(echo_fails(&server).await, "server `peer` is unavailable: the session has expired");
        assert!(started.elapsed() < SOON / 2, "{:?}", started.elapsed());
        assert_eq!(calls(&http), 2);
        http.set(|script| script.faults.clear());
        names(&server).await;
        // Requests of the connection itself are rejected from here on.
        http.set(|script| {
            script.faults =
                vec![FaultRule { on: FaultTrigger::method("tools/list"), fault: HttpFault::ForgetSession.into() }];
        });
        let before = http.received_of("initialize").len();
        http.forget_sessions();
        assert!(server.refresh_tools().await.is_err());
        tokio::time::sleep(ms(500)).await;
        let tries = http.received_of("initialize").len() - before;
        assert!(tries <= 20, "{tries} sessions in half a second");
        server.close().await;
    });
}

#[test]
fn a_session_that_expires_in_the_handshake_is_an_error() {
    scene(|_| async {
        let fault = HttpFault::ForgetSession;
        let http = listening(Script::default().fault(FaultTrigger::method("notifications/initialized"), fault)).await;
        let server = Mcp::new(in_era(EraChoice::Legacy, at(http.url())));
        let reported = cannot_connect(&server).await;
        assert_eq!(reported, "could not connect to server `peer`: the session has expired");
        tokio::time::sleep(ms(500)).await;
        let tries = http.received_of("initialize").len();
        assert!(tries <= 20, "{tries} sessions in half a second");
        http.set(|script| script.faults.clear());
        state(&server, |state| matches!(state, ConnectionState::Ready { .. })).await;
        still_works(&server).await;
        server.close().await;
    });
}

#[test]
fn a_server_restarted_on_its_port_answers_the_next_call() {
    scene(|_| async {
        for unknown_session in [UnknownSession::NotFound, UnknownSession::BadRequest, UnknownSession::NotInitialized] {
            for era in BOTH {
                let http = listening(with_http(HttpScript { unknown_session, ..HttpScript::default() })).await;
                let server = connect(in_era(era, at(http.url()))).await;
                for _ in 0..3 {
                    still_works(&server).await;
                    http.restart().await.expect("the same port");
                    tokio::time::sleep(ms(50)).await;
                }
                still_works(&server).await;
                server.close().await;
            }
        }
        let http = listening(Script::default()).await;
        let server = connect(fast_config(Transport::Sse(at(http.sse_url())))).await;
        still_works(&server).await;
        http.restart().await.expect("the same port");
        state(&server, |state| !matches!(state, ConnectionState::Ready { .. })).await;
        still_works(&server).await;
        server.close().await;
    });
}

#[test]
fn a_crash_fails_the_call_and_the_next_one_succeeds() {
    scene(|_| async {
        for era in BOTH {
            for fault in [Fault::exit(), Fault::ExitMidAnswer] {
                let (http, server) = spoiled(era, ResponseFormat::Sse, fault.clone()).await;
                let started = Instant::now();
                let reported = echo_fails(&server).await;
                assert!(reported.starts_with("server `peer` is unavailable: the "), "{fault:?}: {reported}");
                assert!(started.elapsed() < SOON / 2, "{:?}", started.elapsed());
                assert_eq!(calls(&http), 1);
                still_works(&server).await;
                server.close().await;
            }
        }
    });
}

#[test]
fn a_202_response_to_a_request_is_a_protocol_error() {
    scene(|_| async {
        let (_http, server) = spoiled(EraChoice::Modern, ResponseFormat::Sse, HttpFault::Accepted).await;
        assert_eq!(echo_fails(&server).await, "server `peer` violated the protocol: HTTP 202 without a body");
        still_works(&server).await;
        server.close().await;
        let script = with_http(HttpScript { get_stream: false, ..HttpScript::default() });
        let http = listening(script.fault(FaultTrigger::tool("echo").nth(1), HttpFault::Accepted)).await;
        let server = connect(in_era(EraChoice::Legacy, at(http.url()))).await;
        assert_eq!(echo_fails(&server).await, "server `peer` violated the protocol: HTTP 202 without a body");
        still_works(&server).await;
        server.close().await;
        // The response may arrive on the open stream, so the timeout decides.
        let (_http, server) = spoiled(EraChoice::Legacy, ResponseFormat::Sse, HttpFault::Accepted).await;
        let cx = CallContext::default().with_idle_timeout(ms(200));
        let error = call_in(&server, "echo", json!({"message": "hi"}), &cx).await.expect_err("no answer");
        assert!(matches!(error, CallError::Timeout { .. }), "{error:?}");
        still_works(&server).await;
        server.close().await;
    });
}

#[test]
fn an_sse_server_is_detected_behind_a_plain_url() {
    scene(|_| async {
        let http =
            listening(with_http(HttpScript { offers: OfferedTransports::LegacySse, ..HttpScript::default() })).await;
        for config in [
            fast_config(at(http.url())),
            fast_config(at(http.sse_url())),
            fast_config(Transport::Sse(at(http.sse_url()))),
        ] {
            let server = connect(config).await;
            assert_eq!(server.server_info().map(|info| info.era), Some(Era::Legacy));
            assert_eq!(names(&server).await.len(), 16);
            still_works(&server).await;
            server.close().await;
        }
        // The fallback was a guess, so the first error is reported.
        let http =
            listening(with_http(HttpScript { offers: OfferedTransports::Streamable, ..HttpScript::default() })).await;
        let server = Mcp::new(fast_config(at(http.url().replace("/mcp", "/nothing"))));
        let reported = cannot_connect(&server).await;
        assert_eq!(reported, "could not connect to server `peer`: the server answered HTTP 404: `Not Found`");
        server.close().await;
    });
}

#[test]
fn an_endpoint_on_another_origin_is_rejected() {
    scene(|_| async {
        let elsewhere = listening(Script::default()).await;
        let endpoint = Some(elsewhere.url().replace("/mcp", "/message?sessionId={id}"));
        let http = HttpScript { endpoint, offers: OfferedTransports::LegacySse, ..HttpScript::default() };
        let http = listening(with_http(http)).await;
        let server = Mcp::new(fast_config(Transport::Sse(at(http.sse_url()))));
        assert_eq!(
            cannot_connect(&server).await,
            "could not connect to server `peer`: the server violated the protocol: the endpoint has another origin"
        );
        server.close().await;
        assert!(elsewhere.requests().is_empty());
        let endpoint = Some(format!("{}?sessionId={{id}}", http.url().replace("/mcp", "/message")));
        http.set(|script| script.http.endpoint = endpoint);
        let server = connect(fast_config(Transport::Sse(at(http.sse_url())))).await;
        still_works(&server).await;
        server.close().await;
    });
}

#[test]
fn an_interrupted_sse_stream_fails_pending_calls_and_reconnects() {
    scene(|_| async {
        let http = listening(Script::default()).await;
        let server = connect(fast_config(Transport::Sse(at(http.sse_url())))).await;
        let waiting = tokio::spawn({
            let server = server.clone();
            async move { call(&server, "sleep", json!({"ms": 60_000})).await }
        });
        http.wait_for("tools/call", 1).await;
        http.crash();
        let error = waiting.await.expect("no panic").expect_err("no answer");
        assert!(chain(&error).starts_with("server `peer` is unavailable: the "), "{}", chain(&error));
        still_works(&server).await;
        assert_eq!(http.received_of("tools/call").len(), 2);
        server.close().await;
    });
}

#[test]
fn closing_deletes_the_session_on_the_server() {
    scene(|_| async {
        let http = listening(Script::default()).await;
        let server = connect(in_era(EraChoice::Legacy, at(http.url()))).await;
        assert_eq!(http.sessions(), 1);
        server.close().await;
        assert_eq!(http.sessions(), 0);
        let server = connect(in_era(EraChoice::Legacy, at(http.url()))).await;
        drop(server);
        until("the end of the session", || http.sessions() == 0).await;
        // The wait for a server that does not answer is limited by the settings.
        http.set(|script| {
            script.faults =
                vec![FaultRule { on: FaultTrigger::method("DELETE"), fault: HttpFault::SlowHead { ms: 500 }.into() }];
        });
        let server = connect(in_era(EraChoice::Legacy, at(http.url()))).await;
        let started = Instant::now();
        server.close().await;
        assert!(started.elapsed() < SOON / 2, "{:?}", started.elapsed());
    });
}

#[test]
fn closing_while_the_standalone_stream_opens_leaks_nothing() {
    scene(|_| async {
        let http =
            listening(Script::default().fault(FaultTrigger::method("GET"), HttpFault::SlowHead { ms: 200 })).await;
        for drops in [false, true] {
            let server = Mcp::new(in_era(EraChoice::Legacy, at(http.url())));
            let connecting = tokio::spawn({
                let server = server.clone();
                async move { server.connect().await }
            });
            let gets = || http.requests().iter().filter(|request| request.method == "GET").count();
            until("the stream", || gets() == 1 + usize::from(drops)).await;
            if drops {
                connecting.abort();
                drop(server);
            } else {
                server.close().await;
                connecting.await.expect("no panic").expect_err("no connection");
            }
        }
    });
}

#[test]
fn sessions_and_the_standalone_stream_are_optional() {
    scene(|_| async {
        for http in [
            HttpScript { sessions: false, ..HttpScript::default() },
            HttpScript { sessions: false, answers: ResponseFormat::Json, get_stream: false, ..HttpScript::default() },
            HttpScript { get_stream: false, ..HttpScript::default() },
        ] {
            let http = listening(with_http(http)).await;
            let server = connect(in_era(EraChoice::Legacy, at(http.url()))).await;
            assert_eq!(names(&server).await.len(), 16);
            still_works(&server).await;
            server.close().await;
            assert!(http.requests().iter().filter(|request| request.method == "GET").count() <= 1);
        }
    });
}

#[test]
fn notifications_arrive_over_the_resumed_standalone_stream() {
    scene(|_| async {
        let http = listening(with_http(HttpScript { event_ids: true, ..HttpScript::default() })).await;
        let server = connect(in_era(EraChoice::Legacy, at(http.url()))).await;
        names(&server).await;
        let mut events = server.events();
        http.set(|script| script.extra_tools.extend(ropeway_testing::unusual::tools()));
        http.changed("tools");
        event(&mut events, |event| matches!(event, Event::ToolsChanged { .. }).then_some(())).await;
        assert_eq!(names(&server).await.len(), 31);
        server.close().await;
    });
}

#[test]
fn outdated_header_parameters_are_rebuilt_from_a_fresh_list() {
    scene(|_| async {
        let http = listening(Script::modern()).await;
        let server = connect(fast_config(at(http.url()))).await;
        assert_eq!(text(&server, "locate", json!({"region": "grüße, =?base64?"})).await, "grüße, =?base64?");
        let mut schema = json!({"type": "object", "properties": {"place": {"type": "string"}}});
        let place = |schema: &serde_json::Value| json!({"name": "place", "inputSchema": schema});
        let result = json!({"content": [{"type": "text", "text": "there"}]});
        http.set(|script| {
            script.extra_tools.push(ropeway_testing::ExtraTool::new(place(&schema), result.clone()));
        });
        server.refresh_tools().await.expect("a list");
        schema["properties"]["place"]["x-mcp-header"] = json!("Place");
        http.set(|script| script.extra_tools[0].definition = place(&schema));
        assert_eq!(text(&server, "place", json!({"place": "Rome"})).await, "there");
        let last = http.requests().into_iter().rfind(|request| request.method == "POST").expect("a call");
        assert_eq!(last.header("mcp-param-place"), Some("Rome"));
        server.close().await;
    });
}

#[test]
fn a_tool_with_an_invalid_header_is_skipped_over_http_only() {
    scene(|_| async {
        let schema =
            json!({"type": "object", "properties": {"a": {"type": "string", "x-mcp-header": "no such: name"}}});
        let script = Script::modern().tool(json!({"name": "bad", "inputSchema": schema}), json!({"content": []}));
        let http = listening(script.clone()).await;
        let server = connect(fast_config(at(http.url()))).await;
        let mut events = server.events();
        assert!(!names(&server).await.contains(&"bad".to_owned()));
        let warnings = warnings(&mut events);
        assert!(warnings.iter().any(|warning| warning.contains("tool `bad` cannot be used")), "{warnings:?}");
        server.close().await;
        let (_scripted, server) = crate::fast_config::in_process(script).await;
        assert!(names(&server).await.contains(&"bad".to_owned()));
        server.close().await;
    });
}
