//! The caller's trace from `TRACEPARENT` ([specification](https://opentelemetry.io/docs/specs/otel/context/env-carriers/)).

use ropeway_core::tool::{CallContext, TraceParent};

const VARIABLE: &str = "TRACEPARENT";

/// Returns the span that started this process. A malformed value is ignored, as in an HTTP header.
pub(crate) fn trace_parent() -> Option<TraceParent> {
    std::env::var(VARIABLE).ok()?.parse().ok()
}

/// Returns the context for a call within this process's trace.
pub(crate) fn call_context() -> CallContext {
    let context = CallContext::default();
    match trace_parent() {
        Some(parent) => context.with_traceparent(parent),
        None => context,
    }
}
