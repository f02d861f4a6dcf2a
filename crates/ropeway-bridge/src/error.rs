//! Errors of a bridge.

use ropeway_config::ConfigError;
use ropeway_core::tool::{Alias, BoxError};
use ropeway_mcp::ConnectError;

/// Error returned when a bridge cannot be built, started or reloaded.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BridgeError {
    /// The configuration file is invalid or cannot be read.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The tool settings of a server are invalid.
    #[error("invalid tool settings of server `{server}`")]
    Settings {
        /// Alias of the server.
        server: Alias,
        /// The invalid setting.
        #[source]
        source: BoxError,
    },
    /// Two servers have the same alias.
    #[error("duplicate alias `{server}`")]
    DuplicateAlias {
        /// The alias.
        server: Alias,
    },
    /// A required server could not be connected.
    #[error("required server `{server}` is not available")]
    Required {
        /// Alias of the server.
        server: Alias,
        /// Why the connection failed.
        #[source]
        source: ConnectError,
    },
    /// A required server lacks secrets.
    #[error("required server `{server}` lacks secrets: {} not set", names(.secrets))]
    RequiredSecrets {
        /// Alias of the server.
        server: Alias,
        /// Names of the missing secrets.
        secrets: Vec<String>,
    },
    /// The entry of a required server has a key that is not supported.
    #[error("required server `{server}` cannot be started: {reason}")]
    RequiredInvalid {
        /// Alias of the server.
        server: Alias,
        /// The key and its position in the file.
        reason: String,
    },
}

fn names(secrets: &[String]) -> String {
    let are = if secrets.len() == 1 { "is" } else { "are" };
    format!("`{}` {are}", secrets.join("`, `"))
}
