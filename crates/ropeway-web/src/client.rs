//! The HTTP client's configuration.

use std::sync::Once;
use std::time::Duration;

use reqwest::{Client, ClientBuilder, StatusCode, Url, redirect};

/// Idle time for pooled connections. Node.js closes idle connections after five seconds
/// (<https://nodejs.org/api/http.html#serverkeepalivetimeout>), so the client has to close them earlier.
const IDLE_CONNECTION: Duration = Duration::from_secs(4);

/// Default timeout for the TCP and TLS handshake.
const CONNECT: Duration = Duration::from_secs(15);

/// Returns a client builder for requests to a URL.
pub fn client(url: &Url) -> ClientBuilder {
    static PROVIDER: Once = Once::new();
    // A provider that the program has installed is kept.
    PROVIDER.call_once(|| drop(rustls::crypto::ring::default_provider().install_default()));
    let builder = Client::builder()
        .user_agent(concat!("ropeway/", env!("CARGO_PKG_VERSION")))
        .tcp_nodelay(true)
        .connect_timeout(CONNECT)
        .pool_idle_timeout(IDLE_CONNECTION)
        .redirect(redirect::Policy::custom(same_origin));
    // A proxy from the environment cannot reach this machine.
    if is_loopback(url) { builder.no_proxy() } else { builder }
}

fn is_loopback(url: &Url) -> bool {
    match url.host_str() {
        Some("localhost") => true,
        Some(host) => {
            host.trim_matches(['[', ']']).parse().is_ok_and(|address: std::net::IpAddr| address.is_loopback())
        }
        None => false,
    }
}

/// Follows redirects that keep the method, the body and the origin.
fn same_origin(attempt: redirect::Attempt<'_>) -> redirect::Action {
    let keeps = matches!(attempt.status(), StatusCode::TEMPORARY_REDIRECT | StatusCode::PERMANENT_REDIRECT);
    let from = attempt.previous().first().map(Url::origin);
    if keeps && from == Some(attempt.url().origin()) && attempt.previous().len() < 5 {
        attempt.follow()
    } else {
        attempt.stop()
    }
}
