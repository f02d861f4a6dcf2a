//! Checks of signed tokens that clients send.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::digest::{SHA256, digest};
use ring::signature::{ECDSA_P256_SHA256_FIXED, UnparsedPublicKey};
use serde_json::Value;

pub(crate) fn decode(text: &str) -> Option<Vec<u8>> {
    URL_SAFE_NO_PAD.decode(text).ok()
}

pub(crate) fn sha256(text: &str) -> String {
    URL_SAFE_NO_PAD.encode(digest(&SHA256, text.as_bytes()))
}

/// Returns header and claims of an ES256 token whose signature fits the key.
pub(crate) fn verify_es256(token: &str, point: &[u8]) -> Option<(Value, Value)> {
    let (message, signature) = token.rsplit_once('.')?;
    UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, point).verify(message.as_bytes(), &decode(signature)?).ok()?;
    let (header, claims) = message.split_once('.')?;
    let json = |part: &str| serde_json::from_slice(&decode(part)?).ok();
    Some((json(header)?, json(claims)?))
}

/// A proof whose signature is right.
pub(crate) struct Proof {
    pub(crate) claims: Value,
    /// The thumbprint of its key.
    pub(crate) jkt: String,
}

/// Checks a DPoP proof for a request.
pub(crate) fn verify_proof(proof: &str, method: &str, url: &str) -> Result<Proof, String> {
    let header = proof.split('.').next().and_then(decode).ok_or("no header")?;
    let header: Value = serde_json::from_slice(&header).map_err(|error| error.to_string())?;
    let jwk = &header["jwk"];
    let part = |name: &str| jwk[name].as_str().unwrap_or_default();
    let point = [vec![4], decode(part("x")).ok_or("no x")?, decode(part("y")).ok_or("no y")?].concat();
    let (header, claims) = verify_es256(proof, &point).ok_or("the signature is wrong")?;
    if header["typ"] != "dpop+jwt" || jwk.get("d").is_some() {
        return Err("the header is wrong".to_owned());
    }
    if claims["htm"] != method || claims["htu"] != url || claims["jti"].as_str().is_none_or(str::is_empty) {
        return Err(format!("the proof is for another request: {claims}"));
    }
    let jkt = sha256(&format!(r#"{{"crv":"P-256","kty":"EC","x":"{}","y":"{}"}}"#, part("x"), part("y")));
    Ok(Proof { claims, jkt })
}
