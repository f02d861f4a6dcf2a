//! The gateway handle, and its builder.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, OnceLock, RwLock};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::task::AbortHandle;

use crate::catalog::Catalog;
use crate::catalog::profile::Selector;
use crate::catalog::router::RouterSet;
use crate::client::auth::Auth;
use crate::client::clients::{Clients, ModernClients};
use crate::client::journal::Journal;
use crate::client::replay::Streams;
use crate::client::seal::KeyError;
use crate::client::session::Sessions;
use crate::client::shares::Shares;
use crate::gateway_error::GatewayError;
use crate::key_source::KeySource;
use crate::listener::connections::Connections;
use crate::listener::http;
use crate::listener::origin::page_origin;
use crate::listener::socket;
use crate::listener::stdio;
use crate::listener::tls::Tls;
use crate::observe::otlp::{Exporter, OtlpSettings};
use crate::observe::{Observer, ObserverError};
use crate::request::exchanges::Exchanges;
use crate::request::limits::Limits;
use crate::request::parked::ParkedCalls;
use crate::shared::{GatewayShared, GatewayStatus};
use crate::upkeep;
use crate::upstream::Upstreams;
use crate::upstream::asking_servers::AskingServers;
use crate::upstream::restart_limit::RestartLimit;
use crate::upstream::server_limits::ServerLimiters;
use crate::upstream::sign_in::SignIns;
use crate::upstream::subscriptions::Subscriptions;
use crate::upstream::switchboard::Switchboard;
use ropeway_bridge::registry::ServerStatus;
use ropeway_bridge::{Bridge, BridgeBuilder, BridgeError};
use ropeway_config::{Config, GatewaySettings, Secrets, TlsSettings};
use ropeway_core::secret::AccountRedactor;
use ropeway_core::setters::setters;
use ropeway_core::sync::lock;
use ropeway_core::tool::{Alias, BoxError, CancelToken};
use ropeway_mcp::oauth::TokenStore;

/// Interval between checks for calls in progress while a gateway drains.
const DRAIN_INTERVAL: Duration = Duration::from_millis(20);

/// Time to write the last lines to the session journal, and to the logs.
const LOG_FLUSH: Duration = Duration::from_secs(2);

/// Settings for a [`Gateway`] in addition to its configuration.
///
/// [`Gateway::builder`] creates it; `docs/library.md` has an example.
#[derive(Clone)]
pub struct GatewayBuilder {
    bridge: BridgeBuilder,
    settings: GatewaySettings,
    /// `None` for the keys in the settings.
    keys: Option<KeySource>,
    journal: Option<PathBuf>,
    otlp: Option<OtlpSettings>,
    tokens: Option<TokenStore>,
    config_file: Option<PathBuf>,
    is_for_commands: bool,
}

impl GatewayBuilder {
    /// Changes the bridge's settings, such as the lock and the cache.
    ///
    /// From its handlers, the gateway uses only the sign-in handler and the token store.
    #[must_use]
    pub fn bridge(mut self, change: impl FnOnce(BridgeBuilder) -> BridgeBuilder) -> Self {
        self.bridge = change(self.bridge);
        self
    }

    /// Builds the gateway without starting any server.
    ///
    /// # Errors
    ///
    /// Fails if the configuration is invalid, or if the session keys, the client keys, the journal or a log cannot be opened.
    pub fn build(self) -> Result<Gateway, GatewayError> {
        let Self { bridge, settings, keys, journal, otlp, tokens, config_file, is_for_commands } = self;
        let keys = match keys {
            Some(keys) => keys,
            // With other keys, the gateway would refuse its clients' sessions.
            None if !settings.missing_keys.is_empty() => {
                return Err(KeyError::Missing { names: settings.missing_keys.join(", ") }.into());
            }
            None if !settings.keys.is_empty() => KeySource::Given(settings.keys.clone()),
            None => KeySource::Ephemeral,
        };
        let keys = Arc::new(keys.load()?);
        let asking = journal.as_deref().map(AskingServers::open_beside).unwrap_or_default();
        let journal = match journal {
            Some(path) => Journal::open(&path).map_err(|source| GatewayError::Journal { path, source })?,
            None => Journal::in_memory(),
        };
        let clients = Arc::<Clients>::default();
        let exchanges = Arc::<Exchanges>::default();
        let subscriptions = Arc::<Subscriptions>::default();
        let switchboard = Switchboard::new(clients.clone(), exchanges.clone(), &subscriptions, asking, is_for_commands);
        switchboard.set_keys(keys.clone());
        let tokens = tokens.or_else(|| bridge.token_store().cloned()).unwrap_or_else(TokenStore::in_memory);
        let redactor = Arc::<AccountRedactor>::default();
        let bridge =
            bridge.message_handler(switchboard.clone(), tokens.clone()).token_redactor(redactor.clone()).build()?;
        let limits = settings.limits;
        let shares = Shares::new(&limits);
        let auth = Auth::new(&settings, shares.clone(), bridge.event_channel())?;
        let (exporter, spans) = Exporter::new(otlp);
        let observer = Observer::new(&settings, spans, redactor.clone())
            .map_err(|ObserverError { path, source }| GatewayError::Log { path, source })?;
        observer.set_secrets(bridge.secrets());
        let parked = ParkedCalls::new(keys.clone(), shares.clone(), limits.parked_for);
        let shared = GatewayShared {
            routers: RwLock::new(Arc::new(RouterSet::build(&settings, &bridge.views(), None))),
            clients,
            modern_clients: ModernClients::default(),
            exchanges,
            subscriptions: subscriptions.clone(),
            sign_ins: SignIns::new(bridge.clone(), tokens, redactor),
            config_file,
            page_origin: OnceLock::new(),
            upstreams: Upstreams::new(
                bridge.clone(),
                switchboard.clone(),
                parked.clone(),
                subscriptions,
                shares.clone(),
                limits.isolated_idle,
            ),
            switchboard,
            catalog: Catalog::default(),
            parked,
            sessions: Sessions::new(keys.clone(), journal, settings.session_life, limits.sessions, shares.clone()),
            streams: Streams::new(keys.clone()),
            limits: Limits::new(limits.calls, limits.calls_per_client),
            connections: Connections::new(limits.connections),
            shares,
            observer,
            health: Arc::default(),
            server_limits: ServerLimiters::default(),
            restart_limit: RestartLimit::default(),
            auth,
            started: CancelToken::new(),
            leaving: CancelToken::new(),
            draining: CancelToken::new(),
            modern_log_level: Mutex::default(),
            started_at: Mutex::default(),
            stop_requested: CancelToken::new(),
            keys,
            bridge,
            settings: RwLock::new(Arc::new(settings)),
        };
        let shared = Arc::new(shared);
        shared.guard_subscriptions();
        shared.guard_roots();
        let inner = GatewayInner { shared, upkeep: Mutex::default(), exporter };
        Ok(Gateway { inner: Arc::new(inner) })
    }
}

setters!(GatewayBuilder {
    /// Sets the settings of the gateway in place of those of the configuration.
    settings(settings: GatewaySettings) => settings = settings;
    /// Sets the keys that seal session ids. A restarted gateway with the same keys accepts its earlier sessions. Defaults to
    /// those of the settings, and else to [`KeySource::Ephemeral`].
    keys(keys: KeySource) => keys = Some(keys);
    /// Stores the log levels and subscriptions of sessions, and which sessions have ended, in a file, for a restarted gateway.
    /// A file beside it, which ends in `.servers.json`, has the servers that need a separate connection for each client.
    journal(path: impl Into<PathBuf>) => journal = Some(path.into());
    /// Sends spans and metrics to a collector while the gateway runs.
    otlp(settings: OtlpSettings) => otlp = Some(settings);
    /// Sets the store of sign-ins to servers. Defaults to the store of the bridge's handlers, and else to one in memory.
    token_store(store: TokenStore) => tokens = Some(store);
    /// Sets the configuration file for suggested commands, unless `ropeway` finds it by itself.
    config_file(path: impl Into<PathBuf>) => config_file = Some(path.into());
    /// Sets whether all clients are commands of the `ropeway` program. Most of them answer only elicitation, so servers offer only the tools
    /// that work with it; another client gets connections of its own.
    for_commands(is_for_commands: bool) => is_for_commands = is_for_commands;
});

/// One MCP server in front of all configured servers.
///
/// [`start`](Self::start) starts the servers. [`serve_http`](Self::serve_http), [`serve_http_unix`](Self::serve_http_unix),
/// [`serve_lines`](Self::serve_lines) and [`serve_stdio`](Self::serve_stdio) serve clients, any number of them concurrently.
/// [`drain`](Self::drain) finishes the calls in progress and stops the gateway.
///
/// Cloning is cheap. Dropping the last clone stops the gateway and its servers.
#[derive(Clone)]
pub struct Gateway {
    inner: Arc<GatewayInner>,
}

/// The part of a gateway that all clones of its handle own.
///
/// A future that serves clients borrows a handle, so this is dropped after the last such future. Requests that still run own the
/// shared state only. The drop cancels `draining`, which refuses new work, and aborts the upkeep task; the exporter's tasks end
/// with the exporter. The upkeep loop and the exporter hold the shared state weakly while they wait, so that it is dropped, and
/// with it the bridge, when the last request is done.
///
/// `upkeep` is set by the first [`Gateway::start`]. Its lock is held to set or take the handle, never across an `.await`.
struct GatewayInner {
    shared: Arc<GatewayShared>,
    upkeep: Mutex<Option<AbortHandle>>,
    exporter: Exporter,
}

impl Drop for GatewayInner {
    fn drop(&mut self) {
        self.shared.draining.cancel();
        if let Some(task) = lock(&self.upkeep).take() {
            task.abort();
        }
    }
}

impl Gateway {
    /// Returns a builder for a configuration's servers and gateway settings.
    pub fn builder(config: Config) -> GatewayBuilder {
        let settings = config.gateway.clone();
        GatewayBuilder {
            bridge: Bridge::builder(config),
            settings,
            keys: None,
            journal: None,
            otlp: None,
            tokens: None,
            config_file: None,
            is_for_commands: false,
        }
    }

    /// Returns the bridge to the servers.
    pub fn bridge(&self) -> &Bridge {
        &self.inner.shared.bridge
    }

    /// Starts the servers, and waits until each is ready or has failed once. Clients can be served before that.
    ///
    /// # Errors
    ///
    /// Fails if a required server is not available.
    pub async fn start(&self) -> Result<Vec<ServerStatus>, BridgeError> {
        {
            let mut task = lock(&self.inner.upkeep);
            if task.is_none() {
                *task = Some(upkeep::spawn(Arc::downgrade(&self.inner.shared)));
            }
        }
        self.inner.exporter.start(&self.inner.shared);
        self.inner.shared.note_start();
        let statuses = self.bridge().start().await;
        // A client may call a tool before the background task has noticed the servers.
        self.inner.shared.rebuild_routes();
        self.inner.shared.started.cancel();
        statuses
    }

    /// Replaces the configuration. Sessions continue. Does not wait for new servers to connect.
    ///
    /// # Errors
    ///
    /// Fails if the new configuration is invalid. The gateway then continues with the previous one.
    pub async fn reload(&self, config: Config) -> Result<(), BridgeError> {
        let settings = config.gateway.clone();
        self.bridge().apply(config)?;
        self.inner.shared.note_start();
        self.inner.shared.set_settings(settings);
        self.inner.shared.rebuild_routes();
        Ok(())
    }

    /// Restarts a running server on all its connections, and returns `true` if it was running. See
    /// [`Mcp::restart`](ropeway_mcp::Mcp::restart).
    pub async fn restart_server(&self, server: &Alias, reason: impl Into<String>) -> bool {
        let shared = &self.inner.shared;
        shared.upstreams.close_isolated(server);
        match shared.bridge.server(server) {
            Some(mcp) => mcp.restart(reason).await,
            None => false,
        }
    }

    /// Reloads the configuration file whenever it changes, until the gateway is drained.
    ///
    /// `accept` sees the file's text, and exactly that text is used if it returns `Ok`. `prepare` changes the configuration
    /// before it is used. If the file is invalid or not accepted, a warning is emitted and the gateway continues with the
    /// previous configuration.
    pub fn watch(
        &self,
        file: impl Into<PathBuf>,
        secrets: Secrets,
        accept: impl Fn(&str) -> Result<(), BoxError> + Send + Sync + 'static,
        prepare: impl Fn(Config) -> Config + Send + Sync + 'static,
    ) {
        let shared = Arc::downgrade(&self.inner.shared);
        let prepare = move |config: Config| {
            let config = prepare(config);
            if let Some(shared) = shared.upgrade() {
                shared.note_start();
                shared.set_settings(config.gateway.clone());
                shared.rebuild_routes();
            }
            config
        };
        self.bridge().watch_prepared(file, secrets, accept, prepare);
    }

    /// Serves HTTP clients at `/mcp` until the gateway is drained. With [`GatewaySettings::with_tls`], clients use HTTPS; the
    /// certificate is reloaded when its files change.
    ///
    /// Dropping the future closes all connections, so it has to run until [`drain`](Self::drain) returns for calls in progress to finish.
    ///
    /// # Errors
    ///
    /// Fails if other machines can reach the address and clients are not authenticated, if the certificate cannot be used, or if the
    /// listener fails.
    pub async fn serve_http(&self, listener: std::net::TcpListener) -> Result<(), GatewayError> {
        let address = listener.local_addr()?;
        if !address.ip().to_canonical().is_loopback() && !self.inner.shared.auth.is_required() {
            return Err(GatewayError::NotLocal { address });
        }
        let shared = self.inner.shared.clone();
        let tls = shared.settings().tls.clone();
        let load = |tls: TlsSettings| Tls::load(&tls.certificate, &tls.key, self.bridge().event_channel());
        let tls = tls.map(load).transpose()?;
        if let Some(origin) = page_origin(address, tls.is_some(), &shared.settings().allowed_hosts) {
            // The first listener wins.
            let _ = shared.page_origin.set(origin);
        }
        Ok(http::serve_tcp(shared, listener, tls).await?)
    }

    /// Checks the certificate that [`serve_http`](Self::serve_http) would use.
    pub fn check_certificate(&self) -> Result<(), GatewayError> {
        match &self.inner.shared.settings().tls {
            Some(tls) => Ok(Tls::check(&tls.certificate, &tls.key)?),
            None => Ok(()),
        }
    }

    /// Serves HTTP clients on a Unix socket until the gateway is drained.
    ///
    /// # Errors
    ///
    /// Fails if the listener fails.
    pub async fn serve_http_unix(&self, listener: std::os::unix::net::UnixListener) -> Result<(), GatewayError> {
        Ok(http::serve_unix(self.inner.shared.clone(), listener).await?)
    }

    /// Serves clients on a Unix socket, one JSON message per line, until the gateway is drained. Only the same user's processes
    /// can connect.
    ///
    /// # Errors
    ///
    /// Fails if the listener fails.
    pub async fn serve_lines(&self, listener: std::os::unix::net::UnixListener) -> Result<(), GatewayError> {
        Ok(socket::serve(self.inner.shared.clone(), listener).await?)
    }

    /// Serves one client over a pair of streams, one JSON message per line, until the input ends. `profile` names a profile or a
    /// server; `None` selects all servers.
    pub async fn serve_stdio(
        &self,
        profile: Option<&str>,
        input: impl AsyncRead + Send + Unpin + 'static,
        output: impl AsyncWrite + Send + Unpin + 'static,
    ) {
        let selector = profile.map_or(Selector::All, |name| Selector::Named(name.to_owned()));
        stdio::serve(self.inner.shared.clone(), selector, input, output).await;
    }

    /// Waits until a client on the socket requests the gateway to stop.
    pub async fn stop_requested(&self) {
        self.inner.shared.stop_requested.cancelled().await;
    }

    /// Announces that the gateway will stop while it continues to serve clients: `/ready` answers 503, and HTTP connections are
    /// closed after their next response, so that a load balancer sends clients elsewhere. [`drain`](Self::drain) stops the
    /// gateway.
    pub fn announce_drain(&self) {
        self.inner.shared.leaving.cancel();
    }

    /// Stops the gateway: refuses new sessions and calls, cancels calls that wait for input from their clients, waits up to `limit`
    /// for other calls in progress, and stops the servers.
    pub async fn drain(&self, limit: Duration) {
        let shared = &self.inner.shared;
        shared.leaving.cancel();
        shared.draining.cancel();
        // Their clients may never reconnect.
        shared.parked.close();
        shared.clients.legacy().iter().for_each(|client| client.refuse_server_requests());
        let finished = async {
            while shared.exchanges.len() > 0 {
                tokio::time::sleep(DRAIN_INTERVAL).await;
            }
        };
        if tokio::time::timeout(limit, finished).await.is_err() {
            tracing::warn!("{} requests were in progress when the gateway stopped", shared.exchanges.len());
        }
        shared.bridge.stop().await;
        shared.sessions.flush(LOG_FLUSH).await;
        shared.observer.flush(LOG_FLUSH).await;
        self.inner.exporter.finish().await;
    }

    /// Reopens the audit log and the access log, for example after a rotation.
    pub fn reopen_logs(&self) {
        self.inner.shared.observer.reopen_logs();
    }

    /// Returns the latest client requests, newest first, as in the audit log.
    pub fn recent_calls(&self, limit: usize) -> Vec<serde_json::Value> {
        let recent = self.inner.shared.observer.recent(limit);
        recent.iter().map(|record| serde_json::to_value(&**record).unwrap_or_default()).collect()
    }

    /// Returns the counts for the work in progress.
    pub fn status(&self) -> GatewayStatus {
        self.inner.shared.status()
    }
}
