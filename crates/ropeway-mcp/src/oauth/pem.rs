//! Private keys in PEM text: PKCS #8, PKCS #1 and SEC 1.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::error::OAuthError;
use ropeway_web::DerElement;

/// Maximum PEM text length, in bytes. A longer text is an error.
const MAX_TEXT: usize = 64 << 10;

/// A private key's DER.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum KeyDer {
    /// `PRIVATE KEY`: any key type.
    Pkcs8(Vec<u8>),
    /// `RSA PRIVATE KEY`.
    Pkcs1(Vec<u8>),
    /// `EC PRIVATE KEY`: the private number and the public point.
    Sec1 { private: Vec<u8>, public: Vec<u8> },
}

/// Creates the error for an unusable key.
pub(super) fn key_error(reason: &str) -> OAuthError {
    OAuthError::Key { reason: reason.to_owned() }
}

/// Finds the first private key in a PEM text. Environment variables often contain `\n` instead of line breaks.
pub(super) fn parse_pem(text: &str) -> Result<KeyDer, OAuthError> {
    if text.len() > MAX_TEXT {
        return Err(key_error("the PEM text is too long"));
    }
    let text = text.replace("\\n", "\n");
    let mut rest = text.as_str();
    while let Some((_, behind)) = rest.split_once("-----BEGIN ") {
        let Some((label, body)) = behind.split_once("-----") else { break };
        let Some((body, behind)) = body.split_once(&format!("-----END {label}-----")) else { break };
        rest = behind;
        let der = || {
            let body: String = body.split_whitespace().collect();
            STANDARD.decode(body).map_err(|_| key_error("the PEM text is not valid base64"))
        };
        match label {
            "PRIVATE KEY" => return Ok(KeyDer::Pkcs8(der()?)),
            "RSA PRIVATE KEY" if !body.contains(':') => return Ok(KeyDer::Pkcs1(der()?)),
            "EC PRIVATE KEY" if !body.contains(':') => return parse_sec1(&der()?),
            "ENCRYPTED PRIVATE KEY" | "RSA PRIVATE KEY" | "EC PRIVATE KEY" => {
                return Err(key_error("it is encrypted; decrypt it with `openssl pkey`"));
            }
            "OPENSSH PRIVATE KEY" => {
                return Err(key_error("it is an OpenSSH key; convert it with `ssh-keygen -p -m PKCS8`"));
            }
            _ => {}
        }
    }
    Err(key_error("the PEM text has no `-----BEGIN PRIVATE KEY-----`"))
}

/// Parses an `ECPrivateKey` ([RFC 5915](https://www.rfc-editor.org/rfc/rfc5915#section-3)).
fn parse_sec1(der: &[u8]) -> Result<KeyDer, OAuthError> {
    const INTEGER: u8 = 0x02;
    const BIT_STRING: u8 = 0x03;
    const OCTET_STRING: u8 = 0x04;
    const SEQUENCE: u8 = 0x30;
    const PUBLIC_KEY: u8 = 0xa1;
    let malformed = || key_error("the EC key is malformed");
    let sequence = DerElement::first(der).filter(|element| element.tag == SEQUENCE).ok_or_else(malformed)?;
    let mut content = sequence.value;
    let (mut private, mut public) = (None, None);
    while !content.is_empty() {
        let DerElement { tag, value, rest } = DerElement::first(content).ok_or_else(malformed)?;
        match tag {
            INTEGER if value != [1] => return Err(malformed()),
            OCTET_STRING => private = Some(value.to_vec()),
            PUBLIC_KEY => {
                // The first byte is the number of unused bits.
                let bits = DerElement::first(value).filter(|bits| bits.tag == BIT_STRING).ok_or_else(malformed)?;
                let point = bits.value.strip_prefix(&[0]).ok_or_else(malformed)?;
                public = Some(point.to_vec());
            }
            _ => {}
        }
        content = rest;
    }
    let private = private.ok_or_else(malformed)?;
    let public = public.ok_or_else(|| key_error("the EC key has no public key; convert it with `openssl ec`"))?;
    Ok(KeyDer::Sec1 { private, public })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn keys_that_cannot_be_used_say_why() {
        for (text, reason) in [
            ("", "has no `-----BEGIN PRIVATE KEY-----`"),
            ("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----", "has no"),
            ("-----BEGIN PRIVATE KEY-----\nAAAA", "has no"),
            ("-----BEGIN PRIVATE KEY-----\n!\n-----END PRIVATE KEY-----", "base64"),
            ("-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----", "openssl pkey"),
            (
                "-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\n\nAAAA\n-----END RSA PRIVATE KEY-----",
                "openssl pkey",
            ),
            ("-----BEGIN OPENSSH PRIVATE KEY-----\nAAAA\n-----END OPENSSH PRIVATE KEY-----", "ssh-keygen"),
            ("-----BEGIN EC PRIVATE KEY-----\nMAA=\n-----END EC PRIVATE KEY-----", "malformed"),
        ] {
            let error = parse_pem(text).expect_err(text).to_string();
            assert!(error.contains(reason), "{error}");
        }
    }

    #[test]
    fn escaped_line_breaks_and_other_blocks_are_accepted() {
        let text = r"-----BEGIN EC PARAMETERS-----\nAAAA\n-----END EC PARAMETERS-----\n-----BEGIN PRIVATE KEY-----\nAQID\n-----END PRIVATE KEY-----\n";
        assert_eq!(parse_pem(text).ok(), Some(KeyDer::Pkcs8(vec![1, 2, 3])));
    }

    proptest! {
        #[test]
        fn arbitrary_der_does_not_panic(der in prop::collection::vec(any::<u8>(), 0..80)) {
            let _ = parse_sec1(&der);
        }
    }
}
