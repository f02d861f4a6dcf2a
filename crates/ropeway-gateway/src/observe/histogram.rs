//! The duration histogram that metrics are made from.

use std::time::Duration;

/// The buckets' upper bounds in seconds
/// (<https://opentelemetry.io/docs/specs/semconv/gen-ai/mcp/#metric-mcpserveroperationduration>).
pub(crate) const BOUNDS: [f64; 14] = [0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0];

/// Counts durations by size.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Histogram {
    /// Each bucket's count. The last bucket has no upper bound.
    pub(crate) buckets: [u64; BOUNDS.len() + 1],
    /// The sum in seconds.
    pub(crate) sum: f64,
}

impl Histogram {
    /// Adds a duration.
    pub(crate) fn add(&mut self, duration: Duration) {
        let seconds = duration.as_secs_f64();
        // Most durations are in the first bucket.
        let at = BOUNDS.iter().position(|bound| seconds <= *bound).unwrap_or(BOUNDS.len());
        self.buckets[at] += 1;
        self.sum += seconds;
    }

    /// Returns the number of durations.
    pub(crate) fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_counts_in_the_first_bucket_that_is_large_enough() {
        let mut histogram = Histogram::default();
        for millis in [0, 10, 11, 300_000, 300_001] {
            histogram.add(Duration::from_millis(millis));
        }
        assert_eq!((histogram.buckets[0], histogram.buckets[1]), (2, 1));
        assert_eq!((histogram.buckets[13], histogram.buckets[14]), (1, 1));
        assert_eq!(histogram.count(), 5);
        assert!((histogram.sum - 600.022).abs() < 1e-9, "{}", histogram.sum);
    }
}
