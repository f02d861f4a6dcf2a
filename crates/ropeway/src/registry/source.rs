//! Sources: where an agent gets tools from, and what it is told before a conversation.

use std::sync::Arc;

use super::status::ServerStatus;
use super::tools::Registry;
use crate::content::ContentPart;
use crate::tool::{Alias, BoxFuture};

/// Where tools come from: a bridge, a registry, or something of the host's own.
pub trait ToolSource: Send + Sync {
    /// The tools as of now; whoever holds on to them is not disturbed by later changes.
    fn registry(&self) -> Registry;

    /// How each server behind the tools stands.
    fn statuses(&self) -> Vec<ServerStatus> {
        Vec::new()
    }

    /// Waits until the tools that can be expected are there.
    fn ready(&self) -> BoxFuture<'_, ()> {
        Box::pin(std::future::ready(()))
    }
}

/// Where the words come from that go before a conversation.
pub trait ContextSource: Send + Sync {
    /// What there is to tell right now, in this order.
    fn context<'a>(&'a self) -> BoxFuture<'a, Vec<ContextItem>>;
}

/// What something that goes before a conversation is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ContextKind {
    /// What a server says about how it is to be used: it belongs to the system prompt.
    Instructions,
    /// Something to read.
    Resource,
}

/// One thing that goes before a conversation.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct ContextItem {
    /// What it is.
    pub kind: ContextKind,
    /// The server that it comes from, if any.
    pub server: Option<Alias>,
    /// What it is called: the URI of a resource, or a name.
    pub name: String,
    /// What there is to tell.
    pub content: Vec<ContentPart>,
}

impl ContextItem {
    /// Something to read, of no server.
    pub fn new(name: impl Into<String>, content: impl Into<Vec<ContentPart>>) -> Self {
        Self { kind: ContextKind::Resource, server: None, name: name.into(), content: content.into() }
    }

    /// What a server says about how it is to be used.
    pub fn instructions(server: impl Into<Alias>, text: impl Into<String>) -> Self {
        let item = Self::new("instructions", vec![ContentPart::text(text)]).with_server(server);
        Self { kind: ContextKind::Instructions, ..item }
    }

    /// Says which server it comes from.
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
