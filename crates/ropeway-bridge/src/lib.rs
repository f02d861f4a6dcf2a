//! Connections to many MCP servers.

mod builder;
mod cache;
mod call;
mod config_watcher;
mod context;
mod context_cache;
mod discover;
mod era_cache;
mod error;
pub mod fuzz;
mod generated_tools;
mod handle;
mod health;
mod pool;
pub mod registry;
mod reload;
mod server_view;
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
pub use self::handle::Bridge;
pub use self::handle::ToolListing;
pub use self::health::{BridgeHealth, ServerHealth};
pub use self::pool::ProcessPool;
pub use self::reload::ReloadReport;
pub use self::server_view::{ServerLease, ServerView, SignInTarget};
