//! Ropeway carries the tools of any MCP server to any model.
//!
//! The modules are layers, lowest first: what a tool answers ([`content`]), what a tool is ([`tool`]), then records
//! and pure functions beside each other ([`config`], [`event`], [`protocol`]), then one connection ([`mcp`]).

pub mod config;
pub mod content;
pub mod event;
#[cfg(feature = "mcp")]
pub mod mcp;
#[cfg(feature = "mcp")]
pub mod protocol;
pub mod schema;
#[cfg(feature = "testing")]
pub mod testing;
pub mod tool;
