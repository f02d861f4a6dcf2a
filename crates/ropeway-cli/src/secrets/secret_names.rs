//! Names of variables, headers and options that hold secrets.

/// Words for secrets, also at the end of a longer word: `PGPASSWORD`.
const ENDS: [&str; 10] = [
    "token",
    "tokens",
    "secret",
    "secrets",
    "password",
    "passwd",
    "passphrase",
    "credentials",
    "apikey",
    "authorization",
];

/// Words for secrets only as whole words, unlike `monkey` and `compass`.
const WORDS: [&str; 9] = ["key", "keys", "auth", "pwd", "pass", "pat", "credential", "cookie", "cookies"];

/// Last words of names that describe a secret and do not hold it.
const ABOUT: [&str; 9] = ["file", "path", "dir", "mode", "method", "header", "name", "url", "type"];

/// Returns `true` for the name of a secret.
pub(crate) fn names_secret(name: &str) -> bool {
    let mut parts = name.to_owned();
    // Splits `apiKey` into two words.
    for at in (1..name.len()).rev() {
        let bytes = name.as_bytes();
        if bytes[at].is_ascii_uppercase() && bytes[at - 1].is_ascii_lowercase() {
            parts.insert(at, '_');
        }
    }
    let parts = parts.to_ascii_lowercase();
    let words: Vec<&str> = parts.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty()).collect();
    let is_sign = |word: &&str| WORDS.contains(word) || ENDS.iter().any(|end| word.ends_with(end));
    words.iter().any(is_sign) && !words.last().is_some_and(|last| ABOUT.contains(last))
}
