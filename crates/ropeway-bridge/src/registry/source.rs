//! Tool and context sources for an agent.

use std::sync::Arc;

use super::status::ServerStatus;
use super::tools::Registry;
use ropeway_core::content::ContentPart;
use ropeway_core::tool::{Alias, BoxFuture};

/// A tool source, such as a bridge or a registry.
#[doc(alias = "ToolProvider")]
pub trait ToolSource: Send + Sync {
    /// Returns the current tools. The registry does not change afterwards.
    fn registry(&self) -> Registry;

    /// Returns the status of each server in the source.
    fn statuses(&self) -> Vec<ServerStatus> {
        Vec::new()
    }

    /// Waits until the expected tools are available.
    fn ready(&self) -> BoxFuture<'_, ()> {
        Box::pin(std::future::ready(()))
    }
}

/// Provides context that goes before a conversation.
#[doc(alias = "ContextProvider")]
pub trait ContextSource: Send + Sync {
    /// Returns the current context, in order.
    fn context<'a>(&'a self) -> BoxFuture<'a, Vec<ContextItem>>;
}

/// One context item that goes before a conversation.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct ContextItem {
    /// Whether the item holds a server's instructions, which belong in the system prompt, or a resource or another document.
    pub is_instructions: bool,
    /// Server that the item comes from, if any.
    pub server: Option<Alias>,
    /// The resource URI, or another name.
    pub name: String,
    /// The item's content.
    pub content: Vec<ContentPart>,
}

impl ContextItem {
    /// Creates a document that belongs to no server.
    pub fn new(name: impl Into<String>, content: impl Into<Vec<ContentPart>>) -> Self {
        Self { is_instructions: false, server: None, name: name.into(), content: content.into() }
    }

    /// Creates an item with a server's instructions.
    pub fn instructions(server: impl Into<Alias>, text: impl Into<String>) -> Self {
        let item = Self::new("instructions", vec![ContentPart::text(text)]).with_server(server);
        Self { is_instructions: true, ..item }
    }

    /// Sets the server that the item comes from.
    #[must_use]
    pub fn with_server(mut self, server: impl Into<Alias>) -> Self {
        self.server = Some(server.into());
        self
    }
}

impl ToolSource for Registry {
    fn registry(&self) -> Registry {
        self.clone()
    }
}

impl<T: ToolSource + ?Sized> ToolSource for Arc<T> {
    fn registry(&self) -> Registry {
        (**self).registry()
    }

    fn statuses(&self) -> Vec<ServerStatus> {
        (**self).statuses()
    }

    fn ready(&self) -> BoxFuture<'_, ()> {
        (**self).ready()
    }
}

impl<T: ContextSource + ?Sized> ContextSource for Arc<T> {
    fn context<'a>(&'a self) -> BoxFuture<'a, Vec<ContextItem>> {
        (**self).context()
    }
}
