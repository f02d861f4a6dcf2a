//! The names of tools: made of a server's own names, legal for every model.

use crate::lowering::name::{self, EVERYWHERE};
use crate::tool::Alias;

/// How long a name may be.
pub const MAX_LENGTH: usize = EVERYWHERE.most;

/// What stands for the alias in templates.
const ALIAS: &str = "{alias}";

/// The name by which a model knows a server's tool: the prefix and the server's own name, made legal.
///
/// In the prefix `{alias}` stands for the server's alias. The same words give the same name, everywhere and always.
pub fn tool_name(prefix: &str, alias: &Alias, tool: &str) -> String {
    legal(&(fill(prefix, alias) + tool))
}

/// What stands before a server's own names, as it stands in the names that models know; empty when nothing does.
pub(super) fn prefix(prefix: &str, alias: &Alias) -> String {
    match fill(prefix, alias) {
        empty if empty.is_empty() => empty,
        filled => legal(&filled),
    }
}

/// A template with the alias in its place.
pub(super) fn fill(template: &str, alias: &Alias) -> String {
    template.replace(ALIAS, alias.as_str())
}

/// A name of nothing but `[A-Za-z0-9_-]`, 64 characters at most, never empty. One that has to be cut ends in a hash.
pub(crate) fn legal(raw: &str) -> String {
    EVERYWHERE.legal(raw)
}

/// A legal name, cut where it must be, that ends in a hash of `raw`.
pub(super) fn hashed(name: &str, raw: &str) -> String {
    name::hashed(name, raw, MAX_LENGTH)
}

/// A legal name, cut where it must be, that ends in a number.
pub(super) fn numbered(name: &str, number: usize) -> String {
    name::ending(name, &format!("_{number}"), MAX_LENGTH)
}

/// The names that whoever said `word` may have meant, judged by their letters, the nearest first, at most three.
pub(super) fn nearest<'a>(word: &str, names: impl IntoIterator<Item = &'a str>) -> Vec<String> {
    // No name is longer, and the work grows with the square.
    let word: String = word.chars().take(2 * MAX_LENGTH).collect::<String>().to_lowercase();
    let length = word.chars().count();
    let tolerance = (length / 3).max(1);
    let mut near: Vec<(usize, &str)> = names
        .into_iter()
        .filter_map(|name| {
            let lower = name.to_lowercase();
            let within = word.len() >= 3 && (lower.contains(&word) || (lower.len() >= 3 && word.contains(&lower)));
            let can_be_near = lower.chars().count().abs_diff(length) <= tolerance;
            let distance = (within || can_be_near).then(|| strsim::osa_distance(&word, &lower))?;
            (within || distance <= tolerance).then_some((distance, name))
        })
        .collect();
    near.sort_by_key(|(distance, _)| *distance);
    near.into_iter().take(3).map(|(_, name)| name.to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn named(prefix: &str, tool: &str) -> String {
        tool_name(prefix, &"web".into(), tool)
    }

    #[test]
    fn the_prefix_is_a_template() {
        assert_eq!(named("mcp_{alias}_", "search"), "mcp_web_search");
        assert_eq!(named("", "search"), "search");
        assert_eq!(named("my-", "search"), "my-search");
        assert_eq!(named("{alias}.{alias}/", "search"), "web_web_search");
    }

    #[test]
    fn what_a_model_may_not_say_is_replaced() {
        assert_eq!(named("", "files/read.v2 now"), "files_read_v2_now");
        assert_eq!(named("mcp_{alias}_", "搜索"), "mcp_web___");
        assert_eq!(named("", ""), "tool");
    }

    #[test]
    fn a_name_that_is_too_long_ends_in_a_hash_that_never_changes() {
        let long = "a".repeat(65);
        assert_eq!(named("", &long), format!("{}_097f48e4", "a".repeat(55)));
        assert_eq!(named("", &long[1..]), long[1..]);
    }

    #[test]
    fn names_that_differ_only_where_they_are_cut_stay_apart() {
        let names: std::collections::HashSet<String> =
            (0..1000).map(|number| named("mcp_{alias}_", &format!("{}{number}", "x".repeat(70)))).collect();
        assert_eq!(names.len(), 1000);
    }

    #[test]
    fn an_ending_fits_also_where_the_name_is_not_legal() {
        assert_eq!(numbered(&"ä".repeat(40), 2), format!("{}_2", "ä".repeat(31)));
    }

    #[test]
    fn a_name_that_nobody_has_finds_those_that_are_spelled_like_it() {
        let nearest = |word: &str| nearest(word, ["mcp_web_search", "mcp_git_log", "mcp_git_blame", "add"]);
        assert_eq!(nearest("search"), ["mcp_web_search"]);
        assert_eq!(nearest("mcp_git_lgo"), ["mcp_git_log"]);
        assert_eq!(nearest("functions.add"), ["add"]);
        assert_eq!(nearest("xylophone"), [""; 0]);
        assert_eq!(nearest(""), [""; 0]);
        assert_eq!(nearest(&"x".repeat(1 << 20)), [""; 0]);
    }

    proptest! {
        #[test]
        fn every_name_is_legal(prefix in ".{0,80}", alias in ".{0,20}", tool in ".{0,200}") {
            let alias = Alias::from(alias);
            let name = tool_name(&prefix, &alias, &tool);
            prop_assert!((1..=MAX_LENGTH).contains(&name.len()), "{name}");
            prop_assert!(name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-')), "{name}");
            prop_assert_eq!(&name, &tool_name(&prefix, &alias, &tool));
            prop_assert_eq!(&name, &legal(&name));
        }
    }
}
