//! Tool names that every model accepts.

pub use ropeway_bridge::registry::naming::{MAX_LENGTH, tool_name};
