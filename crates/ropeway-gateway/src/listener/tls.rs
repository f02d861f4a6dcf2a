//! TLS for the HTTP listener, with certificates that are reloaded when their files change.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, RwLock, Weak};
use std::time::{Duration, SystemTime};

use rustls::ServerConfig;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use crate::listener::certificate;
use ropeway_config::read_regular;
use ropeway_core::event::{Event, Events};
use ropeway_core::sync::{read, write};

/// Maximum handshake time.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// Interval between file checks.
const RELOAD_INTERVAL: Duration = Duration::from_secs(5);

/// Remaining certificate validity below which a warning is emitted.
const EXPIRY_WARNING: Duration = Duration::from_secs(7 * 24 * 3600);

/// Maximum bytes of a file with certificates or a key.
const MAX_FILE: usize = 1 << 20;

/// Why a certificate or its key cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TlsError {
    /// A file could not be read.
    #[error("could not read `{}`", path.display())]
    Read {
        /// The path.
        path: PathBuf,
        /// The file system's error.
        source: io::Error,
    },
    /// The file has no certificate or key in PEM format.
    #[error("`{}` contains no {expected} in PEM format", path.display())]
    Pem {
        /// The path.
        path: PathBuf,
        /// What was expected.
        expected: &'static str,
    },
    /// The key does not belong to the certificate, or has an unsupported type.
    #[error("the key `{}` cannot be used with its certificate", path.display())]
    Key {
        /// The key's path.
        path: PathBuf,
        /// The TLS library's error.
        source: rustls::Error,
    },
}

/// Accepts TLS connections with the current certificate.
#[derive(Clone)]
pub(crate) struct Tls {
    acceptor: TlsAcceptor,
}

impl Tls {
    /// Loads a certificate chain and its key, and reloads them when the files change, as long as this value exists.
    pub(crate) fn load(certificate: &Path, key: &Path, events: Events) -> Result<Self, TlsError> {
        let files = CertificateFiles { certificate: certificate.to_owned(), key: key.to_owned() };
        let modified = files.modified();
        let current = files.load()?;
        warn_of_expiry(&files, &current, &events);
        let resolver = Arc::new(CurrentCertificate(RwLock::new(Arc::new(current))));
        tokio::spawn(reload_on_change(files, modified, Arc::downgrade(&resolver), events));
        let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|source| TlsError::Key { path: key.to_owned(), source })?
            .with_no_client_auth()
            .with_cert_resolver(resolver);
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Self { acceptor: TlsAcceptor::from(Arc::new(config)) })
    }

    /// Checks that a certificate chain and its key can be loaded.
    pub(crate) fn check(certificate: &Path, key: &Path) -> Result<(), TlsError> {
        CertificateFiles { certificate: certificate.to_owned(), key: key.to_owned() }.load().map(drop)
    }

    /// Performs a connection's handshake, in bounded time.
    pub(crate) async fn accept<I: AsyncRead + AsyncWrite + Unpin>(&self, io: I) -> io::Result<TlsStream<I>> {
        let handshake = tokio::time::timeout(HANDSHAKE_TIMEOUT, self.acceptor.accept(io)).await;
        handshake.map_err(|_| io::ErrorKind::TimedOut)?
    }
}

/// The certificate for new connections. Open connections keep theirs.
#[derive(Debug)]
struct CurrentCertificate(RwLock<Arc<CertifiedKey>>);

impl ResolvesServerCert for CurrentCertificate {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(read(&self.0).clone())
    }
}

/// The files that contain a certificate chain and its key.
struct CertificateFiles {
    certificate: PathBuf,
    key: PathBuf,
}

impl CertificateFiles {
    fn load(&self) -> Result<CertifiedKey, TlsError> {
        let text = |path: &Path| {
            read_regular(path, MAX_FILE).map_err(|source| TlsError::Read { path: path.to_owned(), source })
        };
        let pem = |path: &Path, expected| TlsError::Pem { path: path.to_owned(), expected };
        let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(text(&self.certificate)?.as_bytes()).collect();
        let chain = chain.ok().filter(|chain| !chain.is_empty());
        let chain = chain.ok_or_else(|| pem(&self.certificate, "certificate"))?;
        let key = PrivateKeyDer::from_pem_slice(text(&self.key)?.as_bytes());
        let key = key.map_err(|_| pem(&self.key, "private key"))?;
        CertifiedKey::from_der(chain, key, &ring::default_provider())
            .map_err(|source| TlsError::Key { path: self.key.clone(), source })
    }

    /// Returns when the files were last changed.
    fn modified(&self) -> [Option<SystemTime>; 2] {
        [&self.certificate, &self.key].map(|path| fs::metadata(path).and_then(|file| file.modified()).ok())
    }
}

/// Replaces the certificate whenever its files have changed. If the new files are invalid, the previous certificate stays in use.
async fn reload_on_change(
    files: CertificateFiles,
    mut modified: [Option<SystemTime>; 2],
    current: Weak<CurrentCertificate>,
    events: Events,
) {
    let mut warned = None;
    loop {
        tokio::time::sleep(RELOAD_INTERVAL).await;
        let Some(current) = current.upgrade() else { return };
        let now = files.modified();
        if now == modified {
            continue;
        }
        match files.load() {
            Ok(certificate) => {
                warn_of_expiry(&files, &certificate, &events);
                *write(&current.0) = Arc::new(certificate);
                (modified, warned) = (now, None);
                tracing::info!("certificate `{}` reloaded", files.certificate.display());
            }
            // The second file may be written in a moment, so the files are read again. The same problem is reported once.
            Err(error) => {
                let problem = Some((now, ropeway_core::error_chain::chain(&error)));
                if warned != problem {
                    let reason = ropeway_core::error_chain::chain(&error);
                    warn(&events, format!("certificate not reloaded, using the previous one: {reason}"));
                    warned = problem;
                }
            }
        }
    }
}

/// Warns if a certificate has expired or will expire soon.
fn warn_of_expiry(files: &CertificateFiles, certificate: &CertifiedKey, events: &Events) {
    let end = certificate.cert.first().and_then(|certificate| certificate::not_after(certificate));
    let Some(end) = end else { return };
    let path = files.certificate.display();
    match end.duration_since(SystemTime::now()) {
        Err(_) => warn(events, format!("certificate `{path}` has expired")),
        Ok(left) if left < EXPIRY_WARNING => {
            let days = left.as_secs() / (24 * 3600);
            warn(events, format!("certificate `{path}` expires in {days} days"));
        }
        Ok(_) => {}
    }
}

fn warn(events: &Events, message: String) {
    tracing::warn!("{message}");
    events.emit(Event::Warning { server: None, message });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_certificate_that_cannot_be_reloaded_is_reported_once_per_change() {
        let folder = tempfile::tempdir().expect("a folder");
        let files =
            CertificateFiles { certificate: folder.path().join("cert.pem"), key: folder.path().join("key.pem") };
        let key =
            PrivateKeyDer::from_pem_slice(include_bytes!("../../../ropeway-mcp/src/oauth/test_keys/p256_pkcs8.pem"))
                .expect("a key");
        let key = ring::sign::any_supported_type(&key).expect("a key");
        let current = CertifiedKey::new(vec![CertificateDer::from(vec![0])], key);
        let current = Arc::new(CurrentCertificate(RwLock::new(Arc::new(current))));
        let (events, certificate, modified) = (Events::default(), files.certificate.clone(), files.modified());
        let mut warnings = events.subscribe();
        let reloading = tokio::spawn(reload_on_change(files, modified, Arc::downgrade(&current), events));
        for broken in ["", "broken"] {
            fs::write(&certificate, broken).expect("a file");
            let time = SystemTime::now() + Duration::from_secs(broken.len() as u64 + 1);
            fs::File::options().write(true).open(&certificate).expect("a file").set_modified(time).expect("a time");
            tokio::time::sleep(10 * RELOAD_INTERVAL).await;
            let warning = warnings.try_next().expect("a warning").to_string();
            assert!(warning.contains("certificate not reloaded"), "{warning}");
            assert!(warnings.try_next().is_none(), "the same problem is reported once");
        }
        drop(current);
        reloading.await.expect("it ends with the certificate");
    }
}
