//! Ropeway carries the tools of any MCP server to any model.
//!
//! The modules are layers, lowest first: what a tool answers ([`content`]), what a tool is ([`tool`]),
//! records and pure functions beside each other ([`config`], [`event`], [`schema`], and on it [`envelope`]),
//! parts that do one job ([`checked`]).

pub mod checked;
pub mod config;
pub mod content;
pub mod envelope;
pub mod event;
#[cfg(feature = "mcp")]
pub mod mcp;
pub mod schema;
pub mod tool;
