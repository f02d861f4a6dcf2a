//! One sign-in's result, as it is stored.

use std::time::SystemTime;

use serde::{Deserialize, Serialize};

use super::client::RegisteredClient;
use super::serialized;
use super::token_set::TokenSet;
use ropeway_core::secret::Secret;

/// One sign-in's result: tokens, and everything that a refresh needs.
///
/// The tokens are bound to the issuer and the resource. They are sent to `token_endpoint` and to `server` only.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Credentials {
    /// The server's URL, in canonical form.
    pub server: String,
    /// The account, if a server has several: a name, or a gateway's principal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub account: Option<String>,
    /// The resource that the tokens were issued for ([RFC 8707](https://www.rfc-editor.org/rfc/rfc8707)).
    pub resource: String,
    /// The authorization server that issued them.
    pub issuer: String,
    /// The endpoint that refreshes them.
    pub token_endpoint: String,
    /// The endpoint that revokes them ([RFC 7009](https://www.rfc-editor.org/rfc/rfc7009)).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revocation_endpoint: Option<String>,
    /// The client that they were issued to.
    pub client: RegisteredClient,
    /// The access token, and the refresh token if one was issued.
    pub tokens: TokenSet,
    /// The key that the tokens are bound to, as base64 PKCS #8.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "serialized::optional_secret")]
    pub dpop_key: Option<Secret>,
    /// All scopes that were granted so far. A step-up requests them again.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub granted: Vec<String>,
    /// When the tokens were issued.
    #[serde(with = "serialized::time")]
    pub obtained_at: SystemTime,
}

impl Credentials {
    /// Creates credentials with the required fields.
    pub fn new(
        server: impl Into<String>,
        resource: impl Into<String>,
        issuer: impl Into<String>,
        token_endpoint: impl Into<String>,
        client: RegisteredClient,
        tokens: TokenSet,
    ) -> Self {
        Self {
            server: server.into(),
            account: None,
            resource: resource.into(),
            issuer: issuer.into(),
            token_endpoint: token_endpoint.into(),
            revocation_endpoint: None,
            client,
            granted: tokens.scopes.clone(),
            tokens,
            dpop_key: None,
            obtained_at: SystemTime::now(),
        }
    }

    /// Returns the token that requests to the server carry in their `Authorization` header.
    pub fn access_token(&self) -> &Secret {
        &self.tokens.access_token
    }

    /// Returns when the access token expires, by this machine's clock; `None` if the authorization server did not specify it.
    pub fn expires_at(&self) -> Option<SystemTime> {
        self.tokens.expires_at
    }

    /// Returns the values to redact: the tokens, the client's secret, and the key.
    pub fn secrets(&self) -> impl Iterator<Item = &Secret> {
        let tokens = std::iter::once(&self.tokens.access_token).chain(&self.tokens.refresh_token);
        tokens.chain(&self.client.client_secret).chain(&self.dpop_key)
    }
}
