//! The latency histogram that percentiles are computed from.

use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Buckets for each doubling: percentiles are exact to about 10 %.
const PER_DOUBLING: usize = 4;

/// The highest bucket begins at about 30 minutes.
const BUCKETS: usize = 31 * PER_DOUBLING;

/// Counts latencies from 1 µs to 30 minutes in buckets whose size grows with the latency.
///
/// The JSON form is a list of pairs, a bucket's number and its count, without empty buckets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LatencyHistogram([u32; BUCKETS]);

impl Default for LatencyHistogram {
    fn default() -> Self {
        Self([0; BUCKETS])
    }
}

impl LatencyHistogram {
    /// Adds a latency.
    pub(crate) fn add(&mut self, latency: Duration) {
        let bucket = &mut self.0[bucket_of(latency)];
        *bucket = bucket.wrapping_add(1);
    }

    /// Returns the number of latencies.
    pub fn count(&self) -> u64 {
        self.0.iter().map(|count| u64::from(*count)).sum()
    }

    /// Adds another histogram's counts.
    pub fn merge(&mut self, other: &Self) {
        for (own, other) in self.0.iter_mut().zip(other.0) {
            *own = own.wrapping_add(other);
        }
    }

    /// Returns the latencies that were added after `earlier` was copied. Counters may have wrapped around.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        Self(std::array::from_fn(|at| self.0[at].wrapping_sub(earlier.0[at])))
    }

    /// Returns the quantile for a share of all latencies, from 0 to 1. `None` if the histogram is empty.
    pub fn quantile(&self, share: f64) -> Option<Duration> {
        let count = self.count();
        let rank = ((count as f64 * share).ceil() as u64).clamp(1, count.max(1));
        let mut seen = 0;
        let at = self.0.iter().position(|bucket| {
            seen += u64::from(*bucket);
            seen >= rank
        })?;
        let (low, high) = (lower_bound(at), lower_bound(at + 1));
        Some(Duration::from_micros((low + high) / 2))
    }
}

/// Returns a latency's bucket.
fn bucket_of(latency: Duration) -> usize {
    let micros = u64::try_from(latency.as_micros()).unwrap_or(u64::MAX).max(1);
    let doublings = micros.ilog2() as usize;
    // The bits after the highest one select the bucket within the doubling.
    let within = if doublings >= 2 {
        (micros >> (doublings - 2)) as usize & 3
    } else {
        (micros << (2 - doublings)) as usize & 3
    };
    (doublings * PER_DOUBLING + within).min(BUCKETS - 1)
}

/// Returns a bucket's smallest latency in microseconds.
fn lower_bound(bucket: usize) -> u64 {
    let (doublings, within) = (bucket / PER_DOUBLING, (bucket % PER_DOUBLING) as u64);
    ((4 + within) << doublings) / 4
}

impl Serialize for LatencyHistogram {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.iter().enumerate().filter(|(_, count)| **count > 0))
    }
}

impl<'de> Deserialize<'de> for LatencyHistogram {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut read = Self::default();
        for (bucket, count) in Vec::<(usize, u32)>::deserialize(deserializer)? {
            if let Some(own) = read.0.get_mut(bucket) {
                *own = count;
            }
        }
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(micros: impl IntoIterator<Item = u64>) -> LatencyHistogram {
        let mut histogram = LatencyHistogram::default();
        micros.into_iter().for_each(|micros| histogram.add(Duration::from_micros(micros)));
        histogram
    }

    #[test]
    fn quantiles_are_close_to_the_latencies() {
        let histogram = of(1..=10_000);
        for (share, exact) in [(0.0, 1.0), (0.5, 5_000.0), (0.9, 9_000.0), (0.99, 9_900.0), (1.0, 10_000.0)] {
            let found = histogram.quantile(share).expect("a latency").as_micros() as f64;
            assert!((found - exact).abs() <= 1.0 + exact * 0.15, "{share}: {found} instead of {exact}");
        }
        assert_eq!(LatencyHistogram::default().quantile(0.5), None);
    }

    #[test]
    fn every_latency_has_a_bucket() {
        for micros in [0, 1, 2, 3, 4, 1 << 31, u64::MAX] {
            assert_eq!(of([micros]).count(), 1, "{micros}");
        }
        for micros in [4u64, 5, 100, 12_345, 1 << 29] {
            let bucket = bucket_of(Duration::from_micros(micros));
            assert!(lower_bound(bucket) <= micros && micros < lower_bound(bucket + 1), "{micros}");
        }
    }

    #[test]
    fn a_histogram_round_trips_and_is_compared_with_an_earlier_one() {
        let earlier = of([10, 20]);
        let mut later = earlier.clone();
        later.merge(&of([5_000_000]));
        let text = serde_json::to_string(&later).expect("JSON");
        assert_eq!(serde_json::from_str::<LatencyHistogram>(&text).expect("JSON"), later);
        assert_eq!(later.since(&earlier), of([5_000_000]));
        let hostile: LatencyHistogram = serde_json::from_str("[[99999999,1],[0,2]]").expect("JSON");
        assert_eq!(hostile.count(), 2);
    }
}
