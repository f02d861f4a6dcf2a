//! Versions of the protocol, and the two eras that they fall into.

use serde::Serialize;

/// An era of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Era {
    /// A session that begins with `initialize`: up to 2025-11-25.
    Legacy,
    /// Requests that stand alone: from 2026-07-28 on.
    Modern,
}

impl Era {
    /// The era in a word: `legacy` or `modern`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Legacy => "legacy",
            Self::Modern => "modern",
        }
    }
}

/// The version of the modern era that we speak.
pub const MODERN: &str = "2026-07-28";

/// The newest version that begins with `initialize`.
pub const LATEST_LEGACY: &str = "2025-11-25";

/// All versions of the legacy era that we speak, newest first.
pub const LEGACY_VERSIONS: [&str; 4] = [LATEST_LEGACY, "2025-06-18", "2025-03-26", "2024-11-05"];

/// Does the version belong to the modern era? Versions are dates, so later ones compare greater.
pub fn is_modern(version: &str) -> bool {
    version.len() == MODERN.len() && version >= MODERN
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_fall_into_two_eras() {
        assert!(is_modern(MODERN));
        assert!(is_modern("2027-01-01"));
        assert!(LEGACY_VERSIONS.iter().all(|version| !is_modern(version)));
        assert!(!is_modern("draft"));
    }
}
