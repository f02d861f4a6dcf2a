//! Tools from many servers and the host, under unique names.
//!
//! A [`Registry`] calls tools by name, searches them, and lists them for models. A [`Bridge`](crate::Bridge) builds one from its
//! servers; [`Registry::register`] adds the host's tools. A host whose tools change implements [`ToolSource`], and a
//! [`Transformer`] renames or rewrites tools.

pub use ropeway_bridge::registry::{
    Collision, ContextItem, ContextSource, Registry, SelectedTools, ServerState, ServerStatus, ToolSource, Transformer,
};

pub mod naming;
