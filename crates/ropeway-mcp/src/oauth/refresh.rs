//! Refreshes and revokes a sign-in's tokens.

use std::borrow::Cow;
use std::time::SystemTime;

use reqwest::Url;

use super::client::RegisteredClient;
use super::credentials::Credentials;
use super::dpop::DpopKey;
use super::error::OAuthError;
use super::grants::TokenRequest;
use super::http::OAuthHttp;
use super::oauth_client::{OAuthClient, field, secret_field};
use super::refusal::refusal;
use ropeway_config::OAuthSettings;
use ropeway_core::secret::{Redactor, Secret};

/// Requests new tokens with a sign-in's refresh token, once. Connections refresh their tokens themselves.
///
/// Many authorization servers accept a refresh token only once. Hold the sign-in's lock
/// ([`TokenStore::lock`](super::TokenStore::lock)), so that no other process refreshes it at the same time.
///
/// # Errors
///
/// Fails if the authorization server cannot be reached or refuses the request. After an error with
/// [`is_invalid_grant`](OAuthError::is_invalid_grant), also without a refresh token, only a new sign-in helps.
pub async fn refresh_credentials(
    credentials: &Credentials,
    settings: &OAuthSettings,
) -> Result<Credentials, OAuthError> {
    let http = OAuthHttp::for_settings(&parse(&credentials.server)?, settings, &Redactor::default());
    refresh(&http, credentials, settings).await
}

/// Requests new tokens with the refresh token. They are sent only to the endpoint that issued the old ones.
///
/// Fails with `invalid_grant` if the credentials have no refresh token.
pub(crate) async fn refresh(
    http: &OAuthHttp,
    credentials: &Credentials,
    settings: &OAuthSettings,
) -> Result<Credentials, OAuthError> {
    let endpoint = parse(&credentials.token_endpoint)?;
    let dpop = credentials.dpop_key.as_ref().map(DpopKey::from_secret).transpose()?;
    let client = current_client(credentials, settings);
    let client = OAuthClient::new(http, &client, &credentials.issuer, settings)?.with_dpop(dpop.as_ref());
    let request = TokenRequest { client: &client, endpoint: &endpoint, resource: &credentials.resource, scopes: &[] };
    let tokens = request.refresh(&credentials.tokens).await?;
    Ok(Credentials { tokens, obtained_at: SystemTime::now(), ..credentials.clone() })
}

impl Credentials {
    /// Revokes the tokens at the authorization server ([RFC 7009](https://www.rfc-editor.org/rfc/rfc7009)). Returns `false` if it
    /// does not revoke all of them; the others stay valid until they expire.
    ///
    /// A [`TokenStore`](super::TokenStore) keeps them until [`remove`](super::TokenStore::remove).
    ///
    /// # Errors
    ///
    /// Fails if the authorization server cannot be reached or refuses the request.
    pub async fn revoke(&self, settings: &OAuthSettings) -> Result<bool, OAuthError> {
        let revocation = revoke(self, settings).await?;
        let is_complete = revocation.access_token && revocation.refresh_token != Some(false);
        revocation.problem.map_or(Ok(is_complete), Err)
    }
}

/// The sign-in tokens that an authorization server has revoked.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Revocation {
    /// Whether the authorization server has an endpoint for revocation.
    pub is_supported: bool,
    /// Whether the refresh token is revoked; `None` if the sign-in has none.
    pub refresh_token: Option<bool>,
    /// Whether the access token is revoked. Servers that cannot do that may end it with the refresh token, or when it expires.
    pub access_token: bool,
    /// Why a token is not revoked, unless the server does not revoke tokens of its kind.
    pub problem: Option<OAuthError>,
}

/// Revokes a sign-in's tokens ([RFC 7009](https://www.rfc-editor.org/rfc/rfc7009)).
///
/// # Errors
///
/// Fails if the stored sign-in is invalid. If the authorization server fails, the result says so.
pub async fn revoke(credentials: &Credentials, settings: &OAuthSettings) -> Result<Revocation, OAuthError> {
    let mut revocation = Revocation {
        is_supported: credentials.revocation_endpoint.is_some(),
        refresh_token: credentials.tokens.refresh_token.as_ref().map(|_| false),
        access_token: false,
        problem: None,
    };
    let Some(endpoint) = &credentials.revocation_endpoint else { return Ok(revocation) };
    let endpoint = parse(endpoint)?;
    let http = OAuthHttp::for_settings(&parse(&credentials.server)?, settings, &Redactor::default());
    let client = current_client(credentials, settings);
    let client = OAuthClient::new(&http, &client, &credentials.issuer, settings)?;
    let revoked = async {
        // A refresh token goes first: most servers revoke its access tokens with it.
        if let Some(token) = &credentials.tokens.refresh_token {
            revocation.refresh_token = Some(revoke_token(&client, &endpoint, token, "refresh_token").await?);
        }
        let token = &credentials.tokens.access_token;
        revocation.access_token = revoke_token(&client, &endpoint, token, "access_token").await?;
        Ok::<(), OAuthError>(())
    };
    revocation.problem = revoked.await.err();
    Ok(revocation)
}

/// Revokes a token. Returns `false` if the server does not revoke tokens of this kind, which end when they expire.
async fn revoke_token(client: &OAuthClient<'_>, url: &Url, token: &Secret, kind: &str) -> Result<bool, OAuthError> {
    let fields = [secret_field("token", token), field("token_type_hint", kind)];
    let response = client.post(url, &fields).await?;
    if response.status.is_success() {
        return Ok(true);
    }
    match refusal(response.status, response.body.as_ref().ok(), &client.redactor(&fields)) {
        Some(OAuthError::Refused { error, .. }) if error == "unsupported_token_type" => Ok(false),
        Some(error) => Err(error),
        None => response.into_object().map(|_| false),
    }
}

/// Returns a sign-in's client. A configured client's secret may have changed since.
fn current_client<'a>(credentials: &'a Credentials, settings: &OAuthSettings) -> Cow<'a, RegisteredClient> {
    let client = &credentials.client;
    match &settings.client_secret {
        Some(secret) if !client.registered && settings.client_id.as_ref() == Some(&client.client_id) => {
            Cow::Owned(RegisteredClient { client_secret: Some(secret.clone()), ..client.clone() })
        }
        _ => Cow::Borrowed(client),
    }
}

fn parse(url: &str) -> Result<Url, OAuthError> {
    Url::parse(url)
        .map_err(|_| OAuthError::Settings { reason: "the stored sign-in has an invalid URL; sign in again".to_owned() })
}
