//! [`Mcp`] methods for the bridge and the agent.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, SystemTime};

use tokio::sync::watch;

use super::client::Mcp;
use super::error::ConnectErrorKind;
use super::mcp_tool::McpTool;
use super::tools;
use crate::protocol::Era;
use ropeway_config::ServerTimeouts;
use ropeway_core::event::{Events, Relay};
use ropeway_core::tool::{Alias, CallContext, CallError, Tool, ToolDefinition};

impl Mcp {
    /// Returns the server's tools. They do not keep the connection open, and fail once it is closed.
    pub async fn detached_tools(&self) -> Result<Vec<Arc<dyn Tool>>, CallError> {
        let list = tools::list(&self.inner.connection, &CallContext::default()).await?;
        Ok(self.tools(&list, None, &()))
    }

    /// Returns the cached tools, for a caller that follows [`Mcp::tools_version`]. They do not keep the connection open.
    pub async fn cached_tools(&self) -> Result<Vec<Arc<dyn Tool>>, CallError> {
        let list = tools::cached(&self.inner.connection, &CallContext::default()).await?;
        Ok(self.tools(&list, None, &()))
    }

    /// Sets the era to try first, unless one is already set. If the server rejects it, the server is probed.
    pub fn assume_era(&self, era: Era) {
        let connection = &self.inner.connection;
        if connection.era().is_none() {
            connection.remember_era(Some(era));
        }
    }

    /// Returns the era that the next connection tries first.
    pub fn remembered_era(&self) -> Option<Era> {
        self.inner.connection.era()
    }

    /// Returns the warning about a truncated tool list, if any.
    pub fn tools_truncation(&self) -> Option<String> {
        self.inner.connection.tools()?.truncation().map(str::to_owned)
    }

    /// Creates a tool from a cached definition. It does not keep the connection open.
    pub fn detached_tool(&self, definition: ToolDefinition) -> Arc<dyn Tool> {
        let connection = self.inner.connection.clone();
        Arc::new(McpTool { definition: Arc::new(definition), connection, _keep_alive: () })
    }

    /// Returns `true` if the connection was ever opened. If it is [closed](super::ConnectionState::Closed) now, it was
    /// closed on purpose.
    pub fn was_opened(&self) -> bool {
        self.inner.was_opened.load(Ordering::Relaxed)
    }

    /// Returns a function that emits warnings about the server. It does not keep the connection open.
    pub fn warner(&self) -> impl Fn(&str) + Send + use<> {
        let host = self.inner.connection.host.clone();
        move |warning| host.warn(warning)
    }

    /// Returns a digest over the server's command or URL.
    pub fn endpoint(&self) -> ropeway_core::tool::Digest {
        self.inner.connection.config.endpoint()
    }

    /// Returns the last failure and its time.
    pub fn last_failure(&self) -> Option<(SystemTime, Arc<ConnectErrorKind>)> {
        self.inner.connection.last_failure()
    }

    /// Returns a redactor for the configuration's secrets, and for the tokens obtained so far.
    pub fn secrets(&self) -> ropeway_core::secret::Redactor {
        self.inner.connection.host.redactor()
    }

    /// Returns the configured timeouts.
    pub fn timeouts(&self) -> ServerTimeouts {
        self.inner.connection.config.timeouts
    }

    /// Returns a receiver that is notified when the tool list changes.
    pub fn tools_version(&self) -> watch::Receiver<u64> {
        self.inner.connection.tools_version.subscribe()
    }

    /// Returns how often the server has reported a change to its tools.
    pub fn tools_notified(&self) -> u64 {
        self.inner.connection.host.tools_changed()
    }

    /// Returns a receiver that is notified when the prompts change.
    pub fn prompts_version(&self) -> watch::Receiver<u64> {
        self.inner.connection.host.prompts_changed.subscribe()
    }

    /// Returns `true` if the server has confirmed the subscription to a resource.
    pub fn is_subscription_confirmed(&self, uri: &str) -> bool {
        self.inner.connection.host.subscriptions.is_confirmed(uri)
    }

    /// Returns how long the server allows the tool list to be cached.
    pub fn tools_ttl(&self) -> Option<Duration> {
        self.inner.connection.tools().and_then(|tools| tools.ttl())
    }

    /// Forwards the connection's events to another channel, under another server alias.
    pub fn relay(&self, alias: Alias, to: Events) -> Relay {
        self.inner.connection.host.events().relay(alias, to)
    }
}
