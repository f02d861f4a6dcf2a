//! Protocol versions and the two eras that they belong to.

use serde::Serialize;

/// A protocol era: versions with the same kind of handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Era {
    /// Sessions that start with `initialize`: up to 2025-11-25.
    Legacy,
    /// Self-contained requests without a session: from 2026-07-28.
    Modern,
}

impl Era {
    /// Returns `legacy` or `modern`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Legacy => "legacy",
            Self::Modern => "modern",
        }
    }
}

/// The supported modern version.
pub const MODERN: &str = "2026-07-28";

/// The latest legacy version.
pub const LATEST_LEGACY: &str = "2025-11-25";

/// The supported legacy versions, newest first.
pub const LEGACY_VERSIONS: [&str; 4] = [LATEST_LEGACY, "2025-06-18", "2025-03-26", "2024-11-05"];

/// Returns `true` if the version belongs to the modern era. Versions are dates, so later ones compare greater.
pub fn is_modern(version: &str) -> bool {
    version.len() == MODERN.len() && version >= MODERN
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_belong_to_two_eras() {
        assert!(is_modern(MODERN));
        assert!(is_modern("2027-01-01"));
        assert!(LEGACY_VERSIONS.iter().all(|version| !is_modern(version)));
        assert!(!is_modern("draft"));
    }
}
