//! Signatures of all kinds of keys.

use ring::rand::SystemRandom;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, ECDSA_P384_SHA384_FIXED_SIGNING, EcdsaKeyPair, EcdsaSigningAlgorithm,
    Ed25519KeyPair, KeyPair as _,
};
use serde_json::json;

use super::*;

/// The message of the signatures below, which OpenSSL made. The private key is not kept.
const MESSAGE: &[u8] = b"header.claims";
const RSA_N: &str = "ousTZRHYDtRW1w7tPYVfazH8W9j651RC7lnIi_h0Z0hZotguX2uBoSZy1tJGJlpZwj1dEdY5ot0JM7C2Iy0_Ilh-ZGxm-NIntuuonSXlu5aKG1dezFT1q_Dmmi9BlC_SV0P6SEq7HkIJ25kWtg9uQv6kELXfzqzuqtZ_Ge5uabU8l5CLoLgDI6bIWW152hWiFkjyY75Myal5JZeQcMjJSa0688BIDnN4v_Qs6tr7xUERGOL5y3dOLdPwV7Y5QgbCT-kz3WkyDDjrSrlrql3TuAQP0jnldQQAdlf8lptL466koCKakQQ9Utv5Qh4DpX5J449F9FzRd8n13IY6170Lyw";
const RSA_PKCS1: &str = "ZJ4DGdZhxWQOAXH-LqlGD8V4GRGq_322KDMf5OkzXSMEF3i6JoUx3z1kyHO4y-bZibzMiPeLSPjX6Y98v0PkiCcf9avqzcyOWuiheUQxC_k9d98MU-0WTh7C2Y7TWk5il8V7WDQyEk5qkF4kyzIRG3dpmaOp_LMWHPy8qQGBZ1LaJ5FDqDpJCdRKxwdyDbRu3nraYX2aoX8TlrXgCGw4NBCOylLJ2EHAem-BG1fcrfwdhN1-yOkk7lOshiDeZD9CGOQXeyAUzGhN7vKbLpYwyYSjdlQiTC9dGuAWbhAh_sq7PhFb5Rf1UYlJSiwkWNqcvV0sgNHse0CHE4fKLCUF5A";
const RSA_PSS: &str = "kJmhNZkm_HpWwByeCEQ6_v-q0NrukAyTNNxeuLibOYUPdRI0Hj_M9zuE_exEqmbntPHi1n00fNQwB7r-acHLXxVpvcu3DZpXzfucySJ-4s7yd0SLzO-BnTZXplx3sg6dF8o3ctTdiO9-7iO3Hp8FTS6__UPqvhyPFZPf7Dx4xyCWIQZTcqiJanH_dnAmjYRNgF_SVBszzdoZk-r-XhlxyU-CDLR-QrcHWu9lq4lXbrwsXybtHuALC_bBQ2ZH2DloNcw_QK89Y83yXPMs46mM3Gm9x3ButGB1GXCQ5uCeh6SSCUPxMBqemAgpO3W-7_JDe8AoH_9cf0UQZ4y5gHE3EQ";

fn encode(bytes: &[u8]) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

fn set(keys: Value) -> KeySet {
    KeySet::parse(json!({"keys": keys}).to_string().as_bytes()).expect("a set")
}

fn rsa(more: Value) -> Value {
    let mut key = json!({"kty": "RSA", "n": RSA_N, "e": "AQAB"});
    for (name, value) in more.as_object().expect("members") {
        key[name] = value.clone();
    }
    key
}

fn verify_rsa(set: &KeySet, algorithm: JwtAlgorithm, kid: Option<&str>, signature: &str) -> Result<(), SignatureError> {
    set.verify(algorithm, kid, MESSAGE, &URL_SAFE_NO_PAD.decode(signature).expect("base64"))
}

#[test]
fn rsa_signatures_of_another_implementation_are_verified() {
    let set = set(json!([rsa(json!({"kid": "a", "use": "sig"}))]));
    assert_eq!(verify_rsa(&set, JwtAlgorithm::Rs256, Some("a"), RSA_PKCS1), Ok(()));
    assert_eq!(verify_rsa(&set, JwtAlgorithm::Ps256, None, RSA_PSS), Ok(()));
    assert_eq!(verify_rsa(&set, JwtAlgorithm::Rs256, None, RSA_PSS), Err(SignatureError::Wrong));
    assert_eq!(verify_rsa(&set, JwtAlgorithm::Rs384, None, RSA_PKCS1), Err(SignatureError::Wrong));
    assert_eq!(verify_rsa(&set, JwtAlgorithm::Rs256, Some("b"), RSA_PKCS1), Err(SignatureError::NoKey));
    assert_eq!(verify_rsa(&set, JwtAlgorithm::Es256, None, RSA_PKCS1), Err(SignatureError::NoKey));
    assert_eq!(set.verify(JwtAlgorithm::Rs256, None, b"other", &[0; 256]), Err(SignatureError::Wrong));
}

#[test]
fn a_key_is_used_with_its_own_algorithm_only() {
    let set = set(json!([rsa(json!({"alg": "PS256"}))]));
    assert_eq!(verify_rsa(&set, JwtAlgorithm::Ps256, None, RSA_PSS), Ok(()));
    assert_eq!(verify_rsa(&set, JwtAlgorithm::Rs256, None, RSA_PKCS1), Err(SignatureError::NoKey));
}

#[test]
fn elliptic_curve_signatures_are_verified() {
    let random = SystemRandom::new();
    let ecdsa = |algorithm: &'static EcdsaSigningAlgorithm, curve: &str| {
        let pkcs8 = EcdsaKeyPair::generate_pkcs8(algorithm, &random).expect("a key");
        let pair = EcdsaKeyPair::from_pkcs8(algorithm, pkcs8.as_ref(), &random).expect("a key");
        let (x, y) = pair.public_key().as_ref()[1..].split_at((pair.public_key().as_ref().len() - 1) / 2);
        let key = json!({"kty": "EC", "crv": curve, "x": encode(x), "y": encode(y)});
        (set(json!([key])), pair.sign(&random, MESSAGE).expect("a signature").as_ref().to_vec())
    };
    for (algorithm, signing, curve) in [
        (JwtAlgorithm::Es256, &ECDSA_P256_SHA256_FIXED_SIGNING, "P-256"),
        (JwtAlgorithm::Es384, &ECDSA_P384_SHA384_FIXED_SIGNING, "P-384"),
    ] {
        let (set, signature) = ecdsa(signing, curve);
        assert_eq!(set.verify(algorithm, None, MESSAGE, &signature), Ok(()));
        assert_eq!(set.verify(algorithm, None, b"x", &signature), Err(SignatureError::Wrong));
        // Zeros once verified in other implementations (CVE-2022-21449).
        assert_eq!(set.verify(algorithm, None, MESSAGE, &vec![0; signature.len()]), Err(SignatureError::Wrong));
        assert_eq!(set.verify(algorithm, None, MESSAGE, &[]), Err(SignatureError::Wrong));
    }
    let pair = Ed25519KeyPair::from_seed_unchecked(&[7; 32]).expect("a key");
    let set = set(json!([{"kty": "OKP", "crv": "Ed25519", "x": encode(pair.public_key().as_ref())}]));
    assert_eq!(set.verify(JwtAlgorithm::EdDsa, None, MESSAGE, pair.sign(MESSAGE).as_ref()), Ok(()));
}

#[test]
fn keys_that_cannot_verify_signatures_are_left_out() {
    for key in [
        json!({"kty": "oct", "k": "c2VjcmV0"}),
        json!({"kty": "oct", "k": "c2VjcmV0", "alg": "HS256"}),
        rsa(json!({"use": "enc"})),
        rsa(json!({"key_ops": ["sign"]})),
        rsa(json!({"alg": "HS256"})),
        rsa(json!({"alg": "none"})),
        rsa(json!({"n": "not base64!"})),
        json!({"kty": "EC", "crv": "P-256", "x": "AA", "y": "AA"}),
        json!({"kty": "EC", "crv": "secp256k1", "x": "AA", "y": "AA"}),
        json!({"kty": "OKP", "crv": "X25519", "x": "AA"}),
        json!("key"),
        json!({}),
    ] {
        assert!(set(json!([key])).is_empty(), "{key}");
    }
    assert!(!set(json!([{"kty": "oct"}, rsa(json!({"key_ops": ["verify"]}))])).is_empty());
    for text in ["", "[]", "{}", r#"{"keys":{}}"#, "<html>"] {
        assert!(KeySet::parse(text.as_bytes()).is_err(), "{text}");
    }
}

#[test]
fn a_token_without_kid_is_verified_with_a_bounded_number_of_keys() {
    let other = |at: usize| {
        let mut n = URL_SAFE_NO_PAD.decode(RSA_N).expect("base64");
        n[100] ^= at as u8 + 1;
        rsa(json!({"n": encode(&n)}))
    };
    let mut keys: Vec<Value> = (0..MAX_TRIED).map(other).collect();
    keys.push(rsa(json!({"kid": "a"})));
    let set = set(json!(keys));
    assert_eq!(verify_rsa(&set, JwtAlgorithm::Rs256, None, RSA_PKCS1), Err(SignatureError::Wrong));
    assert_eq!(verify_rsa(&set, JwtAlgorithm::Rs256, Some("a"), RSA_PKCS1), Ok(()));
}
