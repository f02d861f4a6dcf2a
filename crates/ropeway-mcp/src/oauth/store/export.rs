//! Sign-ins as a text that is encrypted with a passphrase, for machines without a keyring or browser.
//!
//! The text is `ropeway-tokens-1:ITERATIONS:SALT:DATA:CHECKSUM`. The key is derived with PBKDF2-HMAC-SHA256
//! ([RFC 8018](https://www.rfc-editor.org/rfc/rfc8018#section-5.2)), and the data encrypted with AES-256-GCM.

use std::num::NonZeroU32;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::error::Unspecified;
use ring::pbkdf2;
use serde::{Deserialize, Serialize};

use super::error::StoreError;
use super::keyring::no_random_numbers;
use super::seal::{KEY_BYTES, StoreKey, fingerprint, random};
use super::{MAX_ENTRIES, MIN_PASSPHRASE_CHARS};
use crate::oauth::credentials::Credentials;
use ropeway_core::secret::Secret;

const FORMAT: &str = "ropeway-tokens-1";

/// Iterations for new exports, as [OWASP] recommends. Unit tests use fewer, because they run without optimization.
///
/// [OWASP]: https://cheatsheetseries.owasp.org/cheatsheets/Password_Storage_Cheat_Sheet.html#pbkdf2
const ITERATIONS: u32 = if cfg!(test) { 1_000 } else { 600_000 };

/// Maximum iterations for an import, which takes a few seconds.
const MAX_ITERATIONS: u32 = 4_000_000;

/// Salt length, in bytes.
const SALT_BYTES: usize = 16;

/// Maximum export size, in bytes.
const MAX_BYTES: usize = 16 << 20;

/// Maximum passphrase size, in bytes.
const MAX_PASSPHRASE_BYTES: usize = 4 << 10;

#[derive(Serialize, Deserialize)]
struct Payload {
    sign_ins: Vec<Credentials>,
}

/// Encrypts sign-ins. This takes a noticeable fraction of a second.
pub(super) fn write(sign_ins: Vec<Credentials>, passphrase: &Secret) -> Result<Secret, StoreError> {
    if sign_ins.len() > MAX_ENTRIES {
        return Err(StoreError::TooMany);
    }
    let text = encrypt(&Payload { sign_ins }, passphrase).map_err(|_| no_random_numbers())?;
    if text.len() > MAX_BYTES { Err(StoreError::TooMany) } else { Ok(Secret::new(text)) }
}

/// Checks a new export's passphrase.
pub(super) fn check_passphrase(passphrase: &Secret) -> Result<(), StoreError> {
    let is_long = passphrase.expose().chars().count() >= MIN_PASSPHRASE_CHARS;
    if is_long && passphrase.expose().len() <= MAX_PASSPHRASE_BYTES { Ok(()) } else { Err(StoreError::WeakPassphrase) }
}

fn encrypt(payload: &Payload, passphrase: &Secret) -> Result<String, Unspecified> {
    let salt = random::<SALT_BYTES>()?;
    let head = format!("{FORMAT}:{ITERATIONS}:{}", URL_SAFE_NO_PAD.encode(salt));
    let text = serde_json::to_vec(payload).map_err(|_| Unspecified)?;
    let data = derive(passphrase, &salt, ITERATIONS)?.seal(head.as_bytes(), &text)?;
    let body = format!("{head}:{}", URL_SAFE_NO_PAD.encode(data));
    let checksum = checksum(&body);
    Ok(format!("{body}:{checksum}"))
}

/// Decrypts sign-ins. Line breaks and spaces in the text are ignored.
pub(super) fn read(text: &str, passphrase: &Secret) -> Result<Vec<Credentials>, StoreError> {
    let invalid = |problem: &str| StoreError::Import { problem: problem.to_owned() };
    if text.len() > MAX_BYTES {
        return Err(invalid("it is too large"));
    }
    let text: String = text.split_whitespace().collect();
    if !text.starts_with("ropeway-tokens-") {
        return Err(invalid("it does not start with `ropeway-tokens-`"));
    }
    if !text.starts_with(&format!("{FORMAT}:")) {
        return Err(invalid("it was created by another version of ropeway, whose format is not supported"));
    }
    let (body, found) = text.rsplit_once(':').unwrap_or_default();
    if found != checksum(body) {
        return Err(invalid("it is incomplete or was changed"));
    }
    let (head, data) = body.rsplit_once(':').unwrap_or_default();
    let (iterations, salt) = parse_head(head).ok_or_else(|| invalid("its parameters are not acceptable"))?;
    let data = URL_SAFE_NO_PAD.decode(data).map_err(|_| invalid("it is not base64"))?;
    if passphrase.expose().len() > MAX_PASSPHRASE_BYTES {
        return Err(StoreError::Passphrase);
    }
    let opened = derive(passphrase, &salt, iterations).and_then(|key| key.open(head.as_bytes(), &data));
    let opened = opened.map_err(|_| StoreError::Passphrase)?;
    // The parser's message could quote a token.
    let payload: Payload = serde_json::from_slice(&opened).map_err(|_| invalid("its content is not supported"))?;
    if payload.sign_ins.len() > MAX_ENTRIES { Err(StoreError::TooMany) } else { Ok(payload.sign_ins) }
}

/// Returns the iterations and the salt, if they are neither too weak nor too expensive.
fn parse_head(head: &str) -> Option<(u32, [u8; SALT_BYTES])> {
    let (iterations, salt) = head.strip_prefix(FORMAT)?.strip_prefix(':')?.split_once(':')?;
    let iterations = iterations.parse().ok().filter(|count| (ITERATIONS..=MAX_ITERATIONS).contains(count))?;
    let salt = URL_SAFE_NO_PAD.decode(salt).ok()?;
    Some((iterations, salt.try_into().ok()?))
}

fn derive(passphrase: &Secret, salt: &[u8], iterations: u32) -> Result<StoreKey, Unspecified> {
    let mut key = [0; KEY_BYTES];
    let iterations = NonZeroU32::new(iterations).ok_or(Unspecified)?;
    pbkdf2::derive(pbkdf2::PBKDF2_HMAC_SHA256, iterations, salt, passphrase.expose().as_bytes(), &mut key);
    StoreKey::new(&key)
}

/// Detects text that was not copied completely. It does not protect against deliberate changes.
fn checksum(body: &str) -> String {
    fingerprint(&[body])[..8].to_owned()
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;
    use crate::oauth::client::RegisteredClient;
    use crate::oauth::serialized::from_unix;
    use crate::oauth::token_set::TokenSet;

    const PASSPHRASE: &str = "correct horse";

    fn sign_ins() -> Vec<Credentials> {
        let client = RegisteredClient::public("client");
        let tokens = TokenSet::bearer("acc3ss");
        let mut sign_in = Credentials::new("https://a", "https://a", "https://as", "https://as/t", client, tokens);
        sign_in.obtained_at = from_unix(1_700_000_000);
        vec![sign_in]
    }

    fn with_checksum(body: &str) -> String {
        format!("{body}:{}", checksum(body))
    }

    #[test]
    fn an_export_opens_with_its_passphrase_only() {
        let text = write(sign_ins(), &PASSPHRASE.into()).expect("an export");
        assert!(!text.expose().contains("acc3ss"));
        assert_eq!(read(text.expose(), &PASSPHRASE.into()).expect("sign-ins"), sign_ins());
        assert!(matches!(read(text.expose(), &"battery staple".into()), Err(StoreError::Passphrase)));
        let (start, end) = text.expose().split_at(50);
        assert_eq!(read(&format!(" {start}\r\n{end}\n"), &PASSPHRASE.into()).expect("sign-ins"), sign_ins());
    }

    #[test]
    fn changed_parameters_do_not_open_an_export() {
        let text = write(sign_ins(), &PASSPHRASE.into()).expect("an export");
        let (body, _) = text.expose().rsplit_once(':').expect("a checksum");
        let more = with_checksum(&body.replace(":1000:", ":1001:"));
        assert!(matches!(read(&more, &PASSPHRASE.into()), Err(StoreError::Passphrase)));
    }

    #[test]
    fn every_truncated_export_is_described_at_once() {
        let text = write(sign_ins(), &PASSPHRASE.into()).expect("an export");
        let began = Instant::now();
        for length in 0..text.expose().len() {
            let error = read(&text.expose()[..length], &PASSPHRASE.into()).expect_err("truncated");
            assert!(matches!(error, StoreError::Import { .. }), "{length}: {error}");
        }
        assert!(began.elapsed().as_secs() < 5, "keys are not derived for truncated texts");
    }

    #[test]
    fn absurd_iterations_and_salts_are_refused_at_once() {
        let salt = URL_SAFE_NO_PAD.encode([0; SALT_BYTES]);
        let began = Instant::now();
        for head in [
            format!("{FORMAT}:4294967295:{salt}"),
            format!("{FORMAT}:99999999999999999999:{salt}"),
            format!("{FORMAT}:-1:{salt}"),
            format!("{FORMAT}:0:{salt}"),
            format!("{FORMAT}:1:{salt}"),
            format!("{FORMAT}:{ITERATIONS}:"),
            format!("{FORMAT}:{ITERATIONS}:{salt}{salt}"),
        ] {
            let error = read(&with_checksum(&format!("{head}:AAAA")), &PASSPHRASE.into()).expect_err("refused");
            assert!(error.to_string().contains("parameters are not acceptable"), "{head}: {error}");
        }
        assert!(began.elapsed().as_secs() < 1);
    }

    #[test]
    fn other_texts_are_not_exports() {
        for (text, problem) in [
            ("", "does not start with"),
            ("hello", "does not start with"),
            ("ropeway-tokens-2:1:2:3:4", "another version"),
            ("ropeway-tokens-1:", "incomplete"),
            ("ropeway-tokens-1:::::", "incomplete"),
            (&"x".repeat(MAX_BYTES + 1), "too large"),
        ] {
            let error = read(text, &PASSPHRASE.into()).expect_err("no export").to_string();
            assert!(error.contains(problem), "{error}");
        }
    }

    #[test]
    fn short_passphrases_are_refused() {
        assert!(check_passphrase(&"1234567".into()).is_err());
        assert!(check_passphrase(&"12345678".into()).is_ok());
        assert!(check_passphrase(&Secret::new("x".repeat(MAX_PASSPHRASE_BYTES + 1))).is_err());
    }
}
