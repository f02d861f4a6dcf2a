//! URLs in a review: redacted credentials, and the host that requests go to.

use super::token::{is_token, names_secret, redact_token, split_references};

/// Minimum length for a user name that may be a token, next to a password.
const MIN_TOKEN_USER: usize = 8;

/// Replaces references, which may contain any character, by `x` characters with the same length.
fn without_references(text: &str) -> String {
    let plain = |(piece, is_reference): (&str, bool)| {
        if is_reference { "x".repeat(piece.len()) } else { piece.to_owned() }
    };
    split_references(text).into_iter().map(plain).collect()
}

/// Returns the authority's range in a URL without references.
fn authority(url: &str) -> (usize, usize) {
    let start = url.find("://").map_or(0, |at| at + "://".len());
    let end = url[start..].find(['/', '\\', '?', '#']).map_or(url.len(), |at| start + at);
    (start, end)
}

/// Redacts a URL's credentials and its secret parameters' values. The scheme, host, port and path are kept.
pub(super) fn redact_url(url: &str, salt: &str) -> String {
    let plain = without_references(url);
    let (start, end) = authority(&plain);
    let mut shown = url[..start].to_owned();
    let mut rest = start;
    if let Some(at) = plain[start..end].rfind('@').map(|at| start + at) {
        let mut user = &url[start..at];
        let mut password = None;
        if let Some(colon) = plain[start..at].find(':').map(|colon| start + colon) {
            (user, password) = (&url[start..colon], Some(&url[colon + 1..at]));
        }
        if password.is_none() || user.len() >= MIN_TOKEN_USER {
            shown.push_str(&redact_token(user, salt, is_token));
        } else {
            shown.push_str(user);
        }
        if let Some(password) = password {
            shown.push(':');
            shown.push_str(&redact_token(password, salt, is_token));
        }
        rest = at;
    }
    let query = plain[end..].find(['?', '#']).map_or(url.len(), |at| end + at);
    shown.push_str(&url[rest..query]);
    let mut at = query;
    for piece in plain[query..].split_inclusive(['?', '#', '&', ';']) {
        let pair = piece.trim_end_matches(['?', '#', '&', ';']);
        let (name, value) = match pair.find('=') {
            Some(equals) => (&url[at..at + equals], &url[at + equals + 1..at + pair.len()]),
            None => ("", ""),
        };
        if names_secret(name, value) {
            shown.push_str(&format!("{name}={}", redact_token(value, salt, is_token)));
        } else {
            shown.push_str(&url[at..at + pair.len()]);
        }
        shown.push_str(&piece[pair.len()..]);
        at += piece.len();
    }
    shown
}

/// Returns a URL's host and port, parsed as for requests. If they depend on references, returns them with the references,
/// including one in the credentials, which may contain a host.
pub(super) fn url_host(url: &str) -> String {
    let plain = without_references(url);
    let (start, end) = authority(&plain);
    if url[..start] != plain[..start] {
        return redact_url(&url[..end], "host");
    }
    if url[start..end] == plain[start..end]
        && let Ok(parsed) = url::Url::parse(&plain)
        && let Some(host) = parsed.host_str()
    {
        return parsed.port().map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"));
    }
    match plain[start..end].rfind('@').map(|at| start + at) {
        Some(at) if url[start..at] == plain[start..at] => url[at + 1..end].to_owned(),
        _ => redact_url(&url[start..end], "host"),
    }
}

/// Returns a warning for a URL whose host is easily mistaken for another.
pub(super) fn host_warning(url: &str) -> Option<String> {
    let plain = without_references(url);
    let (start, end) = authority(&plain);
    let is_odd = |c: char| !c.is_ascii_graphic() || matches!(c, '{' | '}' | '<' | '>' | '"' | '`' | '^' | '|');
    let is_disguised = plain[start..end].contains(is_odd) || plain[end..].starts_with('\\');
    is_disguised.then(|| format!("the URL is misleading: requests go to {}", url_host(url)))
}
