//! Entry points for the fuzz targets.

use std::collections::VecDeque;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncRead, ReadBuf};
use tokio::runtime::Runtime;

use super::handlers::Handlers;
use super::host::Host;
use super::pending::PendingRequests;
use super::request::Request;
use super::timeouts::RequestTimeouts;
use super::transport::lines::Lines;
use ropeway_core::event::Events;
use ropeway_core::secret::Redactor;
use ropeway_core::tool::{Alias, CallContext};

/// Number of pending requests.
const REQUESTS: usize = 3;

/// A reader that returns one chunk at a time, and then EOF.
struct Chunks(VecDeque<Vec<u8>>);

impl AsyncRead for Chunks {
    fn poll_read(mut self: Pin<&mut Self>, _: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if let Some(chunk) = self.0.front_mut() {
            let count = chunk.len().min(buffer.remaining());
            buffer.put_slice(&chunk[..count]);
            chunk.drain(..count);
            if chunk.is_empty() {
                self.0.pop_front();
            }
        }
        Poll::Ready(Ok(()))
    }
}

/// Returns the pending requests' outcomes after a server has written these chunks.
pub fn answers(chunks: &[&[u8]], limit: usize) -> Vec<String> {
    static RUNTIME: OnceLock<Option<Runtime>> = OnceLock::new();
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_time().build().ok();
    let Some(runtime) = RUNTIME.get_or_init(runtime) else { return Vec::new() };
    // An empty chunk would be EOF.
    let chunks = chunks.iter().filter(|chunk| !chunk.is_empty()).map(|chunk| chunk.to_vec()).collect();
    runtime.block_on(async move {
        let host = Arc::new(Host::new(Alias::new("server"), Handlers::new(), Events::new(16), Redactor::default()));
        let pending = Arc::new(PendingRequests::new(host.clone()));
        let cx = CallContext::new("call");
        let request = Request::new("tools/call", b"{}", &cx, RequestTimeouts::within(Duration::from_secs(60)));
        let mut receivers: Vec<_> = (0..REQUESTS).filter_map(|_| pending.register(&request).ok()).collect();
        let link = Lines::start(Chunks(chunks), tokio::io::sink(), pending.clone(), limit);
        link.disconnected().await;
        let mut answers = Vec::new();
        for receiver in &mut receivers {
            answers.push(match receiver.recv(&request).await {
                Ok(response) => format!("{:?}", response.read::<Value>(&host).map_err(|error| error.to_string())),
                Err(error) => format!("{error:?}"),
            });
        }
        answers
    })
}
