//! How we show a server who we are, as it is written.

use std::borrow::Cow;
use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::de::value::MapAccessDeserializer;
use serde::de::{self, Deserialize, Deserializer, MapAccess, Visitor};
use serde::{Deserialize as DeriveDeserialize, Serialize};

use super::unit::Text;

/// How we show a server who we are.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum RawAuth {
    /// A token for `Authorization: Bearer`.
    Bearer(Text),
    /// A name and a password for `Authorization: Basic`.
    Basic(RawBasic),
}

const AN_AUTH: &str = "a map with one of `bearer`, `basic`, or `type: bearer` with `token`";

#[derive(DeriveDeserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "RawAuth", extend("oneOf" = [
    {"required": ["bearer"], "maxProperties": 1},
    {"required": ["basic"], "maxProperties": 1},
    {"required": ["type", "token"], "properties": {"type": {"const": "bearer"}}, "maxProperties": 2},
    {"required": ["type", "user", "password"], "properties": {"type": {"const": "basic"}}, "maxProperties": 3},
]))]
/// How we show the server who we are.
struct AuthMap {
    /// A token for `Authorization: Bearer`.
    bearer: Option<Text>,
    /// A name and a password for `Authorization: Basic`.
    basic: Option<RawBasic>,
    /// `bearer` with `token`, or `basic` with `user` and `password`: another way to write the same.
    #[serde(rename = "type")]
    kind: Option<Text>,
    /// The token of `type: bearer`.
    token: Option<Text>,
    /// The name of `type: basic`.
    user: Option<Text>,
    /// The password of `type: basic`.
    password: Option<Text>,
}

impl AuthMap {
    /// The meaning, or what was expected in the place of the map.
    fn meaning(self) -> Result<RawAuth, &'static str> {
        let kind = self.kind.as_ref().map(|Text(kind)| kind.as_str());
        match (self.bearer, self.basic, kind, self.token, self.user, self.password) {
            (Some(token), None, None, None, None, None) => Ok(RawAuth::Bearer(token)),
            (None, Some(basic), None, None, None, None) => Ok(RawAuth::Basic(basic)),
            (None, None, Some("bearer"), Some(token), None, None) => Ok(RawAuth::Bearer(token)),
            (None, None, Some("basic"), None, Some(user), Some(password)) => {
                Ok(RawAuth::Basic(RawBasic { user, password }))
            }
            (Some(_), _, _, Some(_), _, _) => Err("either `bearer` or `type: bearer` with `token`, not both"),
            (Some(_), _, Some(_), ..) => Err("either `bearer` or `type`, not both"),
            (_, Some(_), Some(_), ..) => Err("either `basic` or `type`, not both"),
            (None, None, Some("bearer"), None, ..) => Err("`token` beside `type: bearer`"),
            (None, None, Some("bearer"), ..) => Err("only `token` beside `type: bearer`"),
            (None, None, Some("basic"), ..) => Err("`user` and `password` beside `type: basic`"),
            (None, None, Some(_), ..) => Err("`type: bearer` or `type: basic`"),
            (None, None, None, Some(_), ..) => Err("`type: bearer` beside `token`"),
            _ => Err(AN_AUTH),
        }
    }
}

impl<'de> Deserialize<'de> for RawAuth {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Auths;
        impl<'de> Visitor<'de> for Auths {
            type Value = RawAuth;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(AN_AUTH)
            }

            // What stands here in place of a map is most likely a token.
            fn visit_str<E: de::Error>(self, _: &str) -> Result<RawAuth, E> {
                Err(E::custom(AN_AUTH))
            }

            fn visit_u64<E: de::Error>(self, _: u64) -> Result<RawAuth, E> {
                Err(E::custom(AN_AUTH))
            }

            fn visit_f64<E: de::Error>(self, _: f64) -> Result<RawAuth, E> {
                Err(E::custom(AN_AUTH))
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<RawAuth, A::Error> {
                AuthMap::deserialize(MapAccessDeserializer::new(map))?.meaning().map_err(de::Error::custom)
            }
        }
        deserializer.deserialize_any(Auths)
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

/// A name and a password.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, DeriveDeserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RawBasic {
    /// The name.
    pub user: Text,
    /// The password.
    pub password: Text,
}
