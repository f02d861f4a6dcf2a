//! Connections to many MCP servers.
//!
//! A [`Bridge`] starts the servers of a [`Config`](crate::config::Config) concurrently, keeps them connected and combines their
//! tools into one [`Registry`](crate::registry::Registry). A server that fails does not affect the others. [`Bridge::builder`]
//! adds handlers, filters, transformers and a lock. [`discover_and_register`] and [`connect_and_discover`] are for hosts that
//! keep tools in their own registry.

mod builder;
mod cache;
mod call;
mod config_watcher;
mod context;
mod context_cache;
mod discover;
mod era_cache;
mod error;
#[cfg(feature = "testing")]
pub(crate) mod fuzz;
#[cfg(feature = "gateway")]
#[allow(dead_code, reason = "used by the gateway")]
mod gateway;
mod generated_tools;
mod handle;
mod health;
mod pool;
mod private_file;
mod reload;
mod shared;
mod shutdown;
mod slot;
mod slot_task;
mod slot_tools;
mod state;
mod tool;

pub use self::builder::BridgeBuilder;
pub use self::cache::{cached_tools, default_cache_dir};
pub use self::discover::{DiscoveredTool, connect_and_discover, discover_and_register};
pub use self::error::BridgeError;
#[cfg(feature = "gateway")]
#[allow(unused_imports, reason = "used by the gateway")]
pub(crate) use self::gateway::{ServerLease, ServerView, SignInTarget};
pub use self::handle::Bridge;
// Hidden from the docs: the registry, the statuses and the differences at one moment; used by the binary.
#[doc(hidden)]
pub use self::handle::ToolListing;
pub use self::health::{BridgeHealth, ServerHealth};
pub use self::reload::ReloadReport;
