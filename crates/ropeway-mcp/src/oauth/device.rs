//! Sign-in on another device ([RFC 8628](https://www.rfc-editor.org/rfc/rfc8628)).

use std::time::Duration;

use reqwest::Url;
use serde_json::Value;
use tokio::time::Instant;

use super::error::OAuthError;
use super::grants::TokenRequest;
use super::http::invalid;
use super::oauth_client::{OAuthClient, field};
use super::text::shown;
use super::token_endpoint::{read_token, request, seconds};
use super::token_set::TokenSet;
use ropeway_core::secret::{Redactor, Secret};

/// The time between two requests, unless the server sets another one.
const INTERVAL: Duration = Duration::from_secs(5);

/// Maximum time between two requests.
const MAX_INTERVAL: Duration = Duration::from_secs(60);

/// Maximum sign-in time, even if the authorization server allows more.
const MAX_LIFETIME: Duration = Duration::from_secs(30 * 60);

/// Maximum length of a code that the user types.
const MAX_USER_CODE: usize = 64;

/// Maximum URL length for a page that the user opens.
const MAX_PAGE: usize = 2048;

/// A code that the user enters on another device, and where ([RFC 8628](https://www.rfc-editor.org/rfc/rfc8628#section-3.2)).
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct DeviceAuthorization {
    /// The code to enter.
    pub user_code: String,
    /// The page to open.
    pub verification_uri: String,
    /// The page with the code already entered.
    pub verification_uri_complete: Option<String>,
    /// How long the code is valid, from its receipt.
    pub expires_in: Duration,
    device_code: Secret,
    interval: Duration,
    deadline: Instant,
}

/// Starts a sign-in on another device.
pub(super) async fn authorize_device(
    client: &OAuthClient<'_>,
    endpoint: &Url,
    resource: &str,
    scopes: &[String],
) -> Result<DeviceAuthorization, OAuthError> {
    let scope = scopes.join(" ");
    let mut fields = vec![field("resource", resource)];
    if !scope.is_empty() {
        fields.push(field("scope", &scope));
    }
    let body = request(client, endpoint, &fields).await?;
    let text = |name: &str| body.get(name).and_then(Value::as_str).filter(|text| !text.is_empty());
    let page = |name: &str| match text(name) {
        None => Ok(None),
        Some(text) if text.len() > MAX_PAGE => Err(invalid(endpoint, format!("`{name}` is too long"))),
        Some(text) => {
            let url = Url::parse(text).map_err(|_| invalid(endpoint, format!("`{name}` is not a URL")))?;
            client.http.guard().check_for_browser(&url)?;
            Ok(Some(url.to_string()))
        }
    };
    let missing = |name: &str| invalid(endpoint, format!("it has no `{name}`"));
    let user_code = text("user_code").filter(|code| code.len() <= MAX_USER_CODE).ok_or_else(|| missing("user_code"))?;
    // An early draft called it a URL.
    let verification_uri = match page("verification_uri")? {
        Some(page) => page,
        None => page("verification_url")?.ok_or_else(|| missing("verification_uri"))?,
    };
    let expires_in = seconds(body.get("expires_in")).unwrap_or(MAX_LIFETIME).min(MAX_LIFETIME);
    let interval = seconds(body.get("interval")).filter(|interval| !interval.is_zero()).unwrap_or(INTERVAL);
    Ok(DeviceAuthorization {
        user_code: shown(user_code, &Redactor::default()),
        verification_uri,
        verification_uri_complete: page("verification_uri_complete")?,
        expires_in,
        device_code: read_token(endpoint, &body, "device_code")?.ok_or_else(|| missing("device_code"))?,
        interval: interval.clamp(Duration::from_secs(1), MAX_INTERVAL),
        deadline: Instant::now() + expires_in,
    })
}

/// Waits until the user has finished.
pub(super) async fn wait_for_tokens(
    tokens: &TokenRequest<'_>,
    device: &DeviceAuthorization,
) -> Result<TokenSet, OAuthError> {
    let mut interval = device.interval;
    loop {
        let next = Instant::now() + interval;
        if next >= device.deadline {
            tokio::time::sleep_until(device.deadline).await;
            return Err(OAuthError::Expired);
        }
        tokio::time::sleep_until(next).await;
        let error = match tokens.device_code(&device.device_code).await {
            Ok(tokens) => return Ok(tokens),
            Err(error) => error,
        };
        interval = match &error {
            OAuthError::Refused { error: code, description } => match code.as_str() {
                "authorization_pending" => interval,
                "slow_down" => interval + INTERVAL,
                "expired_token" => return Err(OAuthError::Expired),
                "access_denied" => return Err(OAuthError::Denied { description: description.clone() }),
                _ => return Err(error),
            },
            // https://www.rfc-editor.org/rfc/rfc8628#section-3.5
            error if error.is_transient() => interval * 2,
            _ => return Err(error),
        }
        .min(MAX_INTERVAL);
    }
}
