//! Routes resource URIs to servers.
//!
//! URIs are never changed in results: only a URI that an earlier server has listed already, or that is not absolute, is listed as
//! `ropeway://ALIAS/URI`.

use std::collections::HashMap;

use memchr::memmem;
use percent_encoding::percent_decode_str;

use ropeway_core::tool::Alias;

/// The scheme for URIs that name their server.
const SCHEME: &str = "ropeway://";

/// Precedes a URI that is not absolute, with its characters encoded.
const RELATIVE: &str = "relative:";

/// Maximum URI template size in bytes. Longer templates match no URI.
const MAX_TEMPLATE_BYTES: usize = 4 << 10;

/// Maximum templates per server that URIs are compared with.
const MAX_TEMPLATES: usize = 1_000;

/// The servers that may have a resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum UriRoute {
    /// One server, with the server's own URI.
    One(Alias, String),
    /// The first of these servers that has the URI.
    Try(Vec<Alias>),
}

/// Returns a URI that names its server.
pub(crate) fn qualify(alias: &Alias, uri: &str) -> String {
    format!("{SCHEME}{alias}/{uri}")
}

/// Returns `true` if clients accept a URI: the Python SDK 1 refuses a list with one that is not absolute.
pub(crate) fn is_absolute(uri: &str) -> bool {
    reqwest::Url::parse(uri).is_ok()
}

/// Returns an absolute URI for one that is not. Everything that a client might rewrite is encoded.
pub(crate) fn qualify_relative(alias: &Alias, uri: &str) -> String {
    let mut encoded = String::with_capacity(RELATIVE.len() + uri.len());
    for byte in uri.bytes() {
        match byte {
            byte if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_') => encoded.push(byte.into()),
            byte => encoded.push_str(&format!("%{byte:02X}")),
        }
    }
    format!("{SCHEME}{alias}/{RELATIVE}{encoded}")
}

/// Splits a URI that names one of these servers.
pub(crate) fn split_qualified(uri: &str, servers: &[Alias]) -> Option<(Alias, String)> {
    let rest = uri.strip_prefix(SCHEME)?;
    servers.iter().find_map(|alias| {
        let own = rest.strip_prefix(alias.as_str())?.strip_prefix('/')?;
        let own = own.strip_prefix(RELATIVE).map_or_else(|| own.to_owned(), percent_decoded);
        Some((alias.clone(), own))
    })
}

/// Decodes `%XX`. Keeps a `%` without two digits.
pub(crate) fn percent_decoded(text: &str) -> String {
    percent_decode_str(text).decode_utf8_lossy().into_owned()
}

/// The URIs and templates that servers have listed.
#[derive(Clone, Debug, Default)]
pub(crate) struct KnownUris {
    exact: HashMap<Box<str>, Alias>,
    templates: Vec<(Template, Alias)>,
    /// The servers that list URIs, by scheme.
    schemes: HashMap<Box<str>, Vec<Alias>>,
    /// Servers that have resources.
    servers: Vec<Alias>,
}

impl KnownUris {
    /// Adds a server that has resources.
    pub(crate) fn add_server(&mut self, server: &Alias) {
        if !self.servers.contains(server) {
            self.servers.push(server.clone());
        }
    }

    /// Adds a URI. Returns `false` if an earlier server has it already.
    pub(crate) fn add(&mut self, uri: &str, server: &Alias) -> bool {
        self.add_scheme(uri, server);
        match self.exact.get(uri) {
            Some(owner) => owner == server,
            None => {
                self.exact.insert(uri.into(), server.clone());
                true
            }
        }
    }

    /// Adds a URI template. Returns `false` if an earlier server has it already.
    pub(crate) fn add_template(&mut self, template: &str, server: &Alias) -> bool {
        self.add_scheme(template, server);
        let own = self.templates.iter().filter(|(_, owner)| owner == server).count();
        if let Some((_, owner)) = self.templates.iter().find(|(known, _)| *known.text == *template) {
            return owner == server;
        }
        if own < MAX_TEMPLATES && template.len() <= MAX_TEMPLATE_BYTES {
            self.templates.push((Template::new(template), server.clone()));
        }
        true
    }

    fn add_scheme(&mut self, uri: &str, server: &Alias) {
        let Some(scheme) = scheme(uri) else { return };
        let servers = self.schemes.entry(scheme.into()).or_default();
        if !servers.contains(server) {
            servers.push(server.clone());
        }
    }

    /// Returns the server that has listed a URI or a matching template.
    pub(crate) fn owner(&self, uri: &str) -> Option<&Alias> {
        if let Some(owner) = self.exact.get(uri) {
            return Some(owner);
        }
        let mut loose = None;
        for (template, owner) in &self.templates {
            match template.matches(uri) {
                Some(Match::Exact) => return Some(owner),
                Some(Match::Loose) => loose = loose.or(Some(owner)),
                None => {}
            }
        }
        loose
    }

    /// Returns the server that has listed a template.
    pub(crate) fn template_owner(&self, template: &str) -> Option<&Alias> {
        self.templates.iter().find(|(known, _)| *known.text == *template).map(|(_, owner)| owner)
    }
}

/// Finds the servers in a profile that may have a resource.
pub(crate) fn route_uri(uri: &str, servers: &[Alias], known: &KnownUris) -> UriRoute {
    if let Some((server, own)) = split_qualified(uri, servers) {
        return UriRoute::One(server, own);
    }
    if let Some(owner) = known.owner(uri) {
        return UriRoute::One(owner.clone(), uri.to_owned());
    }
    let mut candidates = scheme(uri).and_then(|scheme| known.schemes.get(scheme)).cloned().unwrap_or_default();
    candidates.extend(known.servers.iter().filter(|server| !candidates.contains(server)).cloned().collect::<Vec<_>>());
    match &candidates[..] {
        [only] => UriRoute::One(only.clone(), uri.to_owned()),
        _ => UriRoute::Try(candidates),
    }
}

/// Returns a URI's scheme.
fn scheme(uri: &str) -> Option<&str> {
    let (scheme, _) = uri.split_once(':')?;
    let is_scheme = |c: char| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.');
    (!scheme.is_empty() && scheme.chars().all(is_scheme)).then_some(scheme)
}

/// How a URI matches a template.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Match {
    /// Each expression stands for one path segment, or may stand for several.
    Exact,
    /// An expression would stand for several segments. Some servers accept that.
    Loose,
}

/// A URI template ([RFC 6570](https://www.rfc-editor.org/rfc/rfc6570)): literals with expressions between them.
#[derive(Clone, Debug)]
struct Template {
    text: Box<str>,
    first: Box<str>,
    /// Each expression with the literal that follows it.
    rest: Vec<(Expression, Box<str>)>,
}

/// The values that an expression can have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Expression {
    /// `{name}`: a segment.
    Segment,
    /// `{+name}`, `{/name*}` or `{?name}`: anything, including nothing.
    Anything,
}

impl Template {
    fn new(text: &str) -> Self {
        let mut parts = text.split('{');
        let first = parts.next().unwrap_or_default().into();
        let rest = parts.map(|part| {
            let (expression, literal) = part.split_once('}').unwrap_or((part, ""));
            let kind = if expression.starts_with(['+', '#', '.', '/', ';', '?', '&']) {
                Expression::Anything
            } else {
                Expression::Segment
            };
            (kind, literal.into())
        });
        Self { text: text.into(), first, rest: rest.collect() }
    }

    /// Compares a URI with the template, in time linear in the URI for each literal.
    fn matches(&self, uri: &str) -> Option<Match> {
        let mut rest = uri.strip_prefix(&*self.first)?;
        let mut found = Match::Exact;
        let last = self.rest.len().checked_sub(1);
        if last.is_none() {
            return rest.is_empty().then_some(found);
        }
        for (index, (expression, literal)) in self.rest.iter().enumerate() {
            // The last literal ends the URI, others match as early as possible.
            let at = if Some(index) == last {
                rest.strip_suffix(&**literal)?.len()
            } else {
                let least = usize::from(*expression == Expression::Segment).min(rest.len());
                let least = rest.ceil_char_boundary(least);
                least + memmem::find(&rest.as_bytes()[least..], literal.as_bytes())?
            };
            let value = &rest[..at];
            if *expression == Expression::Segment {
                if value.is_empty() {
                    return None;
                }
                if value.contains(['/', '?', '#']) {
                    found = Match::Loose;
                }
            }
            rest = &rest[at + literal.len()..];
        }
        Some(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn alias(name: &str) -> Alias {
        name.into()
    }

    fn known() -> KnownUris {
        let mut known = KnownUris::default();
        let (files, web) = (alias("files"), alias("web"));
        known.add_server(&files);
        known.add_server(&web);
        known.add_server(&alias("more"));
        assert!(known.add("file:///a", &files));
        assert!(known.add("file:///a", &files));
        assert!(!known.add("file:///a", &web));
        assert!(known.add("note://b", &web));
        assert!(known.add_template("db://{table}/rows/{row}", &files));
        assert!(!known.add_template("db://{table}/rows/{row}", &web));
        assert!(known.add_template("db://{+path}", &web));
        known
    }

    #[test]
    fn only_two_digits_after_a_percent_sign_are_decoded() {
        for (text, decoded) in
            [("a%20b%2Fc%2f", "a b/c/"), ("%", "%"), ("%4", "%4"), ("%zz%+5", "%zz%+5"), ("%ff", "\u{fffd}")]
        {
            assert_eq!(percent_decoded(text), decoded);
        }
    }

    #[test]
    fn a_uri_is_routed_by_what_servers_have_listed() {
        let (known, servers) = (known(), ["files", "web", "more"].map(alias));
        let one = |server: &str, uri: &str| UriRoute::One(alias(server), uri.to_owned());
        for (uri, expected) in [
            ("file:///a", one("files", "file:///a")),
            ("ropeway://web/file:///a", one("web", "file:///a")),
            ("note://b", one("web", "note://b")),
            ("db://t/rows/1", one("files", "db://t/rows/1")),
            ("db://t/other", one("web", "db://t/other")),
            ("note://other", UriRoute::Try(["web", "files", "more"].map(alias).to_vec())),
            ("file:///other", UriRoute::Try(["files", "web", "more"].map(alias).to_vec())),
            ("ui://x", UriRoute::Try(["files", "web", "more"].map(alias).to_vec())),
            ("ropeway://unknown/x", UriRoute::Try(["files", "web", "more"].map(alias).to_vec())),
        ] {
            assert_eq!(route_uri(uri, &servers, &known), expected, "{uri}");
        }
        // Other profiles' servers are not named.
        assert!(matches!(route_uri("ropeway://web/x:y", &[alias("files")], &known), UriRoute::Try(_)));
        assert_eq!(route_uri("x:y", &servers, &KnownUris::default()), UriRoute::Try(Vec::new()));
    }

    #[test]
    fn a_qualified_uri_contains_the_own_one_verbatim() {
        let servers = ["a", "a.b"].map(alias);
        for uri in ["file:///x%20y?q#f", "ropeway://a/x:y", ""] {
            for server in &servers {
                assert_eq!(split_qualified(&qualify(server, uri), &servers), Some((server.clone(), uri.to_owned())));
            }
        }
    }

    #[test]
    fn a_template_matches_the_uris_that_it_expands_to() {
        for (template, uri, expected) in [
            ("x://{a}", "x://b", Some(Match::Exact)),
            ("x://{a}", "x://b/c", Some(Match::Loose)),
            ("x://{a}", "x://", None),
            ("x://{a}/c", "x://b/c", Some(Match::Exact)),
            ("x://{a}/c", "x://b/d", None),
            ("x://{+a}", "x://", Some(Match::Exact)),
            ("x://{+a}/end", "x://b/c/end", Some(Match::Exact)),
            ("x://s{?q,r}", "x://s?q=1&r=2", Some(Match::Exact)),
            ("x://s{?q,r}", "x://s", Some(Match::Exact)),
            ("x://s{/path*}", "x://s/a/b", Some(Match::Exact)),
            ("x://fixed", "x://fixed", Some(Match::Exact)),
            ("x://fixed", "x://fixed/more", None),
            ("x://{a}{b}", "x://äö", Some(Match::Exact)),
            ("x://{open", "x://y", Some(Match::Exact)),
            ("x://{a}-{b}", "x://-1-2", Some(Match::Exact)),
        ] {
            assert_eq!(Template::new(template).matches(uri), expected, "{template} {uri}");
        }
    }

    #[test]
    fn a_relative_uri_becomes_absolute_and_is_decoded_again() {
        let servers = ["one", "two"].map(Alias::from);
        for uri in ["no scheme", "../a%20b?c#d", "ünï", "a/./b", ""] {
            let qualified = qualify_relative(&servers[1], uri);
            // A client that parses the URI does not change it.
            assert_eq!(reqwest::Url::parse(&qualified).map(String::from), Ok(qualified.clone()));
            assert_eq!(split_qualified(&qualified, &servers), Some((servers[1].clone(), uri.to_owned())));
        }
        assert!(is_absolute("file:///a") && is_absolute("ui:x") && !is_absolute("x") && !is_absolute("http://"));
    }

    #[test]
    fn long_templates_and_uris_are_compared_quickly() {
        let mut known = KnownUris::default();
        for number in 0..5_000 {
            known.add_template(&format!("x://{}{number}", "{a}a".repeat(500)), &alias("s"));
        }
        assert_eq!(known.templates.len(), MAX_TEMPLATES);
        let start = std::time::Instant::now();
        assert_eq!(known.owner(&format!("x://{}", "a".repeat(8 << 10))), None);
        assert!(start.elapsed() < std::time::Duration::from_secs(5), "{:?}", start.elapsed());
    }
}
