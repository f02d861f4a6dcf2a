//! The stdio listener: one client on standard input and output.

use std::sync::Arc;

use tokio::io::{AsyncRead, AsyncWrite};

use crate::catalog::profile::Selector;
use crate::listener::line_io::LineReader;
use crate::listener::pipe::Pipe;
use crate::request::dispatch::PipeClient;
use crate::shared::GatewayShared;

/// Serves one client until its input ends.
///
/// The client has just started the gateway. It waits briefly for the servers, so that the response to `initialize` includes their
/// capabilities and instructions.
pub(crate) async fn serve(
    shared: Arc<GatewayShared>,
    selector: Selector,
    input: impl AsyncRead + Unpin,
    output: impl AsyncWrite + Unpin,
) {
    if let Ok(profile) = shared.profile(&selector) {
        tokio::select! {
            () = shared.wait_for_descriptions(&profile) => {}
            () = shared.draining.cancelled() => {}
        }
    }
    let reader = LineReader::new(input, shared.settings().limits.message)
        .with_budget(&shared.shares, shared.auth.local().holdings());
    let pipe = Pipe { shared, client: Arc::new(PipeClient::new(None)), selector };
    pipe.serve(reader, output, &|_| None).await;
}
