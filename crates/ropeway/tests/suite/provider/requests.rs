//! Encoded requests, compared with golden files.

use std::collections::{BTreeMap, BTreeSet};

use ropeway::message::Dialect;
use ropeway::provider::ProviderErrorKind;
use ropeway_providers::EncodedRequest;
use serde_json::{Value, json};

use super::case::Case;
use super::cases::cases;
use super::{golden, round_trip, rules};

/// Returns all valid requests, by dialect and name.
fn all() -> Vec<(Dialect, String, EncodedRequest)> {
    let written =
        |case: &Case, dialect| Some((dialect, format!("{dialect}/{}", case.name), case.try_encode(dialect).ok()?));
    let all = cases().into_iter().chain(round_trip::cases());
    all.flat_map(|case| case.dialects().into_iter().filter_map(|dialect| written(&case, dialect)).collect::<Vec<_>>())
        .collect()
}

fn body(encoded: &EncodedRequest) -> Value {
    serde_json::from_slice(&encoded.request.body).expect("a body is JSON")
}

/// Returns a request as JSON, with the names of its headers only.
fn seen(encoded: &EncodedRequest) -> Value {
    let request = &encoded.request;
    let headers: Vec<&str> = request.headers.iter().map(|(name, _)| name.as_str()).collect();
    let warnings = &encoded.warnings;
    json!({"method": request.method, "url": request.url, "headers": headers, "warnings": warnings, "body": body(encoded)})
}

#[test]
fn every_request_matches_its_golden_file() {
    let made: BTreeMap<_, _> =
        all().into_iter().map(|(_, name, encoded)| (format!("{name}.json"), seen(&encoded))).collect();
    assert_eq!(made.len(), all().len(), "two cases have one name");
    golden::compare(&golden::folder("golden"), &made);
}

#[test]
fn every_request_follows_the_rules_of_its_api() {
    let mut broken = Vec::new();
    // The endpoint did not sign the call either.
    for (dialect, name, encoded) in all().into_iter().filter(|(_, name, _)| name != "gemini/no_ids_of_gemini") {
        let found = rules::broken(dialect, &encoded.request.url, &body(&encoded));
        broken.extend(found.into_iter().map(|rule| format!("{name}: {rule}")));
    }
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

#[test]
fn encoding_is_deterministic_and_without_the_key() {
    for ((_, name, first), (_, _, second)) in all().into_iter().zip(all()) {
        assert_eq!(first.request.body, second.request.body, "{name}");
        let text = String::from_utf8(first.request.body.to_vec()).expect("text");
        assert!(!text.contains("test-key") && !first.request.url.contains("test-key"), "{name}");
    }
}

#[test]
fn a_request_without_a_message_is_not_sent() {
    let mut refused = BTreeSet::new();
    for case in cases().into_iter().chain(round_trip::cases()) {
        for dialect in case.dialects() {
            if let Err(error) = case.try_encode(dialect) {
                assert_eq!(error.kind, ProviderErrorKind::Unusable, "{error}");
                refused.insert(format!("{dialect}/{}", case.name));
            }
        }
    }
    let impossible = ["nothing_said", "nothing_but_system", "choice_unknown_tool"];
    let expected = Dialect::ALL.into_iter().flat_map(|dialect| impossible.map(|name| format!("{dialect}/{name}")));
    assert_eq!(refused, expected.collect());
}
