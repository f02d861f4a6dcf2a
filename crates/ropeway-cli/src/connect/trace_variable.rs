//! The trace that the caller of this process is part of, from the variable `TRACEPARENT`
//! ([environment variables as context carriers](https://opentelemetry.io/docs/specs/otel/context/env-carriers/)).

use ropeway_core::tool::{CallContext, TraceParent};

const VARIABLE: &str = "TRACEPARENT";

/// Returns the span that started this process. A malformed value is ignored, as in an HTTP header.
pub(crate) fn trace_parent() -> Option<TraceParent> {
    std::env::var(VARIABLE).ok()?.parse().ok()
}

/// Returns the context of a call within the trace of this process.
pub(crate) fn call_context() -> CallContext {
    let context = CallContext::default();
    match trace_parent() {
        Some(parent) => context.with_traceparent(parent),
        None => context,
    }
}
