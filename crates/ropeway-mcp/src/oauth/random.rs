//! Random values, hashes and base64url.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::digest::{SHA256, digest};
use ring::rand::{SecureRandom as _, SystemRandom};

use super::error::OAuthError;

/// Returns 32 random bytes as base64url: 43 characters.
pub(super) fn random_text() -> Result<String, OAuthError> {
    let mut bytes = [0; 32];
    let failed = |_| OAuthError::Settings { reason: "the system's random number generator failed".to_owned() };
    SystemRandom::new().fill(&mut bytes).map_err(failed)?;
    Ok(base64url(&bytes))
}

/// Encodes bytes as base64url without padding.
pub(super) fn base64url(bytes: &[u8]) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

/// Returns a text's SHA-256 as base64url.
pub(super) fn sha256_base64url(text: &str) -> String {
    base64url(digest(&SHA256, text.as_bytes()).as_ref())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_challenge_of_a_verifier_matches_the_example_of_rfc_7636() {
        let verifier = "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk";
        assert_eq!(sha256_base64url(verifier), "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM");
    }

    #[test]
    fn random_texts_differ() {
        let texts = [random_text().expect("a text"), random_text().expect("a text")];
        assert_ne!(texts[0], texts[1]);
        assert!(texts.iter().all(|text| text.len() == 43));
    }
}
