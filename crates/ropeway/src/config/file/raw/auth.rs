//! The credentials of a server.

use std::borrow::Cow;
use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::de::value::MapAccessDeserializer;
use serde::de::{self, Deserialize, Deserializer, MapAccess, Visitor};
use serde::{Deserialize as DeriveDeserialize, Serialize};

use super::values::RawText;

/// The credentials for the `Authorization` header.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum RawAuth {
    /// The token for `Authorization: Bearer`. Example: `"${TOKEN}"`.
    Bearer(RawText),
    /// The user name and password for `Authorization: Basic`.
    Basic(RawBasic),
}

const AUTH_MAP: &str = "a map with one of `bearer`, `basic`, or `type: bearer` with `token`";

#[derive(DeriveDeserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Auth", extend("oneOf" = [
    {"required": ["bearer"], "maxProperties": 1},
    {"required": ["basic"], "maxProperties": 1},
    {"required": ["type", "token"], "properties": {"type": {"const": "bearer"}}, "maxProperties": 2},
    {"required": ["type", "user", "password"], "properties": {"type": {"const": "basic"}}, "maxProperties": 3},
]))]
/// The credentials for the `Authorization` header of every request: `bearer`, or `basic`.
struct AuthMap {
    /// The token for `Authorization: Bearer`. Example: `"${TOKEN}"`.
    bearer: Option<RawText>,
    /// The user name and password for `Authorization: Basic`.
    basic: Option<RawBasic>,
    /// The alternative form: `bearer` with `token`, or `basic` with `user` and `password`.
    #[serde(rename = "type")]
    kind: Option<RawText>,
    /// The token of `type: bearer`.
    token: Option<RawText>,
    /// The user name of `type: basic`.
    user: Option<RawText>,
    /// The password of `type: basic`.
    password: Option<RawText>,
}

impl AuthMap {
    /// Converts the map, or returns a description of the expected one.
    fn into_auth(self) -> Result<RawAuth, &'static str> {
        let kind = self.kind.as_ref().map(|RawText(kind)| kind.as_str());
        match (self.bearer, self.basic, kind, self.token, self.user, self.password) {
            (Some(token), None, None, None, None, None) => Ok(RawAuth::Bearer(token)),
            (None, Some(basic), None, None, None, None) => Ok(RawAuth::Basic(basic)),
            (None, None, Some("bearer"), Some(token), None, None) => Ok(RawAuth::Bearer(token)),
            (None, None, Some("basic"), None, Some(user), Some(password)) => {
                Ok(RawAuth::Basic(RawBasic { user, password }))
            }
            (Some(_), _, _, Some(_), _, _) => Err("either `bearer` or `token`, not both"),
            (Some(_), _, Some(_), ..) => Err("either `bearer` or `type`, not both"),
            (_, Some(_), Some(_), ..) => Err("either `basic` or `type`, not both"),
            (None, None, Some("bearer"), None, ..) => Err("a `token` for `type: bearer`"),
            (None, None, Some("bearer"), ..) => Err("only a `token` for `type: bearer`"),
            (None, None, Some("basic"), ..) => Err("`user` and `password` for `type: basic`"),
            (None, None, Some(_), ..) => Err("`type: bearer` or `type: basic`"),
            (None, None, None, Some(_), ..) => Err("`type: bearer` with `token`"),
            _ => Err(AUTH_MAP),
        }
    }
}

impl<'de> Deserialize<'de> for RawAuth {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct AuthVisitor;
        impl<'de> Visitor<'de> for AuthVisitor {
            type Value = RawAuth;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(AUTH_MAP)
            }

            // A scalar here is most likely a token, and must not be shown.
            fn visit_str<E: de::Error>(self, _: &str) -> Result<RawAuth, E> {
                Err(E::custom(AUTH_MAP))
            }

            fn visit_u64<E: de::Error>(self, _: u64) -> Result<RawAuth, E> {
                Err(E::custom(AUTH_MAP))
            }

            fn visit_f64<E: de::Error>(self, _: f64) -> Result<RawAuth, E> {
                Err(E::custom(AUTH_MAP))
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<RawAuth, A::Error> {
                AuthMap::deserialize(MapAccessDeserializer::new(map))?.into_auth().map_err(de::Error::custom)
            }
        }
        deserializer.deserialize_any(AuthVisitor)
    }
}

impl JsonSchema for RawAuth {
    fn schema_name() -> Cow<'static, str> {
        AuthMap::schema_name()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        AuthMap::json_schema(generator)
    }
}

/// A user name and a password.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, DeriveDeserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "BasicAuth")]
pub struct RawBasic {
    /// The user name.
    pub user: RawText,
    /// The password.
    pub password: RawText,
}
