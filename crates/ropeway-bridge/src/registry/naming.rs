//! Tool names that every model accepts.

use ropeway_core::lowering::name::{self, EVERYWHERE};
use ropeway_core::tool::Alias;

/// Maximum name length in bytes.
pub const MAX_LENGTH: usize = EVERYWHERE.most;

/// Placeholder for the alias in prefixes.
const ALIAS: &str = "{alias}";

/// Returns the name that models use for a tool: the prefix and the server's own name, with invalid characters replaced.
///
/// `{alias}` in the prefix is replaced by the server alias. Equal arguments always return equal names.
pub fn tool_name(prefix: &str, alias: &Alias, tool: &str) -> String {
    sanitize(&(insert_alias(prefix, alias) + tool))
}

/// Returns the prefix as it appears in tool names.
pub(super) fn prefix(prefix: &str, alias: &Alias) -> String {
    match insert_alias(prefix, alias) {
        empty if empty.is_empty() => empty,
        filled => sanitize(&filled),
    }
}

/// Replaces `{alias}` in a template.
pub(super) fn insert_alias(template: &str, alias: &Alias) -> String {
    template.replace(ALIAS, alias.as_str())
}

/// Returns a valid name: 1 to 64 characters from `[A-Za-z0-9_-]`. A name that is too long is truncated and ends in a hash.
pub(crate) fn sanitize(raw: &str) -> String {
    EVERYWHERE.legal(raw)
}

/// Appends a hash of `raw` to a valid name, truncating it if necessary.
pub(super) fn hashed(name: &str, raw: &str) -> String {
    name::hashed(name, raw, MAX_LENGTH)
}

/// Appends a number to a valid name, truncating it if necessary.
pub fn numbered(name: &str, number: usize) -> String {
    name::ending(name, &format!("_{number}"), MAX_LENGTH)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn named(prefix: &str, tool: &str) -> String {
        tool_name(prefix, &"web".into(), tool)
    }

    #[test]
    fn the_alias_is_inserted_into_the_prefix() {
        assert_eq!(named("mcp_{alias}_", "search"), "mcp_web_search");
        assert_eq!(named("", "search"), "search");
        assert_eq!(named("my-", "search"), "my-search");
        assert_eq!(named("{alias}.{alias}/", "search"), "web_web_search");
    }

    #[test]
    fn invalid_characters_are_replaced() {
        assert_eq!(named("", "files/read.v2 now"), "files_read_v2_now");
        assert_eq!(named("mcp_{alias}_", "搜索"), "mcp_web___");
        assert_eq!(named("", ""), "tool");
    }

    #[test]
    fn a_truncated_name_ends_in_a_stable_hash() {
        let long = "a".repeat(65);
        assert_eq!(named("", &long), format!("{}_097f48e4", "a".repeat(55)));
        assert_eq!(named("", &long[1..]), long[1..]);
    }

    #[test]
    fn truncated_names_stay_unique() {
        let names: std::collections::HashSet<String> =
            (0..1000).map(|number| named("mcp_{alias}_", &format!("{}{number}", "x".repeat(70)))).collect();
        assert_eq!(names.len(), 1000);
    }

    #[test]
    fn a_number_fits_behind_multibyte_characters() {
        assert_eq!(numbered(&"ä".repeat(40), 2), format!("{}_2", "ä".repeat(31)));
    }

    proptest! {
        #[test]
        fn every_name_is_valid(prefix in ".{0,80}", alias in ".{0,20}", tool in ".{0,200}") {
            let alias = Alias::from(alias);
            let name = tool_name(&prefix, &alias, &tool);
            prop_assert!((1..=MAX_LENGTH).contains(&name.len()), "{name}");
            prop_assert!(name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-')), "{name}");
            prop_assert_eq!(&name, &tool_name(&prefix, &alias, &tool));
            prop_assert_eq!(&name, &sanitize(&name));
        }
    }
}
