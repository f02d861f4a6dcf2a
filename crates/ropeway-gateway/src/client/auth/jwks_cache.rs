//! An authorization server's public keys, fetched on demand and kept while the server is unreachable.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, RwLock};
use std::time::Duration;

use reqwest::{StatusCode, Url};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use tokio::time::Instant;

use super::jwks::KeySet;
use ropeway_core::error_chain::chain;
use ropeway_core::event::{Event, Events};
use ropeway_core::secret::Redactor;
use ropeway_core::sync::{lock, read, write};
use ropeway_core::tool::BoxError;
use ropeway_mcp::RateLimit;
use ropeway_web::{self as web, TransportError};

/// Age after which the keys are fetched again in the background.
const MAX_AGE: Duration = Duration::from_secs(10 * 60);

/// Age after which keys that could not be fetched again are discarded.
const MAX_STALE: Duration = Duration::from_secs(24 * 3600);

/// Time limit for one document.
const FETCH_TIMEOUT: Duration = Duration::from_secs(5);

/// Maximum document size in bytes.
const MAX_BYTES: usize = 1 << 20;

/// Maximum fetches per minute, whatever tokens clients send.
const FETCHES_PER_MINUTE: u32 = 6;

/// A version of the keys.
#[derive(Clone, Debug)]
pub(crate) struct CachedKeys {
    pub(crate) keys: Arc<KeySet>,
    /// Changes with the keys.
    pub(crate) version: u64,
    fetched: Instant,
}

/// One authorization server's keys.
///
/// The token verifier owns the cache, and a configuration reload passes it on if the issuer is the same. A fetch runs
/// in a task with its own clone, so it ends even if the request that started it is gone. `fetching` is a tokio mutex
/// because it is held across the fetch: requests that need newer keys wait for the same one. The std locks are held for
/// single reads and writes, and taken after `fetching`.
///
/// The keys are absent, fresh, older than [`MAX_AGE`] (used while a background fetch replaces them), or older than
/// [`MAX_STALE`] (not used).
pub(crate) struct KeySetCache {
    issuer: String,
    /// `None` if the issuer's metadata names it.
    jwks_url: Option<String>,
    cached: RwLock<Option<CachedKeys>>,
    budget: Mutex<RateLimit>,
    /// Held while the keys are fetched.
    fetching: tokio::sync::Mutex<()>,
    /// Number of finished fetches, successful or not.
    fetches: AtomicU64,
    is_refreshing: AtomicBool,
    /// Whether the last fetch failed. Only the first failure is reported.
    is_failing: AtomicBool,
    events: Events,
}

/// Why the keys could not be fetched.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FetchError {
    #[error("`{0}` is not a safe URL")]
    Url(String),
    #[error("could not fetch `{url}`")]
    Request { url: String, source: BoxError },
    #[error("`{url}` answered {status}")]
    Status { url: String, status: StatusCode },
    #[error("`{url}` has more than {MAX_BYTES} bytes")]
    TooLarge { url: String },
    #[error("`{url}` is not valid")]
    Invalid { url: String, source: serde_json::Error },
    #[error("`{url}` is the metadata of another issuer")]
    OtherIssuer { url: String },
    #[error("`{url}` has no key for signatures")]
    NoKeys { url: String },
}

/// The keys are not cached, and could not be fetched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct KeysUnavailable;

impl KeySetCache {
    pub(crate) fn new(issuer: &str, jwks_url: Option<&str>, events: Events) -> Arc<Self> {
        Arc::new(Self {
            issuer: issuer.to_owned(),
            jwks_url: jwks_url.map(str::to_owned),
            cached: RwLock::default(),
            budget: Mutex::new(RateLimit::per(FETCHES_PER_MINUTE, Duration::from_secs(60))),
            fetching: tokio::sync::Mutex::default(),
            fetches: AtomicU64::new(0),
            is_refreshing: AtomicBool::new(false),
            is_failing: AtomicBool::new(false),
            events,
        })
    }

    /// Returns `true` if this is the cache for an issuer and its keys.
    pub(crate) fn is_for(&self, issuer: &str, jwks_url: Option<&str>) -> bool {
        self.issuer == issuer && self.jwks_url.as_deref() == jwks_url
    }

    fn version(&self) -> Option<u64> {
        read(&self.cached).as_ref().map(|cached| cached.version)
    }

    /// Returns the cached keys' version, unless they are too old. Old keys are fetched again in the background.
    pub(crate) fn usable_version(self: &Arc<Self>) -> Option<u64> {
        self.usable(|cached| cached.version)
    }

    /// Returns the keys. Only the first request waits for them; later, they are fetched in the background.
    pub(crate) async fn keys(self: &Arc<Self>) -> Result<CachedKeys, KeysUnavailable> {
        if let Some(cached) = self.usable(CachedKeys::clone) {
            return Ok(cached);
        }
        self.newer_than(self.version()).await;
        self.usable(CachedKeys::clone).ok_or(KeysUnavailable)
    }

    fn usable<T>(self: &Arc<Self>, read_keys: impl FnOnce(&CachedKeys) -> T) -> Option<T> {
        let (found, age) = {
            let cached = read(&self.cached);
            let cached = cached.as_ref()?;
            (read_keys(cached), cached.fetched.elapsed())
        };
        if age >= MAX_STALE {
            return None;
        }
        if age >= MAX_AGE && !self.is_refreshing.swap(true, Ordering::AcqRel) {
            let cache = Arc::clone(self);
            tokio::spawn(async move {
                cache.newer_than(cache.version()).await;
                cache.is_refreshing.store(false, Ordering::Release);
            });
        }
        Some(found)
    }

    /// Fetches the keys, unless they have been fetched since `seen`, or too often. Returns keys that are newer than `seen`.
    ///
    /// Requests that wait for the same fetch share its outcome, so none waits longer than one fetch takes.
    pub(crate) async fn newer_than(self: &Arc<Self>, seen: Option<u64>) -> Option<CachedKeys> {
        let cache = Arc::clone(self);
        let fetches = self.fetches.load(Ordering::Acquire);
        // The task continues if the client disconnects.
        let fetched = tokio::spawn(async move {
            let _fetching = cache.fetching.lock().await;
            let is_first = cache.fetches.load(Ordering::Acquire) == fetches && cache.version() == seen;
            if is_first && lock(&cache.budget).take() {
                cache.finish(tokio::time::timeout(2 * FETCH_TIMEOUT, cache.fetch()).await);
                cache.fetches.fetch_add(1, Ordering::Release);
            }
        });
        let _ = fetched.await;
        let cached = read(&self.cached).clone()?;
        (Some(cached.version) != seen).then_some(cached)
    }

    /// Stores fetched keys, or reports why the fetch failed.
    fn finish(&self, outcome: Result<Result<KeySet, FetchError>, tokio::time::error::Elapsed>) {
        let reason = match outcome {
            Ok(Ok(keys)) => {
                self.store(keys);
                None
            }
            Ok(Err(error)) => Some(chain(&error)),
            Err(_) => Some("no response in time".to_owned()),
        };
        let was_failing = self.is_failing.swap(reason.is_some(), Ordering::Relaxed);
        if let Some(reason) = reason.filter(|_| !was_failing) {
            let message = format!("could not fetch the keys of issuer `{}`: {reason}", self.issuer);
            self.events.emit(Event::Warning { server: None, message });
        }
    }

    fn store(&self, keys: KeySet) {
        let mut cached = write(&self.cached);
        let (keys, version) = match &*cached {
            Some(known) if *known.keys == keys => (known.keys.clone(), known.version),
            Some(known) => (Arc::new(keys), known.version + 1),
            None => (Arc::new(keys), 1),
        };
        *cached = Some(CachedKeys { keys, version, fetched: Instant::now() });
    }

    async fn fetch(&self) -> Result<KeySet, FetchError> {
        let url = match &self.jwks_url {
            Some(url) => safe_url(url)?,
            None => self.discover().await?,
        };
        let text = get(&url).await?;
        let keys = KeySet::parse(&text).map_err(|source| FetchError::Invalid { url: url.to_string(), source })?;
        if keys.is_empty() { Err(FetchError::NoKeys { url: url.to_string() }) } else { Ok(keys) }
    }

    /// Finds the keys' URL in the issuer's metadata.
    async fn discover(&self) -> Result<Url, FetchError> {
        #[derive(Deserialize)]
        struct Metadata {
            issuer: String,
            jwks_uri: String,
        }
        let issuer = safe_url(&self.issuer)?;
        let mut failure = None;
        for url in metadata_urls(&issuer) {
            match get_json::<Metadata>(&url).await {
                Ok(metadata) if metadata.issuer != self.issuer => {
                    failure = Some(FetchError::OtherIssuer { url: url.to_string() });
                }
                Ok(metadata) => {
                    let keys = safe_url(&metadata.jwks_uri)?;
                    // Keys that can be modified in transit would defeat the issuer's security.
                    let is_weaker = issuer.scheme() == "https" && keys.scheme() != "https";
                    return if is_weaker { Err(FetchError::Url(metadata.jwks_uri)) } else { Ok(keys) };
                }
                Err(error) => failure = failure.or(Some(error)),
            }
        }
        Err(failure.unwrap_or_else(|| FetchError::Url(self.issuer.clone())))
    }
}

/// Returns where an issuer's metadata may be: [RFC 8414](https://www.rfc-editor.org/rfc/rfc8414#section-3.1), and
/// [OpenID Connect Discovery](https://openid.net/specs/openid-connect-discovery-1_0.html#ProviderConfig).
fn metadata_urls(issuer: &Url) -> [Url; 2] {
    let path = issuer.path().trim_end_matches('/');
    let at = |path: String| {
        let mut url = issuer.clone();
        url.set_path(&path);
        url.set_query(None);
        url.set_fragment(None);
        url
    };
    [
        at(format!("/.well-known/oauth-authorization-server{path}")),
        at(format!("{path}/.well-known/openid-configuration")),
    ]
}

/// Parses a URL that starts with `https`, or with `http` on this machine.
fn safe_url(text: &str) -> Result<Url, FetchError> {
    let is_safe = |url: &Url| match url.scheme() {
        "https" => true,
        "http" => {
            let host = url.host_str().unwrap_or_default();
            let address = host.trim_matches(['[', ']']).parse::<std::net::IpAddr>();
            host == "localhost" || address.is_ok_and(|address| address.is_loopback())
        }
        _ => false,
    };
    Url::parse(text).ok().filter(is_safe).ok_or_else(|| FetchError::Url(text.to_owned()))
}

async fn get_json<T: DeserializeOwned>(url: &Url) -> Result<T, FetchError> {
    let text = get(url).await?;
    serde_json::from_slice(&text).map_err(|source| FetchError::Invalid { url: url.to_string(), source })
}

/// Fetches a document, up to the size limit.
async fn get(url: &Url) -> Result<Vec<u8>, FetchError> {
    let failed = |error: reqwest::Error| {
        let (TransportError::Tls { source, .. } | TransportError::Other(source)) =
            TransportError::from_reqwest(error, &Redactor::default());
        FetchError::Request { url: url.to_string(), source }
    };
    let client = web::client(url).timeout(FETCH_TIMEOUT).build().map_err(failed)?;
    let request = client.get(url.clone()).header(reqwest::header::ACCEPT, "application/json");
    let mut response = request.send().await.map_err(failed)?;
    if response.status() != StatusCode::OK {
        return Err(FetchError::Status { url: url.to_string(), status: response.status() });
    }
    let mut text = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(failed)? {
        if text.len() + chunk.len() > MAX_BYTES {
            return Err(FetchError::TooLarge { url: url.to_string() });
        }
        text.extend_from_slice(&chunk);
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_metadata_of_an_issuer_has_two_places() {
        let urls = |issuer: &str| metadata_urls(&Url::parse(issuer).expect("a URL")).map(|url| url.to_string());
        assert_eq!(
            urls("https://auth.example/"),
            [
                "https://auth.example/.well-known/oauth-authorization-server",
                "https://auth.example/.well-known/openid-configuration"
            ]
        );
        assert_eq!(
            urls("https://auth.example/realms/a"),
            [
                "https://auth.example/.well-known/oauth-authorization-server/realms/a",
                "https://auth.example/realms/a/.well-known/openid-configuration"
            ]
        );
    }

    #[test]
    fn keys_are_not_fetched_over_plain_http_from_other_machines() {
        for url in ["https://a.example/jwks", "http://127.0.0.1:1/", "http://localhost/", "http://[::1]/"] {
            assert!(safe_url(url).is_ok(), "{url}");
        }
        for url in ["http://a.example/jwks", "file:///etc/passwd", "", "jwks"] {
            assert!(safe_url(url).is_err(), "{url}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn requests_that_wait_for_an_issuer_share_one_fetch() {
        let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let issuer = format!("http://{}", silent.local_addr().expect("an address"));
        let events = Events::default();
        let mut warnings = events.subscribe();
        let cache = KeySetCache::new(&issuer, None, events);
        let started = Instant::now();
        let waiting: Vec<_> = (0..8)
            .map(|_| {
                tokio::spawn({
                    let cache = cache.clone();
                    async move { cache.keys().await.is_err() }
                })
            })
            .collect();
        for waiting in waiting {
            assert!(waiting.await.expect("a task"));
        }
        assert!(started.elapsed() <= 2 * FETCH_TIMEOUT + Duration::from_secs(1), "{:?}", started.elapsed());
        assert_eq!(cache.fetches.load(Ordering::Relaxed), 1);
        assert!(
            warnings.try_next().is_some_and(|event| event.to_string().contains("could not fetch the keys of issuer"))
        );
        assert!(warnings.try_next().is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn keys_that_are_too_old_are_not_used_for_known_tokens() {
        let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let cache =
            KeySetCache::new(&format!("http://{}", silent.local_addr().expect("an address")), None, Events::default());
        cache.store(KeySet::parse(br#"{"keys": []}"#).expect("keys"));
        assert_eq!(cache.usable_version(), Some(1));
        tokio::time::advance(MAX_AGE).await;
        assert_eq!(cache.usable_version(), Some(1));
        assert!(cache.is_refreshing.load(Ordering::Relaxed), "fetched again in the background");
        tokio::time::advance(MAX_STALE).await;
        assert_eq!(cache.usable_version(), None);
    }
}
