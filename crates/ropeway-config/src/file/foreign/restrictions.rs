//! Keys that restrict what a server may do, or authenticate to it, by their names.

/// Parts of such key names, in lower case and without separators.
const RESTRICTING_PARTS: [&str; 46] = [
    "accesskey",
    "allow",
    "apikey",
    "approv",
    "auth",
    "bearer",
    "blacklist",
    "block",
    "cert",
    "confirm",
    "cookie",
    "credential",
    "denied",
    "deny",
    "disable",
    "enable",
    "exclude",
    "exclusion",
    "filter",
    "forbid",
    "headershelper",
    "hidden",
    "include",
    "inclusion",
    "isolat",
    "jwt",
    "network",
    "omitted",
    "passphrase",
    "passwd",
    "password",
    "permission",
    "permit",
    "policy",
    "privatekey",
    "prohibit",
    "readonly",
    "restrict",
    "sandbox",
    "scope",
    "secret",
    "tls",
    "token",
    "toolname",
    "username",
    "whitelist",
];

/// Whole words in such key names. Parts of other words do not count, as in `keywords`.
const RESTRICTING_WORDS: [&str; 18] = [
    "access", "ban", "banned", "except", "hide", "key", "keys", "login", "omit", "only", "pass", "reject", "skip",
    "skipped", "tool", "tools", "toolset", "toolsets",
];

/// Keys that match the lists above and have no effect on security.
const HARMLESS_KEYS: [&str; 3] = ["author", "authors", "keywords"];

/// Returns `true` for a key that restricts or authenticates, by its name.
pub(super) fn restricts(key: &str) -> bool {
    let plain: String = key.chars().filter(|c| c.is_alphanumeric()).flat_map(char::to_lowercase).collect();
    if HARMLESS_KEYS.contains(&plain.as_str()) || plain.contains("timeout") {
        return false;
    }
    // `supports_parallel_tool_calls` contains `tool` and filters nothing.
    let words = split_words(key);
    let is_word = |word: &String| RESTRICTING_WORDS.contains(&word.as_str()) && (word != "tool" || words.len() == 1);
    RESTRICTING_PARTS.iter().any(|part| plain.contains(part)) || words.iter().any(is_word)
}

/// Splits a key in `camelCase`, `snake_case` or `kebab-case` into lower-case words.
fn split_words(key: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut was_lower = false;
    for c in key.chars() {
        if !c.is_alphanumeric() || (was_lower && c.is_uppercase()) {
            words.push(String::new());
        }
        was_lower = !c.is_uppercase();
        if let Some(word) = words.last_mut().filter(|_| c.is_alphanumeric()) {
            word.extend(c.to_lowercase());
        }
    }
    words.retain(|word| !word.is_empty());
    words
}
