//! Runs a server as a child process in its own process group.
//!
//! See [stdio](https://modelcontextprotocol.io/specification/2025-11-25/basic/transports#stdio).

use std::sync::Arc;

use super::child::{ChildGroup, StartedChild};
use super::lines::Lines;
use super::outbox::Outbox;
use super::stderr::{Stderr, StderrLog};
use crate::error::ConnectErrorKind;
use crate::pending::PendingRequests;
use ropeway_config::{ServerLimits, StdioServer};

/// Starts a server's process and a link to it.
pub(crate) fn start(
    server: &StdioServer,
    pending: Arc<PendingRequests>,
    limits: &ServerLimits,
) -> Result<Arc<Lines>, ConnectErrorKind> {
    let host = pending.host();
    let StartedChild { child, stdin, stdout, stderr, sandbox } = ChildGroup::start(server, &host.redactor())?;
    let (preamble, reports) = sandbox.map(|sandbox| (sandbox.preamble, sandbox.reports)).unzip();
    let log =
        StderrLog { capacity: limits.stderr_bytes, server: host.alias().clone(), redactor: host.redactor(), reports };
    let stderr = Stderr::start(stderr, log, child.group_id());
    host.set_stderr(stderr.clone());
    let outbox = Outbox::new(stdin).with_preamble(preamble.unwrap_or_default());
    Ok(Lines::start_with(stdout, outbox, pending, limits.message_bytes, Some((child, stderr))))
}
