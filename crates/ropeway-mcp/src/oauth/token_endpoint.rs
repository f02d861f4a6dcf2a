//! The token endpoint: requests, and the tokens in its responses
//! ([RFC 6749, section 5](https://www.rfc-editor.org/rfc/rfc6749#section-5)).

use std::time::{Duration, SystemTime};

use reqwest::Url;
use serde_json::{Map, Value};

use super::error::OAuthError;
use super::http::invalid;
use super::oauth_client::{Field, OAuthClient, field};
use super::refusal::refusal;
use super::scopes::is_valid;
use super::token_set::TokenSet;
use ropeway_core::secret::Secret;

/// Maximum token length, in bytes. A longer token is an error.
const MAX_TOKEN: usize = 64 << 10;

/// Maximum plausible token lifetime.
const MAX_LIFETIME: Duration = Duration::from_secs(10 * 365 * 86_400);

/// Maximum number of scopes to read. Further ones are ignored.
const MAX_SCOPES: usize = 200;

/// Requests tokens. `scopes` are requested; a response without scopes grants them all.
pub(super) async fn request_tokens(
    client: &OAuthClient<'_>,
    url: &Url,
    fields: Vec<Field<'_>>,
    resource: Option<&str>,
    scopes: &[String],
) -> Result<TokenSet, OAuthError> {
    let joined = scopes.join(" ");
    let mut fields = fields;
    // https://www.rfc-editor.org/rfc/rfc8707#section-2
    fields.extend(resource.map(|resource| field("resource", resource)));
    if !scopes.is_empty() {
        fields.push(field("scope", &joined));
    }
    let body = request(client, url, &fields).await?;
    let mut tokens = read_tokens(url, &body, SystemTime::now())?;
    if client.dpop.is_some() && !tokens.dpop {
        return Err(OAuthError::mismatch("token type", "DPoP", "Bearer"));
    }
    if tokens.dpop && client.dpop.is_none() {
        return Err(OAuthError::mismatch("token type", "Bearer", "DPoP"));
    }
    if !body.contains_key("scope") {
        tokens.scopes = scopes.to_vec();
    }
    Ok(tokens)
}

/// Sends a request to the endpoint. Returns the response if it is a success.
pub(super) async fn request(
    client: &OAuthClient<'_>,
    url: &Url,
    fields: &[Field<'_>],
) -> Result<Map<String, Value>, OAuthError> {
    let response = client.post(url, fields).await?;
    match refusal(response.status, response.body.as_ref().ok(), &client.redactor(fields)) {
        Some(error) => Err(error),
        None => response.into_object(),
    }
}

/// Returns a token from a response.
pub(super) fn read_token(url: &Url, body: &Map<String, Value>, name: &str) -> Result<Option<Secret>, OAuthError> {
    match body.get(name).and_then(Value::as_str) {
        Some(token) if token.len() > MAX_TOKEN => Err(invalid(url, format!("`{name}` is too long"))),
        // Tokens become part of a header.
        Some(token) if token.bytes().any(|byte| !(0x20..=0x7e).contains(&byte)) => {
            Err(invalid(url, format!("`{name}` has invalid characters")))
        }
        Some("") | None => Ok(None),
        Some(token) => Ok(Some(Secret::new(token))),
    }
}

/// Reads the tokens in a response that was received at `now`.
fn read_tokens(url: &Url, body: &Map<String, Value>, now: SystemTime) -> Result<TokenSet, OAuthError> {
    let Some(access_token) = read_token(url, body, "access_token")? else {
        return Err(invalid(url, "it has no `access_token`"));
    };
    let dpop = match body.get("token_type").and_then(Value::as_str) {
        Some(kind) if kind.eq_ignore_ascii_case("DPoP") => true,
        Some(kind) if kind.eq_ignore_ascii_case("Bearer") => false,
        // Required, but some servers omit it.
        None => false,
        Some(_) => return Err(invalid(url, "its `token_type` is neither `Bearer` nor `DPoP`")),
    };
    let scopes = body.get("scope").and_then(Value::as_str).unwrap_or_default();
    Ok(TokenSet {
        dpop,
        expires_at: seconds(body.get("expires_in")).map(|lifetime| now + lifetime.min(MAX_LIFETIME)),
        refresh_token: read_token(url, body, "refresh_token")?,
        scopes: scopes.split_whitespace().filter(|scope| is_valid(scope)).take(MAX_SCOPES).map(str::to_owned).collect(),
        ..TokenSet::bearer(access_token)
    })
}

/// Reads a duration in seconds. Some servers send it as a text.
pub(super) fn seconds(value: Option<&Value>) -> Option<Duration> {
    let seconds = match value? {
        Value::String(text) => text.trim().parse().ok()?,
        value => value.as_f64()?,
    };
    // Negative values mean already expired.
    if seconds.is_nan() { None } else { Duration::try_from_secs_f64(seconds.clamp(0.0, 1e10)).ok() }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(body: &Value) -> Result<TokenSet, OAuthError> {
        let url = Url::parse("https://a.example/token").expect("a URL");
        read_tokens(&url, body.as_object().expect("an object"), SystemTime::UNIX_EPOCH)
    }

    #[test]
    fn tokens_are_read() {
        let body = json!({"access_token": "a", "token_type": "bearer", "expires_in": 60, "refresh_token": "r", "scope": "x y"});
        let expected = TokenSet {
            expires_at: Some(SystemTime::UNIX_EPOCH + Duration::from_secs(60)),
            refresh_token: Some("r".into()),
            scopes: vec!["x".to_owned(), "y".to_owned()],
            ..TokenSet::bearer("a")
        };
        assert_eq!(read(&body).expect("tokens"), expected);
        assert!(read(&json!({"access_token": "a", "token_type": "DPOP"})).expect("tokens").dpop);
    }

    #[test]
    fn scopes_that_are_not_valid_are_left_out() {
        let tokens = read(&json!({"access_token": "a", "scope": "x \u{1b}[2J y\u{202e} \u{9b}31m z"})).expect("tokens");
        assert_eq!(tokens.scopes, ["x", "z"]);
    }

    #[test]
    fn odd_lifetimes_are_read() {
        let at = |seconds: u64| Some(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds));
        for (lifetime, expected) in [
            (json!("3600"), at(3600)),
            (json!(-5), at(0)),
            (json!(1e300), at(MAX_LIFETIME.as_secs())),
            (json!("soon"), None),
            (json!(null), None),
            (json!([1]), None),
        ] {
            let tokens = read(&json!({"access_token": "a", "expires_in": lifetime})).expect("tokens");
            assert_eq!(tokens.expires_at, expected, "{lifetime}");
        }
    }

    #[test]
    fn responses_without_a_usable_token_are_refused() {
        for body in [
            json!({}),
            json!({"access_token": ""}),
            json!({"access_token": 7}),
            json!({"access_token": "a\r\nX: y"}),
            json!({"access_token": "x".repeat(MAX_TOKEN + 1)}),
            json!({"access_token": "a", "token_type": "mac"}),
            json!({"access_token": "a", "refresh_token": "x".repeat(MAX_TOKEN + 1)}),
        ] {
            assert!(matches!(read(&body), Err(OAuthError::Invalid { .. })));
        }
    }
}
