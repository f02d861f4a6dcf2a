//! Fetches the counts of a gateway over HTTP, for `ropeway top`.

use std::time::Duration;

use reqwest::Url;

use super::observe::GatewayStats;
use crate::secret::Secret;
use crate::web::client;

/// The path of the counts.
const PATH: &str = "/api/stats";

/// Maximum bytes of a response.
const MAX_BYTES: usize = 16 << 20;

/// Why the counts of a gateway could not be fetched.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StatsError {
    /// The text is not a URL of a gateway.
    #[error("not an http:// or https:// URL")]
    InvalidUrl,
    /// The gateway is not reachable.
    #[error("the gateway is not reachable")]
    Unreachable(
        /// The error of the HTTP client.
        #[source]
        Box<dyn std::error::Error + Send + Sync>,
    ),
    /// The gateway requires a key.
    #[error("the gateway requires a key")]
    NeedsKey,
    /// The key is not that of an operator.
    #[error("the key is not that of an operator")]
    NotOperator,
    /// The server behind the URL is not a gateway.
    #[error("the server behind the URL is not a ropeway gateway ({0})")]
    NotGateway(String),
}

/// Fetches the counts of a gateway. `url` is any URL of it, such as that of its MCP endpoint.
///
/// # Errors
///
/// Fails if the gateway is not reachable within `timeout`, or does not answer with counts.
pub async fn fetch_stats(url: &str, key: Option<&Secret>, timeout: Duration) -> Result<GatewayStats, StatsError> {
    let url = Url::parse(url).ok().filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host());
    let mut url = url.ok_or(StatsError::InvalidUrl)?;
    url.set_path(PATH);
    url.set_query(None);
    url.set_fragment(None);
    let unreachable = |error: reqwest::Error| StatsError::Unreachable(Box::new(error.without_url()));
    let client = client(&url).timeout(timeout).build().map_err(unreachable)?;
    let mut request = client.get(url);
    if let Some(key) = key {
        request = request.bearer_auth(key.expose());
    }
    let mut response = request.send().await.map_err(unreachable)?;
    match response.status().as_u16() {
        200 => {}
        401 => return Err(StatsError::NeedsKey),
        403 if key.is_some() => return Err(StatsError::NotOperator),
        403 => return Err(StatsError::NeedsKey),
        status => return Err(StatsError::NotGateway(format!("HTTP status {status}"))),
    }
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(unreachable)? {
        if body.len() + chunk.len() > MAX_BYTES {
            return Err(StatsError::NotGateway("the response is too large".to_owned()));
        }
        body.extend_from_slice(&chunk);
    }
    serde_json::from_slice(&body).map_err(|_| StatsError::NotGateway("unexpected response format".to_owned()))
}
