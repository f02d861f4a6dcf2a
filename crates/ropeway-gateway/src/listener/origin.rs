//! Checks `Host` and `Origin`, against DNS rebinding.
//!
//! A web page can send requests to a port on this machine. Its `Host` or `Origin` then names another host. See
//! [Security Warning](https://modelcontextprotocol.io/specification/2025-11-25/basic/transports#security-warning).

use std::net::{IpAddr, SocketAddr};

/// Maximum length of a refused value in a log line.
const MAX_SHOWN: usize = 200;

/// The hosts and origins that may use the gateway.
#[derive(Clone, Debug)]
pub(crate) struct HostRules {
    /// `None` on a Unix socket, which no web page can reach.
    listen: Option<IpAddr>,
    /// Lower case, with a port or without.
    hosts: Vec<String>,
    /// Lower case, without a slash at the end.
    origins: Vec<String>,
}

/// The [`HostRules::check`] error.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Denied {
    /// The request has no `Host`, or one that is not allowed.
    #[error("Host is not allowed")]
    Host(String),
    /// The request comes from a web page that is not allowed.
    #[error("Origin is not allowed")]
    Origin(String),
}

impl Denied {
    /// Returns the refused value, escaped and shortened for a log line.
    pub(crate) fn shown(&self) -> String {
        let (Self::Host(value) | Self::Origin(value)) = self;
        value.escape_debug().take(MAX_SHOWN).collect()
    }
}

impl HostRules {
    /// Creates rules for a TCP listener. Loopback names and the address itself are always allowed.
    pub(crate) fn new(listen: SocketAddr, hosts: &[String], origins: &[String]) -> Self {
        Self { listen: Some(listen.ip()), ..Self::unix(hosts, origins) }
    }

    /// Creates rules for a Unix socket, where every `Host` is allowed.
    pub(crate) fn unix(hosts: &[String], origins: &[String]) -> Self {
        let lower = |values: &[String]| values.iter().map(|value| value.trim_end_matches('/').to_lowercase()).collect();
        Self { listen: None, hosts: lower(hosts), origins: lower(origins) }
    }

    /// Checks a request's headers. A client that is not a web page sends no `Origin`.
    ///
    /// # Errors
    ///
    /// Fails if the host is missing, or if the host or the origin is not allowed.
    pub(crate) fn check(&self, host: Option<&str>, origin: Option<&str>) -> Result<(), Denied> {
        if self.listen.is_some() && !host.is_some_and(|host| self.allows_host(host) || self.is_own_address(host)) {
            return Err(Denied::Host(host.unwrap_or_default().to_owned()));
        }
        self.check_origin(origin)
    }

    /// Checks a request's `Origin` only.
    ///
    /// # Errors
    ///
    /// Fails if the origin is not allowed.
    pub(crate) fn check_origin(&self, origin: Option<&str>) -> Result<(), Denied> {
        match origin {
            Some(origin) if !self.allows_origin(origin) => Err(Denied::Origin(origin.to_owned())),
            _ => Ok(()),
        }
    }

    fn allows_origin(&self, origin: &str) -> bool {
        let origin = origin.to_lowercase();
        if self.origins.contains(&origin) {
            return true;
        }
        let host = origin.strip_prefix("http://").or_else(|| origin.strip_prefix("https://"));
        host.is_some_and(|host| self.allows_host(host))
    }

    fn allows_host(&self, host: &str) -> bool {
        let host = host.to_lowercase();
        let Some(name) = without_port(&host) else { return false };
        if name == "localhost" || self.hosts.iter().any(|allowed| *allowed == host || allowed == name) {
            return true;
        }
        let bare = name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or(name);
        bare.parse::<IpAddr>().is_ok_and(|ip| ip.to_canonical().is_loopback() || Some(ip) == self.listen)
    }

    /// Returns `true` if a gateway on all addresses may have this one. DNS rebinding needs a name: a page whose host is an address
    /// comes from that address.
    fn is_own_address(&self, host: &str) -> bool {
        let name = without_port(host).map(|name| name.trim_start_matches('[').trim_end_matches(']'));
        self.listen.is_some_and(|listen| listen.is_unspecified())
            && name.is_some_and(|name| name.parse::<IpAddr>().is_ok())
    }
}

/// Returns the web page's origin on a listener, if a client's browser can reach it and return to it from a sign-in: on the same
/// machine, or with HTTPS.
pub(crate) fn page_origin(listen: SocketAddr, is_https: bool, hosts: &[String]) -> Option<String> {
    let scheme = if is_https { "https" } else { "http" };
    let ip = listen.ip().to_canonical();
    match hosts.first() {
        None if ip.is_loopback() || (is_https && !ip.is_unspecified()) => Some(format!("{scheme}://{listen}")),
        // On a loopback address, these hosts' clients come through a proxy.
        Some(host) if is_https && !ip.is_loopback() => {
            let has_port = without_port(host).is_some_and(|name| name.len() < host.len());
            Some(if has_port { format!("https://{host}") } else { format!("https://{host}:{}", listen.port()) })
        }
        _ => None,
    }
}

/// Returns a host without its port; `None` if the value is not `HOST` or `HOST:PORT`.
fn without_port(host: &str) -> Option<&str> {
    let name_end = match host.strip_prefix('[') {
        Some(rest) => rest.find(']')? + 2,
        None => host.find(':').unwrap_or(host.len()),
    };
    let (name, port) = host.split_at(name_end);
    let is_port = |port: &str| !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
    let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b"-._[]:".contains(&byte);
    let is_valid = port.is_empty() || port.strip_prefix(':').is_some_and(is_port);
    (is_valid && !name.is_empty() && name.bytes().all(is_name)).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules() -> HostRules {
        let listen = "192.168.1.5:8931".parse().unwrap();
        HostRules::new(
            listen,
            &["Gateway.local".to_owned(), "proxy:8443".to_owned()],
            &["https://App.example/".to_owned()],
        )
    }

    #[test]
    fn loopback_the_address_and_configured_hosts_are_allowed() {
        for host in [
            "localhost",
            "LOCALHOST:8931",
            "127.0.0.1:8931",
            "127.1.2.3",
            "[::1]:8931",
            "[::ffff:127.0.0.1]",
            "192.168.1.5",
            "192.168.1.5:80",
            "gateway.local:1",
            "proxy:8443",
        ] {
            assert_eq!(rules().check(Some(host), None), Ok(()), "{host}");
        }
    }

    #[test]
    fn foreign_and_malformed_hosts_are_refused() {
        for host in [
            "",
            "evil.example",
            "localhost.evil.example",
            "localhost:8931.evil.example",
            "evil.example:8931",
            "127.0.0.1.nip.io",
            "localhost@evil.example",
            "evil.example#localhost",
            "[::1",
            "[::1]evil",
            "proxy",
            "192.168.1.6",
            ":8931",
            "localhost:",
            "0.0.0.0",
        ] {
            assert_eq!(rules().check(Some(host), None), Err(Denied::Host(host.to_owned())), "{host}");
        }
        assert_eq!(rules().check(None, None), Err(Denied::Host(String::new())));
    }

    #[test]
    fn foreign_and_opaque_origins_are_refused() {
        let check = |origin: &str| rules().check(Some("localhost"), Some(origin));
        for origin in [
            "http://localhost:6274",
            "https://127.0.0.1",
            "https://app.example",
            "HTTPS://APP.EXAMPLE",
            "http://gateway.local",
        ] {
            assert_eq!(check(origin), Ok(()), "{origin}");
        }
        for origin in [
            "null",
            "",
            "https://evil.example",
            "http://app.example",
            "https://app.example.evil",
            "file://",
            "localhost",
        ] {
            assert_eq!(check(origin), Err(Denied::Origin(origin.to_owned())), "{origin}");
        }
    }

    #[test]
    fn a_gateway_on_all_addresses_allows_every_address_as_host_but_not_as_origin() {
        let rules = HostRules::new("0.0.0.0:8931".parse().unwrap(), &[], &[]);
        for host in ["10.1.2.3:8931", "[2001:db8::1]:8931", "localhost"] {
            assert_eq!(rules.check(Some(host), None), Ok(()), "{host}");
        }
        for host in ["gateway.example", "10.1.2.3.evil.example", ""] {
            assert!(rules.check(Some(host), None).is_err(), "{host}");
        }
        assert!(rules.check(Some("10.1.2.3"), Some("http://10.1.2.4")).is_err());
    }

    #[test]
    fn the_page_is_found_on_this_machine_or_with_https() {
        let origin = |listen: &str, is_https, hosts: &[&str]| {
            let hosts: Vec<String> = hosts.iter().map(ToString::to_string).collect();
            page_origin(listen.parse().unwrap(), is_https, &hosts)
        };
        assert_eq!(origin("127.0.0.1:1", false, &[]).as_deref(), Some("http://127.0.0.1:1"));
        assert_eq!(origin("[::1]:1", true, &[]).as_deref(), Some("https://[::1]:1"));
        assert_eq!(origin("0.0.0.0:1", true, &["a.example"]).as_deref(), Some("https://a.example:1"));
        assert_eq!(origin("0.0.0.0:1", true, &["a.example:2"]).as_deref(), Some("https://a.example:2"));
        assert_eq!(origin("10.1.2.3:1", true, &[]).as_deref(), Some("https://10.1.2.3:1"));
        assert_eq!(origin("10.1.2.3:1", false, &[]), None);
        assert_eq!(origin("0.0.0.0:1", true, &[]), None);
        assert_eq!(origin("127.0.0.1:1", false, &["proxy.example"]), None);
    }

    #[test]
    fn a_unix_socket_allows_every_host_but_not_every_origin() {
        let rules = HostRules::unix(&[], &[]);
        assert_eq!(rules.check(None, None), Ok(()));
        assert_eq!(rules.check(Some("anything"), Some("http://localhost")), Ok(()));
        assert!(rules.check(Some("anything"), Some("https://evil.example")).is_err());
    }

    #[test]
    fn a_refused_value_is_short_and_printable() {
        let shown = Denied::Host(format!("\u{1b}[31m\n{}", "x".repeat(1000))).shown();
        assert_eq!(shown.chars().count(), MAX_SHOWN);
        assert!(shown.starts_with(r"\u{1b}[31m\n"), "{shown}");
    }
}
