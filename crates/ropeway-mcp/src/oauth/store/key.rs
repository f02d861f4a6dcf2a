//! A stored sign-in's key: a server's canonical URL, and an account.

use reqwest::Url;

use super::seal::fingerprint;

/// Maximum bytes of a URL or an account name.
const MAX_BYTES: usize = 8 << 10;

/// Identifies a sign-in.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct SignInKey {
    pub(super) server: String,
    pub(super) account: Option<String>,
}

impl SignInKey {
    pub(super) fn new(server: &str, account: Option<&str>) -> Self {
        Self { server: canonical_server(server), account: account.map(str::to_owned) }
    }

    /// Returns the sign-in's file name, without extension. It does not reveal the key.
    pub(super) fn file_name(&self) -> String {
        match &self.account {
            Some(account) => fingerprint(&[&self.server, account]),
            None => fingerprint(&[&self.server]),
        }
    }

    /// Returns the data that is authenticated with the tokens.
    pub(super) fn bound_to(&self) -> Vec<u8> {
        format!("ropeway tokens 1 {}", self.file_name()).into_bytes()
    }

    /// Returns `true` if the key is too long to be stored.
    pub(super) fn is_too_long(&self) -> bool {
        self.server.len() > MAX_BYTES || self.account.as_ref().is_some_and(|account| account.len() > MAX_BYTES)
    }
}

/// Returns a server's URL in the form under which its tokens are stored.
///
/// Scheme and host are in lower case. The default port, user information, the fragment and an empty path's `/` are removed. Path
/// and query are kept, because they can select a separate resource. Other text is returned unchanged.
pub fn canonical_server(url: &str) -> String {
    let Ok(mut url) = Url::parse(url.trim()) else { return url.trim().to_owned() };
    url.set_fragment(None);
    // These fail for URLs without a host, which have no user either.
    let _ = url.set_username("");
    let _ = url.set_password(None);
    let is_bare = url.path() == "/" && url.query().is_none();
    let text = String::from(url);
    if is_bare { text.trim_end_matches('/').to_owned() } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spellings_of_one_url_are_one_server() {
        for url in [
            "https://example.com",
            "https://example.com/",
            " HTTPS://Example.COM:443/#top",
            "https://user:password@example.com",
        ] {
            assert_eq!(canonical_server(url), "https://example.com", "{url}");
        }
        for url in ["https://example.com/mcp", "https://example.com/mcp/", "https://example.com/?a=1", "no URL"] {
            assert_eq!(canonical_server(url), url);
        }
    }

    #[test]
    fn servers_and_accounts_have_files_of_their_own() {
        let name = |server: &str, account| SignInKey::new(server, account).file_name();
        let names = [
            name("https://a", None),
            name("https://a", Some("")),
            name("https://a", Some("b")),
            name("https://a/b", None),
            name("http://a", None),
        ];
        let distinct: std::collections::HashSet<_> = names.iter().collect();
        assert_eq!(distinct.len(), names.len());
        assert_eq!(name("https://A:443/", None), names[0]);
        // File names must not change, or users have to sign in again.
        assert_eq!(names[0], "e42825ef49ebc1ded5b0f5d6b33fd8fc72c51ba2");
    }
}
