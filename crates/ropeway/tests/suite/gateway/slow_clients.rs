//! Clients that send their requests slowly.

use std::time::Duration;

use ropeway::testing::Script;
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::time::Instant;

use super::kit::{GatewayKit, modern, modern_call, read_until};
use crate::fast_config::ms;
use crate::scene::scene;

/// Sends the rest of a request byte by byte, and returns the response and its delay.
async fn drip(kit: &GatewayKit, begin: &str, byte: &str) -> (String, Duration) {
    let began = Instant::now();
    let stream = kit.open(begin).await.into_inner();
    let (read, mut write) = stream.into_split();
    let dripping = async {
        // Writing fails once the gateway has closed the connection.
        while write.write_all(byte.as_bytes()).await.is_ok() {
            tokio::time::sleep(ms(500)).await;
        }
    };
    let mut read = tokio::io::BufReader::new(read);
    let reading = read_until(&mut read, "\r\n");
    tokio::select! {
        reply = reading => (reply, began.elapsed()),
        () = dripping => panic!("the connection was closed without a response"),
    }
}

#[test]
fn slow_requests_are_refused_with_408() {
    scene(|_| async move {
        let kit = GatewayKit::start(Script::default()).await;
        let head = "POST /mcp HTTP/1.1\r\nHost: localhost\r\n";
        let body = format!("{head}Accept: */*\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n{{");
        let chunked = format!(
            "{head}Accept: */*\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n{{\r\n"
        );
        let unended = format!("{head}X-Slow: ");
        let others = async {
            // Other clients are served meanwhile.
            for _ in 0..20 {
                let reply = kit.send(&modern_call("echo", json!({"message": "hi"}))).await;
                assert_eq!(reply.status, 200, "{reply:?}");
                tokio::time::sleep(ms(200)).await;
            }
        };
        let (slow_head, silent_head, slow_body, slow_chunks, ()) = tokio::join!(
            drip(&kit, &unended, "x"),
            drip(&kit, head, ""),
            drip(&kit, &body, " "),
            drip(&kit, &chunked, "1\r\n \r\n"),
            others,
        );
        for (name, (reply, delay), least) in [
            ("slow head", slow_head, 5),
            ("silent head", silent_head, 5),
            ("body", slow_body, 29),
            ("chunks", slow_chunks, 29),
        ] {
            assert!(reply.starts_with("HTTP/1.1 408 "), "{name}: {reply}");
            assert!(delay >= Duration::from_secs(least), "{name}: {delay:?}");
        }
        kit.stop().await;
    });
}

#[test]
fn connections_without_an_authenticated_request_are_closed_soon() {
    scene(|_| async move {
        let kit = GatewayKit::start(Script::default()).await;
        let probe = "GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n";
        let list = modern("tools/list", json!({})).replace("Connection: close\r\n", "");
        let mut known = kit.open(&list).await;
        let head = read_until(&mut known, "\r\n\r\n").await;
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")).expect("a length");
        let mut body = vec![0; length.parse().expect("a number")];
        known.read_exact(&mut body).await.expect("a body");
        let mut unknown = Vec::new();
        for request in ["", probe, &format!("{probe}GET /hea")] {
            unknown.push((request.to_owned(), kit.open(request).await));
        }
        let began = Instant::now();
        for (request, mut stream) in unknown {
            let mut read = Vec::new();
            let end = tokio::time::timeout(Duration::from_secs(30), stream.read_to_end(&mut read));
            assert!(end.await.is_ok(), "open after {:?}: {request}", began.elapsed());
        }
        let mut rest = [0; 1];
        assert!(tokio::time::timeout(ms(100), known.read_exact(&mut rest)).await.is_err(), "the client is known");
        drop(known);
        kit.stop().await;
    });
}
