//! Signed assertions with which a client authenticates: `private_key_jwt`
//! ([RFC 7523, section 2.2](https://www.rfc-editor.org/rfc/rfc7523#section-2.2)).

use std::time::SystemTime;

use serde_json::json;

use super::error::OAuthError;
use super::keys::SigningKey;
use super::random::random_text;
use super::serialized::unix;

/// How long an assertion is valid.
const SECONDS: u64 = 120;

/// The `client_assertion_type` value.
pub(super) const JWT_BEARER: &str = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer";

/// Creates an assertion. Its audience is the issuer
/// ([draft-ietf-oauth-rfc7523bis](https://datatracker.ietf.org/doc/draft-ietf-oauth-rfc7523bis/)).
pub(super) fn client_assertion(
    key: &SigningKey,
    client_id: &str,
    issuer: &str,
    now: SystemTime,
) -> Result<String, OAuthError> {
    let now = unix(now);
    let claims = json!({
        "iss": client_id,
        "sub": client_id,
        "aud": issuer,
        "jti": random_text()?,
        "iat": now,
        "exp": now + SECONDS,
    });
    key.sign(json!({"typ": "JWT"}), &claims)
}
