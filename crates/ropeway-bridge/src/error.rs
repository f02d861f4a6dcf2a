//! Bridge errors.

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
    /// A server's tool settings are invalid.
    #[error("invalid tool settings of server `{server}`")]
    Settings {
        /// Server alias.
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
        /// Server alias.
        server: Alias,
        /// Why the connection failed.
        #[source]
        source: ConnectError,
    },
    /// A required server lacks secrets.
    #[error("required server `{server}` lacks secrets: {} not set", names(.secrets))]
    RequiredSecrets {
        /// Server alias.
        server: Alias,
        /// Missing secret names.
        secrets: Vec<String>,
    },
    /// A required server's entry has a key that is not supported.
    #[error("required server `{server}` cannot be started: {reason}")]
    RequiredInvalid {
        /// Server alias.
        server: Alias,
        /// The key and its position in the file.
        reason: String,
    },
}

fn names(secrets: &[String]) -> String {
    let are = if secrets.len() == 1 { "is" } else { "are" };
    format!("`{}` {are}", secrets.join("`, `"))
}
