//! Checks that may be worse through the gateway, each with its reason.

use anyhow::{Context as _, Result, bail};
use serde_json::Value;

use crate::paths;

/// What may be worse; `*` stands for any value.
#[derive(Debug)]
struct Entry {
    check: String,
    client: String,
    way: String,
    server: String,
    reason: String,
}

/// The `fixtures/clients/baseline.json` entries.
#[derive(Debug)]
pub struct Baseline(Vec<Entry>);

/// Where a check ran.
#[derive(Clone, Copy, Debug)]
pub struct Place<'a> {
    pub check: &'a str,
    pub client: &'a str,
    pub way: &'a str,
    pub server: &'a str,
}

impl Baseline {
    pub fn load() -> Result<Self> {
        let path = paths::client_fixtures().join("baseline.json");
        let text = std::fs::read_to_string(&path).with_context(|| format!("could not read `{}`", path.display()))?;
        Self::parse(&text).with_context(|| format!("`{}` is invalid", path.display()))
    }

    pub fn parse(text: &str) -> Result<Self> {
        let entries: Vec<Value> = serde_json::from_str(text)?;
        let entry = |entry: &Value| {
            let word = |name: &str| match entry[name].as_str() {
                Some(word) if !word.is_empty() => Ok(word.to_owned()),
                _ => bail!("{entry} has no `{name}`"),
            };
            Ok(Entry {
                check: word("check")?,
                client: word("client")?,
                way: word("way")?,
                server: word("server")?,
                reason: word("reason")?,
            })
        };
        entries.iter().map(entry).collect::<Result<_>>().map(Self)
    }

    /// Returns why a check may be worse.
    pub fn reason(&self, place: Place<'_>) -> Option<&str> {
        let is = |pattern: &str, value: &str| pattern == "*" || pattern == value;
        let fits = |entry: &&Entry| {
            is(&entry.check, place.check)
                && is(&entry.client, place.client)
                && is(&entry.way, place.way)
                && is(&entry.server, place.server)
        };
        self.0.iter().find(fits).map(|entry| entry.reason.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_excuses_its_place_only() {
        let text = r#"[{ "check": "log", "client": "*", "way": "nested", "server": "modern", "reason": "x" }]"#;
        let baseline = Baseline::parse(text).expect("a baseline");
        let place = Place { check: "log", client: "ts1", way: "nested", server: "modern" };
        assert_eq!(baseline.reason(place), Some("x"));
        assert_eq!(baseline.reason(Place { way: "http", ..place }), None);
        assert!(Baseline::parse(r#"[{ "check": "log" }]"#).is_err());
    }
}
