//! Access tokens from an authorization server: signed JWTs, checked as
//! [RFC 9068](https://www.rfc-editor.org/rfc/rfc9068#section-4) describes.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::{SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::{Map, Value};

use super::client_key::{KeyDigest, key_digest};
use super::jwks::SignatureError;
use super::jwks_cache::KeySetCache;
use super::principals::Principals;
use crate::client::principal::{Grant, Principal, ToolAccess};
use ropeway_config::{JwtAlgorithm, JwtSettings, OperatorTokens, PrincipalLimits};
use ropeway_core::sync::lock;
use ropeway_core::tool::escape_invisible;

/// Maximum token length.
const MAX_TOKEN: usize = 16 << 10;

/// Maximum principal name length.
const MAX_PRINCIPAL: usize = 256;

/// Maximum number of verified tokens in the cache.
const MAX_VERIFIED: usize = 4096;

/// Verifies access tokens.
pub(crate) struct JwtVerifier {
    settings: JwtSettings,
    keys: Arc<KeySetCache>,
    principals: Arc<Principals>,
    grant: Grant,
    /// Tokens whose signature was verified, by their digests.
    verified: Mutex<HashMap<KeyDigest, VerifiedToken>>,
}

struct VerifiedToken {
    principal: Principal,
    /// Seconds since 1970, with the clock skew.
    expires: f64,
    /// The key version that verified the signature.
    keys: u64,
}

/// Why a token is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum TokenRefusal {
    /// The token is malformed, was not made for this gateway, or is too old.
    #[error("{0}")]
    Invalid(&'static str),
    /// The token does not have the required scopes.
    #[error("the token does not have the required scopes")]
    Scope,
    /// The issuer's keys are not available.
    #[error("the keys of the issuer are not available")]
    Unavailable,
}

/// A token whose signature is not verified yet.
struct ReadToken {
    algorithm: JwtAlgorithm,
    kid: Option<String>,
    claims: Map<String, Value>,
    signature: Vec<u8>,
    /// Length of the signed part.
    signed: usize,
}

impl JwtVerifier {
    pub(crate) fn new(
        settings: &JwtSettings,
        keys: Arc<KeySetCache>,
        principals: &Arc<Principals>,
        limits: PrincipalLimits,
    ) -> Self {
        let grant = Grant {
            key_id: None,
            // Each token has this right, or not.
            is_operator: false,
            profiles: settings.profiles.clone(),
            tools: settings.tools.as_deref().map(ToolAccess::new_or_none).map(Arc::new),
            limits,
        };
        Self { settings: settings.clone(), keys, principals: principals.clone(), grant, verified: Mutex::default() }
    }

    pub(crate) fn settings(&self) -> &JwtSettings {
        &self.settings
    }

    /// Returns the issuer's public keys.
    pub(crate) fn keys(&self) -> &Arc<KeySetCache> {
        &self.keys
    }

    /// Returns a token's principal.
    pub(crate) async fn find(&self, token: &str) -> Result<Principal, TokenRefusal> {
        let digest = key_digest(token);
        if let Some(principal) = self.known(&digest) {
            return Ok(principal);
        }
        let read = ReadToken::parse(token, &self.settings.algorithms)?;
        let expires = self.check_claims(&read.claims, unix_time())?;
        let keys = self.verify(&read, token).await?;
        let scopes = scopes(&read.claims);
        if !self.settings.scopes.iter().all(|scope| scopes.contains(&scope.as_str())) {
            return Err(TokenRefusal::Scope);
        }
        let name = principal_name(&read.claims, &self.settings.principal_claim)?;
        let principal = self.principals.enter(&format!("jwt:{}|{name}", self.settings.issuer), self.grant.clone());
        principal.extend(expires as u64);
        let is_operator = self.settings.operators.as_ref().is_some_and(|rule| selects(rule, &read.claims));
        let principal = principal.with_operator_until(if is_operator { expires as u64 } else { 0 });
        self.remember(digest, VerifiedToken { principal: principal.clone(), expires, keys });
        Ok(principal)
    }

    /// Returns a token's principal, if the token was verified with the current keys and has not expired since.
    fn known(&self, digest: &KeyDigest) -> Option<Principal> {
        let verified = lock(&self.verified);
        let token = verified.get(digest)?;
        let is_valid = token.expires > unix_time() && self.keys.usable_version() == Some(token.keys);
        is_valid.then(|| token.principal.clone())
    }

    fn remember(&self, digest: KeyDigest, token: VerifiedToken) {
        let mut verified = lock(&self.verified);
        if verified.len() >= MAX_VERIFIED {
            let now = unix_time();
            verified.retain(|_, token| token.expires > now);
            if verified.len() >= MAX_VERIFIED {
                verified.clear();
            }
        }
        verified.insert(digest, token);
    }

    /// Checks a token's issuer, audience and validity. Returns when it expires.
    fn check_claims(&self, claims: &Map<String, Value>, now: f64) -> Result<f64, TokenRefusal> {
        let invalid = |reason| Err(TokenRefusal::Invalid(reason));
        let skew = self.settings.clock_skew.as_secs_f64();
        if claims.get("iss").and_then(Value::as_str) != Some(self.settings.issuer.as_str()) {
            return invalid("the token has the wrong issuer");
        }
        let is_accepted = |audience: &Value| {
            audience.as_str().is_some_and(|audience| self.settings.audience.iter().any(|own| own == audience))
        };
        let is_for_this = match claims.get("aud") {
            Some(Value::Array(all)) => all.iter().any(is_accepted),
            Some(one) => is_accepted(one),
            None => false,
        };
        if !is_for_this {
            return invalid("the token has the wrong audience");
        }
        let Some(expires) = claims.get("exp").and_then(Value::as_f64) else { return invalid("the token has no `exp`") };
        if !expires.is_finite() || expires + skew <= now {
            return invalid("the token has expired");
        }
        match claims.get("nbf") {
            None => {}
            Some(begins) if begins.as_f64().is_some_and(|begins| begins <= now + skew) => {}
            Some(_) => return invalid("the token is not valid yet"),
        }
        Ok(expires + skew)
    }

    /// Verifies the signature. Fetches the keys again if none fits. Returns their version.
    async fn verify(&self, read: &ReadToken, token: &str) -> Result<u64, TokenRefusal> {
        let signed = &token.as_bytes()[..read.signed];
        let mut keys = self.keys.keys().await.map_err(|_| TokenRefusal::Unavailable)?;
        let mut is_newest = false;
        loop {
            match keys.keys.verify(read.algorithm, read.kid.as_deref(), signed, &read.signature) {
                Ok(()) => return Ok(keys.version),
                Err(SignatureError::Wrong) => return Err(TokenRefusal::Invalid("the signature is invalid")),
                Err(SignatureError::NoKey) if is_newest => break,
                Err(SignatureError::NoKey) => is_newest = true,
            }
            match self.keys.newer_than(Some(keys.version)).await {
                Some(newer) => keys = newer,
                None => break,
            }
        }
        Err(TokenRefusal::Invalid("the issuer has no key that matches the token"))
    }
}

impl ReadToken {
    fn parse(token: &str, algorithms: &[JwtAlgorithm]) -> Result<Self, TokenRefusal> {
        #[derive(Deserialize)]
        struct Header {
            alg: String,
            #[serde(default)]
            kid: Option<String>,
            #[serde(default)]
            typ: Option<String>,
            #[serde(default)]
            crit: Option<IgnoredAny>,
        }
        let malformed = || TokenRefusal::Invalid("the token is malformed");
        if token.len() > MAX_TOKEN {
            return Err(TokenRefusal::Invalid("the token is too long"));
        }
        let mut parts = token.split('.');
        let (Some(header), Some(claims), Some(signature), None) =
            (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err(malformed());
        };
        let decode = |part: &str| URL_SAFE_NO_PAD.decode(part).map_err(|_| malformed());
        let signed = header.len() + 1 + claims.len();
        let header: Header = serde_json::from_slice(&decode(header)?).map_err(|_| malformed())?;
        let algorithm = JwtAlgorithm::parse(&header.alg).filter(|algorithm| algorithms.contains(algorithm));
        let algorithm = algorithm.ok_or(TokenRefusal::Invalid("the signature algorithm is not accepted"))?;
        // https://www.rfc-editor.org/rfc/rfc7515#section-4.1.11
        if header.crit.is_some() {
            return Err(TokenRefusal::Invalid("the token has critical extensions"));
        }
        let is_access_token = |kind: &str| {
            let kind = kind.to_ascii_lowercase();
            matches!(kind.strip_prefix("application/").unwrap_or(&kind), "jwt" | "at+jwt")
        };
        if header.typ.as_deref().is_some_and(|kind| !is_access_token(kind)) {
            return Err(TokenRefusal::Invalid("the token is not an access token"));
        }
        let claims = serde_json::from_slice(&decode(claims)?).map_err(|_| malformed())?;
        Ok(Self { algorithm, kid: header.kid, claims, signature: decode(signature)?, signed })
    }
}

/// Returns a token's scopes: `scope` ([RFC 8693](https://www.rfc-editor.org/rfc/rfc8693#section-4.2)), or `scp`.
fn scopes(claims: &Map<String, Value>) -> Vec<&str> {
    let values = ["scope", "scp"].iter().filter_map(|name| claims.get(*name));
    let texts = values.flat_map(|value| match value {
        Value::Array(all) => all.iter().filter_map(Value::as_str).collect(),
        one => one.as_str().map(|text| text.split(' ').collect()).unwrap_or_else(Vec::new),
    });
    texts.collect()
}

/// Returns `true` if the claims mark an operator's token.
fn selects(rule: &OperatorTokens, claims: &Map<String, Value>) -> bool {
    match rule {
        OperatorTokens::Scope(scope) => scopes(claims).contains(&scope.as_str()),
        OperatorTokens::Claim { name, values } => {
            let found = claims.get(name).map_or(&[][..], |claim| match claim {
                Value::Array(all) => all,
                one => std::slice::from_ref(one),
            });
            found.iter().filter_map(Value::as_str).any(|found| values.iter().any(|value| value == found))
        }
    }
}

/// Returns the principal's name. A name that could forge or hide text in log lines is refused.
fn principal_name<'a>(claims: &'a Map<String, Value>, claim: &str) -> Result<&'a str, TokenRefusal> {
    let name = claims.get(claim).and_then(Value::as_str).unwrap_or_default();
    let is_name = !name.is_empty() && name.len() <= MAX_PRINCIPAL && escape_invisible(name) == name;
    if is_name { Ok(name) } else { Err(TokenRefusal::Invalid("the token has no valid principal")) }
}

fn unix_time() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}

#[cfg(test)]
mod tests;
