//! Redacts single tokens.

use ring::digest::{SHA256, digest};

use crate::file::reference::parts;
use ropeway_core::secret;

/// Authentication schemes, which precede a secret.
const SCHEMES: [&str; 5] = ["bearer", "basic", "token", "apikey", "digest"];

/// Maximum token length.
const MAX_TOKEN: usize = 256;

/// Name suffixes for variables and options that contain a command.
const COMMAND_SUFFIXES: [&str; 6] = ["cmd", "command", "exec", "helper", "program", "shell"];

/// Returns `true` if the name indicates a secret.
pub(super) fn names_secret(name: &str, value: &str) -> bool {
    secret::in_named(name, value).iter().any(|secret| secret.expose() == value)
}

/// Returns `true` if the name indicates a command.
pub(super) fn names_command(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    COMMAND_SUFFIXES.iter().any(|command| name.ends_with(command))
}

/// Returns `true` for a single token. Commands and paths are never redacted.
pub(super) fn is_token(text: &str) -> bool {
    (1..=MAX_TOKEN).contains(&text.len())
        && !text.starts_with(['/', '.', '~', '-'])
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._~+/=-:%".contains(&byte))
}

/// Redacts a string's literal, or its reference's default, after an optional scheme, if `may_redact` accepts it.
///
/// A string with several parts is not redacted, since a reference's value may end a word.
pub(super) fn redact_token(text: &str, salt: &str, may_redact: fn(&str) -> bool) -> String {
    let pieces = split_references(text);
    if pieces.iter().filter(|(piece, is_reference)| *is_reference || !is_scheme(piece)).count() > 1 {
        return text.to_owned();
    }
    let mut shown = String::with_capacity(text.len());
    for (piece, is_reference) in pieces {
        if is_reference {
            match piece.strip_suffix('}').and_then(|inside| inside.split_once(":-")) {
                Some((name, default)) if !piece.starts_with("${file:") => {
                    shown.push_str(&format!("{name}:-{}}}", redact_literal(default, salt, may_redact)));
                }
                _ => shown.push_str(piece),
            }
        } else {
            shown.push_str(&redact_literal(piece, salt, may_redact));
        }
    }
    shown
}

/// Redacts a string without references, except for its scheme.
fn redact_literal(literal: &str, salt: &str, may_redact: fn(&str) -> bool) -> String {
    let word = literal.trim();
    if let Some((scheme, rest)) = word.split_once(' ').filter(|(scheme, _)| is_scheme(scheme)) {
        return literal.replacen(word, &format!("{scheme} {}", redact_literal(rest, salt, may_redact)), 1);
    }
    if is_scheme(word) || !may_redact(word) {
        return literal.to_owned();
    }
    literal.replacen(word, &placeholder(word, salt), 1)
}

/// Returns the replacement for a secret: stars and a digest, which differs between secrets.
pub(super) fn placeholder(secret: &str, salt: &str) -> String {
    let digest = digest(&SHA256, format!("{salt}\0{secret}").as_bytes());
    let digits: String = digest.as_ref().iter().take(4).map(|byte| format!("{byte:02x}")).collect();
    format!("***(#{digits})")
}

fn is_scheme(literal: &str) -> bool {
    let word = literal.trim().to_ascii_lowercase();
    word.is_empty() || SCHEMES.contains(&word.as_str())
}

/// Splits a string into literals and references. `true` marks a reference.
pub(super) fn split_references(text: &str) -> Vec<(&str, bool)> {
    if parts(text).is_err() {
        return vec![(text, false)];
    }
    let mut pieces = Vec::new();
    let (mut start, mut at) = (0, 0);
    while let Some(dollar) = text[at..].find('$').map(|found| at + found) {
        let after = &text[dollar + 1..];
        if after.starts_with('{')
            && let Some(end) = after.find('}')
        {
            at = dollar + 1 + end + 1;
            pieces.extend([(&text[start..dollar], false), (&text[dollar..at], true)]);
            start = at;
        } else {
            at = dollar + 1 + usize::from(after.starts_with('$'));
        }
    }
    pieces.push((&text[start..], false));
    pieces
}
