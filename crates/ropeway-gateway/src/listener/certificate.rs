//! An X.509 certificate's expiry time.

use std::time::SystemTime;

use ropeway_core::rfc3339;
use ropeway_web::DerElement;

const SEQUENCE: u8 = 0x30;
const EXPLICIT_VERSION: u8 = 0xa0;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;

/// Returns the time until which a certificate is valid; `None` if it is malformed.
///
/// See [RFC 5280, section 4.1](https://www.rfc-editor.org/rfc/rfc5280#section-4.1).
pub(crate) fn not_after(certificate: &[u8]) -> Option<SystemTime> {
    let certificate = DerElement::first(certificate)?.value;
    let mut fields = DerElement::first(certificate)?.value;
    if fields.first() == Some(&EXPLICIT_VERSION) {
        fields = DerElement::first(fields)?.rest;
    }
    // Serial number, signature algorithm and issuer.
    for _ in 0..3 {
        fields = DerElement::first(fields)?.rest;
    }
    let validity = DerElement::first(fields).filter(|validity| validity.tag == SEQUENCE)?;
    let not_before = DerElement::first(validity.value)?;
    let not_after = DerElement::first(not_before.rest)?;
    parse_time(not_after.tag, std::str::from_utf8(not_after.value).ok()?)
}

/// Parses `YYMMDDHHMMSSZ` or `YYYYMMDDHHMMSSZ`.
fn parse_time(kind: u8, text: &str) -> Option<SystemTime> {
    let digits = text.strip_suffix('Z').filter(|digits| digits.bytes().all(|byte| byte.is_ascii_digit()))?;
    let (century, digits) = match (kind, digits.len()) {
        (UTC_TIME, 12) if digits < "50" => ("20", digits),
        (UTC_TIME, 12) => ("19", digits),
        (GENERALIZED_TIME, 14) => digits.split_at(2),
        _ => return None,
    };
    let part = |index: usize| &digits[2 * index..2 * index + 2];
    let (year, month, day, hour, minute, second) = (part(0), part(1), part(2), part(3), part(4), part(5));
    rfc3339::parse(&format!("{century}{year}-{month}-{day}T{hour}:{minute}:{second}Z"))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn at(seconds: u64) -> Option<SystemTime> {
        Some(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds))
    }

    #[test]
    fn times_of_both_kinds_are_parsed() {
        assert_eq!(parse_time(UTC_TIME, "700101000000Z"), at(0));
        assert_eq!(parse_time(UTC_TIME, "491231235959Z"), at(2_524_607_999));
        assert_eq!(parse_time(GENERALIZED_TIME, "20240229120000Z"), at(1_709_208_000));
        assert_eq!(parse_time(GENERALIZED_TIME, "21000301000000Z"), at(4_107_542_400));
        for text in ["", "Z", "700101000000", "701301000000Z", "700100000000Z", "7001010000é0Z"] {
            assert_eq!(parse_time(UTC_TIME, text), None, "{text}");
        }
    }

    #[test]
    fn malformed_certificates_have_no_end() {
        let certificate = [0x30, 0x82, 0xff, 0xff, 0x30, 0x80, 0x00];
        for end in 0..certificate.len() {
            assert_eq!(not_after(&certificate[..end]), None);
        }
        assert_eq!(not_after(&[0x30; 64]), None);
        assert_eq!(not_after(&[0xff; 64]), None);
    }
}
