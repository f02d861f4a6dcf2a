//! The `Retry-After` header ([RFC 9110, section 10.2.3](https://www.rfc-editor.org/rfc/rfc9110#section-10.2.3)).

use std::time::{Duration, SystemTime};

/// Parses `Retry-After` in either form: seconds or a date.
pub fn retry_after(value: &str, now: SystemTime) -> Option<Duration> {
    let value = value.trim();
    match value.parse() {
        Ok(seconds) => Duration::try_from_secs_f64(seconds).ok(),
        Err(_) => httpdate::parse_http_date(value).ok().map(|date| date.duration_since(now).unwrap_or_default()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retry_after_is_parsed_in_both_forms() {
        let now = httpdate::parse_http_date("Sun, 06 Nov 1994 08:49:37 GMT").expect("a date");
        assert_eq!(retry_after("7", now), Some(Duration::from_secs(7)));
        assert_eq!(retry_after("Sun, 06 Nov 1994 08:49:40 GMT", now), Some(Duration::from_secs(3)));
        assert_eq!(retry_after("Sun, 06 Nov 1994 08:40:00 GMT", now), Some(Duration::ZERO));
        assert_eq!(retry_after("0.5", now), Some(Duration::from_millis(500)));
        for nonsense in ["soon", "-1", "inf", "1e300"] {
            assert_eq!(retry_after(nonsense, now), None, "{nonsense}");
        }
    }
}
