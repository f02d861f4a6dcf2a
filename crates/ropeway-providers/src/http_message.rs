//! HTTP requests and response heads, as values.

use std::fmt;

use bytes::Bytes;

use super::settings::ProviderSettings;
use ropeway_core::secret::{self, Redactor, Secret};

/// An HTTP request that is ready to be sent.
#[derive(Clone)]
#[non_exhaustive]
pub struct HttpRequest {
    /// `POST`, or `GET` for the model list.
    pub method: &'static str,
    /// The URL, including its query.
    pub url: String,
    /// The headers, including the API key.
    pub headers: Vec<(String, Secret)>,
    /// The JSON body; empty for `GET`.
    pub body: Bytes,
}

impl fmt::Debug for HttpRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The URL may contain a key.
        let url = Redactor::new(&secret::in_url(&self.url)).redact(&self.url).into_owned();
        f.debug_struct("HttpRequest")
            .field("method", &self.method)
            .field("url", &url)
            .field("headers", &self.headers)
            .field("body", &self.body)
            .finish()
    }
}

/// A response's status and its relevant headers, with lowercase names.
pub(super) struct ResponseHead {
    pub(super) status: u16,
    pub(super) headers: Vec<(String, String)>,
}

impl ResponseHead {
    pub(super) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(other, _)| other == name).map(|(_, value)| value.as_str())
    }
}

/// Returns the headers for a streaming request. Headers from the settings take precedence.
pub(super) fn stream_headers(settings: &ProviderSettings, own: &[(&str, &str)]) -> Vec<(String, Secret)> {
    let content = [("content-type", "application/json"), ("accept", "text/event-stream")];
    headers(settings, &[&content, own].concat())
}

/// Returns these headers and the API key. Headers from the settings take precedence.
pub(super) fn headers(settings: &ProviderSettings, own: &[(&str, &str)]) -> Vec<(String, Secret)> {
    let mut headers: Vec<(String, Secret)> = Vec::new();
    headers.extend(own.iter().map(|(name, value)| ((*name).to_owned(), Secret::new(*value))));
    if let Some(key) = &settings.key {
        headers.push(match &settings.key_header {
            None => ("authorization".to_owned(), Secret::new(format!("Bearer {}", key.expose()))),
            Some(name) => (name.clone(), key.clone()),
        });
    }
    headers.retain(|(name, _)| !settings.headers.iter().any(|(other, _)| other.eq_ignore_ascii_case(name)));
    headers.extend(settings.headers.iter().cloned());
    headers
}

#[cfg(test)]
mod tests {
    use super::*;
    use ropeway_core::message::Dialect;

    #[test]
    fn the_key_is_sent_in_the_header_of_the_settings() {
        let mut settings = ProviderSettings::new(Dialect::Chat).with_key("k");
        settings.key_header = Some("x-team-key".to_owned());
        let sent = stream_headers(&settings, &[]);
        let sent: Vec<_> = sent.iter().map(|(name, value)| (name.as_str(), value.expose())).collect();
        assert_eq!(sent, [("content-type", "application/json"), ("accept", "text/event-stream"), ("x-team-key", "k")]);
    }
}
