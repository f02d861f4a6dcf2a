//! Literal secrets in settings, and references that replace them.

use std::ops::Range;

use ropeway_config::raw::{RawAuth, RawServer, RawText};
use ropeway_core::secret::{Redactor, Secret, in_arguments, in_named, in_url, names_secret};
use serde_json::Value;

/// Replacement for redacted secrets.
const HIDDEN: &str = "***";

/// Well-known token prefixes.
const TOKENS: [&str; 14] = [
    "sk-",
    "ghp_",
    "gho_",
    "ghs_",
    "ghu_",
    "github_pat_",
    "glpat-",
    "xoxb-",
    "xoxp-",
    "ntn_",
    "lin_api_",
    "AKIA",
    "AIza",
    "eyJ",
];

/// Minimum length for a token with such a prefix.
const SHORTEST_TOKEN: usize = 12;

/// Schemes before a header's secret.
const SCHEMES: [&str; 4] = ["Bearer ", "Basic ", "Token ", "ApiKey "];

/// Returns `true` if a value is certainly a secret and may be replaced by a reference. A server with an unset reference is
/// skipped, so this needs more evidence than redaction.
fn is_surely_secret(name: &str, value: &str) -> bool {
    is_secret("", value) || (names_secret(name) && is_secret(name, value))
}

/// Returns `true` if redaction applies to any value with this name, although the name is not a secret's.
fn is_only_alike(name: &str) -> bool {
    !names_secret(name) && is_secret(name, "any-value")
}

/// Returns `true` if a value looks like a literal secret.
pub(crate) fn is_secret(name: &str, value: &str) -> bool {
    let is_redacted = || Redactor::new(&in_named(name, value)).redact(value) != value;
    !is_reference(value) && (is_token(value) || is_redacted())
}

fn is_token(value: &str) -> bool {
    let is_one = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    value.len() >= SHORTEST_TOKEN && value.chars().all(is_one) && TOKENS.iter().any(|start| value.starts_with(start))
}

/// Returns `true` if the value contains a `${NAME}` reference.
pub(crate) fn is_reference(value: &str) -> bool {
    value.contains("${")
}

/// A literal secret removed from a server's settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ExtractedSecret {
    /// The variable that replaces it.
    pub(crate) name: String,
    pub(crate) value: Secret,
    /// The key, such as `env.GITHUB_TOKEN`.
    pub(crate) key: String,
}

/// Variable names for secrets. The same value keeps its name, another value gets a new one.
#[derive(Clone, Debug, Default)]
pub(crate) struct SecretNames(Vec<(String, Option<Secret>)>);

impl SecretNames {
    /// Starts with the names in use, each with its value if known.
    pub(crate) fn in_use(names: impl IntoIterator<Item = (String, Option<Secret>)>) -> Self {
        Self(names.into_iter().collect())
    }

    /// Adds a name and its value, unless the name is in use.
    pub(crate) fn insert(&mut self, name: &str, value: &Secret) {
        if !self.0.iter().any(|(known, _)| known == name) {
            self.0.push((name.to_owned(), Some(value.clone())));
        }
    }

    fn name(&mut self, wanted: &str, value: &Secret) -> String {
        let mut name = wanted.to_owned();
        for number in 2.. {
            match self.0.iter().find(|(known, _)| *known == name) {
                None => break,
                Some((_, known)) if known.as_ref() == Some(value) => return name,
                Some(_) => name = format!("{wanted}_{number}"),
            }
        }
        self.0.push((name.clone(), Some(value.clone())));
        name
    }
}

/// Replaces a server's literal secrets by references.
pub(crate) fn extract(server: &mut RawServer, names: &mut SecretNames) -> Vec<ExtractedSecret> {
    let mut extractor = Extractor { alias: server.alias.clone(), names, extracted: Vec::new() };
    for (name, RawText(value)) in &mut server.env.0 {
        if is_surely_secret(name, value) {
            extractor.whole(value, name, format!("env.{name}"));
        }
    }
    for (name, RawText(value)) in &mut server.headers.0 {
        let start = value.get(..value.find(' ').map_or(0, |at| at + 1)).unwrap_or_default();
        let scheme = SCHEMES.iter().find(|scheme| scheme.eq_ignore_ascii_case(start)).map_or(0, |scheme| scheme.len());
        if is_surely_secret(name, value) || is_token(&value[scheme..]) {
            let what = if name.eq_ignore_ascii_case("authorization") { "token" } else { name.as_str() };
            extractor.part(value, scheme..value.len(), what, format!("headers.{name}"));
        }
    }
    for (path, text) in server.auth.iter_mut().flat_map(RawAuth::secrets_mut) {
        if !is_reference(text) {
            let what = match path.rsplit('.').next().unwrap_or(path) {
                "bearer" => "token",
                "pem" => "private_key",
                name => name,
            };
            extractor.whole(text, what, format!("auth.{path}"));
        }
    }
    if let Some(RawText(url)) = server.url.as_mut().filter(|url| !is_reference(&url.0)) {
        let shown = Redactor::new(&in_url(url)).redact(url).into_owned();
        extractor.hidden(url, &shown, None, "url");
    }
    extractor.arguments(&mut server.args);
    extractor.extracted
}

/// Returns the text at a key such as `env.TOKEN` or `args[2]`.
pub(crate) fn text_at<'a>(server: &'a mut RawServer, key: &str) -> Option<&'a str> {
    let of = |pairs: &'a [(String, RawText)], name: &str| {
        pairs.iter().find(|(known, _)| known == name).map(|(_, RawText(value))| value.as_str())
    };
    if let Some(name) = key.strip_prefix("env.") {
        return of(&server.env.0, name);
    }
    if let Some(name) = key.strip_prefix("headers.") {
        return of(&server.headers.0, name);
    }
    if let Some(index) = key.strip_prefix("args[").and_then(|rest| rest.strip_suffix(']')) {
        return server.args.get(index.parse::<usize>().ok()?).map(|RawText(text)| text.as_str());
    }
    match key.strip_prefix("auth.") {
        Some(path) => {
            let secrets = server.auth.as_mut()?.secrets_mut();
            secrets.into_iter().find(|(known, _)| *known == path).map(|(_, text)| text.as_str())
        }
        None => server.url.as_ref().filter(|_| key == "url").map(|RawText(url)| url.as_str()),
    }
}

struct Extractor<'a> {
    alias: String,
    names: &'a mut SecretNames,
    extracted: Vec<ExtractedSecret>,
}

impl Extractor<'_> {
    fn whole(&mut self, text: &mut String, what: &str, key: String) {
        self.part(text, 0..text.len(), what, key);
    }

    /// Replaces a text range by a reference.
    fn part(&mut self, text: &mut String, range: Range<usize>, what: &str, key: String) {
        // `$$` in a configuration file is an escaped dollar.
        let value = Secret::new(text[range.clone()].replace("$$", "$"));
        let name = self.names.name(&variable(&self.alias, what), &value);
        text.replace_range(range, &format!("${{{name}}}"));
        self.extracted.push(ExtractedSecret { name, value, key });
    }

    /// Replaces a text's redacted part, or the whole text if several parts are redacted.
    fn hidden(&mut self, text: &mut String, shown: &str, flag: Option<&str>, key: &str) {
        if shown == text {
            return;
        }
        let Some((before, after)) = shown.split_once(HIDDEN).filter(|(_, after)| !after.contains(HIDDEN)) else {
            let what = if text.contains("://") { "url" } else { "secret" };
            return self.whole(text, what, key.to_owned());
        };
        let flag = flag.filter(|_| before.is_empty());
        let what = match (before.strip_suffix('='), flag) {
            (Some(before), _) => before.rsplit(['?', '&', ' ']).next().unwrap_or(before).to_owned(),
            (None, Some(flag)) => flag.to_owned(),
            (None, None) if before.contains("://") => "password".to_owned(),
            (None, None) => "secret".to_owned(),
        };
        self.part(text, before.len()..text.len() - after.len(), &what, key.to_owned());
    }

    fn arguments(&mut self, arguments: &mut [RawText]) {
        let all: Vec<String> = arguments.iter().map(|RawText(text)| text.clone()).collect();
        let mask = Redactor::new(&in_arguments(&all));
        for (index, RawText(text)) in arguments.iter_mut().enumerate() {
            let key = format!("args[{index}]");
            let flag = index.checked_sub(1).map(|before| all[before].as_str()).filter(|flag| flag.starts_with('-'));
            let named = text.split_once('=').or_else(|| Some((flag?, text)));
            let shown = match named {
                _ if is_token(text) => HIDDEN.to_owned(),
                Some((name, value)) if is_only_alike(name) && !is_secret("", value) => continue,
                _ => mask.redact(text).into_owned(),
            };
            if !is_reference(text) {
                self.hidden(text, &shown, flag, &key);
            }
        }
    }
}

/// Returns the variable for a server's secret: `GITHUB_TOKEN`, not `GITHUB_GITHUB_TOKEN`.
fn variable(alias: &str, what: &str) -> String {
    let upper = |text: &str| -> String {
        let legal = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' };
        text.chars().map(legal).collect::<String>().trim_matches('_').to_owned()
    };
    let (alias, what) = (upper(alias), upper(what));
    let what = what.strip_prefix("X_").unwrap_or(&what);
    // `BRAVE_API_KEY` for `brave-search` needs no further prefix.
    let first = |name: &str| name.split('_').next().unwrap_or_default().to_owned();
    let is_told = alias.is_empty() || (first(what) == first(&alias) && what.contains('_'));
    let name = if is_told { what.to_owned() } else { format!("{alias}_{what}") };
    if name.starts_with(|c: char| c.is_ascii_digit()) { format!("_{name}") } else { name }
}

/// Finds secrets in one line of a file in any format: values with secret names, and tokens.
pub(crate) fn secrets_in_line(line: &str) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    let mut name = String::new();
    let pieces = pieces(line);
    for (index, piece) in pieces.iter().enumerate() {
        let text = &line[piece.clone()];
        let rest = line[piece.end..].trim_start_matches(['"', '\'']).trim_start();
        if rest.starts_with(':') || (rest.starts_with('=') && index + 1 < pieces.len()) {
            name = text.to_owned();
            continue;
        }
        // A flag names the next word.
        let named = std::mem::take(&mut name);
        let telling = match named.as_str() {
            named if named.eq_ignore_ascii_case("bearer") => "token",
            // The value is a path.
            "secrets_file" => "",
            named => named,
        };
        let inner = text.split_once('=').is_some_and(|(name, value)| is_secret(name, value));
        if is_secret(telling, text) || is_token(text) || inner {
            found.push(piece.clone());
        }
        if text.starts_with('-') {
            name = text.to_owned();
        }
    }
    found
}

/// Redacts the secrets in one line of a file.
pub(crate) fn redact_line(line: &str) -> String {
    let mut shown = line.to_owned();
    secrets_in_line(line).into_iter().rev().for_each(|secret| shown.replace_range(secret, HIDDEN));
    shown
}

/// Redacts the secrets in an entry of another client's file. `name` is the value's key.
pub(crate) fn redact_json(name: &str, value: &Value) -> Value {
    match value {
        Value::String(text) if is_secret(name, text) || text.split(' ').any(is_token) => HIDDEN.into(),
        Value::String(text) => Redactor::new(&in_url(text)).redact(text).into(),
        Value::Array(items) => {
            let words: Vec<String> = items.iter().map(|item| item.as_str().unwrap_or_default().to_owned()).collect();
            let redactor = Redactor::new(&in_arguments(&words));
            let item = |item: &Value| match item.as_str().map(|text| redactor.redact(text)) {
                Some(text) => redact_json("", &text.into()),
                None => redact_json("", item),
            };
            items.iter().map(item).collect()
        }
        Value::Object(members) => members.iter().map(|(key, value)| (key.clone(), redact_json(key, value))).collect(),
        other => other.clone(),
    }
}

/// Splits a line into quoted strings and words.
fn pieces(line: &str) -> Vec<Range<usize>> {
    let mut pieces = Vec::new();
    let mut start = None;
    let mut quote = None;
    for (at, c) in line.char_indices() {
        let next = line[at + c.len_utf8()..].chars().next();
        let ends = match quote {
            Some(quote) => c == quote,
            // A colon or equals sign within a word, as in a URL, does not end it.
            None => match c {
                ':' => next.is_none_or(char::is_whitespace),
                '=' => next.is_none_or(char::is_whitespace) || line[..at].ends_with(' '),
                '"' | '\'' | ',' | '{' | '}' | '[' | ']' | '#' => true,
                c => c.is_whitespace() && !is_within_value(line, start),
            },
        };
        if !ends {
            start.get_or_insert(at);
            continue;
        }
        pieces.extend(start.take().map(|start| start..at));
        quote = if quote.is_none() && matches!(c, '"' | '\'') { Some(c) } else { None };
    }
    pieces.extend(start.map(|start| start..line.len()));
    pieces
}

/// Returns `true` within `Authorization: Bearer abc`, where the value includes its scheme.
fn is_within_value(line: &str, start: Option<usize>) -> bool {
    start.is_some_and(|start| SCHEMES.iter().any(|scheme| line[start..].starts_with(scheme)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(pairs: &[(&str, &str)]) -> ropeway_config::raw::RawMap<RawText> {
        ropeway_config::raw::RawMap(
            pairs.iter().map(|(name, value)| ((*name).to_owned(), RawText::from(*value))).collect(),
        )
    }

    fn names(extracted: &[ExtractedSecret]) -> Vec<(&str, &str, &str)> {
        extracted
            .iter()
            .map(|extracted| (extracted.name.as_str(), extracted.value.expose(), extracted.key.as_str()))
            .collect()
    }

    #[test]
    fn only_literal_secrets_become_references() {
        let mut server = RawServer::new("git-hub");
        server.env = pairs(&[
            ("GIT_HUB_TOKEN", "t0ken-t0ken"),
            ("API_KEY", "k3y$$k3y"),
            ("OTHER_TOKEN", "${OTHER}"),
            ("LEVEL", "debug"),
            ("DATABASE_URL", "pg://ada:pass-w0rd@host/db"),
            ("HARMLESS", "ghp_0123456789abcdef"),
        ]);
        server.args =
            ["-y", "server", "--api-key", "a-secret-one", "--token=an0ther", "--mode=fast", "http://u:pass-w0rd@h/"]
                .map(RawText::from)
                .to_vec();
        let extracted = extract(&mut server, &mut SecretNames::default());
        assert_eq!(
            names(&extracted),
            [
                ("GIT_HUB_TOKEN", "t0ken-t0ken", "env.GIT_HUB_TOKEN"),
                ("GIT_HUB_API_KEY", "k3y$k3y", "env.API_KEY"),
                ("GIT_HUB_DATABASE_URL", "pg://ada:pass-w0rd@host/db", "env.DATABASE_URL"),
                ("GIT_HUB_HARMLESS", "ghp_0123456789abcdef", "env.HARMLESS"),
                ("GIT_HUB_API_KEY_2", "a-secret-one", "args[3]"),
                ("GIT_HUB_TOKEN_2", "an0ther", "args[4]"),
                ("GIT_HUB_PASSWORD", "pass-w0rd", "args[6]"),
            ]
        );
        let env: Vec<&str> = server.env.0.iter().map(|(_, RawText(value))| value.as_str()).collect();
        let references = [
            "${GIT_HUB_TOKEN}",
            "${GIT_HUB_API_KEY}",
            "${OTHER}",
            "debug",
            "${GIT_HUB_DATABASE_URL}",
            "${GIT_HUB_HARMLESS}",
        ];
        assert_eq!(env, references);
        let arguments: Vec<&str> = server.args.iter().map(|RawText(text)| text.as_str()).collect();
        assert_eq!(
            arguments,
            [
                "-y",
                "server",
                "--api-key",
                "${GIT_HUB_API_KEY_2}",
                "--token=${GIT_HUB_TOKEN_2}",
                "--mode=fast",
                "http://u:${GIT_HUB_PASSWORD}@h/"
            ]
        );
    }

    #[test]
    fn names_that_only_resemble_secrets_are_kept() {
        let mut server = RawServer::new("a");
        let harmless = [
            ("AUTH_MODE", "oauth"),
            ("PASSWORD_FILE", "/run/x"),
            ("TOKENIZER", "cl100k"),
            ("API_KEY_HEADER", "x-api-key"),
            ("tokenUrl", "https://h/token"),
            ("MONKEY", "business"),
        ];
        server.env = pairs(&harmless);
        server.headers = pairs(&[("X-Auth-Type", "bearer-token")]);
        let arguments = ["--auth-mode", "oauth", "--tokenizer=cl100k", "--keyboard", "qwerty"];
        server.args = arguments.map(RawText::from).to_vec();
        let before = server.clone();
        assert_eq!((extract(&mut server, &mut SecretNames::default()), &server), (Vec::new(), &before));
        for name in ["PGPASSWORD", "apiKey", "X-Api-Key", "GITHUBTOKEN", "authorization", "DB_PASS", "Cookie"] {
            assert!(is_surely_secret(name, "s3cret-s3cret"), "{name}");
        }
        assert!(is_surely_secret("TOKEN_URL", "https://ada:s3cret-s3cret@h/"));
    }

    #[test]
    fn of_a_url_and_of_headers_only_the_secret_part_is_taken() {
        let mut server = RawServer::new("a");
        server.url = Some("https://h/mcp?api_key=t0ken-t0ken&x=y".into());
        server.headers =
            pairs(&[("Authorization", "Bearer t0ken-t0ken"), ("X-Api-Key", "k3y-k3y"), ("X-Mode", "fast")]);
        let extracted = extract(&mut server, &mut SecretNames::default());
        assert_eq!(
            names(&extracted),
            [
                ("A_TOKEN", "t0ken-t0ken", "headers.Authorization"),
                ("A_API_KEY", "k3y-k3y", "headers.X-Api-Key"),
                ("A_API_KEY_2", "t0ken-t0ken", "url"),
            ]
        );
        let headers: Vec<&str> = server.headers.0.iter().map(|(_, RawText(value))| value.as_str()).collect();
        assert_eq!(headers, ["Bearer ${A_TOKEN}", "${A_API_KEY}", "fast"]);
        assert_eq!(server.url, Some("https://h/mcp?api_key=${A_API_KEY_2}&x=y".into()));
        let mut twice = RawServer::new("a");
        twice.url = Some("https://ada:pass-w0rd@h/?token=t0ken-t0ken".into());
        extract(&mut twice, &mut SecretNames::default());
        assert_eq!(twice.url, Some("${A_URL}".into()));
    }

    #[test]
    fn one_value_has_one_name_and_a_name_one_value() {
        let mut names =
            SecretNames::in_use([("A_TOKEN".to_owned(), None), ("B_TOKEN".to_owned(), Some("t0ken".into()))]);
        assert_eq!(names.name("A_TOKEN", &"t0ken".into()), "A_TOKEN_2");
        assert_eq!(names.name("A_TOKEN", &"t0ken".into()), "A_TOKEN_2");
        assert_eq!(names.name("B_TOKEN", &"t0ken".into()), "B_TOKEN");
        assert_eq!(names.name("B_TOKEN", &"other".into()), "B_TOKEN_2");
    }

    #[test]
    fn a_variable_is_named_after_its_server() {
        for (alias, what, name) in [
            ("github", "GITHUB_TOKEN", "GITHUB_TOKEN"),
            ("brave-search", "BRAVE_API_KEY", "BRAVE_API_KEY"),
            ("search", "API_KEY", "SEARCH_API_KEY"),
            ("a", "API_KEY", "A_API_KEY"),
            ("token", "token", "TOKEN_TOKEN"),
            ("1st", "x-key", "_1ST_KEY"),
            ("ü", "key", "KEY"),
        ] {
            assert_eq!(variable(alias, what), name, "{what} of {alias}");
        }
    }

    #[test]
    fn secrets_are_found_in_lines_of_any_format() {
        for (line, secret) in [
            ("      API_KEY: s3cret-s3cret", "s3cret-s3cret"),
            ("      API_KEY: 's3cret, s3cret' # why", "s3cret, s3cret"),
            ("      Authorization: Bearer s3cret-s3cret", "Bearer s3cret-s3cret"),
            ("  \"apiKey\": \"s3cret-s3cret\",", "s3cret-s3cret"),
            ("api_key = \"s3cret-s3cret\"", "s3cret-s3cret"),
            ("  - {alias: a, auth: {bearer: s3cret-s3cret}, x: 1}", "s3cret-s3cret"),
            ("    args: [--verbose, --token, s3cret-s3cret]", "s3cret-s3cret"),
            ("    args: [\"--token=s3cret-s3cret\"]", "--token=s3cret-s3cret"),
            ("    url: https://u:s3cret-s3cret@h/", "https://u:s3cret-s3cret@h/"),
            ("    - ghp_0123456789abcdef", "ghp_0123456789abcdef"),
        ] {
            let found: Vec<&str> = secrets_in_line(line).into_iter().map(|range| &line[range]).collect();
            assert_eq!(found, [secret], "{line}");
        }
        for line in [
            "  - alias: github",
            "    url: https://example.com/mcp",
            "  TOKEN: ${TOKEN}",
            "secrets_file: ~/.config/secrets.env",
            "{\"a\": [1, 'b']}",
            "it's",
            "",
        ] {
            assert!(secrets_in_line(line).is_empty(), "{line}");
        }
    }
}
