//! Serves all servers of a configuration as one MCP server.

mod builder_shortcuts;
mod catalog;
mod client;
mod gateway_error;
mod handle;
mod key_source;
mod listener;
mod method;
mod observe;
mod page;
mod request;
mod shared;
mod upkeep;
mod upstream;

pub use self::client::auth::{ClientKey, KeyFile, KeyFileError, KeyLimits, NewKey};
pub use self::client::seal::KeyError;
pub use self::gateway_error::GatewayError;
pub use self::handle::{Gateway, GatewayBuilder};
pub use self::key_source::KeySource;
pub use self::listener::tls::TlsError;
pub use self::observe::otlp::OtlpSettings;
pub use self::observe::stats_client::{GatewayEvents, StatsError, fetch_stats, follow_events};
pub use self::observe::{GatewayStats, LatencyHistogram, OperationStats};
pub use self::shared::GatewayStatus;
