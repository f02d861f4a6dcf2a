//! Listeners: what they refuse, and what happens when clients disconnect, come back or do not read.

use ropeway::config::GatewaySettings;
use ropeway::testing::Script;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};

use super::kit::{GatewayKit, bare, call, modern, modern_call, post, read_until, request};
use crate::fast_config::{SOON, ms, until};
use crate::scene::scene;

/// Returns the id of the last event in a text.
fn last_event(text: &str) -> &str {
    text.lines().filter_map(|line| line.strip_prefix("id: ")).next_back().expect("an event id")
}

#[test]
fn a_foreign_host_and_origin_are_refused() {
    scene(|_| async move {
        let kit = GatewayKit::start(Script::default()).await;
        for (headers, status) in [
            ("Host: localhost\r\n", 404),
            ("Host: 127.0.0.1:80\r\n", 404),
            ("Host: localhost\r\nOrigin: http://localhost:6274\r\n", 404),
            ("", 403),
            ("Host: evil.example\r\n", 403),
            ("Host: localhost\r\nHost: evil.example\r\n", 403),
            ("Host: localhost\r\nOrigin: https://evil.example\r\n", 403),
            ("Host: localhost\r\nOrigin: null\r\n", 403),
            ("Host: localhost\r\nOrigin: http://localhost\r\nOrigin: https://evil.example\r\n", 403),
        ] {
            let reply = kit.send(&bare("GET", "/nowhere", headers)).await;
            assert_eq!(reply.status, status, "{headers}: {reply:?}");
        }
        // Load balancers probe by address, or without a host.
        for (headers, status) in [
            ("", 200),
            ("Host: 10.1.2.3:8931\r\n", 200),
            ("Host: localhost\r\nHost: localhost\r\n", 403),
            ("Origin: https://evil.example\r\n", 403),
        ] {
            let reply = kit.send(&bare("GET", "/ready", headers)).await;
            assert_eq!(reply.status, status, "{headers}: {reply:?}");
        }
        // The body is not read: the client waits for permission to send it.
        let waiting = "POST /mcp HTTP/1.1\r\nHost: evil.example\r\nExpect: 100-continue\r\nContent-Length: 9\r\n\r\n";
        let reply = kit.send(waiting).await;
        assert_eq!(reply.status, 403, "{reply:?}");
        assert_eq!(reply.json()["error"]["message"], "Host is not allowed");
        kit.stop().await;
    });
}

#[test]
fn a_page_of_an_allowed_origin_may_send_requests() {
    scene(|_| async move {
        let kit = GatewayKit::start(Script::default()).await;
        let headers = "Host: localhost\r\nOrigin: http://localhost:6274\r\nAccess-Control-Request-Method: POST\r\n\
                       Access-Control-Request-Headers: content-type,mcp-param-region\r\n";
        let reply = kit.send(&bare("OPTIONS", "/mcp", headers)).await;
        assert_eq!(reply.status, 204, "{reply:?}");
        assert_eq!(reply.headers["access-control-allow-origin"], "http://localhost:6274");
        assert_eq!(reply.headers["access-control-allow-headers"], "content-type,mcp-param-region");
        kit.stop().await;
    });
}

#[test]
fn wrong_paths_methods_and_types_are_refused() {
    scene(|_| async move {
        let kit = GatewayKit::start(Script::default()).await;
        let host = "Host: localhost\r\n";
        for (method, path, status) in [
            ("GET", "/unknown", 404),
            ("GET", "/mcp/../health", 404),
            ("POST", "/mcp/unknown", 415),
            ("GET", "/mcp", 405),
            ("DELETE", "/mcp", 405),
            ("PUT", "/mcp", 405),
            ("POST", "/health", 405),
            ("GET", "/ready", 200),
        ] {
            let reply = kit.send(&bare(method, path, host)).await;
            assert_eq!(reply.status, status, "{method} {path}: {reply:?}");
        }
        assert_eq!(kit.modern("tools/list", json!({})).await.status, 200);
        let list = modern("tools/list", json!({}));
        let reply = kit.send(&list.replace("text/event-stream", "text/html")).await;
        assert_eq!(reply.status, 406, "{reply:?}");
        let reply = kit.send(&list.replace("Content-Type: application/json", "Content-Type: text/plain")).await;
        assert_eq!(reply.status, 415, "{reply:?}");
        let reply = kit.post("Mcp-Session-Id: a\r\nMcp-Session-Id: b\r\n", &request(1, "ping", json!({}))).await;
        assert_eq!(reply.status, 400, "{reply:?}");
        let reply = kit.send(&bare("GET", "/mcp", "Host: localhost\r\nMcp-Session-Id: unknown\r\n")).await;
        assert_eq!(reply.status, 404, "{reply:?}");
        kit.stop().await;
    });
}

#[test]
fn repeated_headers_of_the_protocol_are_refused() {
    scene(|_| async move {
        let kit = GatewayKit::start(Script::default()).await;
        let echo = modern_call("echo", json!({"message": "hi"}));
        assert_eq!(kit.send(&echo).await.status, 200);
        // A proxy may decide by the last value, and the gateway by the first.
        for headers in [
            "Mcp-Name: echo",
            "Mcp-Method: tools/call",
            "MCP-Protocol-Version: 2026-07-28",
            "Mcp-Param-Region: a\r\nMcp-Param-Region: b",
        ] {
            let reply = kit.send(&echo.replacen("Host: localhost", &format!("Host: localhost\r\n{headers}"), 1)).await;
            assert_eq!(reply.status, 400, "{headers}: {reply:?}");
        }
        let session = kit.session().await;
        let version = "MCP-Protocol-Version: 2025-11-25\r\n";
        let headers = format!("Host: localhost\r\n{session}{version}{version}");
        for method in ["GET", "DELETE"] {
            assert_eq!(kit.send(&bare(method, "/mcp", &headers)).await.status, 400, "{method}");
        }
        assert_eq!(kit.scripted.received_of("tools/call").len(), 1);
        kit.stop().await;
    });
}

#[test]
fn a_body_over_the_limit_is_refused() {
    scene(|_| async move {
        let mut settings = GatewaySettings::default();
        settings.limits.body = 100_000;
        let kit = GatewayKit::start_with(Script::default(), settings).await;
        let fits = kit.send(&modern_call("echo", json!({"message": "x".repeat(90_000)}))).await;
        assert_eq!(fits.status, 200, "{fits:?}");
        let head = "POST /mcp HTTP/1.1\r\nHost: localhost\r\nAccept: */*\r\nContent-Type: application/json\r\n";
        let declared = kit.send(&format!("{head}Content-Length: 100001\r\n\r\n")).await;
        assert_eq!(declared.status, 413, "{declared:?}");
        let chunk = format!("{:x}\r\n{}\r\n", 60_000, "x".repeat(60_000));
        let mut stream = kit.open(&format!("{head}Transfer-Encoding: chunked\r\n\r\n{chunk}{chunk}")).await;
        let reply = read_until(&mut stream, "\r\n\r\n").await;
        assert!(reply.starts_with("HTTP/1.1 413"), "{reply}");
        kit.stop().await;
    });
}

#[test]
fn a_disconnect_cancels() {
    scene(|_| async move {
        let kit = GatewayKit::start(Script::default()).await;
        let session = kit.session().await;
        let silent = json!({"ms": 600_000});
        for request in [
            modern_call("sleep", silent.clone()),
            modern_call("sleep", json!({"ms": 600_000, "steps": 100_000})),
            post(&session, &call(1, "sleep", silent)),
        ] {
            let before = kit.scripted.cancelled().len();
            let stream = kit.open(&request).await;
            until("the call", || kit.gateway.status().requests == 1).await;
            // The server has to know the call before it can be cancelled.
            tokio::time::sleep(ms(100)).await;
            drop(stream);
            until("the cancellation", || kit.scripted.cancelled().len() == before + 1).await;
            kit.idle().await;
        }
        kit.stop().await;
    });
}

#[test]
fn a_stream_is_resumed_without_loss() {
    scene(|_| async move {
        let kit = GatewayKit::start(Script::default()).await;
        let session = kit.session().await;
        let mut stream = kit.open(&post(&session, &call(1, "sleep", json!({"ms": 2000, "steps": 10})))).await;
        let before = read_until(&mut stream, "\"progress\"").await + &read_until(&mut stream, "\n").await;
        assert!(before.contains("retry: 1000"), "{before}");
        let last = last_event(&before).to_owned();
        drop(stream);
        tokio::time::sleep(ms(500)).await;
        let headers = format!("Host: localhost\r\nLast-Event-ID: {last}\r\n{session}");
        let reply = kit.send(&bare("GET", "/mcp", &headers)).await;
        let events = reply.events();
        let seen = |text: &str| text.matches("notifications/progress").count();
        let (missed, response) = events.split_at(events.len() - 1);
        assert!(missed.iter().all(|event| event["method"] == "notifications/progress"), "{reply:?}");
        assert_eq!(seen(&before) + missed.len(), 10, "{before} {reply:?}");
        assert_eq!(response[0]["id"], 1);
        assert!(response[0]["result"].is_object(), "{reply:?}");
        kit.stop().await;
    });
}

#[test]
fn an_event_id_of_another_session_is_unknown() {
    scene(|_| async move {
        let kit = GatewayKit::start(Script::default()).await;
        let (owner, other) = (kit.session().await, kit.session().await);
        let mut stream = kit.open(&post(&owner, &call(4711, "sleep", json!({"ms": 600_000, "steps": 10_000})))).await;
        let read = read_until(&mut stream, "\"progress\"").await + &read_until(&mut stream, "\n").await;
        let last = last_event(&read).to_owned();
        for last in [&*last, "unknown.1"] {
            let headers = format!("Host: localhost\r\nLast-Event-ID: {last}\r\n{other}");
            let mut resumed = kit.open(&bare("GET", "/mcp", &headers)).await;
            // Both get a new standalone stream, whose only event is the first one.
            let read = read_until(&mut resumed, "retry: 1000").await;
            kit.scripted.changed("prompts");
            let read = read + &read_until(&mut resumed, "prompts/list_changed").await;
            assert!(!read.contains("4711") && !read.contains("error"), "{read}");
        }
        drop(stream);
        assert_eq!(kit.send(&bare("DELETE", "/mcp", &format!("Host: localhost\r\n{owner}"))).await.status, 204);
        kit.stop().await;
    });
}

#[test]
fn parked_calls_of_one_connection_are_limited() {
    scene(|_| async move {
        let mut settings = GatewaySettings::default();
        settings.limits.calls_per_client = 3;
        let kit = GatewayKit::start_with(Script::legacy(), settings).await;
        let mut params = json!({"name": "elicit", "arguments": {}});
        params["_meta"]["io.modelcontextprotocol/clientCapabilities"] = json!({"elicitation": {}});
        let call = modern("tools/call", params).replace("Connection: close\r\n", "");
        let mut stream = kit.open("").await;
        for number in 0..5 {
            stream.write_all(call.as_bytes()).await.expect("a request");
            let head = read_until(&mut stream, "\r\n\r\n").await.to_lowercase();
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse().ok());
            let mut body = vec![0; length.expect("a length")];
            stream.read_exact(&mut body).await.expect("a body");
            let body = String::from_utf8(body).expect("UTF-8");
            let expected = if number < 3 { ("200", "input_required") } else { ("429", "limit: 3 per client") };
            assert!(head.contains(expected.0) && body.contains(expected.1), "{number}: {head}{body}");
        }
        let other = kit.send(&call.replace("Host: localhost\r\n", "Host: localhost\r\nConnection: close\r\n")).await;
        assert_eq!(other.status, 200, "another connection: {other:?}");
        assert_eq!(kit.gateway.status().parked, 4);
        drop(stream);
        kit.gateway.drain(SOON).await;
        assert_eq!(kit.gateway.status().parked, 0);
    });
}

#[test]
fn a_client_that_never_reads_is_bounded() {
    scene(|_| async move {
        let mut settings = GatewaySettings::default();
        settings.limits.calls_per_client = 20;
        let kit = GatewayKit::start_with(Script::default(), settings).await;
        let (client, server) = tokio::io::duplex(1 << 12);
        let (input, output) = tokio::io::split(server);
        let serving = tokio::spawn({
            let gateway = kit.gateway.clone();
            async move { gateway.serve_stdio(None, input, output).await }
        });
        let (read, mut write) = tokio::io::split(client);
        let params =
            json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "kit", "version": "0"}});
        write.write_all(format!("{}\n", request(0, "initialize", params)).as_bytes()).await.expect("a pipe");
        for id in 1..=40 {
            let line = call(id, "blob", json!({"bytes": 200_000})).to_string() + "\n";
            tokio::time::timeout(SOON, write.write_all(line.as_bytes()))
                .await
                .expect("the gateway reads")
                .expect("a pipe");
        }
        tokio::time::sleep(ms(500)).await;
        assert!(kit.scripted.received_of("tools/call").len() <= 20, "calls over the limit are refused");
        // A client that reads late gets every response.
        let mut lines = BufReader::new(read).lines();
        let mut ids = Vec::new();
        while ids.len() < 41 {
            let line = tokio::time::timeout(2 * SOON, lines.next_line()).await.expect("a line in time");
            let answer: Value = serde_json::from_str(&line.expect("a line").expect("a message")).expect("JSON");
            ids.extend(answer["id"].as_u64());
        }
        ids.sort_unstable();
        assert_eq!(ids, Vec::from_iter(0..=40));
        write.shutdown().await.expect("a pipe");
        tokio::time::timeout(SOON, serving).await.expect("the pipe ends").expect("the pipe");
        kit.stop().await;
    });
}

#[test]
fn an_ended_session_is_unknown() {
    scene(|_| async move {
        let kit = GatewayKit::start(Script::default()).await;
        let session = kit.session().await;
        let headers = format!("Host: localhost\r\n{session}");
        let mut standalone = kit.open(&bare("GET", "/mcp", &headers)).await;
        read_until(&mut standalone, "retry: 1000").await;
        assert_eq!(kit.post(&session, &request(1, "ping", json!({}))).await.status, 200);
        assert_eq!(kit.send(&bare("DELETE", "/mcp", &headers)).await.status, 204);
        let mut rest = Vec::new();
        let end = tokio::time::timeout(SOON, standalone.read_to_end(&mut rest)).await;
        assert!(end.is_ok(), "the standalone stream ends");
        until("the end of all streams", || kit.gateway.status().streams == 0).await;
        let reply = kit.post(&session, &request(2, "ping", json!({}))).await;
        assert_eq!((reply.status, &reply.json()["error"]["code"]), (404, &json!(-32001)));
        kit.stop().await;
    });
}

#[test]
fn tools_are_called_over_http_with_sse() {
    scene(|_| async move {
        let kit = GatewayKit::start(Script::default()).await;
        let mut events = kit.open(&bare("GET", "/sse", "Host: localhost\r\n")).await;
        let endpoint = read_until(&mut events, "data: /messages").await;
        let path = endpoint.lines().find_map(|line| line.strip_prefix("data: ")).expect("an endpoint").to_owned();
        let send = async |message: Value| kit.send(&post("", &message).replacen("/mcp", &path, 1)).await.status;
        let params =
            json!({"protocolVersion": "2024-11-05", "capabilities": {}, "clientInfo": {"name": "kit", "version": "0"}});
        assert_eq!(send(request(0, "initialize", params)).await, 202);
        read_until(&mut events, "\"id\":0").await;
        assert_eq!(send(call(1, "echo", json!({"message": "over there"}))).await, 202);
        let text = read_until(&mut events, "\"id\":1").await;
        assert!(text.contains("event: message") && text.contains("over there"), "{text}");
        // A client that disconnects cancels its calls, and its address is gone.
        assert_eq!(send(call(2, "sleep", json!({"ms": 600_000}))).await, 202);
        until("the call", || kit.scripted.received_of("tools/call").len() == 2).await;
        drop(events);
        until("the cancellation", || kit.scripted.cancelled().len() == 1).await;
        assert_eq!(send(call(3, "echo", json!({"message": "nothing"}))).await, 404);
        kit.stop().await;
    });
}

#[test]
fn a_pipe_serves_many_calls_at_a_time_and_skips_long_lines() {
    scene(|_| async move {
        let mut settings = GatewaySettings::default();
        settings.limits.message = 100_000;
        let kit = GatewayKit::start_with(Script::default(), settings).await;
        let (client, server) = tokio::io::duplex(1 << 16);
        let (input, output) = tokio::io::split(server);
        let serving = tokio::spawn({
            let gateway = kit.gateway.clone();
            async move { gateway.serve_stdio(None, input, output).await }
        });
        let (read, mut write) = tokio::io::split(client);
        let mut lines = BufReader::new(read).lines();
        let params =
            json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "kit", "version": "0"}});
        let messages = [
            request(0, "initialize", params).to_string(),
            "x".repeat(100_001),
            "{broken".to_owned(),
            call(1, "sleep", json!({"ms": 300})).to_string(),
            call(2, "echo", json!({"message": "first"})).to_string(),
        ];
        write.write_all((messages.join("\n\n") + "\n").as_bytes()).await.expect("a client that writes");
        let mut answers = Vec::new();
        while answers.len() < 5 {
            let line = tokio::time::timeout(2 * SOON, lines.next_line()).await.expect("a line in time");
            let answer: Value = serde_json::from_str(&line.expect("a line").expect("a message")).expect("JSON");
            if answer.get("method").is_none() {
                answers.push((answer["id"].clone(), answer["error"]["code"].clone()));
            }
        }
        let expected = [
            (json!(0), Value::Null),
            (Value::Null, json!(-32600)),
            (Value::Null, json!(-32700)),
            (json!(2), Value::Null),
            (json!(1), Value::Null),
        ];
        assert_eq!(answers, expected);
        // The end of the input cancels what is in progress.
        let endless = call(3, "sleep", json!({"ms": 600_000})).to_string() + "\n";
        write.write_all(endless.as_bytes()).await.expect("a client that writes");
        until("the call", || kit.scripted.received_of("tools/call").len() == 3).await;
        write.shutdown().await.expect("a client that ends");
        tokio::time::timeout(SOON, serving).await.expect("the pipe ends").expect("the pipe");
        until("the cancellation", || kit.scripted.cancelled().len() == 1).await;
        kit.stop().await;
    });
}
