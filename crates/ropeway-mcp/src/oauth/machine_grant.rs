//! Tokens without a user: client credentials, workload identity, and identity provider grants.

use std::borrow::Cow;

use reqwest::Url;

use super::challenge::Challenge;
use super::client::RegisteredClient;
use super::credentials::Credentials;
use super::discovery::{Discovery, discover, is_same_issuer, metadata_of};
use super::dpop::DpopKey;
use super::error::OAuthError;
use super::grants::TokenRequest;
use super::http::OAuthHttp;
use super::metadata::canonical;
use super::oauth_client::OAuthClient;
use super::registration::configured_client;
use super::scopes::requested_scopes;
use ropeway_config::{ClientAuthMethod, IdentityProvider, OAuthGrant, OAuthSettings};
use ropeway_core::secret::{Redactor, Secret};

/// Obtains tokens for a server with a grant that needs no user. Connections do so themselves.
///
/// `assertion` is a workload's JWT, or the ID token for an identity provider.
///
/// # Errors
///
/// Returns [`OAuthError::SignInRequired`] if the configured grant needs a user. Fails if the settings are incomplete, if the
/// authorization server cannot be found or refuses the request, and if its metadata is invalid.
///
/// # Examples
///
/// ```no_run
/// use ropeway::config::{OAuthGrant, OAuthSettings};
/// use ropeway::oauth::obtain_credentials;
///
/// # async fn run() -> Result<(), ropeway::oauth::OAuthError> {
/// let settings = OAuthSettings::new()
///     .with_grant(OAuthGrant::ClientCredentials)
///     .with_client_id("ci")
///     .with_client_secret("s3cret");
/// let credentials = obtain_credentials("https://example.com/mcp", &settings, None).await?;
/// # Ok(()) }
/// ```
pub async fn obtain_credentials(
    server: &str,
    settings: &OAuthSettings,
    assertion: Option<&Secret>,
) -> Result<Credentials, OAuthError> {
    let server = Url::parse(server).map_err(|_| settings_error("the URL of the server is invalid"))?;
    let http = OAuthHttp::for_settings(&server, settings, &Redactor::default());
    let target = GrantTarget { server: &server, settings, issuer: None };
    machine_grant(&http, &target, None, &[], assertion).await
}

/// The server that tokens are obtained for, and how.
pub(super) struct GrantTarget<'a> {
    pub(super) server: &'a Url,
    pub(super) settings: &'a OAuthSettings,
    /// The authorization server that has received the configured secrets before. No other one receives them: a compromised server
    /// could name one.
    pub(super) issuer: Option<String>,
}

/// Obtains tokens with the configured grant, which needs no user.
///
/// `assertion` is a workload's JWT, or the ID token for an identity provider. Scopes in `granted` are requested again.
pub(super) async fn machine_grant(
    http: &OAuthHttp,
    target: &GrantTarget<'_>,
    challenge: Option<&Challenge>,
    granted: &[String],
    assertion: Option<&Secret>,
) -> Result<Credentials, OAuthError> {
    let &GrantTarget { server, settings, .. } = target;
    if settings.grant.is_interactive() {
        return Err(OAuthError::SignInRequired { server: canonical(server) });
    }
    let challenge = match challenge {
        Some(challenge) => Some(Cow::Borrowed(challenge)),
        None => http.challenge_of(server).await?.map(Cow::Owned),
    };
    let discovery = discover(http, server, challenge.as_deref(), settings.issuer.as_deref()).await?;
    match &target.issuer {
        Some(issuer) if settings.issuer.is_none() && !is_same_issuer(issuer, &discovery.server.issuer) => {
            return Err(OAuthError::mismatch("issuer", issuer, &discovery.server.issuer));
        }
        _ => {}
    }
    let registered = machine_client(&discovery, settings)?;
    let scopes = requested_scopes(&discovery, challenge.as_deref(), &settings.scopes, granted);
    let dpop = (settings.dpop || discovery.dpop_required).then(DpopKey::generate).transpose()?;
    let issuer = &discovery.server.issuer;
    let client = OAuthClient::new(http, &registered, issuer, settings)?.with_dpop(dpop.as_ref());
    let request = TokenRequest {
        client: &client,
        endpoint: &discovery.server.token_endpoint,
        resource: &discovery.resource,
        scopes: &scopes,
    };
    let tokens = match (&settings.grant, assertion) {
        (OAuthGrant::ClientCredentials, _) => request.client_credentials().await?,
        (OAuthGrant::WorkloadIdentity { .. }, Some(assertion)) => request.jwt_bearer(assertion).await?,
        (OAuthGrant::EnterpriseManaged(provider), Some(id_token)) => {
            let grant = identity_grant(provider, id_token, &discovery, &scopes, settings).await?;
            request.jwt_bearer(&grant).await?
        }
        _ => return Err(settings_error("the grant needs a token, which its source did not return")),
    };
    let mut credentials = Credentials::new(
        canonical(server),
        &discovery.resource,
        issuer,
        discovery.server.token_endpoint.as_str(),
        registered.clone(),
        tokens,
    );
    credentials.dpop_key = dpop.map(|key| key.to_secret());
    credentials.revocation_endpoint = discovery.server.revocation_endpoint.as_ref().map(Url::to_string);
    Ok(credentials)
}

/// Returns the configured client. Machines do not register one.
fn machine_client(discovery: &Discovery, settings: &OAuthSettings) -> Result<RegisteredClient, OAuthError> {
    match configured_client(&discovery.server, settings)? {
        Some(client) => Ok(client),
        None if matches!(settings.grant, OAuthGrant::WorkloadIdentity { .. }) => Ok(RegisteredClient::public("")),
        None => Err(settings_error("this grant needs `client_id` in the OAuth settings")),
    }
}

/// Exchanges an ID token for a grant, at the identity provider. Its URL comes from the settings, not from the server.
async fn identity_grant(
    provider: &IdentityProvider,
    id_token: &Secret,
    discovery: &Discovery,
    scopes: &[String],
    settings: &OAuthSettings,
) -> Result<Secret, OAuthError> {
    let Some(named) = provider.token_endpoint.as_ref().or(provider.issuer.as_ref()) else {
        return Err(settings_error("the identity provider needs `issuer` or `token_endpoint`"));
    };
    let base = Url::parse(named).map_err(|_| settings_error("the URL of the identity provider is invalid"))?;
    let http = OAuthHttp::new(&base, &settings.allow_private, settings.secrets());
    let (endpoint, issuer) = match (&provider.token_endpoint, &provider.issuer) {
        (None, Some(issuer)) => (metadata_of(&http, issuer).await?.token_endpoint, issuer.as_str()),
        _ => (base, named.as_str()),
    };
    let id = provider.client_id.as_deref().unwrap_or_default();
    let registered = match &provider.client_secret {
        Some(secret) => RegisteredClient::confidential(id, secret.clone(), ClientAuthMethod::ClientSecretBasic),
        None => RegisteredClient::public(id),
    };
    let client = OAuthClient::new(&http, &registered, issuer, &OAuthSettings::new())?;
    let request = TokenRequest { client: &client, endpoint: &endpoint, resource: &discovery.resource, scopes };
    let redactor = Redactor::new([id_token]);
    request.id_jag(id_token, &discovery.server.issuer).await.map_err(|error| at_provider(error, &redactor))
}

/// Attributes the error to the identity provider instead of the authorization server.
fn at_provider(error: OAuthError, redactor: &Redactor) -> OAuthError {
    match error {
        OAuthError::Refused { error, description } => {
            let description = description.unwrap_or_else(|| "no description".to_owned());
            let description = format!("identity provider: {}", redactor.redact(&description));
            OAuthError::Refused { error, description: Some(description) }
        }
        error => error,
    }
}

fn settings_error(reason: &str) -> OAuthError {
    OAuthError::Settings { reason: reason.to_owned() }
}
