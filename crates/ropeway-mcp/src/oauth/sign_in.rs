//! The sign-in of a user to one server: discovery, registration, and one of two flows.

use std::time::SystemTime;

use reqwest::Url;

use super::authorization::AuthorizationRequest;
use super::challenge::Challenge;
use super::client::RegisteredClient;
use super::credentials::Credentials;
use super::device::{DeviceAuthorization, authorize_device, wait_for_tokens};
use super::discovery::{Discovery, discover, is_same_issuer};
use super::dpop::DpopKey;
use super::error::OAuthError;
use super::grants::TokenRequest;
use super::http::OAuthHttp;
use super::metadata::canonical;
use super::oauth_client::OAuthClient;
use super::registration::{can_reuse, configured_client, register};
use super::scopes::{requested_scopes, with_offline_access};
use super::text::shown;
use super::token_set::TokenSet;
use ropeway_config::OAuthSettings;
use ropeway_core::secret::Redactor;
use ropeway_core::setters::setters;

/// A [`SignIn`]'s server, settings and account.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct SignInOptions {
    /// The MCP endpoint's URL.
    pub server: String,
    /// The sign-in's client, scopes and restrictions.
    pub settings: OAuthSettings,
    /// The challenge that caused the sign-in. `None` requests one from the server.
    pub challenge: Option<Challenge>,
    /// The name under which the tokens are stored, if there are several sign-ins to one server.
    pub account: Option<String>,
    /// An earlier sign-in. If the authorization server is the same, its scopes are requested again, and its registered client is
    /// reused. Leave it out after an error with [`is_invalid_client`](OAuthError::is_invalid_client).
    pub previous: Option<Credentials>,
}

impl SignInOptions {
    /// Creates options for the server at a URL, with default settings.
    pub fn new(server: impl Into<String>) -> Self {
        Self { server: server.into(), settings: OAuthSettings::new(), challenge: None, account: None, previous: None }
    }
}

setters!(SignInOptions {
    /// Sets the OAuth settings of the server.
    with_settings(settings: OAuthSettings) => settings = settings;
    /// Sets the challenge that caused the sign-in.
    with_challenge(challenge: Option<Challenge>) => challenge = challenge;
    /// Sets the name under which the tokens are stored.
    with_account(account: Option<String>) => account = account;
    /// Sets the earlier sign-in.
    with_previous(previous: Option<Credentials>) => previous = previous;
});

/// A user's sign-in to one server.
///
/// [`start`](Self::start) finds the authorization server. Then either [`prepare`](Self::prepare) returns a URL for a browser and
/// [`finish`](Self::finish) takes its callback, or [`device`](Self::device) returns a code for another device and
/// [`wait_for_device`](Self::wait_for_device) waits for it to be entered. The credentials are not stored; see
/// [`TokenStore::save`](super::TokenStore::save).
///
/// The caller owns the sign-in and drives it: it spawns no task and holds no lock. It is *in progress* from `prepare` until
/// `finish` accepts a callback, and keeps the `state` and the PKCE verifier for that time. A second `prepare` replaces them. A
/// callback with the wrong `state` leaves the sign-in in progress; every other callback ends it, whether it succeeds, fails, or
/// the future is dropped, and `prepare` can begin again. The device flow keeps nothing but the client, so `wait_for_device` can
/// be dropped and called again with the same code. Dropping the sign-in revokes nothing: a registered client stays registered,
/// and an unused code expires.
///
/// # Examples
///
/// ```no_run
/// use ropeway::oauth::{SignIn, SignInOptions};
///
/// # async fn run() -> Result<(), ropeway::oauth::OAuthError> {
/// let mut sign_in = SignIn::start(SignInOptions::new("https://example.com/mcp")).await?;
/// let url = sign_in.prepare("http://127.0.0.1:8765/callback").await?;
/// println!("Open {url}");
/// // The browser is redirected to this address, which ends the sign-in.
/// let credentials = sign_in.finish("http://127.0.0.1:8765/callback?code=…&state=…").await?;
/// # Ok(()) }
/// ```
pub struct SignIn {
    http: OAuthHttp,
    server: Url,
    settings: OAuthSettings,
    account: Option<String>,
    discovery: Discovery,
    /// The previous credentials' issuer, if it is another one.
    previous_issuer: Option<String>,
    scopes: Vec<String>,
    dpop: Option<DpopKey>,
    /// This sign-in's client, or an earlier one's that may be used again.
    client: Option<RegisteredClient>,
    pending: Option<AuthorizationRequest>,
}

impl std::fmt::Debug for SignIn {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SignIn")
            .field("server", &canonical(&self.server))
            .field("issuer", &self.discovery.server.issuer)
            .finish_non_exhaustive()
    }
}

/// Checks that the configured secret is not sent to another authorization server than before. A compromised server could name
/// one.
fn check_issuer(settings: &OAuthSettings, previous: Option<&Credentials>, issuer: &str) -> Result<(), OAuthError> {
    let is_bound = |previous: &&Credentials| {
        let client = &previous.client;
        settings.client_secret.is_some() && !client.registered && settings.client_id.as_ref() == Some(&client.client_id)
    };
    match previous.filter(is_bound) {
        Some(previous) if settings.issuer.is_none() && !is_same_issuer(&previous.issuer, issuer) => {
            let (before, now) = (shown(&previous.issuer, &Redactor::default()), shown(issuer, &Redactor::default()));
            let reason = format!(
                "the server names the authorization server `{now}` instead of `{before}`, which has the `client_secret`; \
                 if that is right, set `issuer` in the OAuth settings"
            );
            Err(OAuthError::Settings { reason })
        }
        _ => Ok(()),
    }
}

impl SignIn {
    /// Finds a server's authorization server.
    ///
    /// # Errors
    ///
    /// Fails if the URL or the settings are invalid, if the server or the authorization server cannot be reached or does not
    /// support OAuth, and if their metadata is invalid or names an address that is not allowed.
    pub async fn start(options: SignInOptions) -> Result<Self, OAuthError> {
        let SignInOptions { server, settings, challenge, account, previous } = options;
        let server = Url::parse(&server)
            .map_err(|_| OAuthError::Settings { reason: "the URL of the server is invalid".to_owned() })?;
        let account = account.or_else(|| settings.account.clone());
        let http = OAuthHttp::for_settings(&server, &settings, &Redactor::default());
        let challenge = match challenge {
            Some(challenge) => Some(challenge),
            None => http.challenge_of(&server).await?,
        };
        let discovery = discover(&http, &server, challenge.as_ref(), settings.issuer.as_deref()).await?;
        check_issuer(&settings, previous.as_ref(), &discovery.server.issuer)?;
        tracing::debug!(issuer = %discovery.server.issuer, resource = %discovery.resource, "found the authorization server");
        // Nothing from another authorization server is used: neither its client nor its scopes.
        let is_same = |previous: &Credentials| is_same_issuer(&previous.issuer, &discovery.server.issuer);
        let previous_issuer =
            previous.as_ref().filter(|previous| !is_same(previous)).map(|previous| previous.issuer.clone());
        let previous = previous.filter(is_same);
        let granted = previous.as_ref().map(|previous| previous.granted.as_slice()).unwrap_or_default();
        let scopes = requested_scopes(&discovery, challenge.as_ref(), &settings.scopes, granted);
        let scopes = with_offline_access(scopes, &discovery);
        let dpop = (settings.dpop || discovery.dpop_required).then(DpopKey::generate).transpose()?;
        let client = match configured_client(&discovery.server, &settings)? {
            Some(client) => Some(client),
            None => previous.map(|previous| previous.client).filter(|client| client.registered),
        };
        Ok(Self { http, server, settings, account, discovery, previous_issuer, scopes, dpop, client, pending: None })
    }

    /// Returns the authorization server's issuer. Show it to the user before the browser opens.
    pub fn issuer(&self) -> &str {
        &self.discovery.server.issuer
    }

    /// Returns the [previous](SignInOptions::with_previous) sign-in's issuer if it is another one. Show it to the user as well: a
    /// compromised server could name another authorization server.
    pub fn previous_issuer(&self) -> Option<&str> {
        self.previous_issuer.as_deref()
    }

    /// Returns the resource that tokens are requested for ([RFC 8707](https://www.rfc-editor.org/rfc/rfc8707)).
    pub fn resource(&self) -> &str {
        &self.discovery.resource
    }

    /// Returns the scopes that are requested.
    pub fn scopes(&self) -> &[String] {
        &self.scopes
    }

    /// Returns `true` if the authorization server supports device codes ([RFC 8628](https://www.rfc-editor.org/rfc/rfc8628)).
    pub fn has_device_flow(&self) -> bool {
        self.discovery.server.device_authorization_endpoint.is_some()
    }

    /// Returns `true` if the authorization server supports sign-ins in a browser.
    pub fn has_authorization_endpoint(&self) -> bool {
        self.discovery.server.authorization_endpoint.is_some()
    }

    /// Registers a client if necessary, and returns the URL to open in a browser.
    ///
    /// Replaces a sign-in in progress.
    ///
    /// # Errors
    ///
    /// Fails if no client is configured and none can be registered, and if the authorization endpoint is missing or not allowed.
    pub async fn prepare(&mut self, redirect_uri: &str) -> Result<String, OAuthError> {
        self.pending = None;
        let thumbprint = self.dpop.as_ref().map(DpopKey::thumbprint);
        let client = self.client(Some(redirect_uri)).await?;
        let request =
            AuthorizationRequest::new(&self.discovery, &client, redirect_uri, &self.scopes, thumbprint.as_deref())?;
        self.http.guard().check_for_browser(&request.url)?;
        let url = request.url.to_string();
        self.pending = Some(request);
        Ok(url)
    }

    /// Ends the sign-in with the callback: its URL, or only the query.
    ///
    /// A callback whose `state` does not match comes from another page: it is refused, and the sign-in stays in progress. Any
    /// other callback ends the sign-in, so a second one is refused.
    ///
    /// # Errors
    ///
    /// Returns [`OAuthError::NotInProgress`] without a sign-in in progress, [`OAuthError::Mismatch`] for a wrong `state` or
    /// `iss`, and [`OAuthError::Denied`] if the user declined. Fails if the code cannot be exchanged for tokens.
    pub async fn finish(&mut self, callback: &str) -> Result<Credentials, OAuthError> {
        let Some(pending) = &self.pending else { return Err(OAuthError::NotInProgress) };
        pending.check_state(callback)?;
        let Some(request) = self.pending.take() else { return Err(OAuthError::NotInProgress) };
        let code = request.finish(callback, self.http.redactor())?;
        let client = self.current_client()?;
        let oauth = self.oauth_client(client)?;
        let tokens = self.token_request(&oauth).exchange_code(&code).await?;
        tracing::debug!(issuer = %self.issuer(), "exchanged the code for tokens");
        Ok(self.credentials(client, tokens))
    }

    /// Requests a code that the user enters on another device, and registers a client if necessary.
    ///
    /// # Errors
    ///
    /// Returns [`OAuthError::Unsupported`] if the authorization server does not support device codes. Fails if no client can be
    /// registered, and if the request fails.
    pub async fn device(&mut self) -> Result<DeviceAuthorization, OAuthError> {
        let Some(endpoint) = self.discovery.server.device_authorization_endpoint.clone() else {
            return Err(OAuthError::unsupported("the authorization server does not support device codes"));
        };
        let client = self.client(None).await?;
        let oauth = OAuthClient::new(&self.http, &client, self.issuer(), &self.settings)?;
        authorize_device(&oauth, &endpoint, &self.discovery.resource, &self.scopes).await
    }

    /// Waits until the user has entered the code on the other device. Dropping the future stops it.
    ///
    /// # Errors
    ///
    /// Returns [`OAuthError::Expired`] if the code has expired, [`OAuthError::Denied`] if the user declined, and
    /// [`OAuthError::NotInProgress`] before [`device`](Self::device). Fails if the authorization server refuses the request.
    pub async fn wait_for_device(&mut self, device: &DeviceAuthorization) -> Result<Credentials, OAuthError> {
        let client = self.current_client()?;
        let oauth = self.oauth_client(client)?;
        let tokens = wait_for_tokens(&self.token_request(&oauth), device).await?;
        Ok(self.credentials(client, tokens))
    }

    /// Returns the client for a redirect URI, and registers one if necessary.
    async fn client(&mut self, redirect_uri: Option<&str>) -> Result<RegisteredClient, OAuthError> {
        let can_use = |client: &&RegisteredClient| {
            !client.registered || can_reuse(client, redirect_uri, &self.scopes, SystemTime::now())
        };
        if let Some(client) = self.client.as_ref().filter(can_use) {
            return Ok(client.clone());
        }
        let client = register(&self.http, &self.discovery.server, redirect_uri, &self.scopes).await?;
        tracing::debug!(issuer = %self.issuer(), client_id = %client.client_id, "registered a client");
        self.client = Some(client.clone());
        Ok(client)
    }

    fn current_client(&self) -> Result<&RegisteredClient, OAuthError> {
        self.client.as_ref().ok_or(OAuthError::NotInProgress)
    }

    fn oauth_client<'a>(&'a self, client: &'a RegisteredClient) -> Result<OAuthClient<'a>, OAuthError> {
        let oauth = OAuthClient::new(&self.http, client, self.issuer(), &self.settings)?;
        Ok(oauth.with_dpop(self.dpop.as_ref()))
    }

    fn token_request<'a>(&'a self, client: &'a OAuthClient<'a>) -> TokenRequest<'a> {
        TokenRequest {
            client,
            endpoint: &self.discovery.server.token_endpoint,
            resource: &self.discovery.resource,
            scopes: &self.scopes,
        }
    }

    fn credentials(&self, client: &RegisteredClient, tokens: TokenSet) -> Credentials {
        let server = &self.discovery.server;
        let mut credentials = Credentials::new(
            canonical(&self.server),
            &self.discovery.resource,
            &server.issuer,
            server.token_endpoint.as_str(),
            client.clone(),
            tokens,
        );
        credentials.account = self.account.clone();
        credentials.dpop_key = self.dpop.as_ref().map(DpopKey::to_secret);
        credentials.revocation_endpoint = server.revocation_endpoint.as_ref().map(Url::to_string);
        credentials
    }
}
