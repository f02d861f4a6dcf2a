//! Builds a bridge from a configuration and host settings.

use std::path::PathBuf;
use std::sync::Arc;

use super::cache::{DefinitionCache, default_cache_dir};
use super::error::BridgeError;
use super::handle::Bridge;
use super::pool::ProcessPool;
use super::shared::BridgeShared;
use super::state::{BridgeState, ToolCustomization};
use crate::registry::Transformer;
use ropeway_config::lock::Lock;
use ropeway_config::{Config, LockPolicy, SandboxLauncher};
use ropeway_core::event::Events;
use ropeway_core::secret::AccountRedactor;
use ropeway_core::secret::Redactor;
use ropeway_core::setters::setters;
use ropeway_core::tool::ToolDefinition;
use ropeway_mcp::Handlers;
use ropeway_mcp::MessageHandler;
use ropeway_mcp::oauth::TokenStore;

/// Settings of a [`Bridge`] in addition to its configuration.
#[derive(Clone)]
pub struct BridgeBuilder {
    config: Config,
    handlers: Handlers,
    events: Events,
    customization: ToolCustomization,
    cache_dir: Option<PathBuf>,
    lock: Option<(Lock, LockPolicy)>,
    secrets: Redactor,
    launcher: Option<SandboxLauncher>,
    /// Without one, each bridge has its own, even if the builder is cloned.
    pool: Option<ProcessPool>,
}

impl BridgeBuilder {
    /// Adds a transformer for all tools. It runs after the configured transformers.
    #[must_use]
    pub fn transformer(mut self, transformer: impl Transformer + 'static) -> Self {
        self.customization.transformers.push(Arc::new(transformer));
        self
    }

    /// Exposes only tools for which `filter` returns `true`. The filter sees the servers' own definitions.
    #[must_use]
    pub fn filter(mut self, filter: impl Fn(&ToolDefinition) -> bool + Send + Sync + 'static) -> Self {
        self.customization.filters.push(Arc::new(filter));
        self
    }

    /// Disables the cache. Lazy servers are then started with the others.
    #[must_use]
    pub fn no_cache(mut self) -> Self {
        self.cache_dir = None;
        self
    }

    /// Builds the bridge without starting any server.
    ///
    /// # Errors
    ///
    /// Returns an error if two servers have the same alias or a tool pattern is invalid.
    pub fn build(self) -> Result<Bridge, BridgeError> {
        let Self { config, handlers, events, customization, cache_dir, lock, secrets, launcher, pool } = self;
        let shared = BridgeShared::new(handlers, events, cache_dir.map(DefinitionCache::new), lock, secrets);
        let shared = shared.with_launcher(launcher).with_pool(pool.unwrap_or_default());
        let state = BridgeState::new(config, customization, Arc::new(shared))?;
        Ok(Bridge { state: Arc::new(state) })
    }
}

setters!(BridgeBuilder {
    /// Compares the tools with definitions that the user accepted.
    ///
    /// With [`LockPolicy::Warn`], each difference is a warning. With [`LockPolicy::Strict`], new and changed tools are hidden and
    /// cannot be called; [`Registry::hidden`](crate::registry::Registry::hidden) lists them. Commands that the lock does not contain
    /// are not started.
    ///
    /// The bridge does not read the lock file ([`Lock::load`] does), and ignores the configuration key `lock`, which is for the
    /// host.
    lock(lock: Lock, policy: LockPolicy) => lock = Some((lock, policy));
    /// Sets the handlers for server requests.
    handlers(handlers: Handlers) => handlers = handlers;
    /// Sends events to a host channel instead of a new one.
    events(events: Events) => events = events;
    /// Caches tool definitions and server eras in this directory instead of the [default one](default_cache_dir).
    ///
    /// Lazy servers are not started to list cached tools, [`cached_tools`](super::cached_tools) reads them without a bridge, and
    /// legacy servers are not probed at every start.
    cache_dir(folder: impl Into<PathBuf>) => cache_dir = Some(folder.into());
    /// Keeps these secrets out of the cache. Server secrets are never cached.
    redact(secrets: Redactor) => secrets = secrets;
    /// Starts servers with a sandbox through this program, unless their settings name one: the path of `ropeway`, on Linux.
    ///
    /// Without a launcher, a server whose sandbox is required is not started.
    sandbox_launcher(program: impl Into<PathBuf>) => launcher = Some(SandboxLauncher::new(program));
    /// Shares stdio server processes with all other bridges in this pool. By default, processes are shared only within one
    /// bridge.
    ///
    /// Entries use one process if their command, arguments, environment, working directory, era, handlers and redacted secrets are
    /// equal.
    process_pool(pool: &ProcessPool) => pool = Some(pool.clone());
});

impl BridgeBuilder {
    /// Passes server requests to a message handler. The sign-in handler stays.
    pub fn message_handler(mut self, handler: Arc<dyn MessageHandler>, tokens: TokenStore) -> Self {
        self.handlers = self.handlers.with_message_handler(handler).with_token_store(tokens);
        self
    }

    /// Adds warnings, which are emitted with the configuration warnings.
    pub fn warnings(mut self, warnings: Vec<String>) -> Self {
        self.config.warnings.extend(warnings);
        self
    }

    /// Adds the tokens for all connections to a redactor.
    pub fn token_redactor(mut self, redactor: Arc<AccountRedactor>) -> Self {
        self.handlers = self.handlers.with_token_redactor(redactor);
        self
    }

    /// Returns the handlers' token store.
    pub fn token_store(&self) -> Option<&TokenStore> {
        self.handlers.token_store()
    }
}

impl Bridge {
    /// Creates a bridge for the servers in a configuration, without starting them.
    ///
    /// # Errors
    ///
    /// Returns an error if two servers have the same alias or a tool pattern is invalid.
    pub fn new(config: Config) -> Result<Self, BridgeError> {
        Self::builder(config).build()
    }

    /// Returns a builder with further settings.
    pub fn builder(config: Config) -> BridgeBuilder {
        BridgeBuilder {
            config,
            handlers: Handlers::new(),
            events: Events::default(),
            customization: ToolCustomization::default(),
            cache_dir: default_cache_dir(),
            lock: None,
            secrets: Redactor::default(),
            launcher: None,
            pool: None,
        }
    }
}
