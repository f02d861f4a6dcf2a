//! The names under which clients see servers' tools and prompts.

use std::collections::HashSet;

use ropeway_bridge::registry::naming;
use ropeway_config::{DEFAULT_PREFIX, ServerEntry};
use ropeway_core::tool::Alias;

/// The prefix for servers that configure none.
const GATEWAY_PREFIX: &str = "{alias}_";

/// Assigns unique names to a profile's tools, or to its prompts. Earlier entries keep their names.
pub(crate) struct NameTable {
    is_prefixed: bool,
    taken: HashSet<String>,
}

impl NameTable {
    /// Creates an empty table.
    pub(crate) fn new(is_prefixed: bool) -> Self {
        Self { is_prefixed, taken: HashSet::new() }
    }

    /// Returns the name for a server's entry, and reserves it.
    pub(crate) fn assign(&mut self, entry: &ServerEntry, own_name: &str) -> String {
        let alias = &entry.alias;
        let plain = if self.is_prefixed { prefixed(prefix(entry), alias, own_name) } else { own_name.to_owned() };
        if self.taken.insert(plain.clone()) {
            return plain;
        }
        let fallback = if prefix(entry).is_empty() { GATEWAY_PREFIX } else { prefix(entry) };
        let name = self.free(prefixed(fallback, alias, own_name));
        tracing::warn!(server = %alias, "`{own_name}` is renamed to `{name}`: another entry is named `{plain}`");
        name
    }

    /// Returns the name, with a number if it is taken.
    fn free(&mut self, name: String) -> String {
        let mut free = name.clone();
        for number in 2.. {
            if self.taken.insert(free.clone()) {
                break;
            }
            free = naming::numbered(&name, number);
        }
        free
    }
}

/// Returns a server's prefix.
fn prefix(entry: &ServerEntry) -> &str {
    if entry.prefix == DEFAULT_PREFIX { GATEWAY_PREFIX } else { &entry.prefix }
}

/// Returns whether a name has a server's prefix; `None` if the server's names have no prefix.
pub(crate) fn has_prefix(entry: &ServerEntry, is_prefixed: bool, name: &str) -> Option<bool> {
    /// A name with more characters ends in a hash.
    const UNHASHED: usize = 48;
    let prefix = Some(prefix(entry)).filter(|prefix| is_prefixed && !prefix.is_empty())?;
    let start = naming::tool_name(prefix, &entry.alias, "");
    Some(name.starts_with(&start[..start.floor_char_boundary(UNHASHED)]))
}

fn prefixed(prefix: &str, alias: &Alias, own_name: &str) -> String {
    // Without a prefix, a name is unchanged.
    if prefix.is_empty() { own_name.to_owned() } else { naming::tool_name(prefix, alias, own_name) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ropeway_config::{ServerConfig, StdioServer};

    fn entry(alias: &str) -> ServerEntry {
        ServerEntry::new(ServerConfig::new(alias, StdioServer::command("x")))
    }

    fn names(is_prefixed: bool, entries: &[(&ServerEntry, &str)]) -> Vec<String> {
        let mut table = NameTable::new(is_prefixed);
        entries.iter().map(|(entry, own_name)| table.assign(entry, own_name)).collect()
    }

    #[test]
    fn a_prefix_is_that_of_the_server_or_its_alias() {
        let (web, other) = (entry("web"), entry("other").with_prefix("o-{alias}."));
        let bare = entry("bare").with_prefix("");
        assert_eq!(
            names(true, &[(&web, "search"), (&other, "search"), (&bare, "look/at.it")]),
            ["web_search", "o-other_search", "look/at.it"]
        );
    }

    #[test]
    fn a_name_has_the_prefix_of_its_server() {
        let (web, odd, long) = (entry("web"), entry("odd").with_prefix("o.{alias}/"), entry(&"x".repeat(70)));
        let bare = entry("bare").with_prefix("");
        for (entry, name) in [(&web, "search"), (&odd, "a.b"), (&long, "search")] {
            let named = names(true, &[(entry, name)]).remove(0);
            assert_eq!(has_prefix(entry, true, &named), Some(true), "{named}");
            assert_eq!(has_prefix(entry, true, "other_search"), Some(false));
            assert_eq!(has_prefix(entry, false, &named), None);
        }
        assert_eq!(has_prefix(&bare, true, "look"), None);
    }

    #[test]
    fn the_first_of_two_equal_names_keeps_it() {
        let (a, b, bare) = (entry("a"), entry("b"), entry("c").with_prefix(""));
        assert_eq!(
            names(false, &[(&a, "x/y"), (&b, "x/y"), (&bare, "x/y"), (&a, "x/y")]),
            ["x/y", "b_x_y", "c_x_y", "a_x_y"]
        );
        let nested = entry("a_b");
        assert_eq!(names(true, &[(&a, "b_c"), (&nested, "c"), (&nested, "c")]), ["a_b_c", "a_b_c_2", "a_b_c_3"]);
    }
}
