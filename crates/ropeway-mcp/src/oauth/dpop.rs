//! Proofs that a token is used by the client that it was issued to
//! ([DPoP, RFC 9449](https://www.rfc-editor.org/rfc/rfc9449)).

use std::time::SystemTime;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use reqwest::Url;
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair};
use serde_json::{Value, json};

use super::error::OAuthError;
use super::keys::SigningKey;
use super::pem::key_error;
use super::random::{base64url, random_text, sha256_base64url};
use super::serialized::unix;
use ropeway_core::secret::Secret;

/// The key that one sign-in's tokens are bound to.
#[derive(Debug)]
pub(crate) struct DpopKey {
    key: SigningKey,
    pkcs8: Secret,
}

impl DpopKey {
    /// Generates a key.
    pub(crate) fn generate() -> Result<Self, OAuthError> {
        let document = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &SystemRandom::new());
        let document = document.map_err(|_| key_error("it could not be generated"))?;
        Self::from_secret(&Secret::new(STANDARD.encode(document.as_ref())))
    }

    /// Reads a stored key: base64 PKCS #8.
    pub(crate) fn from_secret(secret: &Secret) -> Result<Self, OAuthError> {
        let pkcs8 = STANDARD.decode(secret.expose()).map_err(|_| key_error("the stored DPoP key is damaged"))?;
        Ok(Self { key: SigningKey::p256(&pkcs8)?, pkcs8: secret.clone() })
    }

    /// Returns the key in the form that is stored.
    pub(crate) fn to_secret(&self) -> Secret {
        self.pkcs8.clone()
    }

    /// Returns the `DPoP` header value for one request. Each request needs a new one.
    pub(crate) fn proof(
        &self,
        method: &str,
        url: &Url,
        access_token: Option<&Secret>,
        nonce: Option<&str>,
        now: SystemTime,
    ) -> Result<String, OAuthError> {
        let mut target = url.clone();
        target.set_query(None);
        target.set_fragment(None);
        let mut claims = json!({"jti": random_text()?, "htm": method, "htu": target.as_str(), "iat": unix(now)});
        if let Some(token) = access_token {
            claims["ath"] = sha256_base64url(token.expose()).into();
        }
        if let Some(nonce) = nonce {
            claims["nonce"] = nonce.into();
        }
        self.key.sign(json!({"typ": "dpop+jwt", "jwk": self.public()}), &claims)
    }

    /// Returns the key's thumbprint ([RFC 7638](https://www.rfc-editor.org/rfc/rfc7638)).
    pub(super) fn thumbprint(&self) -> String {
        let jwk = self.public();
        let member = |name: &str| jwk[name].as_str().unwrap_or_default();
        // The members in lexical order, without blanks.
        let text = format!(r#"{{"crv":"P-256","kty":"EC","x":"{}","y":"{}"}}"#, member("x"), member("y"));
        sha256_base64url(&text)
    }

    fn public(&self) -> Value {
        let (x, y) = self.key.point().unwrap_or_default();
        json!({"kty": "EC", "crv": "P-256", "x": base64url(x), "y": base64url(y)})
    }
}

#[cfg(test)]
mod tests {
    use base64::engine::general_purpose::URL_SAFE_NO_PAD;
    use ring::signature::{ECDSA_P256_SHA256_FIXED, UnparsedPublicKey};

    use super::*;

    fn decode(part: &str) -> Vec<u8> {
        URL_SAFE_NO_PAD.decode(part).expect("base64url")
    }

    fn parts(proof: &str) -> (Value, Value, Vec<u8>) {
        let parts: Vec<&str> = proof.split('.').collect();
        let value = |part: &str| serde_json::from_slice(&decode(part)).expect("JSON");
        (value(parts[0]), value(parts[1]), decode(parts[2]))
    }

    #[test]
    fn a_proof_names_the_request_and_is_signed_by_its_own_key() {
        let key = DpopKey::generate().expect("a key");
        let key = DpopKey::from_secret(&key.to_secret()).expect("the same key");
        let url = Url::parse("https://a.example/mcp?x=1#y").expect("a URL");
        let token = Secret::new("acc3ss");
        let now = SystemTime::now();
        let proof = key.proof("POST", &url, Some(&token), Some("n0nce"), now).expect("a proof");
        let (header, claims, signature) = parts(&proof);
        assert_eq!((&header["typ"], &header["alg"]), (&json!("dpop+jwt"), &json!("ES256")));
        assert_eq!((&claims["htm"], &claims["htu"]), (&json!("POST"), &json!("https://a.example/mcp")));
        assert_eq!((&claims["nonce"], &claims["iat"]), (&json!("n0nce"), &json!(unix(now))));
        assert_eq!(claims["ath"], json!(sha256_base64url("acc3ss")));
        let coordinate = |name: &str| decode(header["jwk"][name].as_str().expect("a coordinate"));
        let point = [vec![4], coordinate("x"), coordinate("y")].concat();
        let message = proof.rsplit_once('.').expect("a signature").0;
        let public = UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, point);
        assert!(public.verify(message.as_bytes(), &signature).is_ok());
    }

    #[test]
    fn every_proof_has_an_id_of_its_own_and_no_token_unless_it_is_used() {
        let key = DpopKey::generate().expect("a key");
        let url = Url::parse("https://a.example/token").expect("a URL");
        let claims = || parts(&key.proof("POST", &url, None, None, SystemTime::now()).expect("a proof")).1;
        let (one, two) = (claims(), claims());
        assert_ne!(one["jti"], two["jti"]);
        assert_eq!((one.get("ath"), one.get("nonce")), (None, None));
    }

    #[test]
    fn a_damaged_key_is_reported() {
        for text in ["", "!", "AAAA"] {
            assert!(matches!(DpopKey::from_secret(&Secret::new(text)), Err(OAuthError::Key { .. })), "{text}");
        }
    }
}
