//! Node.js versions and npm version ranges.

use std::path::Path;

use serde_json::Value;

/// A Node.js version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Version(pub(super) [u32; 3]);

/// The minimum Node.js version for the TypeScript MCP SDK, which most servers use.
pub(super) const MIN_VERSION: Version = Version([18, 0, 0]);

impl Version {
    /// Parses the `node --version` output.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let text = text.trim().trim_start_matches(['v', 'V']);
        let text = text.split(['-', '+']).next().unwrap_or_default();
        let mut parts = text.split('.').map(|part| part.parse().ok());
        let version = [parts.next()??, parts.next().unwrap_or(Some(0))?, parts.next().unwrap_or(Some(0))?];
        parts.next().is_none().then_some(Self(version))
    }

    /// Returns `true` if the version is in an npm range (<https://docs.npmjs.com/cli/configuring-npm/package-json#engines>).
    /// An invalid range contains every version.
    pub(super) fn is_in(self, range: &str) -> bool {
        range.split("||").any(|part| self.is_in_all(part))
    }

    fn is_in_all(self, part: &str) -> bool {
        // `>= 18` equals `>=18`, and `16 - 20` includes both ends.
        let (from, to) = part.split_once(" - ").map_or((part, None), |(from, to)| (from, Some(to)));
        if let Some(to) = to {
            return self.fits(">=", from.trim()) && self.fits("<=", to.trim());
        }
        let mut operator = "";
        let mut fits = true;
        for word in from.split_whitespace() {
            let digits = word.find(|c: char| c.is_ascii_alphanumeric() || c == '*').unwrap_or(word.len());
            let (own, version) = word.split_at(digits);
            operator = if own.is_empty() { operator } else { own };
            if !version.is_empty() {
                fits &= self.fits(operator, version);
                operator = "";
            }
        }
        fits
    }

    fn fits(self, operator: &str, version: &str) -> bool {
        let parts = version.trim_start_matches('v').split(['-', '+']).next().unwrap_or_default().split('.');
        let source: Vec<u32> = parts.map_while(|part| part.parse().ok()).take(3).collect();
        if source.is_empty() {
            return true;
        }
        let part = |at: usize| source.get(at).copied().unwrap_or(0);
        let low = Self([part(0), part(1), part(2)]);
        // The first version after all that share the first `parts` components.
        let behind = |parts: usize| match parts {
            1 => Self([part(0).saturating_add(1), 0, 0]),
            2 => Self([part(0), part(1).saturating_add(1), 0]),
            _ => Self([part(0), part(1), part(2).saturating_add(1)]),
        };
        match operator {
            ">=" => self >= low,
            ">" => self >= behind(source.len()),
            "<" => self < low,
            "<=" => self < behind(source.len()),
            "^" => self >= low && self < behind(1),
            "~" => self >= low && self < behind(source.len().min(2)),
            "" | "=" => self >= low && self < behind(source.len()),
            _ => true,
        }
    }
}

impl std::fmt::Display for Version {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self([major, minor, patch]) = self;
        write!(f, "{major}.{minor}.{patch}")
    }
}

/// Returns `engines.node` from the package that contains a file.
pub(super) fn engines(file: &Path) -> Option<String> {
    let manifest = file.ancestors().map(|folder| folder.join("package.json")).find(|path| path.is_file())?;
    let manifest: Value = ropeway_core::json::from_str(&std::fs::read_to_string(manifest).ok()?).ok()?;
    manifest["engines"]["node"].as_str().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_output_of_node_version_is_parsed() {
        assert_eq!(Version::parse("v12.22.9\n"), Some(Version([12, 22, 9])));
        assert_eq!(Version::parse("v23.0.0-nightly2024"), Some(Version([23, 0, 0])));
        assert_eq!(Version::parse("20"), Some(Version([20, 0, 0])));
        for text in ["", "node", "v1.x", "1.2.3.4"] {
            assert_eq!(Version::parse(text), None, "{text}");
        }
    }

    #[test]
    fn npm_ranges_are_supported() {
        for (range, inside, outside) in [
            (">=18", "18.0.0", "16.20.0"),
            (">= 18.17", "18.17.0", "18.16.9"),
            ("^20.1.0", "20.9.0", "21.0.0"),
            ("~20.1.0", "20.1.9", "20.2.0"),
            ("20.x", "20.9.1", "19.0.0"),
            ("18 || >=20", "20.0.0", "19.0.0"),
            (">=18 <21", "20.0.0", "21.0.0"),
            (">=18.0.0 <=20", "20.9.0", "21.0.0"),
            ("16 - 20", "20.5.0", "21.0.0"),
            (">18", "19.0.0", "18.9.0"),
            ("=20.1.2", "20.1.2", "20.1.3"),
        ] {
            let holds = |version: &str| Version::parse(version).expect("a version").is_in(range);
            assert!(holds(inside), "{range} holds {inside}");
            assert!(!holds(outside), "{range} does not hold {outside}");
        }
        for range in ["*", "", "latest", "x", "?!"] {
            assert!(Version([1, 0, 0]).is_in(range), "{range}");
        }
    }

    #[test]
    fn a_file_belongs_to_the_nearest_parent_package() {
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::create_dir_all(folder.path().join("dist")).expect("a folder");
        std::fs::write(folder.path().join("package.json"), r#"{"engines": {"node": ">=20"}}"#).expect("a file");
        assert_eq!(engines(&folder.path().join("dist/index.js")).as_deref(), Some(">=20"));
    }
}
