//! Why a connection broke, or was never made.

use super::TlsError;
use super::tls::{classify_tls_error, find_tls_error};
use crate::secret::Redactor;

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Why a connection broke, or was never made.
pub(crate) enum TransportError {
    /// The other end cannot be trusted, or does not speak TLS.
    Tls { trouble: TlsError, source: BoxError },
    /// Everything else.
    Other(BoxError),
}

impl TransportError {
    /// The last cause says it all; those above it say only that something went wrong, and may hold the URL with its
    /// secrets.
    pub(crate) fn from_reqwest(error: reqwest::Error, mask: &Redactor) -> Self {
        let error = error.without_url();
        let mut last: &dyn std::error::Error = &error;
        while let Some(source) = last.source() {
            last = source;
        }
        if let Some(error) = find_tls_error(last) {
            return Self::Tls { trouble: classify_tls_error(error), source: mask.hide(&error.to_string()).into() };
        }
        // What the system said keeps its number, for whoever has to tell a closed port from a lost route.
        match last.downcast_ref().and_then(std::io::Error::raw_os_error) {
            Some(number) => Self::Other(Box::new(std::io::Error::from_raw_os_error(number))),
            None => Self::Other(mask.hide(&last.to_string()).into()),
        }
    }
}
