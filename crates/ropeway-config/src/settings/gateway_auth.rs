//! Gateway settings that concern its clients: authentication, and limits on each principal.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use ropeway_core::conversions::names;
use ropeway_core::parse_error::ParseError;

/// Maximum requests in a [`Rate`].
const MAX_COUNT: u32 = 1_000_000;

/// [`Rate`] units.
const UNITS: [(&str, u64); 3] = [("s", 1), ("m", 60), ("h", 3600)];

/// How a gateway's clients prove their identity. Without keys and JWTs, clients are not authenticated.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct AuthSettings {
    /// The file with client keys, which `ropeway key` changes.
    pub keys_file: Option<PathBuf>,
    /// Tokens from an authorization server.
    pub jwt: Option<JwtSettings>,
}

impl AuthSettings {
    /// Returns `true` if clients have to authenticate.
    pub fn is_required(&self) -> bool {
        self.keys_file.is_some() || self.jwt.is_some()
    }
}

/// The access tokens that a gateway accepts as an OAuth 2.1 resource server.
///
/// See [Authorization](https://modelcontextprotocol.io/specification/2025-11-25/basic/authorization).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct JwtSettings {
    /// Token issuer: the `iss` claim.
    pub issuer: String,
    /// The accepted audiences: a token has at least one in `aud` ([RFC 8707](https://www.rfc-editor.org/rfc/rfc8707)).
    pub audience: Vec<String>,
    /// The gateway's URL in its protected-resource metadata ([RFC 9728](https://www.rfc-editor.org/rfc/rfc9728)). `None` uses the
    /// first audience that is a URL.
    pub resource: Option<String>,
    /// URL for the public keys. `None` reads it from the issuer's metadata.
    pub jwks_url: Option<String>,
    /// The accepted signature algorithms.
    pub algorithms: Vec<JwtAlgorithm>,
    /// The accepted difference between the issuer's and the gateway's clocks.
    pub clock_skew: Duration,
    /// The claim that identifies the principal.
    pub principal_claim: String,
    /// The scopes that a token must have.
    pub scopes: Vec<String>,
    /// The profiles and servers that principals may use. `None` allows all.
    pub profiles: Option<Vec<String>>,
    /// Globs for the tools that principals may use. `None` allows all.
    pub tools: Option<Vec<String>>,
    /// Which tokens are operator tokens. `None` selects none.
    pub operators: Option<OperatorTokens>,
}

/// Selects access tokens for operators, who see metrics, events and servers' standard error, and sign in to shared accounts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OperatorTokens {
    /// Tokens with this scope.
    Scope(String),
    /// Tokens with a claim that is one of the values, or a list that contains one.
    Claim {
        /// Claim name.
        name: String,
        /// The accepted values.
        values: Vec<String>,
    },
}

impl JwtSettings {
    /// Creates settings for tokens from an issuer with an audience.
    pub fn new(issuer: impl Into<String>, audience: impl Into<String>) -> Self {
        Self {
            issuer: issuer.into(),
            audience: vec![audience.into()],
            resource: None,
            jwks_url: None,
            algorithms: JwtAlgorithm::ALL.to_vec(),
            clock_skew: Duration::from_secs(60),
            principal_claim: "sub".to_owned(),
            scopes: Vec::new(),
            profiles: None,
            tools: None,
            operators: None,
        }
    }
}

/// A signature algorithm with public keys ([RFC 7518](https://www.rfc-editor.org/rfc/rfc7518#section-3.1)).
///
/// `none` and the algorithms with shared secrets do not exist here, so that no setting can allow them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JwtAlgorithm {
    /// RSA PKCS #1 1.5 with SHA-256.
    Rs256,
    /// RSA PKCS #1 1.5 with SHA-384.
    Rs384,
    /// RSA PKCS #1 1.5 with SHA-512.
    Rs512,
    /// RSA PSS with SHA-256.
    Ps256,
    /// RSA PSS with SHA-384.
    Ps384,
    /// RSA PSS with SHA-512.
    Ps512,
    /// ECDSA with P-256 and SHA-256.
    Es256,
    /// ECDSA with P-384 and SHA-384.
    Es384,
    /// Ed25519.
    EdDsa,
}

impl JwtAlgorithm {
    /// All algorithms.
    pub const ALL: [Self; 9] = [
        Self::Rs256,
        Self::Rs384,
        Self::Rs512,
        Self::Ps256,
        Self::Ps384,
        Self::Ps512,
        Self::Es256,
        Self::Es384,
        Self::EdDsa,
    ];
}

names!(pub JwtAlgorithm, name: "the value of `alg`" {
    Rs256 => "RS256";
    Rs384 => "RS384";
    Rs512 => "RS512";
    Ps256 => "PS256";
    Ps384 => "PS384";
    Ps512 => "PS512";
    Es256 => "ES256";
    Es384 => "ES384";
    EdDsa => "EdDSA";
});

/// Limits that a gateway sets for each principal. `None` sets no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PrincipalLimits {
    /// Maximum requests per time.
    pub rate: Option<Rate>,
    /// Maximum concurrent calls.
    pub calls: Option<usize>,
    /// Maximum sessions in memory.
    pub sessions: Option<usize>,
    /// Maximum request body size in bytes.
    pub body: Option<usize>,
    /// Maximum result size in bytes.
    pub result: Option<usize>,
}

impl PrincipalLimits {
    /// Returns these limits, with `other`'s where these have none.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        Self {
            rate: self.rate.or(other.rate),
            calls: self.calls.or(other.calls),
            sessions: self.sessions.or(other.sessions),
            body: self.body.or(other.body),
            result: self.result.or(other.result),
        }
    }
}

/// Requests per second, minute or hour: `10/s`, `600/m`, `1000/h`.
///
/// All requests may come at once; after that, they are available again at a steady rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    count: u32,
    seconds: u64,
}

impl Rate {
    /// Creates a rate in requests per second. Zero counts as one.
    pub fn per_second(count: u32) -> Self {
        Self { count: count.clamp(1, MAX_COUNT), seconds: 1 }
    }

    /// Returns the request count.
    pub fn count(self) -> u32 {
        self.count
    }

    /// Returns the time within which they may come.
    pub fn period(self) -> Duration {
        Duration::from_secs(self.seconds)
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let unit = UNITS.iter().find(|(_, seconds)| *seconds == self.seconds).map_or("s", |(unit, _)| unit);
        write!(f, "{}/{unit}", self.count)
    }
}

impl FromStr for Rate {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let read = || {
            let (count, unit) = text.trim().split_once('/')?;
            let (_, seconds) = UNITS.into_iter().find(|(known, _)| *known == unit.trim())?;
            let count = count.trim().parse().ok().filter(|count| (1..=MAX_COUNT).contains(count))?;
            Some(Self { count, seconds })
        };
        read().ok_or_else(|| ParseError::new("expected a rate such as `10/s`, `600/m` or `1000/h`"))
    }
}

impl serde::Serialize for Rate {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> serde::Deserialize<'de> for Rate {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_a_number_and_a_unit() {
        for text in ["1/s", "600/m", "1000000/h"] {
            assert_eq!(text.parse::<Rate>().expect("a rate").to_string(), text);
        }
        assert_eq!(" 10 / s ".parse().ok(), Some(Rate::per_second(10)));
        for text in ["", "10", "10/d", "0/s", "-1/s", "1.5/s", "1000001/s", "/s", "ten/s", "1/s/s"] {
            assert!(text.parse::<Rate>().is_err(), "{text}");
        }
    }

    #[test]
    fn symmetric_algorithms_and_none_cannot_be_named() {
        for name in ["none", "None", "HS256", "HS384", "HS512", "rs256", ""] {
            assert_eq!(JwtAlgorithm::parse(name), None, "{name}");
        }
        assert!(JwtAlgorithm::ALL.iter().all(|algorithm| JwtAlgorithm::parse(algorithm.name()) == Some(*algorithm)));
    }
}
