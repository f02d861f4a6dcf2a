//! A length of time as a person writes it: `5s`, `500ms`, `2m`, `1.5s`, `5`.

use std::time::Duration;

/// Far more than anybody waits, and far less than what a clock can hold.
const LONGEST_SECONDS: f64 = 1e9;

/// Reads a length of time; a bare number counts seconds.
pub(crate) fn parse(text: &str) -> Result<Duration, String> {
    let split = text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let number = match number.trim().parse::<f64>() {
        Ok(number) if number.is_finite() && number > 0.0 => number,
        _ => return Err("a length of time is a number above zero and a unit, such as `5s` or `500ms`".to_owned()),
    };
    let seconds = match unit {
        "ms" => number / 1000.0,
        "" | "s" => number,
        "m" | "min" => number * 60.0,
        "h" => number * 3600.0,
        _ => return Err(format!("`{unit}` is not a unit of time: use ms, s, m or h")),
    };
    Ok(Duration::from_secs_f64(seconds.min(LONGEST_SECONDS)))
}

/// A time as people say it: `800 µs`, `3.4 ms`, `120 ms`, `1.2 s`, `40 s`.
pub(crate) fn words(time: Duration) -> String {
    match time.as_micros() {
        micros @ 0..1000 => format!("{micros} µs"),
        micros @ 1000..9_950 => format!("{:.1} ms", micros as f64 / 1000.0),
        micros @ 9_950..999_500 => format!("{:.0} ms", micros as f64 / 1000.0),
        micros @ 999_500..9_950_000 => format!("{:.1} s", micros as f64 / 1_000_000.0),
        micros => format!("{:.0} s", micros as f64 / 1_000_000.0),
    }
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
            ("2 s", 2000),
        ] {
            assert_eq!(parse(text), Ok(Duration::from_millis(milliseconds)), "{text}");
        }
    }

    #[test]
    fn what_is_no_length_of_time_is_refused() {
        for text in ["", "s", "-1s", "0", "5 weeks", "1e999s", "NaN", "5s5", "five"] {
            assert!(parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_wait_past_the_end_of_time_is_cut() {
        assert_eq!(parse("99999999999999999999h"), Ok(Duration::from_secs(1_000_000_000)));
    }

    #[test]
    fn times_read_as_people_say_them() {
        let times = [0, 999, 1000, 9_949, 9_950, 120_400, 999_600, 1_230_000, 40_200_000];
        let words = times.map(|micros| words(Duration::from_micros(micros)));
        assert_eq!(words, ["0 µs", "999 µs", "1.0 ms", "9.9 ms", "10 ms", "120 ms", "1.0 s", "1.2 s", "40 s"]);
    }
}
