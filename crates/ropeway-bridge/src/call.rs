//! Opening a bridge from a file, and calling its tools by name.

use std::path::Path;

use super::error::BridgeError;
use super::handle::Bridge;
use crate::registry::Registry;
use ropeway_config::{Config, Secrets};
use ropeway_core::envelope::Envelope;
use ropeway_core::tool::{CallContext, IntoArguments};

impl Bridge {
    /// Creates a bridge for the servers in a configuration file, without starting them.
    ///
    /// Secrets come from the environment and from a `.env` file next to `path`; use [`Config::load`] for other sources. The file can
    /// name commands to run: only load files that you trust.
    ///
    /// # Errors
    ///
    /// Fails if the file cannot be read or is not a valid configuration.
    pub fn from_file(path: impl AsRef<Path>) -> Result<Self, BridgeError> {
        Self::new(Config::load(path.as_ref(), &Secrets::from_env())?)
    }

    /// Returns all connected servers' tools, under the names that models use.
    ///
    /// The registry is a snapshot: it does not change when a server connects or reports other tools later. It is empty before
    /// [`start`](Self::start).
    #[doc(alias = "get_tools")]
    pub fn registry(&self) -> Registry {
        self.tools().registry
    }

    /// Calls a tool by the name that models use, or by `SERVER.TOOL`.
    ///
    /// Every call returns an [`Envelope`], even for an unknown tool.
    pub async fn call(&self, name: &str, arguments: impl IntoArguments) -> Envelope {
        self.registry().call(name, arguments).await
    }

    /// Calls a tool like [`call`](Self::call), with a deadline, cancellation or progress from `cx`.
    pub async fn call_with(&self, name: &str, arguments: impl IntoArguments, cx: &CallContext) -> Envelope {
        self.registry().call_with(name, arguments, cx).await
    }
}
