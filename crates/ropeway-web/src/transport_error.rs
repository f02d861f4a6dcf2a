//! HTTP connection errors.

use super::TlsError;
use super::tls::{classify_tls_error, find_tls_error};
use ropeway_core::secret::Redactor;

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Why a connection failed.
pub enum TransportError {
    /// The TLS handshake failed.
    Tls {
        /// What is wrong with the certificate or the handshake.
        trouble: TlsError,
        /// The TLS library's error.
        source: BoxError,
    },
    /// Any other error.
    Other(BoxError),
}

impl TransportError {
    /// Keeps only the innermost cause. The outer errors add nothing, and may contain the URL with its secrets.
    pub fn from_reqwest(error: reqwest::Error, redactor: &Redactor) -> Self {
        let error = error.without_url();
        let mut last: &dyn std::error::Error = &error;
        while let Some(source) = last.source() {
            last = source;
        }
        if let Some(error) = find_tls_error(last) {
            return Self::Tls {
                trouble: classify_tls_error(error),
                source: redactor.redact(&error.to_string()).into(),
            };
        }
        // The system's error code is kept, so that callers can distinguish a closed port from a missing route.
        match last.downcast_ref().and_then(std::io::Error::raw_os_error) {
            Some(number) => Self::Other(Box::new(std::io::Error::from_raw_os_error(number))),
            None => Self::Other(redactor.redact(&last.to_string()).into()),
        }
    }
}
