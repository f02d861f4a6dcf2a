//! Which requests become spans
//! (<https://opentelemetry.io/docs/specs/otel/trace/sdk/#built-in-samplers>).

use ropeway_core::tool::TraceParent;

/// Decides which traces are sampled.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Sampler {
    /// The sampled share of traces without a parent, from 0 to 1.
    pub(crate) ratio: f64,
    /// Whether traces with a parent are sampled if the parent is.
    pub(crate) is_parent_based: bool,
}

impl Default for Sampler {
    fn default() -> Self {
        Self { ratio: 1.0, is_parent_based: true }
    }
}

impl Sampler {
    /// Returns a request's span, a child of its client's span.
    pub(crate) fn span(self, parent: Option<TraceParent>) -> TraceParent {
        let span = parent.map_or_else(TraceParent::random, TraceParent::child);
        let is_sampled = match parent {
            Some(parent) if self.is_parent_based => parent.is_sampled(),
            _ => self.takes(span),
        };
        span.with_sampled(is_sampled)
    }

    /// Samples by the trace id, so that all parts of a trace are sampled alike.
    fn takes(self, span: TraceParent) -> bool {
        let number = u64::from_be_bytes(span.trace_bytes()[8..].try_into().unwrap_or_default()) >> 1;
        self.ratio >= 1.0 || number < (self.ratio.max(0.0) * (1u64 << 63) as f64) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_decision_of_the_parent_is_kept() {
        let parent = TraceParent::random();
        for is_sampled in [true, false] {
            let span = Sampler::default().span(Some(parent.with_sampled(is_sampled)));
            assert_eq!(span.is_sampled(), is_sampled);
            assert_eq!(span.trace_id(), parent.trace_id());
            assert_ne!(span.span_id(), parent.span_id());
        }
        let always = Sampler { ratio: 1.0, is_parent_based: false };
        assert!(always.span(Some(parent.with_sampled(false))).is_sampled());
    }

    #[test]
    fn a_ratio_samples_about_its_share() {
        let sampled = |ratio| {
            let sampler = Sampler { ratio, is_parent_based: true };
            (0..10_000).filter(|_| sampler.span(None).is_sampled()).count()
        };
        assert_eq!((sampled(0.0), sampled(1.0)), (0, 10_000));
        let tenth = sampled(0.1);
        assert!((700..1_300).contains(&tenth), "{tenth}");
    }
}
