//! Trouble as providers tell of it: refusals with a status, and errors in the middle of an answer.

use serde_json::Value;

use super::{ErrorKind, ProviderError};
use crate::message::Dialect;

/// An error that came in the middle of an answer: the error object, or the frame that holds it as `error`.
pub(super) fn in_stream(dialect: Dialect, frame: &Value) -> ProviderError {
    ProviderError::new(ErrorKind::Server, dialect, frame.to_string())
}
