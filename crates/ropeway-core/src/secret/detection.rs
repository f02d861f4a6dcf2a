//! Heuristics that find secrets in settings by name.

use std::borrow::Cow;
use std::net::IpAddr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use percent_encoding::percent_decode_str;

use super::value::Secret;

/// Words for secrets, also within a longer word such as `PGPASSWORD`.
const LONG_WORDS: [&str; 9] =
    ["token", "secret", "password", "passwd", "passphrase", "credential", "cookie", "apikey", "authorization"];

/// Short words for secrets. Within a longer word, such as `monkey`, they only suggest a secret.
const SHORT_WORDS: [&str; 3] = ["key", "auth", "pwd"];

/// Words for secrets only as whole words, unlike `path` and `compass`.
const WHOLE_WORDS: [&str; 2] = ["pass", "pat"];

/// Last words in names that describe a secret and do not hold it.
const ABOUT: [&str; 9] = ["file", "path", "dir", "mode", "method", "header", "name", "url", "type"];

/// Environment variables that match but hold directories.
const EXCLUDED_NAMES: [&str; 2] = ["PWD", "OLDPWD"];

/// Minimum length for a user name that may be a token.
const MIN_USER_LENGTH: usize = 8;

/// Placeholder keys for local servers, set because a program requires one.
const PLACEHOLDERS: [&str; 6] =
    ["lm-studio", "no-key-required", "not-needed", "not-required", "placeholder", "sk-no-key-required"];

/// Minimum length for a local server's key; shorter ones are placeholders.
const MIN_KEY_LENGTH: usize = 8;

/// Returns `true` if the name suggests a secret.
fn is_secret_name(name: &str) -> bool {
    let lower = name.to_ascii_lowercase();
    let is_whole = |word: &str| WHOLE_WORDS.iter().any(|whole| word.eq_ignore_ascii_case(whole));
    !EXCLUDED_NAMES.contains(&name)
        && (LONG_WORDS.iter().chain(&SHORT_WORDS).any(|part| lower.contains(part)) || words(name).any(is_whole))
}

/// Returns `true` if the name is certainly a secret's, unlike `TOKENIZER`, `MONKEY` and `PASSWORD_FILE`.
pub fn names_secret(name: &str) -> bool {
    let lower: Vec<String> = words(name).map(str::to_ascii_lowercase).collect();
    let words = || lower.iter().map(String::as_str).filter(|word| !word.is_empty());
    let is_sign = |word: &str| {
        SHORT_WORDS.contains(&word) || WHOLE_WORDS.contains(&word) || LONG_WORDS.iter().any(|end| word.ends_with(end))
    };
    let is_about = words().next_back().is_some_and(|last| ABOUT.contains(&last));
    !is_about && words().any(|word| is_sign(word) || word.strip_suffix('s').is_some_and(is_sign))
}

/// Splits a name into words, for `SNAKE_CASE`, `kebab-case` and `camelCase`.
fn words(name: &str) -> impl Iterator<Item = &str> {
    name.split(|c: char| !c.is_ascii_alphanumeric()).flat_map(|part| {
        let begins =
            |at: &usize| part.as_bytes()[*at].is_ascii_uppercase() && part.as_bytes()[at - 1].is_ascii_lowercase();
        let ends: Vec<usize> = (1..part.len()).filter(begins).chain([part.len()]).collect();
        let starts = std::iter::once(0).chain(ends.clone());
        starts.zip(ends).map(|(start, end)| &part[start..end]).collect::<Vec<_>>()
    })
}

/// Returns `true` for values that are never secret. Redacting them would make every text unreadable.
fn is_ordinary(value: &str) -> bool {
    let word = value.trim().to_ascii_lowercase();
    matches!(word.as_str(), "true" | "false" | "none" | "null" | "basic" | "bearer")
        || (word.len() < 6 && word.bytes().all(|byte| byte.is_ascii_digit()))
}

/// Returns `true` if a local server's key is a placeholder. Redacting it would make every text unreadable.
pub fn is_placeholder(key: &Secret, url: &str) -> bool {
    let word = key.expose().trim().to_ascii_lowercase();
    is_loopback_url(url) && (word.len() < MIN_KEY_LENGTH || PLACEHOLDERS.contains(&word.as_str()))
}

fn is_loopback_url(url: &str) -> bool {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let authority = rest.split(['/', '\\', '?', '#']).next().unwrap_or_default();
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    let host = match host.strip_prefix('[') {
        Some(address) => address.split(']').next().unwrap_or_default(),
        None => host.split(':').next().unwrap_or_default(),
    };
    host.eq_ignore_ascii_case("localhost") || host.parse().is_ok_and(|address: IpAddr| address.is_loopback())
}

/// Returns the secrets in a named value: all of it if the name suggests a secret, and those in a URL.
pub fn in_named(name: &str, value: &str) -> Vec<Secret> {
    let mut secrets = if value.contains("://") { in_url(value) } else { Vec::new() };
    if is_secret_name(name) && !is_ordinary(value) {
        secrets.push(Secret::new(value));
    }
    secrets
}

/// Returns the secrets in a header: the value, its credentials without the scheme, and each cookie.
pub fn in_header(name: &str, value: &str) -> Vec<Secret> {
    match in_named(name, value) {
        secrets if secrets.is_empty() => secrets,
        secrets => with_parts(secrets, name, value),
    }
}

/// Like [`in_header`], for a header that is secret regardless of its name.
pub fn in_secret_header(name: &str, value: &str) -> Vec<Secret> {
    if is_ordinary(value) {
        return Vec::new();
    }
    let mut secrets = if value.contains("://") { in_url(value) } else { Vec::new() };
    secrets.push(Secret::new(value));
    with_parts(secrets, name, value)
}

fn with_parts(mut secrets: Vec<Secret>, name: &str, value: &str) -> Vec<Secret> {
    if name.to_ascii_lowercase().contains("cookie") {
        let values = value.split(';').filter_map(|pair| pair.split_once('='));
        secrets.extend(values.map(|(_, value)| Secret::new(value.trim())));
    } else if let Some((scheme, rest)) = value.trim().split_once(' ') {
        let rest = rest.trim();
        secrets.push(Secret::new(rest));
        if scheme.eq_ignore_ascii_case("basic")
            && let Some((user, password)) = STANDARD.decode(rest).ok().as_deref().and_then(pair)
        {
            secrets.extend(user_and_password(&user, Some(&password)));
        }
    }
    secrets
}

fn pair(bytes: &[u8]) -> Option<(String, String)> {
    let (user, password) = std::str::from_utf8(bytes).ok()?.split_once(':')?;
    Some((user.to_owned(), password.to_owned()))
}

fn user_and_password(user: &str, password: Option<&str>) -> Vec<Secret> {
    // A user name without a password is the secret. Next to a password, a long one may be a token.
    let user = Some(user).filter(|user| password.is_none() || user.len() >= MIN_USER_LENGTH);
    user.into_iter().chain(password).map(Secret::new).collect()
}

/// Returns the secrets in a URL, valid or not: its credentials, and query parameters whose names suggest a secret.
pub fn in_url(url: &str) -> Vec<Secret> {
    let mut secrets = Vec::new();
    let mut add = |value: &str| secrets.extend([Secret::new(value), Secret::new(&*percent_decoded(value))]);
    let (rest, fragment) = url.split_once('#').unwrap_or((url, ""));
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    let (scheme, authority) = rest.split_once("://").unwrap_or(("", rest));
    // In HTTP URLs a backslash is a slash (https://url.spec.whatwg.org/#authority-state); elsewhere it may be part of a
    // password.
    let is_http = ["http", "https"].iter().any(|http| scheme.to_ascii_lowercase().ends_with(http));
    let authority = authority.split(|c: char| c == '/' || (is_http && c == '\\')).next().unwrap_or_default();
    if let Some((credentials, _)) = authority.rsplit_once('@') {
        let (user, password) = match credentials.split_once(':') {
            Some((user, password)) => (user, Some(password)),
            None => (credentials, None),
        };
        // Without a scheme, `name@host` is an e-mail address.
        for secret in user_and_password(user, password).iter().filter(|_| password.is_some() || !scheme.is_empty()) {
            add(secret.expose());
        }
        // The HTTP basic authentication form (https://www.rfc-editor.org/rfc/rfc7617).
        let sent = format!("{}:{}", percent_decoded(user), password.map(percent_decoded).unwrap_or_default());
        add(&STANDARD.encode(sent));
    }
    for pair in query.split(['&', ';']).chain(fragment.split('&')) {
        if let Some((name, value)) = pair.split_once('=')
            && is_secret_name(&percent_decoded(name))
            && !is_ordinary(value)
        {
            add(value);
        }
    }
    secrets
}

/// Returns the secrets in command-line arguments: `--token=x`, `--token x`, `-e TOKEN=x`, and those in URLs.
pub fn in_arguments(arguments: &[String]) -> Vec<Secret> {
    let mut secrets = Vec::new();
    let mut named = false;
    for argument in arguments {
        let is_flag = argument.starts_with('-');
        if std::mem::take(&mut named) && !is_flag && !is_ordinary(argument) {
            secrets.push(Secret::new(argument.as_str()));
        }
        if argument.contains("://") {
            secrets.extend(in_url(argument.split_once('=').filter(|_| is_flag).map_or(argument, |(_, url)| url)));
        }
        match argument.split_once('=') {
            Some((name, value)) if is_name(name) => secrets.extend(in_named(name, value)),
            Some((name, header)) if is_flag && name.ends_with("header") => secrets.extend(in_header_line(header)),
            _ => {}
        }
        secrets.extend(in_header_line(argument));
        named = is_flag && !argument.contains('=') && is_secret_name(argument);
    }
    secrets
}

/// Returns the secrets in a line such as `Authorization: Bearer x`.
fn in_header_line(line: &str) -> Vec<Secret> {
    match line.split_once(": ") {
        Some((name, value)) if is_name(name) => in_header(name, value),
        _ => Vec::new(),
    }
}

fn is_name(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.'))
}

fn percent_decoded(text: &str) -> Cow<'_, str> {
    percent_decode_str(text).decode_utf8_lossy()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(secrets: Vec<Secret>) -> Vec<String> {
        let mut values: Vec<String> = secrets.iter().map(|secret| secret.expose().to_owned()).collect();
        values.sort();
        values.dedup();
        values
    }

    #[test]
    fn a_placeholder_of_a_local_server_is_not_secret() {
        let is_placeholder = |key: &str, url: &str| is_placeholder(&Secret::new(key), url);
        for url in ["http://localhost:1234/v1", "http://127.0.0.1", "http://[::1]:80/v1", "http://a:b@127.0.0.2/?x"] {
            assert!(is_placeholder("ollama", url) && is_placeholder("LM-Studio", url), "{url}");
            assert!(!is_placeholder("sk-12345678", url), "{url}");
        }
        for url in ["", "http://h/127.0.0.1", "http://127.0.0.1@h", "https://localhost.h/v1", "http://10.0.0.1/v1"] {
            assert!(!is_placeholder("ollama", url), "{url}");
        }
    }

    #[test]
    fn a_name_suggests_a_secret_unless_the_value_is_ordinary() {
        assert_eq!(shown(in_named("GITHUB_TOKEN", "abcd")), ["abcd"]);
        assert_eq!(shown(in_named("X-Api-Key", "abcd")), ["abcd"]);
        assert_eq!(shown(in_named("LOG_LEVEL", "debug")), [""; 0]);
        assert_eq!(shown(in_named("AUTH_ENABLED", "true")), [""; 0]);
        assert_eq!(shown(in_named("MAX_TOKENS", "4096")), [""; 0]);
        assert_eq!(shown(in_named("EMAIL", "ada@example.com")), [""; 0]);
        assert!(shown(in_named("DATABASE", "pg://ada:pass@h/d")).contains(&"pass".to_owned()));
    }

    #[test]
    fn short_words_for_a_password_count_only_as_whole_words() {
        for name in ["GITLAB_PAT", "DB_PASS", "PGPWD", "PASSPHRASE", "dbPass", "pat", "--pass", "pwd"] {
            assert!(is_secret_name(name), "{name}");
        }
        for name in ["PATH", "PWD", "OLDPWD", "compass", "bypass", "PATTERN", "MANPATH", "", "é_ü"] {
            assert!(!is_secret_name(name), "{name}");
        }
    }

    #[test]
    fn a_url_is_searched_for_credentials_and_parameters() {
        let url = "https://ada:pa%20ss@example.com:8080/a@b?x=1&api_key=k%2Fy&q=auth#access_token=tok";
        let basic = STANDARD.encode("ada:pa ss");
        let mut expected = ["pa%20ss", "pa ss", "k%2Fy", "k/y", "tok", &basic].map(str::to_owned).to_vec();
        expected.sort();
        assert_eq!(shown(in_url(url)), expected);
        assert_eq!(shown(in_url("http://tok@h/")), [STANDARD.encode("tok:"), "tok".to_owned()]);
        assert_eq!(shown(in_url("http://example.com/a?b=c")), [""; 0]);
        assert_eq!(shown(in_url("http://127.0.0.1:9977\\@example.com/")), [""; 0]);
        assert!(shown(in_url("pg://ada:pa\\ss@h/d")).contains(&"pa\\ss".to_owned()));
        assert_eq!(shown(in_url("not a url ?token=%zz%4")), ["%zz%4"]);
    }

    #[test]
    fn a_header_is_secret_as_a_whole_and_in_its_parts() {
        assert_eq!(shown(in_header("Authorization", "Bearer tok")), ["Bearer tok", "tok"]);
        let basic = STANDARD.encode("ada:password1");
        let expected = [format!("Basic {basic}"), basic.clone(), "password1".to_owned()];
        assert_eq!(shown(in_header("authorization", &format!("Basic {basic}"))), expected);
        assert_eq!(shown(in_header("Cookie", "a=bb; c=dd")), ["a=bb; c=dd", "bb", "dd"]);
        assert_eq!(shown(in_header("X-Version", "Bearer tok")), [""; 0]);
    }

    #[test]
    fn arguments_are_searched_by_flag_names() {
        let found = |arguments: &[&str]| {
            shown(in_arguments(&arguments.iter().map(|argument| (*argument).to_owned()).collect::<Vec<_>>()))
        };
        assert_eq!(found(&["--api-key", "abcd", "plain"]), ["abcd"]);
        assert_eq!(found(&["--token=abcd"]), ["abcd"]);
        assert_eq!(found(&["-e", "GITHUB_TOKEN=abcd"]), ["abcd"]);
        assert_eq!(found(&["--no-auth", "--verbose", "x"]), [""; 0]);
        assert_eq!(found(&["--header", "Authorization: Bearer abcd"]), ["Bearer abcd", "abcd"]);
        assert_eq!(found(&["https://h/?key=abcd", "--url=http://h/?token=efgh"]), ["abcd", "efgh"]);
        assert_eq!(found(&[r#"{"api_key": 1, "x=y": 2}"#]), [""; 0]);
    }
}
