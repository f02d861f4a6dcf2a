//! The error of text that does not have the expected format.

use std::error::Error;
use std::fmt;

/// Text that does not have the expected format.
///
/// The message names the expected format. Its source is the error of the parser, if the text was passed to one.
#[derive(Debug)]
pub struct ParseError {
    message: String,
    source: Option<Box<dyn Error + Send + Sync>>,
}

impl ParseError {
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), source: None }
    }

    pub(crate) fn with_source(self, source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self { source: Some(source.into()), ..self }
    }
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl Error for ParseError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.as_deref().map(|source| source as &(dyn Error + 'static))
    }
}
