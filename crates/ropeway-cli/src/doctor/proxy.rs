//! Proxy variables and their effect on connections.

use url::Url;

use super::environment::Environment;
use super::finding::Finding;
use super::source::ConfigSource;

/// A proxy and the variable that sets it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Proxy {
    pub(super) variable: &'static str,
    pub(super) host: String,
    pub(super) port: u16,
}

/// Proxy variables for each scheme, by precedence.
const HTTP: [&str; 3] = ["http_proxy", "ALL_PROXY", "all_proxy"];
const HTTPS: [&str; 4] = ["HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"];

/// All proxy variables.
const ALL: [&str; 6] = ["HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"];

/// Returns `true` if the URL names this machine.
pub(super) fn is_loopback(url: &Url) -> bool {
    match url.host() {
        Some(url::Host::Domain(name)) => name == "localhost",
        Some(url::Host::Ipv4(address)) => address.is_loopback(),
        Some(url::Host::Ipv6(address)) => address.is_loopback(),
        None => false,
    }
}

/// Returns the proxy for a URL.
pub(super) fn for_url(url: &Url, environment: &Environment) -> Option<Proxy> {
    let host = url.host_str()?;
    let exempt = ["NO_PROXY", "no_proxy"].iter().find_map(|name| environment.variable(name)).unwrap_or_default();
    if is_loopback(url) || is_exempt(host, exempt) {
        return None;
    }
    let names: &[&'static str] = match url.scheme() {
        // In a CGI program, `HTTP_PROXY` may come from a request header (<https://httpoxy.org>).
        "http" if environment.variable("REQUEST_METHOD").is_none() => {
            &["HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"]
        }
        "http" => &HTTP,
        _ => &HTTPS,
    };
    names.iter().find_map(|variable| {
        let value = environment.variable(variable)?;
        let value = if value.contains("://") { value.to_owned() } else { format!("http://{value}") };
        let proxy = Url::parse(&value).ok()?;
        // SOCKS proxies have no default port in `url`.
        let port = proxy.port_or_known_default().unwrap_or(1080);
        Some(Proxy { variable, host: proxy.host_str()?.to_owned(), port })
    })
}

fn is_exempt(host: &str, list: &str) -> bool {
    list.split(',').map(|entry| entry.trim().trim_start_matches('.')).filter(|entry| !entry.is_empty()).any(|entry| {
        entry == "*" || host == entry || host.strip_suffix(entry).is_some_and(|front| front.ends_with('.'))
    })
}

/// Notes whether requests to a URL use a proxy.
pub(super) fn check_url(url: &Url, environment: &Environment) -> Option<Finding> {
    if let Some(Proxy { variable, host, port }) = for_url(url, environment) {
        let found = format!("requests use the proxy `{host}:{port}` from `{variable}`");
        let fix = format!("set `NO_PROXY={}` to bypass it", url.host_str().unwrap_or_default());
        return Some(Finding::note("proxy", found).fix(fix));
    }
    let set = ALL.iter().find(|name| environment.variable(name).is_some())?;
    let why = if is_loopback(url) { "local addresses bypass the proxy" } else { "excluded by `NO_PROXY`" };
    Some(Finding::note("proxy", format!("`{set}` is set but not used: {why}")))
}

/// Notes that a stdio server does not inherit a proxy variable.
pub(super) fn check_child(own: &[&str], environment: &Environment, source: ConfigSource) -> Option<Finding> {
    let set = ALL.iter().find(|name| environment.variable(name).is_some() && !own.contains(name))?;
    let found = format!("`{set}` is set, but the server does not inherit it");
    let fix = match source {
        ConfigSource::CommandLine => format!("if it needs the network, use --env {set}=… or --inherit-env"),
        ConfigSource::File => {
            format!("if it needs the network, add `{set}: ${{{set}}}` to its `env`, or set `inherit_env: true`")
        }
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
    fn the_proxy_follows_the_precedence_of_the_variables() {
        let environment = Environment::default()
            .with("HTTPS_PROXY", "http://user:pass@proxy.example:3128")
            .with("ALL_PROXY", "socks5://other")
            .with("NO_PROXY", "internal.example, .corp");
        let proxy =
            |text: &str| for_url(&url(text), &environment).map(|proxy| format!("{}:{}", proxy.host, proxy.port));
        assert_eq!(proxy("https://example.com/mcp").as_deref(), Some("proxy.example:3128"));
        assert_eq!(proxy("http://example.com/mcp").as_deref(), Some("other:1080"));
        for direct in
            ["http://localhost:8080", "http://127.0.0.2", "http://[::1]", "https://a.corp", "https://internal.example"]
        {
            assert_eq!(proxy(direct), None, "{direct}");
        }
        let bare = Environment::default().with("http_proxy", "proxy:8080");
        assert_eq!(
            for_url(&url("http://a"), &bare).map(|proxy| (proxy.variable, proxy.port)),
            Some(("http_proxy", 8080))
        );
    }

    #[test]
    fn a_proxy_is_shown_without_its_password() {
        let environment = Environment::default().with("HTTPS_PROXY", "http://user:pass@proxy.example:3128");
        let finding = check_url(&url("https://example.com"), &environment).expect("a note");
        assert_eq!(finding.message, "requests use the proxy `proxy.example:3128` from `HTTPS_PROXY`");
        let finding = check_url(&url("http://127.0.0.1:1"), &environment).expect("a note");
        assert_eq!(finding.message, "`HTTPS_PROXY` is set but not used: local addresses bypass the proxy");
        assert_eq!(check_url(&url("https://example.com"), &Environment::default()), None);
    }

    #[test]
    fn a_stdio_server_without_the_proxy_variable_gets_a_note() {
        let environment = Environment::default().with("https_proxy", "http://proxy");
        for (source, fix) in [
            (ConfigSource::CommandLine, "if it needs the network, use --env https_proxy=… or --inherit-env"),
            (
                ConfigSource::File,
                "if it needs the network, add `https_proxy: ${https_proxy}` to its `env`, or set `inherit_env: true`",
            ),
        ] {
            let finding = check_child(&[], &environment, source).expect("a note");
            assert_eq!(finding.fix.as_deref(), Some(fix));
        }
        assert_eq!(check_child(&["https_proxy"], &environment, ConfigSource::CommandLine), None);
    }
}
