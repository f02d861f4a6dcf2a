//! A selection: some tools of a source, for an agent that is not to have all of them.

use std::fmt;
use std::sync::{Arc, Mutex};

use super::filter::Predicate;
use super::source::{ContextItem, ContextSource, ToolSource};
use super::status::ServerStatus;
use super::tools::Registry;
use crate::sync::lock;
use crate::tool::{BoxFuture, ToolDefinition};

/// Some tools of a source, for an agent that is not to have all of them.
///
/// What the source tells of its servers, and before a conversation, is told in full. As long as the source gives the same
/// registry, so does the selection.
pub struct SelectedTools<S> {
    source: S,
    wants: Predicate,
    /// The last registry of the source, and what was chosen of it.
    made: Mutex<Option<(Registry, Registry)>>,
}

impl<S> SelectedTools<S> {
    /// Of a source only those tools that are wanted, by what a model is told of them.
    pub fn new(source: S, wants: impl Fn(&ToolDefinition) -> bool + Send + Sync + 'static) -> Self {
        Self { source, wants: Arc::new(wants), made: Mutex::default() }
    }
}

impl<S: ToolSource> ToolSource for SelectedTools<S> {
    fn registry(&self) -> Registry {
        let all = self.source.registry();
        let mut made = lock(&self.made);
        if let Some((of, chosen)) = &*made
            && of.ptr_eq(&all)
        {
            return chosen.clone();
        }
        let chosen = all.filter(|definition| (self.wants)(definition));
        *made = Some((all, chosen.clone()));
        chosen
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
