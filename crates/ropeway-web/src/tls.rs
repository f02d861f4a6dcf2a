//! Classifies TLS failures.

/// Why a TLS handshake failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TlsError {
    /// The certificate has expired.
    Expired,
    /// The certificate is not valid yet.
    NotYetValid,
    /// The certificate is for another name.
    WrongName,
    /// The certificate is not signed by a trusted CA.
    Untrusted,
    /// The server does not use TLS.
    NotTls,
    /// Any other failure.
    Other,
}

impl std::fmt::Display for TlsError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Expired => "the certificate has expired",
            Self::NotYetValid => "the certificate is not valid yet",
            Self::WrongName => "the certificate is for another host name",
            Self::Untrusted => "the certificate is not signed by a trusted CA",
            Self::NotTls => "the server does not use TLS on this port",
            Self::Other => "the TLS handshake failed",
        })
    }
}

/// Finds the TLS error inside nested I/O errors, which `source` does not return.
pub(super) fn find_tls_error<'a>(error: &'a (dyn std::error::Error + 'static)) -> Option<&'a rustls::Error> {
    let wrapped = || error.downcast_ref::<std::io::Error>()?.get_ref();
    error.downcast_ref().or_else(|| find_tls_error(wrapped()?))
}

pub(super) fn classify_tls_error(error: &rustls::Error) -> TlsError {
    use rustls::CertificateError as Certificate;
    match error {
        rustls::Error::InvalidCertificate(error) => match error {
            Certificate::Expired | Certificate::ExpiredContext { .. } => TlsError::Expired,
            Certificate::NotValidYet | Certificate::NotValidYetContext { .. } => TlsError::NotYetValid,
            Certificate::NotValidForName | Certificate::NotValidForNameContext { .. } => TlsError::WrongName,
            _ => TlsError::Untrusted,
        },
        rustls::Error::InvalidMessage(_) => TlsError::NotTls,
        _ => TlsError::Other,
    }
}
