//! Private keys that sign tokens ([RFC 7515](https://www.rfc-editor.org/rfc/rfc7515)).

use ring::rand::SystemRandom;
use ring::signature::{self, EcdsaKeyPair, Ed25519KeyPair, KeyPair as _, RsaEncoding, RsaKeyPair};
use serde_json::{Value, json};

use super::error::OAuthError;
use super::pem::{KeyDer, key_error, parse_pem};
use super::random::base64url;
use ropeway_config::{JwtAlgorithm, PrivateKey};

/// A private key with its algorithm.
pub(crate) struct SigningKey {
    pair: KeyPair,
    algorithm: JwtAlgorithm,
    key_id: Option<String>,
}

enum KeyPair {
    Rsa(Box<RsaKeyPair>),
    P256(EcdsaKeyPair),
    P384(EcdsaKeyPair),
    Ed25519(Ed25519KeyPair),
}

impl std::fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SigningKey").field("algorithm", &self.algorithm).finish_non_exhaustive()
    }
}

impl SigningKey {
    /// Reads the key in the settings.
    pub(crate) fn from_settings(key: &PrivateKey) -> Result<Self, OAuthError> {
        let pair = KeyPair::read(&parse_pem(key.pem.expose())?)?;
        let algorithm = key.algorithm.unwrap_or_else(|| pair.default_algorithm());
        if !pair.can_sign(algorithm) {
            let fitting = pair.default_algorithm().name();
            return Err(key_error(&format!("it does not fit `{}`; use `{fitting}`", algorithm.name())));
        }
        Ok(Self { pair, algorithm, key_id: key.key_id.clone() })
    }

    /// Reads an ES256 key in PKCS #8.
    pub(super) fn p256(pkcs8: &[u8]) -> Result<Self, OAuthError> {
        let algorithm = &signature::ECDSA_P256_SHA256_FIXED_SIGNING;
        let pair = EcdsaKeyPair::from_pkcs8(algorithm, pkcs8, &SystemRandom::new());
        let pair = pair.map_err(|_| key_error("it is not a P-256 key"))?;
        Ok(Self { pair: KeyPair::P256(pair), algorithm: JwtAlgorithm::Es256, key_id: None })
    }

    /// Returns an ES256 key's point: its coordinates.
    pub(super) fn point(&self) -> Option<(&[u8], &[u8])> {
        match &self.pair {
            KeyPair::P256(pair) => pair.public_key().as_ref().get(1..)?.split_at_checked(32),
            _ => None,
        }
    }

    /// Signs claims. `header` is extended by the algorithm and the key's id.
    pub(super) fn sign(&self, mut header: Value, claims: &Value) -> Result<String, OAuthError> {
        header["alg"] = self.algorithm.name().into();
        if let Some(id) = &self.key_id {
            header["kid"] = json!(id);
        }
        let encoded = |value: &Value| base64url(value.to_string().as_bytes());
        let message = format!("{}.{}", encoded(&header), encoded(claims));
        let signature = self.pair.sign(self.algorithm, message.as_bytes())?;
        Ok(format!("{message}.{}", base64url(&signature)))
    }
}

impl KeyPair {
    fn read(der: &KeyDer) -> Result<Self, OAuthError> {
        let random = SystemRandom::new();
        let p256 = &signature::ECDSA_P256_SHA256_FIXED_SIGNING;
        let p384 = &signature::ECDSA_P384_SHA384_FIXED_SIGNING;
        let unknown = || {
            key_error(
                "it must be an RSA key of at least 2048 bits, a P-256 or P-384 key with its public key, or an Ed25519 key",
            )
        };
        match der {
            KeyDer::Pkcs1(der) => {
                RsaKeyPair::from_der(der).map(|pair| Self::Rsa(Box::new(pair))).map_err(|_| unknown())
            }
            KeyDer::Sec1 { private, public } => {
                let read =
                    |algorithm| EcdsaKeyPair::from_private_key_and_public_key(algorithm, private, public, &random);
                read(p256).map(Self::P256).or_else(|_| read(p384).map(Self::P384)).map_err(|_| unknown())
            }
            KeyDer::Pkcs8(der) => {
                if let Ok(pair) = EcdsaKeyPair::from_pkcs8(p256, der, &random) {
                    return Ok(Self::P256(pair));
                }
                if let Ok(pair) = EcdsaKeyPair::from_pkcs8(p384, der, &random) {
                    return Ok(Self::P384(pair));
                }
                if let Ok(pair) = Ed25519KeyPair::from_pkcs8_maybe_unchecked(der) {
                    return Ok(Self::Ed25519(pair));
                }
                RsaKeyPair::from_pkcs8(der).map(|pair| Self::Rsa(Box::new(pair))).map_err(|_| unknown())
            }
        }
    }

    fn default_algorithm(&self) -> JwtAlgorithm {
        match self {
            Self::Rsa(_) => JwtAlgorithm::Rs256,
            Self::P256(_) => JwtAlgorithm::Es256,
            Self::P384(_) => JwtAlgorithm::Es384,
            Self::Ed25519(_) => JwtAlgorithm::EdDsa,
        }
    }

    fn can_sign(&self, algorithm: JwtAlgorithm) -> bool {
        match self {
            Self::Rsa(_) => rsa_encoding(algorithm).is_some(),
            other => other.default_algorithm() == algorithm,
        }
    }

    fn sign(&self, algorithm: JwtAlgorithm, message: &[u8]) -> Result<Vec<u8>, OAuthError> {
        let failed = |_| key_error("signing failed");
        let random = SystemRandom::new();
        match self {
            Self::Rsa(pair) => {
                let encoding = rsa_encoding(algorithm).ok_or_else(|| key_error("it is an RSA key"))?;
                let mut signature = vec![0; pair.public().modulus_len()];
                pair.sign(encoding, &random, message, &mut signature).map_err(failed)?;
                Ok(signature)
            }
            Self::P256(pair) | Self::P384(pair) => Ok(pair.sign(&random, message).map_err(failed)?.as_ref().to_vec()),
            Self::Ed25519(pair) => Ok(pair.sign(message).as_ref().to_vec()),
        }
    }
}

fn rsa_encoding(algorithm: JwtAlgorithm) -> Option<&'static dyn RsaEncoding> {
    Some(match algorithm {
        JwtAlgorithm::Rs256 => &signature::RSA_PKCS1_SHA256,
        JwtAlgorithm::Rs384 => &signature::RSA_PKCS1_SHA384,
        JwtAlgorithm::Rs512 => &signature::RSA_PKCS1_SHA512,
        JwtAlgorithm::Ps256 => &signature::RSA_PSS_SHA256,
        JwtAlgorithm::Ps384 => &signature::RSA_PSS_SHA384,
        JwtAlgorithm::Ps512 => &signature::RSA_PSS_SHA512,
        JwtAlgorithm::Es256 | JwtAlgorithm::Es384 | JwtAlgorithm::EdDsa => return None,
    })
}

#[cfg(test)]
mod tests {
    use base64::Engine as _;
    use base64::engine::general_purpose::URL_SAFE_NO_PAD;
    use ring::signature::{UnparsedPublicKey, VerificationAlgorithm};

    use super::*;

    // Keys for tests, made by openssl.
    const RSA_PKCS8: &str = include_str!("test_keys/rsa_pkcs8.pem");
    const RSA_PKCS1: &str = include_str!("test_keys/rsa_pkcs1.pem");
    const P256_PKCS8: &str = include_str!("test_keys/p256_pkcs8.pem");
    const P256_SEC1: &str = include_str!("test_keys/p256_sec1.pem");
    const P384_SEC1: &str = include_str!("test_keys/p384_sec1.pem");
    const ED25519: &str = include_str!("test_keys/ed25519.pem");

    fn key(pem: &str) -> SigningKey {
        SigningKey::from_settings(&PrivateKey::new(pem)).expect("a key")
    }

    fn public(key: &SigningKey) -> Vec<u8> {
        match &key.pair {
            KeyPair::Rsa(pair) => pair.public().as_ref().to_vec(),
            KeyPair::P256(pair) | KeyPair::P384(pair) => pair.public_key().as_ref().to_vec(),
            KeyPair::Ed25519(pair) => pair.public_key().as_ref().to_vec(),
        }
    }

    fn verify(token: &str, public: &[u8], algorithm: &'static dyn VerificationAlgorithm) -> bool {
        let (message, signature) = token.rsplit_once('.').expect("a signature");
        let signature = URL_SAFE_NO_PAD.decode(signature).expect("base64url");
        UnparsedPublicKey::new(algorithm, public).verify(message.as_bytes(), &signature).is_ok()
    }

    #[test]
    fn every_kind_of_pem_signs() {
        let cases: [(&str, &str, &'static dyn VerificationAlgorithm); 6] = [
            (RSA_PKCS8, "RS256", &signature::RSA_PKCS1_2048_8192_SHA256),
            (RSA_PKCS1, "RS256", &signature::RSA_PKCS1_2048_8192_SHA256),
            (P256_PKCS8, "ES256", &signature::ECDSA_P256_SHA256_FIXED),
            (P256_SEC1, "ES256", &signature::ECDSA_P256_SHA256_FIXED),
            (P384_SEC1, "ES384", &signature::ECDSA_P384_SHA384_FIXED),
            (ED25519, "EdDSA", &signature::ED25519),
        ];
        for (pem, name, algorithm) in cases {
            let key = key(pem);
            let token = key.sign(json!({"typ": "JWT"}), &json!({"a": 1})).expect("a token");
            assert!(verify(&token, &public(&key), algorithm), "{name}");
            let header = URL_SAFE_NO_PAD.decode(token.split('.').next().expect("a header")).expect("base64url");
            let header: Value = serde_json::from_slice(&header).expect("JSON");
            assert_eq!(header, json!({"typ": "JWT", "alg": name}));
        }
    }

    #[test]
    fn the_same_key_in_both_forms_is_the_same() {
        assert_eq!(public(&key(P256_PKCS8)), public(&key(P256_SEC1)));
        assert_eq!(public(&key(RSA_PKCS8)), public(&key(RSA_PKCS1)));
    }

    #[test]
    fn an_algorithm_that_does_not_fit_the_key_is_refused() {
        let settings = PrivateKey::new(P256_PKCS8).with_algorithm(JwtAlgorithm::Rs256);
        let error = SigningKey::from_settings(&settings).expect_err("refused").to_string();
        assert!(error.contains("use `ES256`"), "{error}");
        let settings = PrivateKey::new(RSA_PKCS8).with_algorithm(JwtAlgorithm::Ps256).with_key_id("k1");
        let key = SigningKey::from_settings(&settings).expect("a key");
        let token = key.sign(json!({}), &json!({})).expect("a token");
        assert!(verify(&token, &public(&key), &signature::RSA_PSS_2048_8192_SHA256));
    }

    #[test]
    fn debug_output_of_a_key_is_short() {
        assert_eq!(format!("{:?}", key(ED25519)), "SigningKey { algorithm: EdDsa, .. }");
    }
}
