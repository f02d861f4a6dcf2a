//! Times as text ([RFC 3339](https://www.rfc-editor.org/rfc/rfc3339)).

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use jiff::Timestamp;
use jiff::fmt::temporal::DateTimePrinter;

const MILLISECONDS: DateTimePrinter = DateTimePrinter::new().precision(Some(3));

/// Formats a time as in an [`EventLog`](crate::event::EventLog)'s lines: UTC with milliseconds.
pub fn timestamp(time: SystemTime) -> String {
    // Times before 1970 mean that the clock is not set.
    let time = Timestamp::try_from(time.max(UNIX_EPOCH)).unwrap_or(Timestamp::MAX);
    MILLISECONDS.timestamp_to_string(&time)
}

/// Parses a time such as `2026-11-17T08:00:00Z`, with `Z` or an offset. Drops fractional seconds. Returns `None` for times
/// before 1970.
pub fn parse(text: &str) -> Option<SystemTime> {
    let time: Timestamp = text.trim().parse().ok()?;
    UNIX_EPOCH.checked_add(Duration::from_secs(time.as_second().try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_formatted_in_utc_with_milliseconds() {
        for (milliseconds, expected) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_399_999, "2000-02-28T23:59:59.999Z"),
            (951_782_400_000, "2000-02-29T00:00:00.000Z"),
            (1_772_323_199_001, "2026-02-28T23:59:59.001Z"),
            (1_772_323_200_000, "2026-03-01T00:00:00.000Z"),
            (1_798_761_599_000, "2026-12-31T23:59:59.000Z"),
            (4_107_542_400_000, "2100-03-01T00:00:00.000Z"),
        ] {
            let time = UNIX_EPOCH + Duration::from_millis(milliseconds);
            assert_eq!(timestamp(time), expected);
            assert_eq!(timestamp(time + Duration::from_nanos(999_999)), expected, "fractions are truncated");
            assert_eq!(parse(expected), Some(UNIX_EPOCH + Duration::from_secs(milliseconds / 1000)));
        }
        assert_eq!(timestamp(UNIX_EPOCH - Duration::from_secs(1)), "1970-01-01T00:00:00.000Z");
        assert!(timestamp(UNIX_EPOCH + Duration::from_secs(1 << 40)).starts_with("9999-12-"));
    }

    #[test]
    fn a_time_is_parsed_with_any_offset() {
        for (text, seconds) in [
            ("1970-01-01T00:00:00Z", Some(0)),
            ("2000-02-29T12:30:15z", Some(951_827_415)),
            (" 2027-01-15 08:00:00-00:30 ", Some(1_800_001_800)),
            ("2027-01-15t08:00:00.75+01:00", Some(1_799_996_400)),
            ("1969-12-31T23:59:59Z", None),
            ("2027-13-15T08:00:00Z", None),
            ("2027-02-30T08:00:00Z", None),
            ("2027-01-15T08:00:00", None),
            ("2027-01-15", None),
            ("\u{e9}027-01-15T08:00:00Z", None),
            ("", None),
        ] {
            let expected = seconds.map(|seconds| UNIX_EPOCH + Duration::from_secs(seconds));
            assert_eq!(parse(text), expected, "{text}");
        }
    }
}
