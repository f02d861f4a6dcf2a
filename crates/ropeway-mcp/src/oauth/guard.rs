//! Which URLs and addresses OAuth requests may go to.
//!
//! Metadata comes from servers that are not trusted. It must not make this client send requests into a private network
//! ([Server-Side Request Forgery](https://modelcontextprotocol.io/docs/tutorials/security/security_best_practices#server-side-request-forgery-ssrf)).

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use reqwest::Url;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};

use super::address::AddressClass;
use super::error::OAuthError;
use super::text::shown_url;

/// Maximum time to resolve a name that a proxy will resolve again.
const LOOKUP_TIMEOUT: Duration = Duration::from_secs(2);

/// Checks URLs before they are used, and addresses before they are connected to.
#[derive(Clone, Debug)]
pub(crate) struct OutboundGuard(Arc<Rules>);

#[derive(Debug)]
struct Rules {
    /// The server's host, which the configuration names.
    server: String,
    /// The server's address class, if its URL contains it. Resolved addresses do not count: an attacker could choose them.
    class: AddressClass,
    allowed: Vec<String>,
    /// The proxy hosts in the environment, which are often on private addresses.
    proxies: Vec<String>,
}

/// Why a connection to a name is blocked.
#[derive(Clone, Debug, thiserror::Error)]
#[error("it resolves to {}; if you trust it, add `{host}` to `allow_private`", .class.name())]
pub(super) struct BlockedAddress {
    host: String,
    class: AddressClass,
}

impl OutboundGuard {
    /// Creates a guard for requests that a server causes.
    pub(crate) fn new(server: &Url, allow_private: &[String]) -> Self {
        let host = server.host_str().unwrap_or_default();
        Self(Arc::new(Rules {
            server: normalized(host),
            class: AddressClass::of_host(host).unwrap_or(AddressClass::Public),
            allowed: allow_private.iter().map(|host| normalized(host)).collect(),
            proxies: proxy_hosts(),
        }))
    }

    /// Checks a URL that a request is sent to.
    pub(crate) fn check(&self, url: &Url) -> Result<(), OAuthError> {
        let rules = &*self.0;
        let host = url.host_str().unwrap_or_default();
        let class = AddressClass::of_host(host);
        match url.scheme() {
            "https" => {}
            "http" if class == Some(AddressClass::Loopback) && rules.class == AddressClass::Loopback => {}
            "http" => return blocked(url, "it must start with `https`"),
            _ => return blocked(url, "it is not an `https` URL"),
        }
        check_form(url)?;
        let class = class.unwrap_or(AddressClass::Public);
        if !rules.allows(host, class) {
            let advice = format!("it is {}; if you trust it, add `{host}` to `allow_private`", class.name());
            return blocked(url, &advice);
        }
        if rules.proxies.contains(&normalized(host)) && !rules.is_named(host) {
            return blocked(url, "it is the proxy of this machine");
        }
        Ok(())
    }

    /// Checks a URL that the user opens in a browser.
    pub(crate) fn check_for_browser(&self, url: &Url) -> Result<(), OAuthError> {
        let is_loopback =
            || url.scheme() == "http" && url.host_str().and_then(AddressClass::of_host) == Some(AddressClass::Loopback);
        if url.scheme() != "https" && !(is_loopback() && self.0.class == AddressClass::Loopback) {
            return blocked(url, "a browser may only be sent to an `https` URL");
        }
        check_form(url)
    }

    /// Checks the addresses behind a name that a proxy connects to. The proxy resolves it by itself, so this client cannot filter
    /// the addresses; it refuses names that have only private addresses here. A name that is unknown here is left to the proxy.
    pub(crate) async fn check_proxied(&self, url: &Url) -> Result<(), OAuthError> {
        let host = url.host_str().unwrap_or_default();
        if self.0.proxies.is_empty() || self.0.is_named(host) || AddressClass::of_host(host).is_some() {
            return Ok(());
        }
        let found = tokio::time::timeout(LOOKUP_TIMEOUT, tokio::net::lookup_host((host, 0))).await;
        match found {
            Ok(Ok(addresses)) => self.check_addresses(url, &addresses.collect::<Vec<_>>()),
            Ok(Err(_)) | Err(_) => Ok(()),
        }
    }

    fn check_addresses(&self, url: &Url, addresses: &[SocketAddr]) -> Result<(), OAuthError> {
        match self.filter(url.host_str().unwrap_or_default(), addresses) {
            Ok(_) => Ok(()),
            Err(error) => blocked(url, &error.to_string()),
        }
    }

    /// Returns the addresses that a name may be connected at.
    fn filter(&self, host: &str, addresses: &[SocketAddr]) -> Result<Vec<SocketAddr>, BlockedAddress> {
        let rules = &*self.0;
        let is_allowed = |address: &IpAddr| {
            rules.proxies.contains(&normalized(host)) || rules.allows(host, AddressClass::of(*address))
        };
        let kept: Vec<_> = addresses.iter().copied().filter(|address| is_allowed(&address.ip())).collect();
        match addresses.first() {
            Some(first) if kept.is_empty() => {
                Err(BlockedAddress { host: host.to_owned(), class: AddressClass::of(first.ip()) })
            }
            _ => Ok(kept),
        }
    }
}

impl Rules {
    /// Returns `true` if the configuration names the host.
    fn is_named(&self, host: &str) -> bool {
        let host = normalized(host);
        host == self.server || self.allowed.contains(&host)
    }

    fn allows(&self, host: &str, class: AddressClass) -> bool {
        let is_same_network = class == self.class && matches!(class, AddressClass::Loopback | AddressClass::Private);
        class == AddressClass::Public || is_same_network || self.is_named(host)
    }
}

impl Resolve for OutboundGuard {
    fn resolve(&self, name: Name) -> Resolving {
        let guard = self.clone();
        Box::pin(async move {
            let host = name.as_str();
            let found: Vec<SocketAddr> = tokio::net::lookup_host((host, 0)).await?.collect();
            let kept: Addrs = Box::new(guard.filter(host, &found)?.into_iter());
            Ok(kept)
        })
    }
}

/// Rejects user names and fragments, and URLs without a host.
fn check_form(url: &Url) -> Result<(), OAuthError> {
    if !url.username().is_empty() || url.password().is_some() {
        return blocked(url, "it contains a user name");
    }
    if url.fragment().is_some() {
        return blocked(url, "it has a fragment");
    }
    if url.host_str().unwrap_or_default().is_empty() {
        return blocked(url, "it has no host");
    }
    Ok(())
}

pub(super) fn blocked<T>(url: &Url, reason: &str) -> Result<T, OAuthError> {
    Err(OAuthError::Blocked { url: shown_url(url), reason: reason.to_owned() })
}

fn normalized(host: &str) -> String {
    host.trim_end_matches('.').trim_matches(['[', ']']).to_ascii_lowercase()
}

fn proxy_hosts() -> Vec<String> {
    let names = ["HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"];
    names.into_iter().filter_map(|name| proxy_host(&std::env::var(name).ok()?)).collect()
}

/// Returns a proxy's host. Proxies can be written without a scheme.
fn proxy_host(value: &str) -> Option<String> {
    let url = Url::parse(value).ok().filter(Url::has_host).or_else(|| Url::parse(&format!("http://{value}")).ok())?;
    url.host_str().map(normalized)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn url(text: &str) -> Url {
        Url::parse(text).expect("a URL")
    }

    fn guard(server: &str, allowed: &[&str]) -> OutboundGuard {
        let allowed: Vec<String> = allowed.iter().map(|host| (*host).to_owned()).collect();
        OutboundGuard::new(&url(server), &allowed)
    }

    #[test]
    fn a_public_server_cannot_name_private_addresses() {
        let guard = guard("https://mcp.example/mcp", &["auth.corp", "10.1.1.1"]);
        for fine in
            ["https://auth.example/token?x=1", "https://auth.corp/", "https://10.1.1.1/", "https://mcp.example:9/"]
        {
            assert!(guard.check(&url(fine)).is_ok(), "{fine}");
        }
        for bad in [
            "http://auth.example/token",
            "https://127.0.0.1/",
            "https://localhost/",
            "https://10.0.0.1/",
            "https://[::ffff:10.0.0.1]/",
            "https://169.254.169.254/latest/meta-data",
            "https://0x7f000001/",
            "https://2130706433/",
            "https://a:b@auth.example/",
            "https://auth.example/#x",
            "http://localhost:1/",
            "file:///etc/passwd",
            "javascript:alert(1)",
            "data:text/html,x",
        ] {
            assert!(matches!(guard.check(&url(bad)), Err(OAuthError::Blocked { .. })), "{bad}");
        }
    }

    #[test]
    fn a_server_on_this_machine_can_name_this_machine_but_no_private_network() {
        let guard = guard("http://localhost:3000/mcp", &[]);
        for fine in ["http://127.0.0.1:9000/", "http://[::1]/", "https://auth.example/", "https://localhost/"] {
            assert!(guard.check(&url(fine)).is_ok(), "{fine}");
        }
        for bad in ["http://192.168.0.1/", "https://192.168.0.1/", "http://auth.example/", "http://169.254.169.254/"] {
            assert!(guard.check(&url(bad)).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_server_on_a_private_network_can_name_that_network_only() {
        let guard = guard("https://10.0.0.7/mcp", &[]);
        assert!(guard.check(&url("https://10.0.0.8/token")).is_ok());
        assert!(guard.check(&url("https://127.0.0.1/token")).is_err());
        assert!(guard.check(&url("https://169.254.169.254/token")).is_err());
    }

    #[test]
    fn a_name_that_resolves_to_a_private_address_is_refused() {
        let guard = guard("https://mcp.example/mcp", &["auth.corp"]);
        let addresses = |texts: &[&str]| -> Vec<SocketAddr> {
            texts.iter().map(|text| SocketAddr::new(text.parse().expect("an address"), 0)).collect()
        };
        let error = guard.filter("auth.evil", &addresses(&["10.0.0.1", "127.0.0.1"])).expect_err("refused");
        assert!(error.to_string().contains("add `auth.evil` to `allow_private`"), "{error}");
        let both = addresses(&["10.0.0.1", "1.1.1.1"]);
        assert_eq!(guard.filter("auth.evil", &both).expect("one"), addresses(&["1.1.1.1"]));
        assert_eq!(guard.filter("auth.corp", &both).expect("both"), both);
        assert_eq!(guard.filter("MCP.example", &both).expect("both"), both);
    }

    #[tokio::test]
    async fn a_proxy_is_not_asked_for_a_name_with_private_addresses() {
        let rules = |proxies: &[&str]| {
            let proxies = proxies.iter().map(|host| (*host).to_owned()).collect();
            let guard = guard("https://mcp.example/mcp", &["auth.corp"]);
            OutboundGuard(Arc::new(Rules {
                server: guard.0.server.clone(),
                class: guard.0.class,
                allowed: guard.0.allowed.clone(),
                proxies,
            }))
        };
        let proxied = rules(&["proxy.corp"]);
        let private = [SocketAddr::new([10, 0, 0, 1].into(), 0)];
        let error = proxied.check_addresses(&url("https://auth.evil/token"), &private).expect_err("refused");
        assert!(error.to_string().contains("add `auth.evil` to `allow_private`"), "{error}");
        assert!(proxied.check_addresses(&url("https://auth.corp/token"), &private).is_ok());
        // Reserved names never resolve (RFC 6761), so the proxy decides.
        assert!(proxied.check_proxied(&url("https://auth.invalid/token")).await.is_ok());
        assert!(rules(&[]).check_proxied(&url("https://auth.invalid/token")).await.is_ok());
    }

    #[test]
    fn a_browser_is_sent_to_https_only() {
        let public = guard("https://mcp.example/mcp", &[]);
        assert!(public.check_for_browser(&url("https://10.0.0.1/authorize")).is_ok());
        for bad in ["http://auth.example/a", "http://127.0.0.1/a", "javascript:alert(1)", "https://a@b/", "file:///x"] {
            assert!(public.check_for_browser(&url(bad)).is_err(), "{bad}");
        }
        assert!(guard("http://127.0.0.1:1/", &[]).check_for_browser(&url("http://localhost:2/a")).is_ok());
    }

    #[test]
    fn the_host_of_a_proxy_is_found_with_and_without_a_scheme() {
        assert_eq!(proxy_host("http://user:pass@proxy.corp:3128/").as_deref(), Some("proxy.corp"));
        assert_eq!(proxy_host("proxy.corp:3128").as_deref(), Some("proxy.corp"));
        assert_eq!(proxy_host(""), None);
    }
}
