//! A connection as bridges and agents use it: its tools do not hold it, and its changes can be followed.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tokio::sync::watch;

use super::Mcp;
use super::fault::ConnectErrorKind;
use super::tools::{self, McpTool};
use crate::config::ServerTimeouts;
use crate::event::{Events, Relay};
#[cfg(feature = "bridge")]
use crate::protocol::Era;
use crate::tool::{Alias, CallContext, CallError, Tool, ToolDefinition};

impl Mcp {
    /// The server's tools, which do not keep the connection alive: once it is gone, their calls say so.
    #[cfg(any(feature = "agent", test))]
    pub(crate) async fn loose_tools(&self) -> Result<Vec<Arc<dyn Tool>>, CallError> {
        let list = tools::list(&self.handle.shared, &CallContext::default()).await?;
        Ok(self.tools(&list, None, &()))
    }

    /// The same as the connection knows them, for a caller that follows [`Mcp::tools_version`].
    pub(crate) async fn settled_tools(&self) -> Result<Vec<Arc<dyn Tool>>, CallError> {
        let list = tools::settled(&self.handle.shared, &CallContext::default()).await?;
        Ok(self.tools(&list, None, &()))
    }

    /// Takes the server to speak this era, as it did lately, unless it is known better. A server that refuses it is probed.
    #[cfg(feature = "bridge")]
    pub(crate) fn assume_era(&self, era: Era) {
        let shared = &self.handle.shared;
        if shared.era().is_none() {
            shared.remember_era(Some(era));
        }
    }

    /// Which limit the tool list has reached, in words.
    pub(crate) fn tools_cut(&self) -> Option<String> {
        self.handle.shared.tools()?.cut().map(str::to_owned)
    }

    /// A tool of which the definition is known from before. It does not keep the connection alive.
    pub(crate) fn loose_tool(&self, definition: ToolDefinition) -> Arc<dyn Tool> {
        let shared = self.handle.shared.clone();
        Arc::new(McpTool { definition: Arc::new(definition), shared, _keep: () })
    }

    /// Returns a digest of the command or URL that the server is reached by.
    #[cfg(feature = "agent")]
    pub(crate) fn endpoint(&self) -> crate::tool::Digest {
        self.handle.shared.config.endpoint()
    }

    /// Returns why the server was down last, and when that became known.
    pub(crate) fn last_failure(&self) -> Option<(SystemTime, Arc<ConnectErrorKind>)> {
        self.handle.shared.last_failure()
    }

    /// Returns the secrets of the settings.
    #[cfg(feature = "agent")]
    pub(crate) fn secrets(&self) -> crate::secret::Redactor {
        self.handle.shared.config.secrets()
    }

    /// How long calls wait.
    pub(crate) fn timeouts(&self) -> ServerTimeouts {
        self.handle.shared.config.timeouts
    }

    /// Counts the changes of the tool list.
    pub(crate) fn tools_version(&self) -> watch::Receiver<u64> {
        self.handle.shared.tools_version.subscribe()
    }

    /// Counts how often the server has said that its tools are not what they were, fetched again or not.
    #[cfg(feature = "agent")]
    pub(crate) fn tools_told(&self) -> u64 {
        self.handle.shared.host.tools_changed()
    }

    /// Counts the changes of the prompts.
    pub(crate) fn prompts_version(&self) -> watch::Receiver<u64> {
        self.handle.shared.host.prompts_changed.subscribe()
    }

    /// How long the server says that the tool list may be kept, from when it was fetched.
    pub(crate) fn tools_life(&self) -> Option<Duration> {
        self.handle.shared.tools().and_then(|tools| tools.life())
    }

    /// Tells the events of the connection to somebody else too, who knows the server by another name.
    pub(crate) fn relay(&self, alias: Alias, to: Events) -> Relay {
        self.handle.shared.host.events().relay(alias, to)
    }
}
