//! Durations on the command line: `5s`, `500ms`, `2m`, `1.5s`, `5`.

use std::time::Duration;

/// Far below what `Instant` can represent.
const LONGEST_SECONDS: f64 = 1e9;

/// Parses a duration. A plain number is in seconds.
pub(crate) fn parse(text: &str) -> Result<Duration, String> {
    let split = text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let number = match number.trim().parse::<f64>() {
        Ok(number) if number.is_finite() && number > 0.0 => number,
        _ => return Err("expected a duration greater than zero, such as `5s`, `500ms` or `2m`".to_owned()),
    };
    let seconds = match unit {
        "ms" => number / 1000.0,
        "" | "s" => number,
        "m" | "min" => number * 60.0,
        "h" => number * 3600.0,
        "d" => number * 24.0 * 3600.0,
        _ => return Err(format!("`{unit}` is not a unit of time: use ms, s, m, h or d")),
    };
    Ok(Duration::from_secs_f64(seconds.min(LONGEST_SECONDS)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_unit_is_read_and_a_bare_number_counts_seconds() {
        for (text, milliseconds) in [
            ("5s", 5000),
            ("500ms", 500),
            ("2m", 120_000),
            ("1.5s", 1500),
            ("5", 5000),
            ("1h", 3_600_000),
            ("2d", 172_800_000),
            ("2 s", 2000),
        ] {
            assert_eq!(parse(text), Ok(Duration::from_millis(milliseconds)), "{text}");
        }
    }

    #[test]
    fn invalid_durations_are_refused() {
        for text in ["", "s", "-1s", "0", "5 weeks", "1e999s", "NaN", "5s5", "five"] {
            assert!(parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_wait_past_the_end_of_time_is_cut() {
        assert_eq!(parse("99999999999999999999h"), Ok(Duration::from_secs(1_000_000_000)));
    }
}
