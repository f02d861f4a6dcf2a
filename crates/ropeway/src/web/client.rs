//! The HTTP client, as all our requests need it.

use std::sync::Once;
use std::time::Duration;

use reqwest::{Client, ClientBuilder, StatusCode, Url, redirect};

/// Node closes idle connections after five seconds; ours go before, so that no request meets a closing one.
const IDLE_CONNECTION: Duration = Duration::from_secs(4);

/// How long a TCP and TLS handshake may take, where nothing else is said.
const CONNECT: Duration = Duration::from_secs(15);

/// A client in the making, for requests to the host of a URL.
pub(crate) fn client(url: &Url) -> ClientBuilder {
    static PROVIDER: Once = Once::new();
    // A host that has chosen its own provider keeps it.
    PROVIDER.call_once(|| drop(rustls::crypto::ring::default_provider().install_default()));
    let builder = Client::builder()
        .user_agent(concat!("ropeway/", env!("CARGO_PKG_VERSION")))
        .tcp_nodelay(true)
        .connect_timeout(CONNECT)
        .pool_idle_timeout(IDLE_CONNECTION)
        .redirect(redirect::Policy::custom(same_origin));
    match is_loopback(url) {
        // The proxy of the environment cannot reach our own machine.
        true => builder.no_proxy(),
        false => builder,
    }
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

/// A redirect is followed only where it keeps the method, the body and the origin.
fn same_origin(attempt: redirect::Attempt<'_>) -> redirect::Action {
    let keeps = matches!(attempt.status(), StatusCode::TEMPORARY_REDIRECT | StatusCode::PERMANENT_REDIRECT);
    let from = attempt.previous().first().map(Url::origin);
    if keeps && from == Some(attempt.url().origin()) && attempt.previous().len() < 5 {
        attempt.follow()
    } else {
        attempt.stop()
    }
}
