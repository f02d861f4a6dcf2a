//! The rules for aliases of servers.

/// Maximum characters of an alias.
pub(super) const MAX_ALIAS: usize = 64;

/// Replaces characters that an alias cannot contain, and shortens it.
pub(super) fn sanitize_alias(alias: &str) -> String {
    let legal = |c: char| if c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-') { c } else { '-' };
    alias.chars().take(MAX_ALIAS).map(legal).collect()
}
