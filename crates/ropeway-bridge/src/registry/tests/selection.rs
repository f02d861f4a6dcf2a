//! Tests of selected tools.

use super::*;
use crate::registry::{ContextItem, ContextSource, SelectedTools, ServerState, ServerStatus, ToolSource};
use ropeway_core::tool::BoxFuture;

/// A source whose tools can be replaced.
#[derive(Default)]
struct Changing(std::sync::Mutex<Registry>, AtomicU32);

impl Changing {
    fn with(tools: &[&str]) -> Arc<Self> {
        let source = Arc::new(Self::default());
        source.change(tools);
        source
    }

    fn change(&self, tools: &[&str]) {
        *self.0.lock().expect("tools") = assembled(&[("web", tools)], CollisionPolicy::Error).0;
    }
}

impl ToolSource for Changing {
    fn registry(&self) -> Registry {
        self.0.lock().expect("tools").clone()
    }

    fn statuses(&self) -> Vec<ServerStatus> {
        vec![ServerStatus::new("web", ServerState::Ready { tools: self.registry().len() })]
    }

    fn ready(&self) -> BoxFuture<'_, ()> {
        self.1.fetch_add(1, Ordering::Relaxed);
        Box::pin(std::future::ready(()))
    }
}

impl ContextSource for Changing {
    fn context<'a>(&'a self) -> BoxFuture<'a, Vec<ContextItem>> {
        Box::pin(async { vec![ContextItem::new("notes", vec![ContentPart::text("N")])] })
    }
}

fn reading(source: &Arc<Changing>) -> SelectedTools<Arc<Changing>> {
    SelectedTools::new(source.clone(), |definition| definition.name.starts_with("read"))
}

#[tokio::test]
async fn a_selection_has_only_the_selected_tools() {
    let source = Changing::with(&["read", "write", "read_all"]);
    let some = reading(&source).registry();
    assert_eq!(listed(&some), ["read = web.read", "read_all = web.read_all"]);
    assert_eq!(answer(&some, "read").await, "");
    let refused = answer(&some, "write").await;
    assert!(refused.starts_with("Error: unknown tool `write`"), "{refused}");
    assert_eq!(listed(&source.registry()).len(), 3);
}

#[test]
fn an_unchanged_selection_is_lowered_once() {
    let source = Changing::with(&["read", "write"]);
    let selection = reading(&source);
    let (one, lowered) = (selection.registry(), selection.registry().lowered(Dialect::Chat));
    assert!(one.ptr_eq(&selection.registry()));
    assert!(Arc::ptr_eq(&lowered, &selection.registry().lowered(Dialect::Chat)));
    source.change(&["read", "read_more"]);
    assert!(!one.ptr_eq(&selection.registry()));
    assert_eq!(listed(&selection.registry()), ["read = web.read", "read_more = web.read_more"]);
}

#[test]
fn selecting_all_tools_returns_the_registry_of_the_source() {
    let source = Changing::with(&["read", "read_all"]);
    assert!(reading(&source).registry().ptr_eq(&source.registry()));
}

#[tokio::test]
async fn statuses_and_context_are_passed_through() {
    let source = Changing::with(&["read", "write"]);
    let selection = reading(&source);
    selection.ready().await;
    assert_eq!(source.1.load(Ordering::Relaxed), 1);
    assert_eq!(selection.statuses(), source.statuses());
    assert_eq!(selection.context().await, source.context().await);
}
