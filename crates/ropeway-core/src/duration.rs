//! Formats durations for messages.

use std::time::Duration;

const MINUTE: u64 = 60;
const HOUR: u64 = 60 * MINUTE;

/// Formats a duration with one or two units: `800 µs`, `3.4 ms`, `500 ms`, `1.2 s`, `40 s`, `2 min 30 s`, `1 h`.
///
/// The value is rounded: 499.966759 ms is `500 ms`.
pub fn format_duration(duration: Duration) -> String {
    let with_tenth = |value: f64, unit: &str| {
        let text = format!("{value:.1}");
        format!("{} {unit}", text.strip_suffix(".0").unwrap_or(&text))
    };
    match duration.as_micros() {
        micros @ 0..1000 => format!("{micros} µs"),
        micros @ 1000..9_950 => with_tenth(micros as f64 / 1000.0, "ms"),
        micros @ 9_950..999_500 => format!("{:.0} ms", micros as f64 / 1000.0),
        micros @ 999_500..9_950_000 => with_tenth(micros as f64 / 1_000_000.0, "s"),
        _ => whole_seconds((duration + Duration::from_millis(500).min(Duration::MAX - duration)).as_secs()),
    }
}

fn whole_seconds(seconds: u64) -> String {
    let pair = |more: u64, unit: &str, less: u64, smaller: &str| match less {
        0 => format!("{more} {unit}"),
        _ => format!("{more} {unit} {less} {smaller}"),
    };
    match seconds {
        // Timeouts of about a minute are usually given in seconds.
        0..120 => format!("{seconds} s"),
        120..HOUR => pair(seconds / MINUTE, "min", seconds % MINUTE, "s"),
        _ => pair(seconds / HOUR, "h", seconds % HOUR / MINUTE, "min"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_rounded() {
        for (micros, text) in [
            (0, "0 µs"),
            (999, "999 µs"),
            (1000, "1 ms"),
            (3_449, "3.4 ms"),
            (9_949, "9.9 ms"),
            (9_950, "10 ms"),
            (120_400, "120 ms"),
            (499_966, "500 ms"),
            (999_600, "1 s"),
            (1_230_000, "1.2 s"),
            (9_999_999, "10 s"),
            (40_200_000, "40 s"),
            (90_000_000, "90 s"),
            (120_000_000, "2 min"),
            (150_000_000, "2 min 30 s"),
            (3_600_000_000, "1 h"),
            (5_400_000_000, "1 h 30 min"),
        ] {
            assert_eq!(format_duration(Duration::from_micros(micros)), text, "{micros} µs");
        }
        assert_eq!(format_duration(Duration::MAX), "5124095576030431 h");
    }
}
