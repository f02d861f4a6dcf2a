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

const AN_AUTH: &str = "a map with one of `bearer`, `basic`";

#[derive(DeriveDeserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "RawAuth", extend("minProperties" = 1, "maxProperties" = 1))]
/// How we show the server who we are.
struct AuthMap {
    /// A token for `Authorization: Bearer`.
    bearer: Option<Text>,
    /// A name and a password for `Authorization: Basic`.
    basic: Option<RawBasic>,
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
                match AuthMap::deserialize(MapAccessDeserializer::new(map))? {
                    AuthMap { bearer: Some(token), basic: None } => Ok(RawAuth::Bearer(token)),
                    AuthMap { bearer: None, basic: Some(basic) } => Ok(RawAuth::Basic(basic)),
                    _ => Err(de::Error::custom(AN_AUTH)),
                }
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
