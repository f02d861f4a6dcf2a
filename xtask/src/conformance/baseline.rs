//! Scenarios that are expected to fail, each with its reason.

use std::collections::BTreeMap;

use anyhow::{Context, Result, bail};

use crate::paths;

/// One mode's expected failures: `REVISION/SCENARIO` and the reason.
#[derive(Debug, Default, PartialEq)]
pub struct Baseline(BTreeMap<String, String>);

impl Baseline {
    /// Reads a mode's section from `fixtures/conformance-baseline.yml`.
    pub fn load(mode: &str) -> Result<Self> {
        let path = paths::root().join("fixtures/conformance-baseline.yml");
        let text = std::fs::read_to_string(&path).with_context(|| format!("could not read `{}`", path.display()))?;
        Self::parse(&text, mode).with_context(|| format!("`{}` is invalid", path.display()))
    }

    /// Parses the YAML subset that the file uses: sections, and lines with a key and a reason.
    fn parse(text: &str, mode: &str) -> Result<Self> {
        let mut entries = BTreeMap::new();
        let mut section = "";
        for (number, line) in text.lines().enumerate() {
            if line.trim().is_empty() || line.trim_start().starts_with('#') {
                continue;
            }
            let Some((key, reason)) = line.split_once(':') else {
                bail!("line {}: expected `key: reason`", number + 1)
            };
            let reason = reason.trim().trim_matches('"');
            if !line.starts_with(' ') {
                section = key;
            } else if reason.is_empty() {
                bail!("line {}: `{}` has no reason", number + 1, key.trim());
            } else if section == mode {
                entries.insert(key.trim().to_owned(), reason.to_owned());
            }
        }
        Ok(Self(entries))
    }

    /// Returns why a scenario is expected to fail.
    pub fn reason(&self, revision: &str, scenario: &str) -> Option<&str> {
        self.0.get(&format!("{revision}/{scenario}")).map(String::as_str)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_baseline_has_the_reasons_of_its_mode() {
        let text = "# comment\ndirect: {}\ngateway:\n  2026-07-28/ping: \"removed\"\nother:\n  2025-11-25/x: y\n";
        let baseline = Baseline::parse(text, "gateway").expect("a baseline");
        assert_eq!(baseline.reason("2026-07-28", "ping"), Some("removed"));
        assert_eq!(baseline.reason("2025-11-25", "x"), None);
        assert_eq!(Baseline::parse(text, "direct").expect("a baseline"), Baseline::default());
    }

    #[test]
    fn an_entry_without_a_reason_is_refused() {
        assert!(Baseline::parse("direct:\n  2026-07-28/ping:\n", "direct").is_err());
    }
}
