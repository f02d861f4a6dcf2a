//! Proxies: the variables that name one, and what they do to a connection.

use url::Url;

use super::Given;
use super::finding::Finding;
use super::surroundings::Surroundings;

/// The proxy that requests to a URL go through, and the variable that says so.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Proxy {
    pub(super) variable: &'static str,
    pub(super) host: String,
    pub(super) port: u16,
}

/// Variables in the order in which they count, for each scheme.
const HTTP: [&str; 3] = ["http_proxy", "ALL_PROXY", "all_proxy"];
const HTTPS: [&str; 4] = ["HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"];

/// All variables that name a proxy.
const ALL: [&str; 6] = ["HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"];

/// Is the URL one of this machine itself?
pub(super) fn is_loopback(url: &Url) -> bool {
    match url.host() {
        Some(url::Host::Domain(name)) => name == "localhost",
        Some(url::Host::Ipv4(address)) => address.is_loopback(),
        Some(url::Host::Ipv6(address)) => address.is_loopback(),
        None => false,
    }
}

/// The proxy for a URL, when there is one.
pub(super) fn for_url(url: &Url, around: &Surroundings) -> Option<Proxy> {
    let host = url.host_str()?;
    let exempt = ["NO_PROXY", "no_proxy"].iter().find_map(|name| around.variable(name)).unwrap_or_default();
    if is_loopback(url) || is_exempt(host, exempt) {
        return None;
    }
    let names: &[&'static str] = match url.scheme() {
        // In a web server, `HTTP_PROXY` may be a header of a request; there it is not believed.
        "http" if around.variable("REQUEST_METHOD").is_none() => {
            &["HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"]
        }
        "http" => &HTTP,
        _ => &HTTPS,
    };
    names.iter().find_map(|variable| {
        let value = around.variable(variable)?;
        let value = if value.contains("://") { value.to_owned() } else { format!("http://{value}") };
        let proxy = Url::parse(&value).ok()?;
        // `url` knows no port for what is not of the web.
        let port = proxy.port_or_known_default().unwrap_or(1080);
        Some(Proxy { variable, host: proxy.host_str()?.to_owned(), port })
    })
}

fn is_exempt(host: &str, list: &str) -> bool {
    list.split(',').map(|entry| entry.trim().trim_start_matches('.')).filter(|entry| !entry.is_empty()).any(|entry| {
        entry == "*" || host == entry || host.strip_suffix(entry).is_some_and(|front| front.ends_with('.'))
    })
}

/// What there is to know about proxies and a URL.
pub(super) fn check_url(url: &Url, around: &Surroundings) -> Option<Finding> {
    if let Some(Proxy { variable, host, port }) = for_url(url, around) {
        let found = format!("requests go through the proxy `{host}:{port}`, because `{variable}` is set");
        let fix = format!("if it should not be used here: `NO_PROXY={}`", url.host_str().unwrap_or_default());
        return Some(Finding::note("proxy", found).fix(fix));
    }
    let set = ALL.iter().find(|name| around.variable(name).is_some())?;
    let why = if is_loopback(url) { "this machine itself is always reached directly" } else { "`NO_PROXY` says so" };
    Some(Finding::note("proxy", format!("`{set}` is set and not used: {why}")))
}

/// A server that is started gets none of the variables, unless it is given them.
pub(super) fn check_child(own: &[&str], around: &Surroundings, given: Given) -> Option<Finding> {
    let set = ALL.iter().find(|name| around.variable(name).is_some() && !own.contains(name))?;
    let found = format!("`{set}` is set here, and the server does not get it: its environment is minimal");
    let fix = match given {
        Given::Line => format!("if it needs the network: --env {set}=…, or --inherit-env"),
        Given::File => format!("if it needs the network: `{set}: ${{{set}}}` under its `env`, or `inherit_env: true`"),
    };
    Some(Finding::note("proxy", found).fix(fix))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn url(text: &str) -> Url {
        Url::parse(text).expect("a URL")
    }

    #[test]
    fn the_proxy_is_the_one_that_counts_for_the_url() {
        let around = Surroundings::default()
            .with("HTTPS_PROXY", "http://user:pass@proxy.example:3128")
            .with("ALL_PROXY", "socks5://other")
            .with("NO_PROXY", "internal.example, .corp");
        let proxy = |text: &str| for_url(&url(text), &around).map(|proxy| format!("{}:{}", proxy.host, proxy.port));
        assert_eq!(proxy("https://example.com/mcp").as_deref(), Some("proxy.example:3128"));
        assert_eq!(proxy("http://example.com/mcp").as_deref(), Some("other:1080"));
        for direct in
            ["http://localhost:8080", "http://127.0.0.2", "http://[::1]", "https://a.corp", "https://internal.example"]
        {
            assert_eq!(proxy(direct), None, "{direct}");
        }
        let bare = Surroundings::default().with("http_proxy", "proxy:8080");
        assert_eq!(
            for_url(&url("http://a"), &bare).map(|proxy| (proxy.variable, proxy.port)),
            Some(("http_proxy", 8080))
        );
    }

    #[test]
    fn a_proxy_is_told_without_its_password() {
        let around = Surroundings::default().with("HTTPS_PROXY", "http://user:pass@proxy.example:3128");
        let finding = check_url(&url("https://example.com"), &around).expect("a note");
        assert_eq!(finding.found, "requests go through the proxy `proxy.example:3128`, because `HTTPS_PROXY` is set");
        let finding = check_url(&url("http://127.0.0.1:1"), &around).expect("a note");
        assert_eq!(finding.found, "`HTTPS_PROXY` is set and not used: this machine itself is always reached directly");
        assert_eq!(check_url(&url("https://example.com"), &Surroundings::default()), None);
    }

    #[test]
    fn a_started_server_that_gets_no_proxy_is_told_of() {
        let around = Surroundings::default().with("https_proxy", "http://proxy");
        for (given, fix) in [
            (Given::Line, "if it needs the network: --env https_proxy=…, or --inherit-env"),
            (
                Given::File,
                "if it needs the network: `https_proxy: ${https_proxy}` under its `env`, or `inherit_env: true`",
            ),
        ] {
            let finding = check_child(&[], &around, given).expect("a note");
            assert_eq!(finding.fix.as_deref(), Some(fix));
        }
        assert_eq!(check_child(&["https_proxy"], &around, Given::Line), None);
    }
}
