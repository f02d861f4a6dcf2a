//! Provider settings: endpoint, credentials, timeouts and retries.

use std::fmt;
use std::time::Duration;

use super::media_kinds::MediaKinds;
use super::request::ChatRequest;
use ropeway_core::lowering;
use ropeway_core::message::{Dialect, ModelEndpoint};
use ropeway_core::secret::{self, Redactor, Secret};
use ropeway_core::setters::setters;

/// Headers whose values are not secret. Any other header may hold a key.
const PUBLIC_HEADERS: [&str; 10] = [
    "accept",
    "anthropic-beta",
    "anthropic-version",
    "content-type",
    "http-referer",
    "openai-beta",
    "openai-organization",
    "openai-project",
    "user-agent",
    "x-title",
];

/// A provider's endpoint, credentials, timeouts and retries.
#[derive(Clone)]
#[non_exhaustive]
pub struct ProviderSettings {
    /// The endpoint's API dialect.
    pub dialect: Dialect,
    /// The URL that the dialect's paths are appended to.
    pub base_url: String,
    /// The API key; `None` for endpoints without authentication.
    pub key: Option<Secret>,
    /// The header whose value is the key; `None` for `Authorization: Bearer <key>`.
    pub key_header: Option<String>,
    /// Additional headers for every request. They replace default headers with the same name.
    pub headers: Vec<(String, Secret)>,
    /// Connect, first-byte and idle timeouts.
    pub timeouts: ProviderTimeouts,
    /// How failed requests are retried.
    pub retries: RetryPolicy,
    /// The proxy; by default the environment's.
    pub proxy: Proxy,
    /// Differences from other providers with the same dialect.
    pub quirks: Quirks,
}

/// How long a provider may take to connect and to send data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ProviderTimeouts {
    /// Maximum time to connect.
    pub connect: Duration,
    /// Maximum time from the request to the reply's first byte.
    pub first_byte: Duration,
    /// Maximum time between two reply chunks. A whole reply's duration is not limited.
    pub idle: Duration,
}

/// How failed requests are retried. A request is not retried once reply content was emitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetryPolicy {
    /// Maximum number of retries.
    pub max_retries: u32,
    /// Backoff before the first retry; doubled for each further one.
    pub initial_backoff: Duration,
    /// Maximum backoff.
    pub max_backoff: Duration,
    /// Maximum backoff that a provider may request, for example with `Retry-After`. A longer one makes the error final.
    pub max_retry_after: Duration,
}

/// The proxy for a provider's connections.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Proxy {
    /// The environment's proxy (`HTTPS_PROXY` and others); none for this machine.
    #[default]
    Environment,
    /// No proxy. The environment is ignored.
    None,
    /// The proxy at this URL.
    Url(Secret),
}

/// Differences between providers that share a dialect. `None` derives the value from the base URL and the model.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Quirks {
    /// Anthropic: the `anthropic-version` header's value.
    pub anthropic_version: Option<String>,
    /// Gemini: the API version in the path, such as `v1beta`.
    pub gemini_version: Option<String>,
    /// Gemini: whether tool results may contain images, as since Gemini 3.
    pub gemini_result_parts: Option<bool>,
    /// Media that are sent as text descriptions to every model. Without this, unsupported media are detected at the cost of one
    /// rejected request.
    pub described_media: MediaKinds,
    /// Chat: whether to send `max_completion_tokens` and the role `developer`, as OpenAI itself expects.
    pub chat_openai: Option<bool>,
    /// Chat: do not request usage (`stream_options.include_usage`).
    pub chat_without_usage: bool,
    /// Maximum number of tools in a request.
    pub max_tools: Option<usize>,
}

impl fmt::Debug for ProviderSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProviderSettings")
            .field("dialect", &self.dialect)
            .field("base_url", &self.secrets().redact(&self.base_url))
            .field("key", &self.key)
            .field("headers", &self.headers)
            .field("timeouts", &self.timeouts)
            .field("retries", &self.retries)
            .field("proxy", &self.proxy)
            .field("quirks", &self.quirks)
            .finish_non_exhaustive()
    }
}

impl Default for ProviderTimeouts {
    fn default() -> Self {
        Self { connect: Duration::from_secs(15), first_byte: Duration::from_secs(600), idle: Duration::from_secs(120) }
    }
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self {
            max_retries: 2,
            initial_backoff: Duration::from_millis(500),
            max_backoff: Duration::from_secs(8),
            max_retry_after: Duration::from_secs(60),
        }
    }
}

impl ProviderSettings {
    /// Creates settings for the dialect's vendor, without a key.
    pub fn new(dialect: Dialect) -> Self {
        let (base_url, key_header) = match dialect {
            Dialect::Anthropic => ("https://api.anthropic.com", Some("x-api-key")),
            Dialect::Responses | Dialect::Chat => ("https://api.openai.com/v1", None),
            Dialect::Gemini => ("https://generativelanguage.googleapis.com", Some("x-goog-api-key")),
        };
        Self {
            dialect,
            base_url: base_url.to_owned(),
            key: None,
            key_header: key_header.map(str::to_owned),
            headers: Vec::new(),
            timeouts: ProviderTimeouts::default(),
            retries: RetryPolicy::default(),
            proxy: Proxy::Environment,
            quirks: Quirks::default(),
        }
    }

    /// Creates settings for the dialect's vendor, with the key and base URL from its usual environment variables.
    ///
    /// The key is sent to the base URL. Remove it (`settings.key = None`) before calling
    /// [`with_base_url`](Self::with_base_url) with a URL from an untrusted source, such as a project file.
    pub fn from_env(dialect: Dialect) -> Self {
        Self::from_variables(dialect, |name| std::env::var(name).ok())
    }

    /// Like [`ProviderSettings::from_env`], with the variables that `variable` returns.
    pub fn from_variables(dialect: Dialect, variable: impl Fn(&str) -> Option<String>) -> Self {
        let mut settings = Self::new(dialect);
        // A variable that was read from a file often ends with a line break.
        let variable =
            |name: &str| variable(name).map(|value| value.trim().to_owned()).filter(|value| !value.is_empty());
        let (keys, url): (&[&str], &str) = match dialect {
            Dialect::Anthropic => (&["ANTHROPIC_API_KEY"], "ANTHROPIC_BASE_URL"),
            Dialect::Responses | Dialect::Chat => (&["OPENAI_API_KEY"], "OPENAI_BASE_URL"),
            Dialect::Gemini => (&["GOOGLE_API_KEY", "GEMINI_API_KEY"], "GOOGLE_GEMINI_BASE_URL"),
        };
        settings.key = keys.iter().find_map(|name| variable(name)).map(Secret::new);
        if settings.key.is_none()
            && dialect == Dialect::Anthropic
            && let Some(token) = variable("ANTHROPIC_AUTH_TOKEN")
        {
            settings.key = Some(Secret::new(token));
            settings.key_header = None;
        }
        if let Some(url) = variable(url) {
            settings.base_url = url;
        }
        settings
    }

    /// Adds a header to every request.
    #[must_use]
    pub fn with_header(mut self, name: impl Into<String>, value: impl Into<Secret>) -> Self {
        self.headers.push((name.into(), value.into()));
        self
    }

    /// Returns the media that this request describes in text.
    pub(super) fn described_media(&self, request: &ChatRequest<'_>) -> MediaKinds {
        self.quirks.described_media.union(request.described_media)
    }

    /// Returns the maximum number of tools in a request.
    pub(super) fn max_tools(&self) -> usize {
        self.quirks.max_tools.or(lowering::most_tools(self.dialect)).unwrap_or(usize::MAX)
    }

    /// Appends a path to the base URL, before its query.
    pub(super) fn url(&self, path: &str) -> String {
        match self.base_url.split_once('?') {
            Some((base, query)) => {
                let joint = if path.contains('?') { '&' } else { '?' };
                format!("{}{path}{joint}{query}", base.trim_end_matches('/'))
            }
            None => format!("{}{path}", self.base_url.trim_end_matches('/')),
        }
    }

    /// Returns the endpoint that identifies this model in a conversation.
    pub(super) fn model_endpoint(&self, model: &str) -> ModelEndpoint {
        ModelEndpoint { dialect: self.dialect, endpoint: self.origin(), model: model.to_owned() }
    }

    /// Returns the base URL's scheme, host and port, without credentials and path.
    fn origin(&self) -> String {
        let (scheme, rest) = self.base_url.split_once("://").unwrap_or(("https", &self.base_url));
        let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
        let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
        format!("{}://{}", scheme.to_ascii_lowercase(), host.to_ascii_lowercase())
    }

    /// Returns `true` if the base URL is OpenAI's own.
    pub(super) fn is_openai(&self) -> bool {
        let origin = self.origin();
        let host = origin.strip_prefix("https://").unwrap_or_default();
        let host = host.strip_suffix(":443").unwrap_or(host);
        // Regions have their own hosts, such as `eu.api.openai.com`.
        host == "api.openai.com" || host.ends_with(".api.openai.com")
    }

    /// Returns `true` if the base URL is Anthropic's own, not a compatible server's.
    pub(super) fn is_anthropic(&self) -> bool {
        self.origin() == "https://api.anthropic.com"
    }

    /// Returns a redactor for all secrets in these settings.
    pub fn secrets(&self) -> Redactor {
        let is_public = |name: &str| PUBLIC_HEADERS.iter().any(|public| public.eq_ignore_ascii_case(name));
        let headers = self.headers.iter().filter(|(name, _)| !is_public(name));
        let headers = headers.flat_map(|(name, value)| secret::in_secret_header(name, value.expose()));
        let proxy = match &self.proxy {
            Proxy::Url(url) => secret::in_url(url.expose()),
            _ => Vec::new(),
        };
        let key = self.key.iter().filter(|key| !secret::is_placeholder(key, &self.base_url)).cloned();
        let all: Vec<Secret> = key.chain(headers).chain(secret::in_url(&self.base_url)).chain(proxy).collect();
        Redactor::new(&all)
    }
}

setters!(ProviderSettings {
    /// Sets the base URL.
    with_base_url(url: impl Into<String>) => base_url = url.into();
    /// Sets the key.
    with_key(key: impl Into<Secret>) => key = Some(key.into());
    /// Sets the timeouts.
    with_timeouts(timeouts: ProviderTimeouts) => timeouts = timeouts;
    /// Sets how failed requests are retried.
    with_retries(retries: RetryPolicy) => retries = retries;
    /// Sets the proxy.
    with_proxy(proxy: Proxy) => proxy = proxy;
    /// Sets the differences from other providers of the dialect.
    with_quirks(quirks: Quirks) => quirks = quirks;
});

#[cfg(test)]
mod tests {
    use super::*;

    fn from(dialect: Dialect, variables: &[(&str, &str)]) -> ProviderSettings {
        let find =
            |name: &str| variables.iter().find(|(other, _)| *other == name).map(|(_, value)| (*value).to_owned());
        ProviderSettings::from_variables(dialect, find)
    }

    #[test]
    fn keys_and_urls_come_from_the_usual_variables() {
        let key = |settings: &ProviderSettings| settings.key.as_ref().map(|key| key.expose().to_owned());
        let anthropic = from(Dialect::Anthropic, &[("ANTHROPIC_API_KEY", "k"), ("ANTHROPIC_AUTH_TOKEN", "t")]);
        assert_eq!((key(&anthropic), anthropic.key_header.as_deref()), (Some("k".to_owned()), Some("x-api-key")));
        let token = from(Dialect::Anthropic, &[("ANTHROPIC_API_KEY", " "), ("ANTHROPIC_AUTH_TOKEN", "t")]);
        assert_eq!((key(&token), token.key_header), (Some("t".to_owned()), None));
        let gemini = from(Dialect::Gemini, &[("GEMINI_API_KEY", "a"), ("GOOGLE_API_KEY", "b")]);
        assert_eq!(key(&gemini), Some("b".to_owned()));
        let chat = from(Dialect::Chat, &[("OPENAI_API_KEY", " k\n")]);
        assert_eq!(key(&chat), Some("k".to_owned()));
        let chat = from(Dialect::Chat, &[("OPENAI_BASE_URL", "http://127.0.0.1:8080/v1/")]);
        assert_eq!((key(&chat), chat.url("/chat")), (None, "http://127.0.0.1:8080/v1/chat".to_owned()));
    }

    #[test]
    fn the_query_of_the_base_url_follows_the_path() {
        let settings = ProviderSettings::new(Dialect::Chat).with_base_url("https://h/v1/?version=2");
        assert_eq!(settings.url("/chat"), "https://h/v1/chat?version=2");
        assert_eq!(settings.url("/chat?alt=sse"), "https://h/v1/chat?alt=sse&version=2");
    }

    #[test]
    fn a_model_endpoint_holds_no_secret() {
        let settings = ProviderSettings::new(Dialect::Chat).with_base_url("HTTPS://ada:pass@Host:81/secret/v1?key=x");
        assert_eq!(settings.model_endpoint("m").endpoint, "https://host:81");
        assert!(ProviderSettings::new(Dialect::Chat).is_openai());
        assert!(!settings.is_openai());
    }

    #[test]
    fn headers_are_redacted_unless_known_to_be_public() {
        let settings = ProviderSettings::new(Dialect::Chat)
            .with_header("X-Team", "Scheme some-value")
            .with_header("X-Flag", "true")
            .with_header("User-Agent", "some-agent")
            .with_header("anthropic-beta", "some-beta");
        let redactor = settings.secrets();
        assert_eq!(redactor.redact("Scheme some-value, some-value"), "***, ***");
        assert_eq!(redactor.redact("true some-agent some-beta"), "true some-agent some-beta");
    }

    #[test]
    fn a_placeholder_key_of_a_local_server_is_not_redacted() {
        let at = |url: &str| ProviderSettings::new(Dialect::Chat).with_base_url(url).with_key("ollama").secrets();
        assert_eq!(at("http://127.0.0.1:11434/v1").redact("ollama run"), "ollama run");
        assert_eq!(at("https://example.com/v1").redact("ollama run"), "*** run");
    }

    #[test]
    fn openai_is_recognised_by_its_host() {
        let is_openai = |url: &str| ProviderSettings::new(Dialect::Chat).with_base_url(url).is_openai();
        for url in ["https://api.openai.com/v1", "https://api.openai.com:443/v1", "https://eu.api.openai.com/v1"] {
            assert!(is_openai(url), "{url}");
        }
        for url in [
            "http://api.openai.com/v1",
            "https://api.openai.com:8443",
            "https://myapi.openai.com",
            "https://x/api.openai.com",
        ] {
            assert!(!is_openai(url), "{url}");
        }
    }

    #[test]
    fn all_secrets_are_redacted() {
        let settings = ProviderSettings::new(Dialect::Chat)
            .with_key("sk-12345678")
            .with_header("X-Api-Key", "other-key")
            .with_base_url("https://ada:password@host/v1?token=tok-99")
            .with_proxy(Proxy::Url(Secret::new("http://u:proxy-pass@p")));
        let redactor = settings.secrets();
        for secret in ["sk-12345678", "other-key", "password", "tok-99", "proxy-pass"] {
            assert_eq!(redactor.redact(&format!("<{secret}>")), "<***>");
        }
        let shown = format!("{settings:?}");
        for secret in ["sk-12345678", "other-key", "password", "tok-99", "proxy-pass"] {
            assert!(!shown.contains(secret), "{shown}");
        }
    }
}
