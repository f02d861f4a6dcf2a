//! Descriptive statistics.

use serde_json::{Value, json};

/// Maximum number of values.
pub(super) const MAX_VALUES: usize = 1_000_000;

/// Describes at least one number.
pub(super) fn summary(values: &[f64]) -> Result<Value, String> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let (Some(min), Some(max)) = (sorted.first(), sorted.last()) else {
        return Err("argument `values` must contain at least one number".to_owned());
    };
    // Welford's algorithm avoids large sums, which lose precision.
    let (mut mean, mut squares) = (0.0, 0.0);
    for (count, value) in (1_u32..).zip(values) {
        let before = value - mean;
        mean += before / f64::from(count);
        squares += before * (value - mean);
    }
    let stddev = (squares / values.len() as f64).sqrt();
    let middle = sorted.len() / 2;
    let median =
        if sorted.len().is_multiple_of(2) { sorted[middle - 1].midpoint(sorted[middle]) } else { sorted[middle] };
    if ![mean, median, stddev].iter().all(|number| number.is_finite()) {
        return Err("the numbers are too large".to_owned());
    }
    Ok(json!({"count": values.len(), "mean": mean, "median": median, "min": min, "max": max, "stddev": stddev}))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_described() {
        let expected = json!({"count": 8, "mean": 5.0, "median": 4.5, "min": 2.0, "max": 9.0, "stddev": 2.0});
        assert_eq!(summary(&[2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0]), Ok(expected));
        let one = json!({"count": 1, "mean": -3.5, "median": -3.5, "min": -3.5, "max": -3.5, "stddev": 0.0});
        assert_eq!(summary(&[-3.5]), Ok(one));
        assert_eq!(summary(&[3.0, 1.0, 2.0]).map(|summary| summary["median"].clone()), Ok(json!(2.0)));
    }

    #[test]
    fn empty_and_too_large_lists_are_refused() {
        assert!(summary(&[]).is_err());
        assert!(summary(&[f64::MAX, f64::MIN]).is_err());
    }
}
