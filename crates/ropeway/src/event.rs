//! Connection, call and bridge events.
//!
//! [`Event`] lists them. [`Mcp::events`](crate::mcp::Mcp::events) and [`Bridge::events`](crate::bridge::Bridge::events) return an
//! [`EventStream`]; several connections share a channel, [`Events`].

pub use ropeway_core::event::{Event, EventStream, Events};
