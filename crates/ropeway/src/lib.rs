//! Ropeway carries the tools of any MCP server to any model.
//!
//! The modules are layers, lowest first: JSON as other programs write it ([`json`]), what a tool answers ([`content`]), what nobody
//! may see ([`secret`]), what a tool is ([`tool`]), what is said ([`message`]), then records and pure functions beside each other
//! ([`config`], [`event`], [`protocol`], [`schema`], [`envelope`], [`lock`] for accepted tool definitions), then parts that do one
//! job: HTTP for servers and providers ([`web`]), a tool whose calls always end in an envelope ([`checked`]), one connection
//! ([`mcp`]), tools as a model's dialect takes them ([`lowering`]); above them the tools of many servers as one value ([`registry`])
//! and a model that is asked ([`provider`]), the servers under one roof ([`bridge`]), and a model that uses tools ([`agent`]).
//!
//! # Features
//!
//! `agent` (default) is everything but `testing`; `mcp` is one connection, `bridge` many of them, `providers` models alone.
//! `arbitrary-precision` keeps every digit of numbers that only pass through. It turns on the feature of `serde_json` of the same name,
//! for the whole program: types that read an `f64` out of an untagged, flattened or tagged place then refuse fractions. See [`json`].

#[cfg(feature = "agent")]
pub mod agent;
#[cfg(feature = "bridge")]
pub mod bridge;
pub mod checked;
pub mod config;
pub mod content;
pub mod duration;
pub mod envelope;
mod error_chain;
pub mod event;
mod hash;
pub mod json;
#[cfg(feature = "bridge")]
pub mod lock;
pub mod lowering;
#[cfg(feature = "mcp")]
pub mod mcp;
pub mod message;
#[cfg(feature = "mcp")]
pub mod protocol;
#[cfg(feature = "providers")]
pub mod provider;
#[cfg(feature = "bridge")]
pub mod registry;
pub mod schema;
pub mod secret;
mod sync;
#[cfg(feature = "testing")]
pub mod testing;
pub mod tool;
#[cfg(any(feature = "mcp", feature = "providers"))]
pub mod web;
