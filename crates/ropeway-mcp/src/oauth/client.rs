//! A client at an authorization server: configured, a metadata document, or registered.

use std::time::SystemTime;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::serialized;
use ropeway_config::ClientAuthMethod;
use ropeway_core::secret::Secret;

/// A client at one authorization server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct RegisteredClient {
    /// The client's id at the authorization server.
    pub client_id: String,
    /// A confidential client's secret.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "serialized::optional_secret")]
    pub client_secret: Option<Secret>,
    /// How the client authenticates at the token endpoint.
    #[serde(serialize_with = "write_method", deserialize_with = "read_method")]
    pub auth_method: ClientAuthMethod,
    /// Whether the client was registered dynamically, so that it can be registered again.
    #[serde(default)]
    pub registered: bool,
    /// When the secret expires.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "serialized::optional_time")]
    pub expires_at: Option<SystemTime>,
    /// The redirect URIs from a dynamic registration.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub redirect_uris: Vec<String>,
    /// The scopes from a dynamic registration, if the authorization server returned them: the client may not request
    /// others.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub scopes: Vec<String>,
}

impl RegisteredClient {
    /// Creates a client without a secret.
    pub fn public(client_id: impl Into<String>) -> Self {
        Self {
            client_id: client_id.into(),
            client_secret: None,
            auth_method: ClientAuthMethod::None,
            registered: false,
            expires_at: None,
            redirect_uris: Vec::new(),
            scopes: Vec::new(),
        }
    }

    /// Creates a client with a secret.
    pub fn confidential(client_id: impl Into<String>, secret: impl Into<Secret>, method: ClientAuthMethod) -> Self {
        Self { client_secret: Some(secret.into()), auth_method: method, ..Self::public(client_id) }
    }

    /// Returns `true` if the secret has expired.
    pub fn is_expired(&self, now: SystemTime) -> bool {
        self.expires_at.is_some_and(|end| end <= now)
    }
}

fn write_method<S: Serializer>(method: &ClientAuthMethod, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(method.name())
}

fn read_method<'de, D: Deserializer<'de>>(from: D) -> Result<ClientAuthMethod, D::Error> {
    let name = String::deserialize(from)?;
    ClientAuthMethod::parse(&name).ok_or_else(|| serde::de::Error::custom("unknown client authentication method"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_is_stored_with_its_secret() {
        let client = RegisteredClient {
            registered: true,
            expires_at: Some(serialized::from_unix(1_800_000_000)),
            redirect_uris: vec!["http://127.0.0.1:9/callback".to_owned()],
            scopes: vec!["read".to_owned()],
            ..RegisteredClient::confidential("id", "s3cret", ClientAuthMethod::ClientSecretPost)
        };
        let text = serde_json::to_string(&client).expect("JSON");
        assert_eq!(
            text,
            r#"{"client_id":"id","client_secret":"s3cret","auth_method":"client_secret_post","registered":true,"expires_at":1800000000,"redirect_uris":["http://127.0.0.1:9/callback"],"scopes":["read"]}"#
        );
        assert_eq!(serde_json::from_str::<RegisteredClient>(&text).expect("a client"), client);
        assert!(!format!("{client:?}").contains("s3cret"));
    }
}
