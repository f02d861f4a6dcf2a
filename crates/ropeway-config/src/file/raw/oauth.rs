//! OAuth of a server, and commands that print tokens, key for key.

use std::borrow::Cow;
use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::value::MapAccessDeserializer;
use serde::de::{self, Deserialize, Deserializer, MapAccess, Visitor};
use serde::ser::{Serialize, SerializeMap, Serializer};
use serde::{Deserialize as DeriveDeserialize, Serialize as DeriveSerialize};

use super::values::{RawDuration, RawMap, RawText, record};
use crate::settings::ClientAuthMethod;

record! {
    /// OAuth. Without keys, a person signs in with `ropeway login`, and the client is registered automatically.
    #[derive(Eq)]
    #[serde(default)]
    #[schemars(rename = "OAuth")]
    pub struct RawOAuth {
        /// How access tokens are obtained. Defaults to `authorization_code`.
        pub grant: Option<RawGrant>,
        /// The id of a client that is registered at the authorization server. Example: `ropeway-ci`.
        pub client_id: Option<RawText>,
        /// The secret of the client. Example: `"${CLIENT_SECRET}"`.
        pub client_secret: Option<RawText>,
        /// The `https` URL of a client metadata document, used as the client id at authorization servers that support it.
        pub client_metadata_url: Option<String>,
        /// The key with which the client authenticates (`private_key_jwt`). Example: `{pem: "${file:client.pem}"}`.
        pub private_key: Option<RawPrivateKey>,
        /// How the client authenticates at the token endpoint. Defaults to a method that the authorization server supports.
        pub token_endpoint_auth: Option<ClientAuthMethod>,
        /// Scopes to request in addition to those that the server asks for. Example: `[files:read]`.
        pub scopes: Vec<String>,
        /// The only accepted authorization server. Defaults to the one that the server names. Example: `https://auth.example`.
        pub issuer: Option<String>,
        /// The port of the redirect URI on this machine, for clients that are registered with one. Defaults to any free port.
        pub redirect_port: Option<u16>,
        /// Whether tokens are bound to a key of this client (DPoP). Defaults to `false`.
        pub dpop: Option<bool>,
        /// Hosts on private addresses that the metadata of the server may name. Example: `[auth.internal]`.
        pub allow_private: Vec<String>,
        /// The account whose tokens are used, as in `ropeway login --account`. Example: `work`.
        pub account: Option<RawText>,
        /// Whether each principal of a gateway has its own tokens. Defaults to `false`: all use those of the operator.
        pub per_principal: Option<bool>,
        /// The assertion of `grant: workload_identity`, a JWT: the value, a file or a command. Example:
        /// `{file: /var/run/secrets/token}`.
        pub assertion: Option<RawTokenSource>,
        /// The identity provider of `grant: enterprise_managed`.
        pub identity_provider: Option<RawIdentityProvider>,
    }
}

/// How an OAuth client obtains access tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, DeriveSerialize, DeriveDeserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(rename = "Grant")]
pub enum RawGrant {
    /// A person signs in.
    AuthorizationCode,
    /// The client acts for itself, with `client_id` and `client_secret` or `private_key`.
    ClientCredentials,
    /// The client exchanges the `assertion` of its environment.
    WorkloadIdentity,
    /// The `identity_provider` of an organization grants access.
    EnterpriseManaged,
}

record! {
    /// A private key. Needs `pem`.
    #[derive(Eq)]
    #[schemars(rename = "PrivateKey", extend("required" = ["pem"]))]
    pub struct RawPrivateKey {
        /// The key as PEM. Example: `"${file:client.pem}"`.
        pub pem: Option<RawText>,
        /// The signature algorithm, such as `ES256`. Defaults to one that fits the key.
        #[schemars(regex(pattern = r"^([RP]S(256|384|512)|ES(256|384)|EdDSA)$"))]
        pub algorithm: Option<String>,
        /// The value of `kid`.
        pub key_id: Option<String>,
    }
}

record! {
    /// An identity provider that exchanges the ID token of a person for access. Needs `id_token`, and either `issuer` or
    /// `token_endpoint`.
    #[derive(Eq)]
    #[schemars(rename = "IdentityProvider", extend("required" = ["id_token"]))]
    pub struct RawIdentityProvider {
        /// The issuer, whose metadata names the token endpoint. Example: `https://idp.example`.
        pub issuer: Option<String>,
        /// The token endpoint.
        pub token_endpoint: Option<String>,
        /// The id of the client at the identity provider.
        pub client_id: Option<RawText>,
        /// The secret of that client. Example: `"${IDP_SECRET}"`.
        pub client_secret: Option<RawText>,
        /// The ID token: the value, a file or a command. Example: `{command: [idp, id-token]}`.
        pub id_token: Option<RawTokenSource>,
    }
}

record! {
    /// A command that prints a token, or JSON with `access_token` and `expires_in` or `expires_at`.
    #[derive(Eq)]
    #[serde(default)]
    #[schemars(rename = "TokenCommand", extend("required" = ["command"]))]
    pub struct RawTokenCommand {
        /// The program and its arguments. It is executed directly, without a shell. Example: `[vault, read, token]`.
        #[schemars(length(min = 1))]
        pub command: Vec<RawText>,
        /// Environment variables of the command, in addition to those of ropeway.
        pub env: RawMap<RawText>,
        /// The working directory of the command, relative to this file. Defaults to the directory of this file.
        pub cwd: Option<String>,
        /// Maximum time of the command. Defaults to `30s`.
        pub timeout: Option<RawDuration>,
    }
}

/// Where a token comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RawTokenSource {
    /// The token itself.
    Value(RawText),
    /// The path of a file, relative to the configuration file.
    File(String),
    /// A command that prints it.
    Command(RawTokenCommand),
}

const TOKEN_SOURCE: &str = "a token such as `\"${TOKEN}\"`, or a map with `file` or `command`";

/// Where a token comes from: a file, or a command that prints it. It is read again for every use.
#[derive(DeriveDeserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "TokenSource", extend("oneOf" = [
    {"required": ["file"], "maxProperties": 1},
    {"required": ["command"], "properties": {"file": false}},
]))]
struct TokenSourceMap {
    /// The path of a file that contains only the token, relative to this file.
    file: Option<String>,
    /// The program that prints the token, and its arguments.
    command: Option<Vec<RawText>>,
    /// Environment variables of the command, in addition to those of ropeway.
    env: Option<RawMap<RawText>>,
    /// The working directory of the command, relative to this file.
    cwd: Option<String>,
    /// Maximum time of the command. Defaults to `30s`.
    timeout: Option<RawDuration>,
}

impl<'de> Deserialize<'de> for RawTokenSource {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct SourceVisitor;
        impl<'de> Visitor<'de> for SourceVisitor {
            type Value = RawTokenSource;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(TOKEN_SOURCE)
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<RawTokenSource, E> {
                Ok(RawTokenSource::Value(text.into()))
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<RawTokenSource, A::Error> {
                let map = TokenSourceMap::deserialize(MapAccessDeserializer::new(map))?;
                match (map.file, map.command, map.env, map.cwd, map.timeout) {
                    (Some(file), None, None, None, None) => Ok(RawTokenSource::File(file)),
                    (None, Some(command), env, cwd, timeout) => {
                        let env = env.unwrap_or_default();
                        Ok(RawTokenSource::Command(RawTokenCommand { command, env, cwd, timeout }))
                    }
                    _ => Err(de::Error::custom(TOKEN_SOURCE)),
                }
            }
        }
        deserializer.deserialize_any(SourceVisitor)
    }
}

impl Serialize for RawTokenSource {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Value(text) => text.serialize(serializer),
            Self::File(path) => {
                let mut map = serializer.serialize_map(Some(1))?;
                map.serialize_entry("file", path)?;
                map.end()
            }
            Self::Command(command) => command.serialize(serializer),
        }
    }
}

impl JsonSchema for RawTokenSource {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "TokenValueOrSource".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        json_schema!({ "anyOf": [{ "type": "string" }, generator.subschema_for::<TokenSourceMap>()] })
    }
}

impl RawTokenSource {
    pub(super) fn value_mut(&mut self) -> Option<&mut RawText> {
        if let Self::Value(text) = self { Some(text) } else { None }
    }

    pub(super) fn path_mut(&mut self) -> Option<&mut String> {
        match self {
            Self::Value(_) => None,
            Self::File(path) => Some(path),
            Self::Command(command) => command.cwd.as_mut(),
        }
    }

    pub(super) fn texts_mut(&mut self) -> Vec<&mut RawText> {
        match self {
            Self::Value(text) => vec![text],
            Self::File(_) => Vec::new(),
            Self::Command(command) => command.texts_mut(),
        }
    }
}

impl RawTokenCommand {
    /// Returns the texts in which references are replaced.
    pub(super) fn texts_mut(&mut self) -> Vec<&mut RawText> {
        self.command.iter_mut().chain(self.env.0.iter_mut().map(|(_, value)| value)).collect()
    }
}
