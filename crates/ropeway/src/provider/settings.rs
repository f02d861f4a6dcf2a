//! The settings of a provider: where it is, who asks, how patient we are.

use std::borrow::Cow;
use std::fmt;
use std::time::Duration;

use super::{ChatRequest, MediaSupport};
use crate::message::{Dialect, ModelEndpoint};
use crate::secret::{self, Redactor, Secret};

/// Headers whose values are no secrets; others may be called anything and hold a key.
const HARMLESS: [&str; 10] = [
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

/// Where a provider is, who asks, and how patient we are.
#[derive(Clone)]
#[non_exhaustive]
pub struct ProviderSettings {
    /// The dialect that it speaks.
    pub dialect: Dialect,
    /// The URL that the dialect's paths are put behind.
    pub base_url: String,
    /// The key.
    pub key: Option<Secret>,
    /// How the key is sent.
    pub key_header: KeyHeader,
    /// Further headers of every request; they win over ours.
    pub headers: Vec<(String, Secret)>,
    /// How long we wait for what.
    pub timeouts: ProviderTimeouts,
    /// How often and when a request is sent again.
    pub retries: RetryPolicy,
    /// The proxy to go through; that of the environment where nothing is said.
    pub proxy: Proxy,
    /// Where providers of one dialect differ.
    pub quirks: Quirks,
}

/// How a key is sent.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum KeyHeader {
    /// As `Authorization: Bearer`.
    Bearer,
    /// As the value of a header of this name.
    Named(Cow<'static, str>),
}

impl KeyHeader {
    /// As the value of a header of this name.
    pub fn named(name: impl Into<Cow<'static, str>>) -> Self {
        Self::Named(name.into())
    }
}

/// How long we wait for what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ProviderTimeouts {
    /// For the connection.
    pub connect: Duration,
    /// From the request to the first byte of the answer.
    pub first_byte: Duration,
    /// From one byte of the answer to the next. There is no clock for the whole answer: one that keeps coming may take
    /// as long as it likes.
    pub idle: Duration,
}

/// How often and when a request is sent again, before anything of its answer was handed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RetryPolicy {
    /// How often at most.
    pub most: u32,
    /// The first pause; each one after it is twice as long.
    pub first_pause: Duration,
    /// The longest pause of our own choice.
    pub longest_pause: Duration,
    /// The longest pause that a provider may ask for; it is an error when it asks for more.
    pub longest_wish: Duration,
}

/// The proxy to go through.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Proxy {
    /// What the environment says; none on our own machine.
    #[default]
    Environment,
    /// None, whatever the environment says.
    None,
    /// This one.
    Url(Secret),
}

/// Where providers of one dialect differ. What is not said is told by the base URL and the model.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Quirks {
    /// Anthropic: the `anthropic-version`.
    pub anthropic_version: Option<String>,
    /// Gemini: the version in the path, such as `v1beta`.
    pub gemini_version: Option<String>,
    /// Gemini: results of tools may hold pictures, as from version 3 on.
    pub gemini_result_parts: Option<bool>,
    /// What no model here is shown, but told in words. What one refuses is found out without this, at the cost of a request.
    pub in_words: MediaSupport,
    /// Chat: the limit is called `max_completion_tokens` and the system `developer`, as with OpenAI itself.
    pub chat_openai: Option<bool>,
    /// Chat: do not ask for the usage.
    pub chat_without_usage: bool,
    /// How many tools a request may have; the dialect's usual number where nothing is said.
    pub most_tools: Option<usize>,
}

impl fmt::Debug for ProviderSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Settings")
            .field("dialect", &self.dialect)
            .field("base_url", &self.secrets().hide(&self.base_url))
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
            most: 2,
            first_pause: Duration::from_millis(500),
            longest_pause: Duration::from_secs(8),
            longest_wish: Duration::from_secs(60),
        }
    }
}

impl ProviderSettings {
    /// The dialect's own provider, without a key.
    pub fn new(dialect: Dialect) -> Self {
        let (base_url, key_header) = match dialect {
            Dialect::Anthropic => ("https://api.anthropic.com", KeyHeader::named("x-api-key")),
            Dialect::Responses | Dialect::Chat => ("https://api.openai.com/v1", KeyHeader::Bearer),
            Dialect::Gemini => ("https://generativelanguage.googleapis.com", KeyHeader::named("x-goog-api-key")),
        };
        Self {
            dialect,
            base_url: base_url.to_owned(),
            key: None,
            key_header,
            headers: Vec::new(),
            timeouts: ProviderTimeouts::default(),
            retries: RetryPolicy::default(),
            proxy: Proxy::Environment,
            quirks: Quirks::default(),
        }
    }

    /// The dialect's own provider with the key, and the base URL if there is one, of the usual variables.
    ///
    /// A key goes where the base URL says. Before [`with_base_url`](Self::with_base_url) with an address that somebody else chose,
    /// such as that of a file, take the key out: `settings.key = None`.
    pub fn from_env(dialect: Dialect) -> Self {
        Self::from_variables(dialect, |name| std::env::var(name).ok())
    }

    /// Like [`ProviderSettings::from_env`], with an environment of the caller's.
    pub fn from_variables(dialect: Dialect, variable: impl Fn(&str) -> Option<String>) -> Self {
        let mut settings = Self::new(dialect);
        // Whoever reads a variable from a file easily gets the line break at its end, too.
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
            settings.key_header = KeyHeader::Bearer;
        }
        if let Some(url) = variable(url) {
            settings.base_url = url;
        }
        settings
    }

    /// Sets the base URL.
    #[must_use]
    pub fn with_base_url(mut self, url: impl Into<String>) -> Self {
        self.base_url = url.into();
        self
    }

    /// Sets the key.
    #[must_use]
    pub fn with_key(mut self, key: impl Into<Secret>) -> Self {
        self.key = Some(key.into());
        self
    }

    /// Adds a header to every request.
    #[must_use]
    pub fn with_header(mut self, name: impl Into<String>, value: impl Into<Secret>) -> Self {
        self.headers.push((name.into(), value.into()));
        self
    }

    /// Sets how long we wait for what.
    #[must_use]
    pub fn with_timeouts(mut self, timeouts: ProviderTimeouts) -> Self {
        self.timeouts = timeouts;
        self
    }

    /// Sets how often and when a request is sent again.
    #[must_use]
    pub fn with_retries(mut self, retries: RetryPolicy) -> Self {
        self.retries = retries;
        self
    }

    /// Sets the proxy to go through.
    #[must_use]
    pub fn with_proxy(mut self, proxy: Proxy) -> Self {
        self.proxy = proxy;
        self
    }

    /// Sets where this provider differs from others of its dialect.
    #[must_use]
    pub fn with_quirks(mut self, quirks: Quirks) -> Self {
        self.quirks = quirks;
        self
    }

    /// What is told in words in this request.
    pub(super) fn in_words(&self, request: &ChatRequest<'_>) -> MediaSupport {
        self.quirks.in_words.and(request.in_words)
    }

    /// A path behind the base URL.
    pub(super) fn url(&self, path: &str) -> String {
        match self.base_url.split_once('?') {
            Some((base, query)) => {
                let joint = if path.contains('?') { '&' } else { '?' };
                format!("{}{path}{joint}{query}", base.trim_end_matches('/'))
            }
            None => format!("{}{path}", self.base_url.trim_end_matches('/')),
        }
    }

    /// Who answers when this model is asked.
    pub(super) fn speaker(&self, model: &str) -> ModelEndpoint {
        ModelEndpoint { dialect: self.dialect, endpoint: self.endpoint(), model: model.to_owned() }
    }

    /// Scheme, host and port of the base URL; never credentials, nor a key in a path.
    fn endpoint(&self) -> String {
        let (scheme, rest) = self.base_url.split_once("://").unwrap_or(("https", &self.base_url));
        let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
        let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
        format!("{}://{}", scheme.to_ascii_lowercase(), host.to_ascii_lowercase())
    }

    /// Is it OpenAI itself?
    pub(super) fn is_openai(&self) -> bool {
        let endpoint = self.endpoint();
        let host = endpoint.strip_prefix("https://").unwrap_or_default();
        let host = host.strip_suffix(":443").unwrap_or(host);
        // Regions have hosts of their own, such as `eu.api.openai.com`.
        host == "api.openai.com" || host.ends_with(".api.openai.com")
    }

    /// Is it Anthropic itself, and not another who speaks like it?
    pub(super) fn is_anthropic(&self) -> bool {
        self.endpoint() == "https://api.anthropic.com"
    }

    /// Hides everything in these settings that must not be seen.
    pub fn secrets(&self) -> Redactor {
        let is_harmless = |name: &str| HARMLESS.iter().any(|harmless| harmless.eq_ignore_ascii_case(name));
        let headers = self.headers.iter().filter(|(name, _)| !is_harmless(name));
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

#[cfg(test)]
mod tests {
    use super::*;

    fn from(dialect: Dialect, variables: &[(&str, &str)]) -> ProviderSettings {
        let find =
            |name: &str| variables.iter().find(|(other, _)| *other == name).map(|(_, value)| (*value).to_owned());
        ProviderSettings::from_variables(dialect, find)
    }

    #[test]
    fn keys_and_addresses_come_from_the_usual_variables() {
        let key = |settings: &ProviderSettings| settings.key.as_ref().map(|key| key.expose().to_owned());
        let anthropic = from(Dialect::Anthropic, &[("ANTHROPIC_API_KEY", "k"), ("ANTHROPIC_AUTH_TOKEN", "t")]);
        assert_eq!((key(&anthropic), anthropic.key_header), (Some("k".to_owned()), KeyHeader::named("x-api-key")));
        let token = from(Dialect::Anthropic, &[("ANTHROPIC_API_KEY", " "), ("ANTHROPIC_AUTH_TOKEN", "t")]);
        assert_eq!((key(&token), token.key_header), (Some("t".to_owned()), KeyHeader::Bearer));
        let gemini = from(Dialect::Gemini, &[("GEMINI_API_KEY", "a"), ("GOOGLE_API_KEY", "b")]);
        assert_eq!(key(&gemini), Some("b".to_owned()));
        let chat = from(Dialect::Chat, &[("OPENAI_API_KEY", " k\n")]);
        assert_eq!(key(&chat), Some("k".to_owned()));
        let chat = from(Dialect::Chat, &[("OPENAI_BASE_URL", "http://127.0.0.1:8080/v1/")]);
        assert_eq!((key(&chat), chat.url("/chat")), (None, "http://127.0.0.1:8080/v1/chat".to_owned()));
    }

    #[test]
    fn a_query_of_the_base_url_stays_behind_the_path() {
        let settings = ProviderSettings::new(Dialect::Chat).with_base_url("https://h/v1/?version=2");
        assert_eq!(settings.url("/chat"), "https://h/v1/chat?version=2");
        assert_eq!(settings.url("/chat?alt=sse"), "https://h/v1/chat?alt=sse&version=2");
    }

    #[test]
    fn the_endpoint_of_a_speaker_holds_no_secret() {
        let settings = ProviderSettings::new(Dialect::Chat).with_base_url("HTTPS://ada:pass@Host:81/secret/v1?key=x");
        assert_eq!(settings.speaker("m").endpoint, "https://host:81");
        assert!(ProviderSettings::new(Dialect::Chat).is_openai());
        assert!(!settings.is_openai());
    }

    #[test]
    fn a_header_is_hidden_whatever_its_name_unless_it_is_known_to_be_harmless() {
        let settings = ProviderSettings::new(Dialect::Chat)
            .with_header("X-Team", "Scheme some-value")
            .with_header("X-Flag", "true")
            .with_header("User-Agent", "some-agent")
            .with_header("anthropic-beta", "some-beta");
        let mask = settings.secrets();
        assert_eq!(mask.hide("Scheme some-value, some-value"), "***, ***");
        assert_eq!(mask.hide("true some-agent some-beta"), "true some-agent some-beta");
    }

    #[test]
    fn a_word_that_stands_in_for_a_key_on_this_machine_is_not_hidden() {
        let at = |url: &str| ProviderSettings::new(Dialect::Chat).with_base_url(url).with_key("ollama").secrets();
        assert_eq!(at("http://127.0.0.1:11434/v1").hide("ollama run"), "ollama run");
        assert_eq!(at("https://example.com/v1").hide("ollama run"), "*** run");
    }

    #[test]
    fn openai_itself_is_known_by_its_host() {
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
    fn everything_that_must_not_be_seen_is_hidden() {
        let settings = ProviderSettings::new(Dialect::Chat)
            .with_key("sk-12345678")
            .with_header("X-Api-Key", "other-key")
            .with_base_url("https://ada:password@host/v1?token=tok-99")
            .with_proxy(Proxy::Url(Secret::new("http://u:proxy-pass@p")));
        let mask = settings.secrets();
        for secret in ["sk-12345678", "other-key", "password", "tok-99", "proxy-pass"] {
            assert_eq!(mask.hide(&format!("<{secret}>")), "<***>");
        }
        let shown = format!("{settings:?}");
        for secret in ["sk-12345678", "other-key", "password", "tok-99", "proxy-pass"] {
            assert!(!shown.contains(secret), "{shown}");
        }
    }
}
