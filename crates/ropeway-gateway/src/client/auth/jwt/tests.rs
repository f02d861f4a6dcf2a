//! Claims and headers of tokens. Signatures and fetched keys are tested over HTTP.

use serde_json::json;

use super::*;
use ropeway_core::event::Events;

const NOW: f64 = 1_800_000_000.0;

fn verifier(change: impl FnOnce(&mut JwtSettings)) -> JwtVerifier {
    let mut settings = JwtSettings::new("https://auth.example", "https://gateway.example/mcp");
    change(&mut settings);
    let keys = KeySetCache::new(&settings.issuer, None, Events::default());
    JwtVerifier::new(&settings, keys, &Arc::default(), PrincipalLimits::default())
}

fn claims(change: Value) -> Map<String, Value> {
    let mut claims =
        json!({"iss": "https://auth.example", "aud": "https://gateway.example/mcp", "exp": NOW + 60.0, "sub": "alice"});
    for (name, value) in change.as_object().expect("claims") {
        claims[name] = value.clone();
    }
    claims.as_object().expect("claims").clone()
}

fn check(change: Value) -> Result<f64, TokenRefusal> {
    verifier(|_| {}).check_claims(&claims(change), NOW)
}

#[test]
fn tokens_of_others_and_for_others_are_refused() {
    assert!(check(json!({})).is_ok());
    assert!(check(json!({"aud": ["other", "https://gateway.example/mcp"]})).is_ok());
    let refused = |change: Value, reason: &'static str| {
        assert_eq!(check(change.clone()), Err(TokenRefusal::Invalid(reason)), "{change}");
    };
    for issuer in
        [json!("https://evil.example"), json!("https://auth.example/"), json!(null), json!(["https://auth.example"])]
    {
        refused(json!({"iss": issuer}), "the token has the wrong issuer");
    }
    for audience in [json!("https://gateway.example"), json!([]), json!(null), json!({"x": 1}), json!(["a", "b"])] {
        refused(json!({"aud": audience}), "the token has the wrong audience");
    }
}

#[test]
fn the_clock_of_the_issuer_may_differ_a_little() {
    assert!(check(json!({"exp": NOW - 59.0})).is_ok());
    assert_eq!(check(json!({"exp": NOW - 60.0})), Err(TokenRefusal::Invalid("the token has expired")));
    for exp in [json!(null), json!("9999999999"), json!([])] {
        assert_eq!(check(json!({"exp": exp})), Err(TokenRefusal::Invalid("the token has no `exp`")));
    }
    assert!(check(json!({"nbf": NOW + 60.0})).is_ok());
    for nbf in [json!(NOW + 61.0), json!("soon")] {
        assert_eq!(check(json!({"nbf": nbf})), Err(TokenRefusal::Invalid("the token is not valid yet")));
    }
}

#[test]
fn algorithms_without_public_keys_are_refused() {
    let token = |header: Value| {
        let encode = |value: &str| URL_SAFE_NO_PAD.encode(value);
        format!("{}.{}.{}", encode(&header.to_string()), encode("{}"), encode("signature"))
    };
    let parse = |token: &str| ReadToken::parse(token, &[JwtAlgorithm::Rs256, JwtAlgorithm::Es256]).err();
    assert_eq!(parse(&token(json!({"alg": "RS256", "typ": "at+jwt", "kid": "a"}))), None);
    assert_eq!(parse(&token(json!({"alg": "ES256", "typ": "application/AT+JWT"}))), None);
    for alg in ["none", "None", "nOnE", "", "HS256", "HS512", "RS512", "rs256", "EdDSA"] {
        let refused = Some(TokenRefusal::Invalid("the signature algorithm is not accepted"));
        assert_eq!(parse(&token(json!({"alg": alg}))), refused, "{alg}");
    }
    for (header, reason) in [
        (json!({"alg": "RS256", "crit": ["b64"]}), "the token has critical extensions"),
        (json!({"alg": "RS256", "typ": "logout+jwt"}), "the token is not an access token"),
        (json!({"typ": "JWT"}), "the token is malformed"),
        (json!([]), "the token is malformed"),
    ] {
        assert_eq!(parse(&token(header)), Some(TokenRefusal::Invalid(reason)));
    }
    let valid = token(json!({"alg": "RS256"}));
    for malformed in ["", "a", "a.b", "..", &format!("{valid}.x"), &valid.replace('.', "!"), &valid[..valid.len() / 2]]
    {
        assert_eq!(parse(malformed), Some(TokenRefusal::Invalid("the token is malformed")), "{malformed}");
    }
    let long = format!("{valid}{}", "A".repeat(MAX_TOKEN));
    assert_eq!(parse(&long), Some(TokenRefusal::Invalid("the token is too long")));
}

#[test]
fn scopes_are_a_text_or_a_list() {
    for (change, expected) in [
        (json!({"scope": "mcp read"}), vec!["mcp", "read"]),
        (json!({"scp": ["mcp", 7]}), vec!["mcp"]),
        (json!({"scp": "mcp"}), vec!["mcp"]),
        (json!({"scope": 7}), vec![]),
        (json!({}), vec![]),
    ] {
        assert_eq!(scopes(&claims(change)), expected);
    }
}

#[test]
fn a_principal_cannot_forge_log_lines() {
    assert_eq!(principal_name(&claims(json!({})), "sub"), Ok("alice"));
    assert_eq!(principal_name(&claims(json!({"email": "a@b"})), "email"), Ok("a@b"));
    for name in [json!(""), json!("a\nkey:root"), json!("a\u{1b}[31m"), json!(7), json!(null), json!("x".repeat(257))] {
        assert!(principal_name(&claims(json!({"sub": name})), "sub").is_err(), "{name}");
    }
}
