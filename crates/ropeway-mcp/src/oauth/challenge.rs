//! A protected server's `WWW-Authenticate` header ([RFC 9110, section 11.6.1](https://www.rfc-editor.org/rfc/rfc9110#section-11.6.1)).

/// Maximum number of bytes to parse, over all header lines.
const MAX_BYTES: usize = 16 << 10;

/// A server's `Bearer` or `DPoP` challenge.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Challenge {
    /// The schemes that the server accepts.
    pub scheme: ChallengeScheme,
    /// The error code, like `invalid_token` or `insufficient_scope`.
    pub error: Option<String>,
    /// The error's description.
    pub error_description: Option<String>,
    /// The scopes that the request needs.
    pub scope: Option<String>,
    /// The URL of the resource metadata ([RFC 9728](https://www.rfc-editor.org/rfc/rfc9728#section-5.1)).
    pub resource_metadata: Option<String>,
}

/// The schemes that a challenge offers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ChallengeScheme {
    /// The server accepts bearer tokens.
    #[default]
    Bearer,
    /// The server accepts only tokens that are bound to a key.
    Dpop,
}

impl Challenge {
    /// Parses all header lines. Returns `None` if they contain neither `Bearer` nor `DPoP`.
    pub fn parse<'a>(headers: impl IntoIterator<Item = &'a str>) -> Option<Self> {
        let mut left = MAX_BYTES;
        let mut found: Vec<(ChallengeScheme, Self)> = Vec::new();
        for header in headers {
            let header = &header[..header.floor_char_boundary(left)];
            left -= header.len();
            found.extend(parse_line(header));
        }
        let has_bearer = found.iter().any(|(scheme, _)| *scheme == ChallengeScheme::Bearer);
        // A server that accepts both repeats the parameters in each, or puts them into one.
        let mut merged: Option<Self> = None;
        for (_, challenge) in found {
            let all = merged.get_or_insert_with(|| Self {
                scheme: if has_bearer { ChallengeScheme::Bearer } else { ChallengeScheme::Dpop },
                ..Self::default()
            });
            all.error = all.error.take().or(challenge.error);
            all.error_description = all.error_description.take().or(challenge.error_description);
            all.scope = all.scope.take().or(challenge.scope);
            all.resource_metadata = all.resource_metadata.take().or(challenge.resource_metadata);
        }
        merged
    }

    /// Returns the scopes that the request needs.
    pub fn scopes(&self) -> Vec<String> {
        self.scope.as_deref().unwrap_or_default().split_whitespace().map(str::to_owned).collect()
    }

    /// Returns `true` if the token lacks scopes.
    pub fn is_insufficient_scope(&self) -> bool {
        self.error.as_deref() == Some("insufficient_scope")
    }

    /// Returns `true` if the server requires its nonce in the proof
    /// ([RFC 9449, section 9](https://www.rfc-editor.org/rfc/rfc9449#section-9)).
    pub fn wants_nonce(&self) -> bool {
        self.error.as_deref() == Some("use_dpop_nonce")
    }
}

/// Parses one line, which can contain several challenges.
fn parse_line(line: &str) -> Vec<(ChallengeScheme, Challenge)> {
    let mut found = Vec::new();
    let mut current: Option<(ChallengeScheme, Challenge)> = None;
    let mut rest = line;
    loop {
        rest = rest.trim_start_matches([' ', '\t', ',']);
        let name_end = rest.find(|c: char| !is_token(c)).unwrap_or(rest.len());
        if name_end == 0 {
            // An unexpected character: the rest up to the next comma is skipped.
            match rest.find(',') {
                Some(comma) => rest = &rest[comma..],
                None => break,
            }
            continue;
        }
        let (name, behind) = rest.split_at(name_end);
        let behind_blanks = behind.trim_start_matches([' ', '\t']);
        match behind_blanks.strip_prefix('=') {
            Some(value) if !is_padding(value) => {
                let (value, behind_value) = parse_value(value.trim_start_matches([' ', '\t']));
                if let Some((_, challenge)) = &mut current {
                    challenge.set(name, value);
                }
                rest = behind_value;
            }
            // A `token68`'s padding.
            Some(padding) => rest = padding.trim_start_matches('='),
            None => {
                found.extend(current.take());
                current = ChallengeScheme::parse(name).map(|scheme| (scheme, Challenge::default()));
                rest = behind;
            }
        }
    }
    found.extend(current);
    found
}

/// Returns `true` if an equals sign before `rest` ends a `token68`, instead of starting a value.
fn is_padding(rest: &str) -> bool {
    rest.trim_start_matches('=').trim_start_matches([' ', '\t']).is_empty() || rest.starts_with(['=', ','])
}

/// Parses a token or a quoted string. Returns the value and the text behind it.
fn parse_value(text: &str) -> (String, &str) {
    let Some(quoted) = text.strip_prefix('"') else {
        // Some servers send URLs without quotes.
        let end = text.find([',', ' ', '\t']).unwrap_or(text.len());
        return (text[..end].to_owned(), &text[end..]);
    };
    let mut value = String::new();
    let mut chars = quoted.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return (value, &quoted[at + 1..]),
            '\\' => value.extend(chars.next().map(|(_, c)| c)),
            c => value.push(c),
        }
    }
    (value, "")
}

fn is_token(c: char) -> bool {
    c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~/".contains(c)
}

impl ChallengeScheme {
    fn parse(name: &str) -> Option<Self> {
        if name.eq_ignore_ascii_case("Bearer") {
            Some(Self::Bearer)
        } else if name.eq_ignore_ascii_case("DPoP") {
            Some(Self::Dpop)
        } else {
            None
        }
    }
}

impl Challenge {
    /// Sets a parameter. The first value wins.
    fn set(&mut self, name: &str, value: String) {
        let field = match name.to_ascii_lowercase().as_str() {
            "error" => &mut self.error,
            "error_description" => &mut self.error_description,
            "scope" => &mut self.scope,
            "resource_metadata" => &mut self.resource_metadata,
            _ => return,
        };
        field.get_or_insert(value);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_bearer_challenge_is_parsed() {
        let header = r#"Bearer realm="a, b", error="insufficient_scope", scope="files:read  files:write", resource_metadata="https://a.example/.well-known/oauth-protected-resource/mcp", error_description="say \"hi\"""#;
        let challenge = Challenge::parse([header]).expect("a challenge");
        assert!(challenge.is_insufficient_scope());
        assert_eq!(challenge.scheme, ChallengeScheme::Bearer);
        assert_eq!(challenge.scopes(), ["files:read", "files:write"]);
        assert_eq!(
            challenge.resource_metadata.as_deref(),
            Some("https://a.example/.well-known/oauth-protected-resource/mcp")
        );
        assert_eq!(challenge.error_description.as_deref(), Some("say \"hi\""));
    }

    #[test]
    fn several_schemes_and_lines_are_parsed() {
        let one = Challenge::parse([
            r#"Basic realm="x", Negotiate YWJj==, DPoP algs="ES256", error=use_dpop_nonce, Bearer scope="a""#,
        ]);
        let two = Challenge::parse([
            r#"Basic realm="x""#,
            "Negotiate YWJj==",
            r#"dpop algs="ES256", error="use_dpop_nonce""#,
            "bearer scope=a",
        ]);
        assert_eq!(one, two);
        let challenge = one.expect("a challenge");
        assert!(challenge.wants_nonce());
        assert_eq!((challenge.scheme, challenge.scopes()), (ChallengeScheme::Bearer, vec!["a".to_owned()]));
    }

    #[test]
    fn a_server_that_accepts_only_bound_tokens_is_recognised() {
        let challenge = Challenge::parse([r#"DPoP algs="ES256 PS256""#]).expect("a challenge");
        assert_eq!(challenge.scheme, ChallengeScheme::Dpop);
    }

    #[test]
    fn parameters_without_quotes_and_a_bare_scheme_are_accepted() {
        let challenge = Challenge::parse(["Bearer resource_metadata=https://a.example/x?y=1, scope = a"]);
        let challenge = challenge.expect("a challenge");
        assert_eq!(challenge.resource_metadata.as_deref(), Some("https://a.example/x?y=1"));
        assert_eq!(challenge.scope.as_deref(), Some("a"));
        assert_eq!(Challenge::parse(["Bearer"]), Some(Challenge::default()));
    }

    #[test]
    fn other_schemes_and_invalid_headers_are_not_challenges() {
        for header in ["", "Basic realm=\"Bearer\"", "Digest a=b, scope=\"x\"", "=,,=\"", "\u{1f600}"] {
            assert_eq!(Challenge::parse([header]), None, "{header}");
        }
    }

    #[test]
    fn a_huge_header_is_cut() {
        let header = format!("Bearer scope=\"{}\"", "a".repeat(1 << 20));
        let scope = Challenge::parse([header.as_str()]).and_then(|challenge| challenge.scope).expect("a scope");
        assert!(scope.len() <= MAX_BYTES);
    }

    proptest! {
        #[test]
        fn arbitrary_headers_do_not_panic(lines in prop::collection::vec("[ -~]{0,80}|(Bearer |DPoP |a=|\"|,|\\\\|=| |x){0,20}", 0..4)) {
            let _ = Challenge::parse(lines.iter().map(String::as_str));
        }
    }
}
