//! A tool source that exposes part of another one.

use std::fmt;
use std::sync::{Arc, Mutex};

use super::filter::Predicate;
use super::source::{ContextItem, ContextSource, ToolSource};
use super::status::ServerStatus;
use super::tools::Registry;
use ropeway_core::sync::lock;
use ropeway_core::tool::{BoxFuture, ToolDefinition};

/// Restricts a tool source to some of its tools.
///
/// The source's statuses and context are passed through unchanged. While the source returns the same registry, so does the
/// selection.
pub struct SelectedTools<S> {
    source: S,
    predicate: Predicate,
    /// The source's last registry, and the selection from it.
    cached: Mutex<Option<(Registry, Registry)>>,
}

impl<S> SelectedTools<S> {
    /// Keeps the tools for which `predicate` returns `true`. It sees the definitions that models see.
    pub fn new(source: S, predicate: impl Fn(&ToolDefinition) -> bool + Send + Sync + 'static) -> Self {
        Self { source, predicate: Arc::new(predicate), cached: Mutex::default() }
    }
}

impl<S: ToolSource> ToolSource for SelectedTools<S> {
    fn registry(&self) -> Registry {
        let all = self.source.registry();
        let mut cached = lock(&self.cached);
        if let Some((source, selected)) = &*cached
            && source.ptr_eq(&all)
        {
            return selected.clone();
        }
        let selected = all.filter(|definition| (self.predicate)(definition));
        *cached = Some((all, selected.clone()));
        selected
    }

    fn statuses(&self) -> Vec<ServerStatus> {
        self.source.statuses()
    }

    fn ready(&self) -> BoxFuture<'_, ()> {
        self.source.ready()
    }
}

impl<S: ContextSource> ContextSource for SelectedTools<S> {
    fn context<'a>(&'a self) -> BoxFuture<'a, Vec<ContextItem>> {
        self.source.context()
    }
}

impl<S: fmt::Debug> fmt::Debug for SelectedTools<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SelectedTools").field("source", &self.source).finish_non_exhaustive()
    }
}
