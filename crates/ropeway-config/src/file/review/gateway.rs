//! The gateway settings in a review.

use super::other_settings;
use super::references::collect_references;
use super::token::redact_token;
use super::types::ValueReference;
use crate::file::raw::{RawGateway, RawText};
use crate::settings::ListenAddress;

/// The keys that determine who can connect, and to which sessions.
const KEYS: [&str; 5] = ["listen", "allowed_hosts", "allowed_origins", "keys", "profiles"];

/// Lists the gateway settings as names and values: those that decide who can connect come first.
pub(super) fn review_gateway(raw: &RawGateway, references: &mut Vec<ValueReference>) -> Vec<(String, String)> {
    let mut shown = Vec::new();
    let mut add = |name: &str, text: String| shown.push((format!("gateway.{name}"), text));
    if let Some(listen) = &raw.listen {
        let is_local = listen.parse().is_ok_and(|address: ListenAddress| address.is_local());
        let warning = if is_local { "" } else { " (warning: other machines can connect)" };
        add("listen", format!("{listen}{warning}"));
    }
    raw.allowed_hosts.iter().for_each(|host| add("allowed_hosts", host.clone()));
    raw.allowed_origins
        .iter()
        .for_each(|origin| add("allowed_origins", format!("{origin} (warning: web pages can connect)")));
    for RawText(text) in &raw.keys {
        collect_references(text, references);
        add("keys", redact_token(text, "gateway\0keys", |_| true));
    }
    if let Some(file) = raw.auth.as_ref().and_then(|auth| auth.keys_file.as_ref()) {
        references.push(ValueReference::File(file.clone()));
    }
    for (name, profile) in &raw.profiles.0 {
        for (key, text) in other_settings(profile, &[], &format!("{name}\0tools")) {
            add(&format!("profiles.{name}.{key}"), text);
        }
    }
    other_settings(raw, &KEYS, "gateway").into_iter().for_each(|(key, text)| add(&key, text));
    shown
}
