//! Captures all `tracing` output of one thread, including spans.

use std::fmt::{self, Write as _};
use std::future::Future;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

/// The name of a span and its fields, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) name: String,
    pub(crate) fields: Vec<(String, String)>,
}

impl Span {
    /// Returns the value of a field, if it is set.
    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        self.fields.iter().rfind(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }
}

#[derive(Default)]
struct Written {
    lines: String,
    spans: Vec<(u64, Span)>,
}

/// A subscriber that records everything, at every level.
#[derive(Clone, Default)]
pub(crate) struct Log(Arc<Mutex<Written>>);

impl Log {
    fn written(&self) -> MutexGuard<'_, Written> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the whole output as text.
    pub(crate) fn text(&self) -> String {
        let written = self.written();
        format!("{}{:?}", written.lines, written.spans)
    }

    /// Returns the spans so far.
    pub(crate) fn spans(&self) -> Vec<Span> {
        self.written().spans.iter().map(|(_, span)| span.clone()).collect()
    }
}

/// Runs on a separate thread and captures its `tracing` output.
pub(crate) async fn logged<F, R>(body: F) -> Log
where
    F: FnOnce(Log) -> R + Send + 'static,
    R: Future<Output = ()>,
{
    let running = tokio::task::spawn_blocking(move || {
        let log = Log::default();
        // With only one subscriber in the process, a callsite that another thread reaches first is cached as disabled, because
        // tracing-core asks only that thread. With two subscribers, all are asked.
        let _company = tracing::Dispatch::new(log.clone());
        let _here = tracing::subscriber::set_default(log.clone());
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(body(log.clone()));
        log
    });
    match running.await {
        Ok(log) => log,
        Err(failed) => std::panic::resume_unwind(failed.into_panic()),
    }
}

struct Fields<'a>(&'a mut Vec<(String, String)>);

impl Visit for Fields<'_> {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.push((field.name().to_owned(), value.to_owned()));
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.0.push((field.name().to_owned(), format!("{value:?}")));
    }
}

impl Subscriber for Log {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let id = NEXT.fetch_add(1, Ordering::Relaxed);
        let mut fields = Vec::new();
        span.record(&mut Fields(&mut fields));
        self.written().spans.push((id, Span { name: span.metadata().name().to_owned(), fields }));
        Id::from_u64(id)
    }

    fn record(&self, span: &Id, values: &Record<'_>) {
        let mut written = self.written();
        if let Some((_, known)) = written.spans.iter_mut().find(|(id, _)| *id == span.into_u64()) {
            values.record(&mut Fields(&mut known.fields));
        }
    }

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut fields = Vec::new();
        event.record(&mut Fields(&mut fields));
        let meta = event.metadata();
        let _ = writeln!(self.written().lines, "{} {}: {fields:?}", meta.level(), meta.target());
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}
