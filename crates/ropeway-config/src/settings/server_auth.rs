//! How requests to an HTTP server are authorized: OAuth, or tokens from a command.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::gateway_auth::JwtAlgorithm;
use ropeway_core::conversions::{conversions, names};
use ropeway_core::secret::{self, Redactor, Secret};
use ropeway_core::setters::setters;

/// How requests to an HTTP server are authorized.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServerAuth {
    /// OAuth 2.1 ([Authorization](https://modelcontextprotocol.io/specification/2025-11-25/basic/authorization)).
    OAuth(Box<OAuthSettings>),
    /// The access tokens that a command prints.
    Command(TokenCommand),
}

impl ServerAuth {
    /// Creates OAuth with default settings: the user signs in.
    pub fn oauth() -> Self {
        Self::OAuth(Box::default())
    }

    /// Returns a redactor for the secrets in the settings.
    pub(crate) fn secrets(&self) -> Redactor {
        let mut secrets = Vec::new();
        match self {
            Self::OAuth(settings) => settings.add_secrets(&mut secrets),
            Self::Command(command) => command.add_secrets(&mut secrets),
        }
        Redactor::new(&secrets)
    }
}

conversions!(ServerAuth {
    settings: OAuthSettings => Self::OAuth(Box::new(settings));
    command: TokenCommand => Self::Command(command);
});

/// OAuth client settings for one server.
///
/// # Examples
///
/// ```
/// use ropeway::config::{HttpServer, OAuthGrant, OAuthSettings};
///
/// let settings = OAuthSettings::new()
///     .with_grant(OAuthGrant::ClientCredentials)
///     .with_client_id("ci")
///     .with_client_secret("s3cret");
/// let server = HttpServer::new("https://example.com/mcp").with_oauth(settings);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OAuthSettings {
    /// How access tokens are obtained.
    pub grant: OAuthGrant,
    /// The id under which a client is registered at the authorization server. `None` registers one.
    pub client_id: Option<String>,
    /// Client secret.
    pub client_secret: Option<Secret>,
    /// The `https` URL for a client metadata document, which is used as the client id if the authorization server supports it
    /// ([Client ID Metadata Documents](https://datatracker.ietf.org/doc/draft-ietf-oauth-client-id-metadata-document/)).
    pub client_metadata_url: Option<String>,
    /// The key with which the client authenticates (`private_key_jwt`,
    /// [RFC 7523](https://www.rfc-editor.org/rfc/rfc7523#section-2.2)).
    pub private_key: Option<PrivateKey>,
    /// How the client authenticates at the token endpoint. `None` selects a method that the authorization server supports.
    pub token_endpoint_auth: Option<ClientAuthMethod>,
    /// Scopes to request in addition to those that the server requires.
    pub scopes: Vec<String>,
    /// The only accepted authorization server. `None` accepts the one that the server names.
    pub issuer: Option<String>,
    /// The loopback redirect URI's port. `None` uses any free port.
    pub redirect_port: Option<u16>,
    /// Whether tokens are bound to this client's key ([RFC 9449](https://www.rfc-editor.org/rfc/rfc9449)).
    pub dpop: bool,
    /// Hosts on private addresses that the server's metadata may name.
    pub allow_private: Vec<String>,
    /// The account whose stored tokens are used, if several users or roles sign in to the server. `None` uses the default one.
    pub account: Option<String>,
    /// Whether each gateway principal has its own tokens.
    pub per_principal: bool,
}

impl OAuthSettings {
    /// Creates settings for an interactive sign-in, with an automatically registered client.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns a redactor for the secrets in the settings.
    pub fn secrets(&self) -> Redactor {
        let mut secrets = Vec::new();
        self.add_secrets(&mut secrets);
        Redactor::new(&secrets)
    }

    fn add_secrets(&self, secrets: &mut Vec<Secret>) {
        secrets.extend(self.client_secret.clone());
        secrets.extend(self.private_key.as_ref().map(|key| key.pem.clone()));
        match &self.grant {
            OAuthGrant::AuthorizationCode | OAuthGrant::ClientCredentials => {}
            OAuthGrant::WorkloadIdentity { assertion } => assertion.add_secrets(secrets),
            OAuthGrant::EnterpriseManaged(idp) => {
                secrets.extend(idp.client_secret.clone());
                idp.id_token.add_secrets(secrets);
            }
        }
    }
}

setters!(OAuthSettings {
    /// Sets how access tokens are obtained.
    with_grant(grant: OAuthGrant) => grant = grant;
    /// Sets a registered client's id.
    with_client_id(id: impl Into<String>) => client_id = Some(id.into());
    /// Sets the client secret.
    with_client_secret(secret: impl Into<Secret>) => client_secret = Some(secret.into());
    /// Sets the client metadata document's URL.
    with_client_metadata_url(url: impl Into<String>) => client_metadata_url = Some(url.into());
    /// Sets the key with which the client authenticates.
    with_private_key(key: PrivateKey) => private_key = Some(key);
    /// Sets how the client authenticates at the token endpoint.
    with_token_endpoint_auth(method: ClientAuthMethod) => token_endpoint_auth = Some(method);
    /// Sets the scopes to request in addition to those that the server requires.
    with_scopes(scopes: impl IntoIterator<Item = impl Into<String>>)
        => scopes = scopes.into_iter().map(Into::into).collect();
    /// Sets the only accepted authorization server.
    with_issuer(issuer: impl Into<String>) => issuer = Some(issuer.into());
    /// Sets the loopback redirect URI's port.
    with_redirect_port(port: u16) => redirect_port = Some(port);
    /// Sets whether tokens are bound to this client's key.
    with_dpop(dpop: bool) => dpop = dpop;
    /// Sets the hosts on private addresses that the server's metadata may name.
    with_allow_private(hosts: impl IntoIterator<Item = impl Into<String>>)
        => allow_private = hosts.into_iter().map(Into::into).collect();
    /// Sets the account whose stored tokens are used.
    with_account(account: impl Into<String>) => account = Some(account.into());
    /// Sets whether each gateway principal has its own tokens.
    with_per_principal(per_principal: bool) => per_principal = per_principal;
});

/// How an OAuth client obtains access tokens.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum OAuthGrant {
    /// The user signs in, in a browser or with a device code.
    #[default]
    AuthorizationCode,
    /// The client acts for itself ([RFC 6749](https://www.rfc-editor.org/rfc/rfc6749#section-4.4)).
    ClientCredentials,
    /// The client exchanges an assertion from its environment ([RFC 7523](https://www.rfc-editor.org/rfc/rfc7523#section-2.1)).
    WorkloadIdentity {
        /// Where the assertion, a JWT, comes from.
        assertion: TokenSource,
    },
    /// An organization's identity provider grants access
    /// ([Enterprise-Managed Authorization](https://modelcontextprotocol.io/extensions/auth/enterprise-managed-authorization)).
    EnterpriseManaged(IdentityProvider),
}

impl OAuthGrant {
    /// Returns `true` if the user has to sign in.
    pub fn is_interactive(&self) -> bool {
        matches!(self, Self::AuthorizationCode)
    }
}

/// An organization's identity provider, which exchanges an ID token for an authorization grant (ID-JAG).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct IdentityProvider {
    /// The issuer, whose metadata names the token endpoint.
    pub issuer: Option<String>,
    /// The token endpoint. `None` reads it from the issuer's metadata.
    pub token_endpoint: Option<String>,
    /// The client's id at the identity provider.
    pub client_id: Option<String>,
    /// That client's secret.
    pub client_secret: Option<Secret>,
    /// Where the user's ID token comes from.
    pub id_token: TokenSource,
}

impl IdentityProvider {
    /// Creates settings for an identity provider with this issuer.
    pub fn new(issuer: impl Into<String>, id_token: TokenSource) -> Self {
        let issuer = Some(issuer.into());
        Self { issuer, token_endpoint: None, client_id: None, client_secret: None, id_token }
    }

    /// Creates settings for an identity provider with this token endpoint.
    pub fn with_endpoint(endpoint: impl Into<String>, id_token: TokenSource) -> Self {
        let token_endpoint = Some(endpoint.into());
        Self { issuer: None, token_endpoint, client_id: None, client_secret: None, id_token }
    }
}

setters!(IdentityProvider {
    /// Sets the client's id at the identity provider.
    with_client_id(id: impl Into<String>) => client_id = Some(id.into());
    /// Sets that client's secret.
    with_client_secret(secret: impl Into<Secret>) => client_secret = Some(secret.into());
});

/// Where a token comes from. Files and commands are read again for every use.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TokenSource {
    /// The token itself.
    Value(Secret),
    /// Path to a file that contains only the token.
    File(PathBuf),
    /// A command that prints the token.
    Command(TokenCommand),
}

impl TokenSource {
    fn add_secrets(&self, secrets: &mut Vec<Secret>) {
        match self {
            Self::Value(value) => secrets.push(value.clone()),
            Self::File(_) => {}
            Self::Command(command) => command.add_secrets(secrets),
        }
    }
}

/// A command that prints a token, or a JSON object with `access_token` and `expires_in` or `expires_at`.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct TokenCommand {
    /// The program. It is executed directly, without a shell.
    pub command: String,
    /// The program's arguments.
    pub args: Vec<String>,
    /// Environment variables to set, in addition to this process's variables.
    pub env: Vec<(String, Secret)>,
    /// The working directory. `None` uses this process's directory.
    pub cwd: Option<PathBuf>,
    /// Maximum time per run.
    pub timeout: Duration,
}

impl TokenCommand {
    /// Default for `timeout`.
    pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(30);

    /// Creates a command from a program and its arguments.
    pub fn new(command: impl Into<String>, args: impl IntoIterator<Item = impl Into<String>>) -> Self {
        let args = args.into_iter().map(Into::into).collect();
        Self { command: command.into(), args, env: Vec::new(), cwd: None, timeout: Self::DEFAULT_TIMEOUT }
    }

    /// Adds an environment variable.
    #[must_use]
    pub fn with_env(mut self, name: impl Into<String>, value: impl Into<Secret>) -> Self {
        self.env.push((name.into(), value.into()));
        self
    }

    fn add_secrets(&self, secrets: &mut Vec<Secret>) {
        secrets.extend(secret::in_arguments(&self.args));
        secrets.extend(self.env.iter().flat_map(|(name, value)| secret::in_named(name, value.expose())));
    }
}

setters!(TokenCommand {
    /// Sets the working directory.
    with_cwd(cwd: impl Into<PathBuf>) => cwd = Some(cwd.into());
    /// Sets the maximum time per run.
    with_timeout(timeout: Duration) => timeout = timeout;
});

impl fmt::Debug for TokenCommand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut secrets = Vec::new();
        self.add_secrets(&mut secrets);
        let mask = Redactor::new(&secrets);
        let args: Vec<_> = self.args.iter().map(|argument| mask.redact(argument)).collect();
        f.debug_struct("TokenCommand")
            .field("command", &self.command)
            .field("args", &args)
            .field("env", &self.env)
            .field("cwd", &self.cwd)
            .field("timeout", &self.timeout)
            .finish()
    }
}

/// A client's private key.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PrivateKey {
    /// The key as PEM.
    pub pem: Secret,
    /// The signature algorithm. `None` selects one that fits the key.
    pub algorithm: Option<JwtAlgorithm>,
    /// The `kid` value.
    pub key_id: Option<String>,
}

impl PrivateKey {
    /// Creates a key from its PEM text.
    pub fn new(pem: impl Into<Secret>) -> Self {
        Self { pem: pem.into(), algorithm: None, key_id: None }
    }
}

setters!(PrivateKey {
    /// Sets the signature algorithm.
    with_algorithm(algorithm: JwtAlgorithm) => algorithm = Some(algorithm);
    /// Sets `kid`.
    with_key_id(id: impl Into<String>) => key_id = Some(id.into());
});

/// How a client authenticates at the token endpoint
/// ([RFC 7591](https://www.rfc-editor.org/rfc/rfc7591#section-2), `token_endpoint_auth_method`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(rename = "ClientAuth", description = "How a client authenticates at the token endpoint.")]
#[non_exhaustive]
pub enum ClientAuthMethod {
    /// Not at all: a public client.
    None,
    /// With the secret in the `Authorization` header.
    ClientSecretBasic,
    /// With the secret in the body.
    ClientSecretPost,
    /// With an assertion that `private_key` signs.
    PrivateKeyJwt,
}

impl ClientAuthMethod {
    /// All methods.
    pub const ALL: [Self; 4] = [Self::None, Self::ClientSecretBasic, Self::ClientSecretPost, Self::PrivateKeyJwt];
}

names!(pub ClientAuthMethod, name: "the value of `token_endpoint_auth_method`" {
    None => "none";
    ClientSecretBasic => "client_secret_basic";
    ClientSecretPost => "client_secret_post";
    PrivateKeyJwt => "private_key_jwt";
});

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_output_of_auth_settings_redacts_secrets() {
        let command = TokenCommand::new("vault", ["--token", "t0ken-t0ken", "read"]).with_env("A_KEY", "k3y-k3y");
        let idp = IdentityProvider::new("https://idp", TokenSource::Value("id-t0ken".into()))
            .with_client_secret("idp-s3cret");
        let settings = OAuthSettings::new()
            .with_client_secret("client-s3cret")
            .with_private_key(PrivateKey::new("pem-s3cret"))
            .with_grant(OAuthGrant::EnterpriseManaged(idp));
        let auths = [ServerAuth::from(command.clone()), settings.into()];
        let shown = format!("{auths:?} {auths:#?}");
        for secret in ["t0ken", "k3y", "s3cret"] {
            assert!(!shown.contains(secret), "{shown}");
        }
        assert!(shown.contains("read") && shown.contains("https://idp"), "{shown}");
        let text = "id-t0ken idp-s3cret client-s3cret pem-s3cret";
        assert_eq!(auths[1].secrets().redact(text), "*** *** *** ***");
        assert_eq!(auths[0].secrets().redact("t0ken-t0ken k3y-k3y read"), "*** *** read");
    }

    #[test]
    fn client_auth_methods_have_the_names_of_the_registry() {
        for method in ClientAuthMethod::ALL {
            assert_eq!(ClientAuthMethod::parse(method.name()), Some(method));
        }
        assert_eq!(ClientAuthMethod::parse("client_secret_jwt"), None);
    }
}
