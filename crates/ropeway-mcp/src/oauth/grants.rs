//! The grants that are exchanged for tokens.

use reqwest::Url;

use super::authorization::AuthorizationCode;
use super::error::OAuthError;
use super::http::invalid;
use super::oauth_client::{OAuthClient, field, secret_field};
use super::token_endpoint::{read_token, request, request_tokens};
use super::token_set::TokenSet;
use ropeway_core::secret::Secret;

/// An identity provider's authorization grant
/// ([draft](https://datatracker.ietf.org/doc/draft-ietf-oauth-identity-assertion-authz-grant/)).
const ID_JAG: &str = "urn:ietf:params:oauth:token-type:id-jag";

/// Where tokens are requested, and what for.
pub(super) struct TokenRequest<'a> {
    pub(super) client: &'a OAuthClient<'a>,
    pub(super) endpoint: &'a Url,
    pub(super) resource: &'a str,
    pub(super) scopes: &'a [String],
}

impl TokenRequest<'_> {
    /// Exchanges a callback's code ([RFC 6749, section 4.1.3](https://www.rfc-editor.org/rfc/rfc6749#section-4.1.3)).
    pub(super) async fn exchange_code(&self, code: &AuthorizationCode) -> Result<TokenSet, OAuthError> {
        let fields = vec![
            field("grant_type", "authorization_code"),
            secret_field("code", &code.code),
            field("redirect_uri", &code.redirect_uri),
            secret_field("code_verifier", &code.verifier),
        ];
        // The code already carries the scopes.
        let tokens = request_tokens(self.client, self.endpoint, fields, Some(self.resource), &[]).await?;
        let scopes = if tokens.scopes.is_empty() { self.scopes.to_vec() } else { tokens.scopes };
        Ok(TokenSet { scopes, ..tokens })
    }

    /// Refreshes tokens. A refresh token that is not replaced stays valid
    /// ([RFC 6749, section 6](https://www.rfc-editor.org/rfc/rfc6749#section-6)).
    pub(super) async fn refresh(&self, tokens: &TokenSet) -> Result<TokenSet, OAuthError> {
        let Some(refresh_token) = &tokens.refresh_token else {
            return Err(OAuthError::Refused { error: "invalid_grant".to_owned(), description: None });
        };
        let fields = vec![field("grant_type", "refresh_token"), secret_field("refresh_token", refresh_token)];
        let new = request_tokens(self.client, self.endpoint, fields, Some(self.resource), &[]).await?;
        Ok(TokenSet {
            refresh_token: new.refresh_token.or_else(|| tokens.refresh_token.clone()),
            scopes: if new.scopes.is_empty() { tokens.scopes.clone() } else { new.scopes },
            ..new
        })
    }

    /// Requests tokens for the client itself ([RFC 6749, section 4.4](https://www.rfc-editor.org/rfc/rfc6749#section-4.4)).
    pub(super) async fn client_credentials(&self) -> Result<TokenSet, OAuthError> {
        let fields = vec![field("grant_type", "client_credentials")];
        request_tokens(self.client, self.endpoint, fields, Some(self.resource), self.scopes).await
    }

    /// Exchanges an assertion ([RFC 7523, section 2.1](https://www.rfc-editor.org/rfc/rfc7523#section-2.1)).
    pub(super) async fn jwt_bearer(&self, assertion: &Secret) -> Result<TokenSet, OAuthError> {
        let grant = field("grant_type", "urn:ietf:params:oauth:grant-type:jwt-bearer");
        let fields = vec![grant, secret_field("assertion", assertion)];
        request_tokens(self.client, self.endpoint, fields, Some(self.resource), self.scopes).await
    }

    /// Exchanges a device code ([RFC 8628, section 3.4](https://www.rfc-editor.org/rfc/rfc8628#section-3.4)).
    pub(super) async fn device_code(&self, code: &Secret) -> Result<TokenSet, OAuthError> {
        let grant = field("grant_type", "urn:ietf:params:oauth:grant-type:device_code");
        let fields = vec![grant, secret_field("device_code", code)];
        let tokens = request_tokens(self.client, self.endpoint, fields, Some(self.resource), &[]).await?;
        let scopes = if tokens.scopes.is_empty() { self.scopes.to_vec() } else { tokens.scopes };
        Ok(TokenSet { scopes, ..tokens })
    }

    /// Exchanges an ID token for an authorization grant, at the identity provider. `audience` is the authorization server that the
    /// grant is for ([RFC 8693](https://www.rfc-editor.org/rfc/rfc8693#section-2.1)).
    pub(super) async fn id_jag(&self, id_token: &Secret, audience: &str) -> Result<Secret, OAuthError> {
        let scope = self.scopes.join(" ");
        let mut fields = vec![
            field("grant_type", "urn:ietf:params:oauth:grant-type:token-exchange"),
            field("requested_token_type", ID_JAG),
            field("audience", audience),
            field("resource", self.resource),
            secret_field("subject_token", id_token),
            field("subject_token_type", "urn:ietf:params:oauth:token-type:id_token"),
        ];
        if !scope.is_empty() {
            fields.push(field("scope", &scope));
        }
        let body = request(self.client, self.endpoint, &fields).await?;
        let issued = body.get("issued_token_type").and_then(serde_json::Value::as_str).unwrap_or("none");
        if issued != ID_JAG {
            return Err(OAuthError::mismatch("type of the issued token", ID_JAG, issued));
        }
        let token = read_token(self.endpoint, &body, "access_token")?;
        token.ok_or_else(|| invalid(self.endpoint, "it has no `access_token`"))
    }
}
