//! Checks of what this module reads, for any input. The fuzz targets run them.

use std::collections::VecDeque;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncRead, ReadBuf};
use tokio::runtime::Runtime;
use tokio::time::Instant;

use super::Handlers;
use super::host::Host;
use super::inbox::{Clocks, Inbox};
use super::transport::Request;
use super::transport::lines::Lines;
use crate::event::Events;
use crate::secret::Redactor;
use crate::tool::{Alias, CallContext};

/// How many requests wait for answers.
const WAITING: usize = 3;

/// A reader that gives one chunk at a time, and then its end.
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

/// What requests are answered when a server writes these chunks to its output.
pub(crate) fn answers(chunks: &[&[u8]], limit: usize) -> Vec<String> {
    static RUNTIME: OnceLock<Option<Runtime>> = OnceLock::new();
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_time().build().ok();
    let Some(runtime) = RUNTIME.get_or_init(runtime) else { return Vec::new() };
    // An empty chunk would be the end.
    let chunks = chunks.iter().filter(|chunk| !chunk.is_empty()).map(|chunk| chunk.to_vec()).collect();
    runtime.block_on(async move {
        let host = Arc::new(Host::new(Alias::new("server"), Handlers::new(), Events::new(16), Redactor::default()));
        let inbox = Arc::new(Inbox::new(host.clone()));
        let cx = CallContext::new("call");
        let request = Request::new("tools/call", b"{}");
        let started = Instant::now();
        let clocks = Clocks { idle: Duration::from_secs(60), deadline: started + Duration::from_secs(60), started };
        let mut waiting: Vec<_> = (0..WAITING).filter_map(|_| inbox.expect(&cx, &request).ok()).collect();
        let link = Lines::start(Chunks(chunks), tokio::io::sink(), inbox.clone(), limit, None);
        link.lost().await;
        let mut answers = Vec::new();
        for waiting in &mut waiting {
            answers.push(match waiting.answer(&cx, clocks).await {
                Ok(answer) => format!("{:?}", answer.read::<Value>(&host).map_err(|error| error.to_string())),
                Err(fault) => format!("{fault:?}"),
            });
        }
        answers
    })
}
