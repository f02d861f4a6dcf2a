//! The credentials of a server.

use std::borrow::Cow;
use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::value::MapAccessDeserializer;
use serde::de::{self, Deserialize, Deserializer, MapAccess, Visitor};
use serde::ser::{Serialize, SerializeMap, Serializer};
use serde::{Deserialize as DeriveDeserialize, Serialize as DeriveSerialize};

use super::oauth::{RawOAuth, RawTokenCommand, RawTokenSource};
use super::values::{RawDuration, RawMap, RawText};

/// The credentials for the `Authorization` header, or how they are obtained.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RawAuth {
    /// The token for `Authorization: Bearer`. Example: `"${TOKEN}"`.
    Bearer(RawText),
    /// The user name and password for `Authorization: Basic`.
    Basic(RawBasic),
    /// OAuth.
    OAuth(Box<RawOAuth>),
    /// The tokens that a command prints.
    Command(RawTokenCommand),
}

const AUTH_MAP: &str =
    "`oauth`, or a map with one of `bearer`, `basic`, `oauth`, `command`, or `type: bearer` with `token`";

#[derive(DeriveDeserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Auth", extend("oneOf" = [
    {"required": ["bearer"], "maxProperties": 1},
    {"required": ["basic"], "maxProperties": 1},
    {"required": ["oauth"], "maxProperties": 1},
    {"required": ["command"], "properties": {
        "bearer": false, "basic": false, "oauth": false, "type": false, "token": false, "user": false, "password": false,
    }},
    {"required": ["type", "token"], "properties": {"type": {"const": "bearer"}}, "maxProperties": 2},
    {"required": ["type", "user", "password"], "properties": {"type": {"const": "basic"}}, "maxProperties": 3},
]))]
/// The credentials for the `Authorization` header of every request: `bearer` or `basic`, or how they are obtained: `oauth` or `command`.
struct AuthMap {
    /// The token for `Authorization: Bearer`. Example: `"${TOKEN}"`.
    bearer: Option<RawText>,
    /// The user name and password for `Authorization: Basic`.
    basic: Option<RawBasic>,
    /// OAuth: a person signs in, or the client authenticates itself.
    oauth: Option<Box<RawOAuth>>,
    /// The program that prints a token, or JSON with `access_token` and `expires_in` or `expires_at`, and its arguments. It is
    /// executed directly, without a shell, and again when the token expires. Example: `[vault, read, token]`.
    #[schemars(length(min = 1))]
    command: Option<Vec<RawText>>,
    /// Environment variables of `command`, in addition to those of ropeway.
    env: Option<RawMap<RawText>>,
    /// The working directory of `command`, relative to this file. Defaults to the directory of this file.
    cwd: Option<String>,
    /// Maximum time of `command`. Defaults to `30s`.
    timeout: Option<RawDuration>,
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
    fn into_auth(mut self) -> Result<RawAuth, &'static str> {
        let (oauth, command) = (self.oauth.take(), self.command.take());
        let (env, cwd, timeout) = (self.env.take(), self.cwd.take(), self.timeout.take());
        let has_command_keys = env.is_some() || cwd.is_some() || timeout.is_some();
        match (oauth, command) {
            (None, None) if has_command_keys => Err("a `command` for `env`, `cwd` and `timeout`"),
            (None, None) => self.into_fixed(),
            _ if self.has_fixed() => Err(AUTH_MAP),
            (Some(_), Some(_)) => Err("either `oauth` or `command`, not both"),
            (Some(oauth), None) if !has_command_keys => Ok(RawAuth::OAuth(oauth)),
            (Some(_), None) => Err("a `command` for `env`, `cwd` and `timeout`"),
            (None, Some(command)) => {
                Ok(RawAuth::Command(RawTokenCommand { command, env: env.unwrap_or_default(), cwd, timeout }))
            }
        }
    }

    fn has_fixed(&self) -> bool {
        let texts = [&self.bearer, &self.kind, &self.token, &self.user, &self.password];
        self.basic.is_some() || texts.iter().any(|text| text.is_some())
    }

    /// Converts a map with fixed credentials.
    fn into_fixed(self) -> Result<RawAuth, &'static str> {
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
            fn visit_str<E: de::Error>(self, text: &str) -> Result<RawAuth, E> {
                if text == "oauth" { Ok(RawAuth::OAuth(Box::default())) } else { Err(E::custom(AUTH_MAP)) }
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

impl Serialize for RawAuth {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Bearer(token) => one_entry("bearer", token, serializer),
            Self::Basic(basic) => one_entry("basic", basic, serializer),
            Self::OAuth(oauth) if **oauth == RawOAuth::default() => serializer.serialize_str("oauth"),
            Self::OAuth(oauth) => one_entry("oauth", oauth, serializer),
            Self::Command(command) => command.serialize(serializer),
        }
    }
}

fn one_entry<S: Serializer>(key: &str, value: &impl Serialize, serializer: S) -> Result<S::Ok, S::Error> {
    let mut map = serializer.serialize_map(Some(1))?;
    map.serialize_entry(key, value)?;
    map.end()
}

impl JsonSchema for RawAuth {
    fn schema_name() -> Cow<'static, str> {
        "AuthSetting".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        json_schema!({ "anyOf": [{ "const": "oauth" }, generator.subschema_for::<AuthMap>()] })
    }
}

impl RawAuth {
    /// Returns the commands that would run, with their paths below `auth`.
    pub fn commands(&self) -> Vec<(&'static str, &RawTokenCommand)> {
        let mut commands = Vec::new();
        match self {
            Self::Bearer(_) | Self::Basic(_) => {}
            Self::Command(command) => commands.push(("command", command)),
            Self::OAuth(oauth) => {
                let id_token = oauth.identity_provider.as_ref().and_then(|idp| idp.id_token.as_ref());
                let assertion = ("oauth.assertion.command", oauth.assertion.as_ref());
                for (path, source) in [assertion, ("oauth.identity_provider.id_token.command", id_token)] {
                    if let Some(RawTokenSource::Command(command)) = source {
                        commands.push((path, command));
                    }
                }
            }
        }
        commands
    }

    /// Returns the paths of files that are read for each token.
    pub fn token_files(&self) -> Vec<&str> {
        let Self::OAuth(oauth) = self else { return Vec::new() };
        let id_token = oauth.identity_provider.as_ref().and_then(|idp| idp.id_token.as_ref());
        let sources = oauth.assertion.iter().chain(id_token);
        sources
            .filter_map(|source| if let RawTokenSource::File(path) = source { Some(path.as_str()) } else { None })
            .collect()
    }

    /// Returns the texts that are secrets, with their paths below `auth`.
    pub fn secrets_mut(&mut self) -> Vec<(&'static str, &mut String)> {
        let mut secrets: Vec<(&'static str, Option<&mut RawText>)> = Vec::new();
        match self {
            Self::Bearer(token) => secrets.push(("bearer", Some(token))),
            Self::Basic(basic) => secrets.push(("basic.password", Some(&mut basic.password))),
            Self::Command(_) => {}
            Self::OAuth(oauth) => {
                secrets.push(("oauth.client_secret", oauth.client_secret.as_mut()));
                let key = oauth.private_key.as_mut().and_then(|key| key.pem.as_mut());
                secrets.push(("oauth.private_key.pem", key));
                secrets.push(("oauth.assertion", oauth.assertion.as_mut().and_then(RawTokenSource::value_mut)));
                if let Some(idp) = &mut oauth.identity_provider {
                    secrets.push(("oauth.identity_provider.client_secret", idp.client_secret.as_mut()));
                    let id_token = idp.id_token.as_mut().and_then(RawTokenSource::value_mut);
                    secrets.push(("oauth.identity_provider.id_token", id_token));
                }
            }
        }
        secrets.into_iter().filter_map(|(path, text)| Some((path, &mut text?.0))).collect()
    }

    /// Returns all texts in which references are replaced.
    pub fn texts_mut(&mut self) -> Vec<&mut String> {
        let mut texts: Vec<&mut RawText> = Vec::new();
        match self {
            Self::Bearer(token) => texts.push(token),
            Self::Basic(basic) => texts.extend([&mut basic.user, &mut basic.password]),
            Self::Command(command) => texts.extend(command.texts_mut()),
            Self::OAuth(oauth) => {
                let RawOAuth { client_id, client_secret, private_key, assertion, identity_provider, .. } = &mut **oauth;
                texts.extend(client_id.iter_mut().chain(client_secret));
                texts.extend(private_key.iter_mut().filter_map(|key| key.pem.as_mut()));
                texts.extend(assertion.iter_mut().flat_map(RawTokenSource::texts_mut));
                if let Some(idp) = identity_provider {
                    texts.extend(idp.client_id.iter_mut().chain(&mut idp.client_secret));
                    texts.extend(idp.id_token.iter_mut().flat_map(RawTokenSource::texts_mut));
                }
            }
        }
        texts.into_iter().map(|text| &mut text.0).collect()
    }

    /// Returns the paths that are relative to the file.
    pub fn paths_mut(&mut self) -> Vec<&mut String> {
        match self {
            Self::Bearer(_) | Self::Basic(_) => Vec::new(),
            Self::Command(command) => command.cwd.iter_mut().collect(),
            Self::OAuth(oauth) => {
                let id_token = oauth.identity_provider.as_mut().and_then(|idp| idp.id_token.as_mut());
                let sources = oauth.assertion.iter_mut().chain(id_token);
                sources.filter_map(RawTokenSource::path_mut).collect()
            }
        }
    }
}

/// A user name and a password.
#[derive(Clone, Debug, PartialEq, Eq, DeriveSerialize, DeriveDeserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "BasicAuth")]
pub struct RawBasic {
    /// The user name.
    pub user: RawText,
    /// The password.
    pub password: RawText,
}
