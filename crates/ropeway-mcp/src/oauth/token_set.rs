//! One grant's tokens.

use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};

use super::serialized;
use ropeway_core::secret::Secret;

/// The tokens that a token endpoint issued.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct TokenSet {
    /// The token that requests to the server carry in their `Authorization` header.
    #[serde(with = "serialized::secret")]
    pub access_token: Secret,
    /// Whether the access token is bound to a key ([RFC 9449](https://www.rfc-editor.org/rfc/rfc9449)).
    #[serde(default)]
    pub dpop: bool,
    /// When the access token expires, by this machine's clock.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "serialized::optional_time")]
    pub expires_at: Option<SystemTime>,
    /// The token that is exchanged for new tokens. `None` if only a new sign-in helps after the expiry.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "serialized::optional_secret")]
    pub refresh_token: Option<Secret>,
    /// The scopes that were granted with these tokens.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub scopes: Vec<String>,
}

impl TokenSet {
    /// Creates a bearer token without expiry.
    pub fn bearer(access_token: impl Into<Secret>) -> Self {
        Self {
            access_token: access_token.into(),
            dpop: false,
            expires_at: None,
            refresh_token: None,
            scopes: Vec::new(),
        }
    }

    /// Returns `true` if the access token expires within `margin`.
    pub fn expires_within(&self, margin: Duration, now: SystemTime) -> bool {
        self.expires_at.is_some_and(|end| end <= now + margin)
    }

    /// Returns the `Authorization` header's scheme.
    pub fn scheme(&self) -> &'static str {
        if self.dpop { "DPoP" } else { "Bearer" }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_stored_in_a_stable_form() {
        let tokens = TokenSet {
            dpop: true,
            expires_at: Some(serialized::from_unix(1_800_000_000)),
            refresh_token: Some("r3fresh".into()),
            scopes: vec!["a".to_owned()],
            ..TokenSet::bearer("acc3ss")
        };
        let text = serde_json::to_string(&tokens).expect("JSON");
        assert_eq!(
            text,
            r#"{"access_token":"acc3ss","dpop":true,"expires_at":1800000000,"refresh_token":"r3fresh","scopes":["a"]}"#
        );
        assert_eq!(serde_json::from_str::<TokenSet>(&text).expect("tokens"), tokens);
        assert!(!format!("{tokens:?}").contains("ss\""), "{tokens:?}");
        let tokens: TokenSet = serde_json::from_str(r#"{"access_token":"a"}"#).expect("tokens");
        assert_eq!(tokens, TokenSet::bearer("a"));
    }

    #[test]
    fn a_token_without_expiry_does_not_expire() {
        let now = serialized::from_unix(1_800_000_000);
        let tokens = TokenSet::bearer("a");
        assert!(!tokens.expires_within(Duration::from_secs(30), now));
        let tokens = TokenSet { expires_at: Some(now + Duration::from_secs(20)), ..tokens };
        assert!(tokens.expires_within(Duration::from_secs(30), now));
        assert!(!tokens.expires_within(Duration::from_secs(10), now));
    }
}
