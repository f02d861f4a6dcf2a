//! Ropeway carries the tools of any MCP server to any model.
//!
//! The modules are layers, lowest first: what a tool answers ([`content`]), what a tool is ([`tool`]),
//! records and pure functions beside each other ([`config`], [`event`]).

pub mod config;
pub mod content;
pub mod event;
#[cfg(feature = "mcp")]
pub mod mcp;
pub mod schema;
pub mod tool;
