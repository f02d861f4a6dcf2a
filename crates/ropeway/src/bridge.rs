//! Connections to many MCP servers.
//!
//! A [`Bridge`] starts the servers in a [`Config`](crate::config::Config) concurrently, keeps them connected and combines their
//! tools into one [`Registry`](crate::registry::Registry). A server that fails does not affect the others. [`Bridge::builder`]
//! adds handlers, filters, transformers and a lock. [`discover_and_register`] and [`connect_and_discover`] are for hosts that
//! keep tools in their own registry.

pub use ropeway_bridge::{
    Bridge, BridgeBuilder, BridgeError, BridgeHealth, DiscoveredTool, ProcessPool, ReloadReport, ServerHealth,
    cached_tools, connect_and_discover, default_cache_dir, discover_and_register,
};
