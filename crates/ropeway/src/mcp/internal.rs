//! Methods of [`Mcp`] for the bridge and the agent.

use std::sync::Arc;
#[cfg(feature = "agent")]
use std::sync::atomic::Ordering;
use std::time::{Duration, SystemTime};

use tokio::sync::watch;

use super::client::Mcp;
use super::error::ConnectErrorKind;
use super::mcp_tool::McpTool;
use super::tools;
use crate::config::ServerTimeouts;
use crate::event::{Events, Relay};
#[cfg(feature = "bridge")]
use crate::protocol::Era;
use crate::tool::{Alias, CallContext, CallError, Tool, ToolDefinition};

impl Mcp {
    /// Returns the server's tools. They do not keep the connection open, and fail once it is closed.
    #[cfg(any(feature = "agent", test))]
    pub(crate) async fn detached_tools(&self) -> Result<Vec<Arc<dyn Tool>>, CallError> {
        let list = tools::list(&self.inner.connection, &CallContext::default()).await?;
        Ok(self.tools(&list, None, &()))
    }

    /// Returns the cached tools, for a caller that follows [`Mcp::tools_version`]. They do not keep the connection open.
    pub(crate) async fn cached_tools(&self) -> Result<Vec<Arc<dyn Tool>>, CallError> {
        let list = tools::cached(&self.inner.connection, &CallContext::default()).await?;
        Ok(self.tools(&list, None, &()))
    }

    /// Sets the era to try first, unless one is already set. If the server rejects it, the server is probed.
    #[cfg(feature = "bridge")]
    pub(crate) fn assume_era(&self, era: Era) {
        let connection = &self.inner.connection;
        if connection.era().is_none() {
            connection.remember_era(Some(era));
        }
    }

    /// Returns the era that the next connection tries first.
    #[cfg(feature = "bridge")]
    pub(crate) fn remembered_era(&self) -> Option<Era> {
        self.inner.connection.era()
    }

    /// Returns the warning about a truncated tool list, if any.
    pub(crate) fn tools_truncation(&self) -> Option<String> {
        self.inner.connection.tools()?.truncation().map(str::to_owned)
    }

    /// Creates a tool from a cached definition. It does not keep the connection open.
    pub(crate) fn detached_tool(&self, definition: ToolDefinition) -> Arc<dyn Tool> {
        let connection = self.inner.connection.clone();
        Arc::new(McpTool { definition: Arc::new(definition), connection, _keep_alive: () })
    }

    /// Returns `true` if the connection was ever opened. A [closed](super::ConnectionState::Closed) one was then closed on purpose.
    #[cfg(feature = "agent")]
    pub(crate) fn was_opened(&self) -> bool {
        self.inner.was_opened.load(Ordering::Relaxed)
    }

    /// Returns a function that emits warnings about the server. It does not keep the connection open.
    #[cfg(feature = "agent")]
    pub(crate) fn warner(&self) -> impl Fn(&str) + Send + use<> {
        let host = self.inner.connection.host.clone();
        move |warning| host.warn(warning)
    }

    /// Returns a digest of the server's command or URL.
    #[cfg(feature = "agent")]
    pub(crate) fn endpoint(&self) -> crate::tool::Digest {
        self.inner.connection.config.endpoint()
    }

    /// Returns the last failure and its time.
    pub(crate) fn last_failure(&self) -> Option<(SystemTime, Arc<ConnectErrorKind>)> {
        self.inner.connection.last_failure()
    }

    /// Returns a redactor for the secrets of the configuration, and for the tokens obtained so far.
    #[cfg(feature = "agent")]
    pub(crate) fn secrets(&self) -> crate::secret::Redactor {
        self.inner.connection.host.redactor()
    }

    /// Returns the configured timeouts.
    pub(crate) fn timeouts(&self) -> ServerTimeouts {
        self.inner.connection.config.timeouts
    }

    /// Returns a receiver that is notified of changes to the tool list.
    pub(crate) fn tools_version(&self) -> watch::Receiver<u64> {
        self.inner.connection.tools_version.subscribe()
    }

    /// Returns how often the server has reported a change to its tools.
    #[cfg(feature = "agent")]
    pub(crate) fn tools_notified(&self) -> u64 {
        self.inner.connection.host.tools_changed()
    }

    /// Returns a receiver that is notified of changes to the prompts.
    pub(crate) fn prompts_version(&self) -> watch::Receiver<u64> {
        self.inner.connection.host.prompts_changed.subscribe()
    }

    /// Returns `true` if the server has confirmed the subscription to a resource.
    pub(crate) fn is_subscription_confirmed(&self, uri: &str) -> bool {
        self.inner.connection.host.subscriptions.is_confirmed(uri)
    }

    /// Returns how long the server allows the tool list to be cached.
    pub(crate) fn tools_ttl(&self) -> Option<Duration> {
        self.inner.connection.tools().and_then(|tools| tools.ttl())
    }

    /// Forwards the events of the connection to another channel, under another alias of the server.
    pub(crate) fn relay(&self, alias: Alias, to: Events) -> Relay {
        self.inner.connection.host.events().relay(alias, to)
    }
}
