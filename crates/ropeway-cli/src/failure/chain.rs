//! Error chains and their causes.

use std::error::Error;
use std::sync::Arc;

use ropeway_mcp::ConnectErrorKind;

/// Formats an error and its causes in one line.
pub(crate) fn chain_text(error: &(dyn Error + 'static)) -> String {
    chain(error).map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

/// Iterates over an error and its causes.
pub(super) fn chain<'a>(error: &'a (dyn Error + 'static)) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    std::iter::successors(Some(error), |error: &&'a (dyn Error + 'static)| (*error).source())
}

/// Returns the connection errors in a cause chain.
pub(super) fn connect_errors<'a>(error: &'a (dyn Error + 'static)) -> impl Iterator<Item = &'a ConnectErrorKind> {
    chain(error).filter_map(|error| {
        let shared = || error.downcast_ref::<Arc<ConnectErrorKind>>().map(Arc::as_ref);
        error.downcast_ref::<ConnectErrorKind>().or_else(shared)
    })
}

pub(super) fn challenge(error: &ConnectErrorKind) -> Option<Option<String>> {
    match error {
        ConnectErrorKind::NeedsAuth { challenge } => Some(challenge.clone()),
        _ => None,
    }
}
