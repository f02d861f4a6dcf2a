//! The authentication of the gateway's clients, key for key.

use std::borrow::Cow;
use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::value::SeqAccessDeserializer;
use serde::de::{self, Deserialize, Deserializer, SeqAccess, Visitor};
use serde::ser::{Serialize, Serializer};

use super::values::{RawDuration, record};

record! {
    /// How the clients of the gateway prove their identity. A client sends `Authorization: Bearer` with a key or a token.
    #[schemars(rename = "GatewayAuth")]
    pub struct RawGatewayAuth {
        /// The file with the keys of clients, relative to this file. `ropeway key new` creates it. Changes are applied at once.
        /// Example: `keys.json`.
        pub keys_file: Option<String>,
        /// Accepts access tokens of an OAuth authorization server, which MCP clients discover.
        pub jwt: Option<RawJwt>,
    }
}

record! {
    /// The access tokens that the gateway accepts: signed JWTs of one issuer. Needs `issuer` and `audience`.
    #[schemars(rename = "GatewayJwt", extend("required" = ["issuer", "audience"]))]
    pub struct RawJwt {
        /// The issuer: the value of `iss`. Example: `https://auth.example`.
        pub issuer: Option<String>,
        /// The audience, or a list of accepted ones: the value of `aud`. Usually the URL of the gateway. Example:
        /// `https://gateway.example/mcp`.
        pub audience: Option<RawAudience>,
        /// The URL of the gateway that clients use, for the metadata of the resource. Defaults to the first `audience` that is a URL.
        pub resource: Option<String>,
        /// The URL of the public keys. Defaults to the one in the metadata of the issuer.
        pub jwks_url: Option<String>,
        /// The accepted signature algorithms. Defaults to all of `RS256`, `RS384`, `RS512`, `PS256`, `PS384`, `PS512`, `ES256`, `ES384`
        /// and `EdDSA`.
        #[schemars(length(min = 1), inner(regex(pattern = r"^([RP]S(256|384|512)|ES(256|384)|EdDSA)$")))]
        pub algorithms: Option<Vec<String>>,
        /// The accepted difference between the clocks of the issuer and the gateway, up to `10m`. Defaults to `60s`.
        pub clock_skew: Option<RawDuration>,
        /// The claim that identifies the principal. Defaults to `sub`.
        #[schemars(length(min = 1))]
        pub principal_claim: Option<String>,
        /// The scopes that a token must have. Example: `[mcp]`.
        #[serde(default)]
        pub scopes: Vec<String>,
        /// The profiles and servers that principals may use. Defaults to all. Example: `[coding]`.
        #[schemars(length(min = 1))]
        pub profiles: Option<Vec<String>>,
        /// Globs of the tools that principals may use: names of tools, or `SERVER.TOOL`. Defaults to all. Example: `["git.*"]`.
        #[schemars(length(min = 1))]
        pub tools: Option<Vec<String>>,
        /// The tokens of operators, by a scope or a claim. Operators see metrics, events, statistics and standard error of servers,
        /// and sign in to shared accounts. Defaults to none. Example: `{scope: "ropeway:operator"}`.
        pub operators: Option<RawOperators>,
    }
}

record! {
    /// The access tokens of operators: those with `scope`, or those whose `claim` has one of `values`.
    #[schemars(rename = "GatewayOperators")]
    pub struct RawOperators {
        /// The scope of operators. Example: `ropeway:operator`.
        #[schemars(length(min = 1))]
        pub scope: Option<String>,
        /// The claim whose value, or one of whose values, makes an operator. Needs `values`. Example: `groups`.
        #[schemars(length(min = 1))]
        pub claim: Option<String>,
        /// The accepted values of `claim`. Example: `[ops]`.
        #[schemars(length(min = 1))]
        pub values: Option<Vec<String>>,
    }
}

/// An audience, or a list of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RawAudience(pub Vec<String>);

impl Serialize for RawAudience {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match &self.0[..] {
            [one] => one.serialize(serializer),
            all => all.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for RawAudience {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct AudienceVisitor;
        impl<'de> Visitor<'de> for AudienceVisitor {
            type Value = RawAudience;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string or a list of strings")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<RawAudience, E> {
                Ok(RawAudience(vec![text.to_owned()]))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<RawAudience, A::Error> {
                Vec::deserialize(SeqAccessDeserializer::new(list)).map(RawAudience)
            }
        }
        deserializer.deserialize_any(AudienceVisitor)
    }
}

impl JsonSchema for RawAudience {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Audience".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "anyOf": [
            { "type": "string", "minLength": 1 },
            { "type": "array", "items": { "type": "string", "minLength": 1 }, "minItems": 1 },
        ] })
    }
}
