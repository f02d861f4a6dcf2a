//! The error for text that does not have the expected format.

use std::error::Error;

/// Text that does not have the expected format.
///
/// The message names the expected format. Its source is the parser's error, if the text was passed to one.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct ParseError {
    message: String,
    source: Option<Box<dyn Error + Send + Sync>>,
}

impl ParseError {
    /// Creates an error; the message names the expected format.
    pub fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), source: None }
    }

    /// Sets the parser's error.
    pub fn with_source(self, source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self { source: Some(source.into()), ..self }
    }
}
