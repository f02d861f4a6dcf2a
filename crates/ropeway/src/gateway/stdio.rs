//! The stdio listener: one client on standard input and output.

use std::sync::Arc;

use tokio::io::{AsyncRead, AsyncWrite};

use super::dispatch::PipeClient;
use super::line_io::LineReader;
use super::pipe::Pipe;
use super::profile::Selector;
use super::shared::GatewayShared;

/// Serves one client until its input ends.
pub(crate) async fn serve(
    shared: Arc<GatewayShared>,
    selector: Selector,
    input: impl AsyncRead + Unpin,
    output: impl AsyncWrite + Unpin,
) {
    let reader = LineReader::new(input, shared.settings().limits.message);
    let pipe = Pipe { shared, client: Arc::new(PipeClient::new(None)), selector };
    pipe.serve(reader, output, &|_| None).await;
}
