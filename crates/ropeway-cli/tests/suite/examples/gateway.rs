//! The example with a gateway: clients use it while it runs, and until their calls have ended.

use std::io::{BufRead as _, BufReader};

use ropeway_core::tool::CallContext;
use ropeway_mcp::Mcp;
use serde_json::json;
use tokio::sync::mpsc;

use super::{Example, ended};
use crate::process_marker::signal;

#[tokio::test]
async fn embedded_gateway_serves_calls_and_finishes_them_after_ctrl_c() {
    let mut running = Example::new("embedded_gateway", &[]).start();
    let mut lines = BufReader::new(running.child.stdout.take().expect("output")).lines();
    let mut line = || lines.next().expect("a line").expect("text");
    assert_eq!(line(), "server `demo` is ready with 6 tools");
    let serving = line();
    let url = serving.strip_prefix("serving ").unwrap_or_else(|| panic!("{serving}"));
    let client = Mcp::http(url);
    client.connect().await.expect("a connection");
    assert_eq!(client.call("calculate", json!({"expression": "6 * 7"})).await.to_string(), "42");

    let (progress, mut reported) = mpsc::unbounded_channel();
    let cx = CallContext::default().with_progress(move |_| progress.send(()).unwrap_or_default());
    let call = client.call_with("countdown", json!({"seconds": 2}), &cx);
    let interrupt = async {
        reported.recv().await.expect("progress");
        signal("INT", running.child.id());
    };
    let (envelope, ()) = tokio::join!(call, interrupt);
    assert!(envelope.error.is_none(), "{envelope}");
    // The client is still connected.
    ended(running).await;
    client.close().await;
}
