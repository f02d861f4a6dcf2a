//! Ropeway's data: tools and their calls, content, conversations, schemas, secrets, events, and the helpers that every other
//! crate uses.
//!
//! This crate is internal to [`ropeway`](https://docs.rs/ropeway), which has the stable API.

pub mod checked;
pub mod content;
pub mod conversions;
pub mod duration;
pub mod envelope;
pub mod error_chain;
pub mod event;
pub mod hash;
pub mod invisible;
pub mod json;
pub mod loose_json;
pub mod lowering;
pub mod message;
pub mod parse_error;
pub mod private_file;
pub mod replace_file;
pub mod rfc3339;
pub mod schema;
pub mod secret;
pub mod setters;
pub mod suggest;
pub mod sync;
pub mod tool;
pub mod user_folders;
