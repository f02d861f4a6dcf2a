//! An authorization server's public keys, and the signatures that they verify.
//!
//! See [JSON Web Key](https://www.rfc-editor.org/rfc/rfc7517) and
//! [JSON Web Algorithms](https://www.rfc-editor.org/rfc/rfc7518).

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::signature::{self, RsaPublicKeyComponents, UnparsedPublicKey, VerificationAlgorithm};
use serde::Deserialize;
use serde_json::Value;

use ropeway_config::JwtAlgorithm;

/// Maximum number of keys in a set. Further ones are ignored.
const MAX_KEYS: usize = 100;

/// Maximum number of keys that a token without `kid` is verified with.
const MAX_TRIED: usize = 8;

/// A set of public keys.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct KeySet(Vec<PublicKey>);

/// A public key that can verify signatures.
#[derive(Clone, Debug, PartialEq, Eq)]
struct PublicKey {
    kid: Option<String>,
    /// The only algorithm that the key may be used with, if it has one.
    algorithm: Option<JwtAlgorithm>,
    material: KeyMaterial,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum KeyMaterial {
    Rsa {
        n: Vec<u8>,
        e: Vec<u8>,
    },
    /// The uncompressed point.
    P256(Vec<u8>),
    P384(Vec<u8>),
    Ed25519(Vec<u8>),
}

/// Why no key verifies a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SignatureError {
    /// The set has no key for the token. A newer set may have it.
    NoKey,
    /// The signature is wrong.
    Wrong,
}

impl KeySet {
    /// Reads a set. Other keys are left out: private and symmetric keys, keys for encryption, unknown curves.
    pub(crate) fn parse(text: &[u8]) -> Result<Self, serde_json::Error> {
        #[derive(Deserialize)]
        struct Document {
            keys: Vec<Value>,
        }
        let document: Document = serde_json::from_slice(text)?;
        Ok(Self(document.keys.iter().filter_map(PublicKey::read).take(MAX_KEYS).collect()))
    }

    /// Returns `true` if no key can verify signatures.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Verifies a signature with the key that the token names, or with all that fit.
    pub(crate) fn verify(
        &self,
        algorithm: JwtAlgorithm,
        kid: Option<&str>,
        message: &[u8],
        signature: &[u8],
    ) -> Result<(), SignatureError> {
        let fits = |key: &&PublicKey| {
            (kid.is_none() || key.kid.as_deref() == kid) && key.algorithm.is_none_or(|own| own == algorithm)
        };
        let mut tried = 0;
        for key in self.0.iter().filter(fits) {
            match key.material.verify(algorithm, message, signature) {
                Some(true) => return Ok(()),
                Some(false) => tried += 1,
                None => {}
            }
            if tried >= MAX_TRIED {
                break;
            }
        }
        Err(if tried == 0 { SignatureError::NoKey } else { SignatureError::Wrong })
    }
}

impl PublicKey {
    fn read(key: &Value) -> Option<Self> {
        let text = |name: &str| key.get(name).and_then(Value::as_str);
        let bytes = |name: &str| URL_SAFE_NO_PAD.decode(text(name)?.trim_end_matches('=')).ok();
        if text("use").is_some_and(|usage| usage != "sig") {
            return None;
        }
        let can_verify = |operations: &Value| {
            operations.as_array().is_some_and(|operations| operations.iter().any(|operation| operation == "verify"))
        };
        if key.get("key_ops").is_some_and(|operations| !can_verify(operations)) {
            return None;
        }
        let algorithm = match text("alg") {
            Some(name) => Some(JwtAlgorithm::parse(name)?),
            None => None,
        };
        let point = |size: usize| {
            let (x, y) = (bytes("x")?, bytes("y")?);
            (x.len() == size && y.len() == size).then(|| [&[4], x.as_slice(), y.as_slice()].concat())
        };
        let material = match (text("kty")?, text("crv")) {
            ("RSA", _) => KeyMaterial::Rsa { n: bytes("n")?, e: bytes("e")? },
            ("EC", Some("P-256")) => KeyMaterial::P256(point(32)?),
            ("EC", Some("P-384")) => KeyMaterial::P384(point(48)?),
            ("OKP", Some("Ed25519")) => KeyMaterial::Ed25519(bytes("x").filter(|x| x.len() == 32)?),
            // A symmetric key in a public set is not secret.
            _ => return None,
        };
        Some(Self { kid: text("kid").map(str::to_owned), algorithm, material })
    }
}

impl KeyMaterial {
    /// Verifies a signature. `None` if the key does not fit the algorithm.
    fn verify(&self, algorithm: JwtAlgorithm, message: &[u8], signature: &[u8]) -> Option<bool> {
        let with = |algorithm: &'static dyn VerificationAlgorithm, key: &[u8]| {
            UnparsedPublicKey::new(algorithm, key).verify(message, signature).is_ok()
        };
        Some(match (self, algorithm) {
            (Self::P256(key), JwtAlgorithm::Es256) => with(&signature::ECDSA_P256_SHA256_FIXED, key),
            (Self::P384(key), JwtAlgorithm::Es384) => with(&signature::ECDSA_P384_SHA384_FIXED, key),
            (Self::Ed25519(key), JwtAlgorithm::EdDsa) => with(&signature::ED25519, key),
            (Self::Rsa { n, e }, algorithm) => {
                let parameters = match algorithm {
                    JwtAlgorithm::Rs256 => &signature::RSA_PKCS1_2048_8192_SHA256,
                    JwtAlgorithm::Rs384 => &signature::RSA_PKCS1_2048_8192_SHA384,
                    JwtAlgorithm::Rs512 => &signature::RSA_PKCS1_2048_8192_SHA512,
                    JwtAlgorithm::Ps256 => &signature::RSA_PSS_2048_8192_SHA256,
                    JwtAlgorithm::Ps384 => &signature::RSA_PSS_2048_8192_SHA384,
                    JwtAlgorithm::Ps512 => &signature::RSA_PSS_2048_8192_SHA512,
                    JwtAlgorithm::Es256 | JwtAlgorithm::Es384 | JwtAlgorithm::EdDsa => return None,
                };
                // The numbers are unsigned, and some issuers write leading zeros.
                let (n, e) = (without_zeros(n), without_zeros(e));
                RsaPublicKeyComponents { n, e }.verify(parameters, message, signature).is_ok()
            }
            _ => return None,
        })
    }
}

fn without_zeros(number: &[u8]) -> &[u8] {
    &number[number.iter().take_while(|byte| **byte == 0).count()..]
}

#[cfg(test)]
mod tests;
