//! Other machines' clocks, for signatures with a time.
//!
//! A server refuses a proof whose time differs by minutes from its own. Its responses' `Date` headers reveal the clock skew.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::time::{Duration, SystemTime};

use reqwest::Url;

use ropeway_core::sync::lock;

/// Smaller differences are ignored: the header has whole seconds, and a response takes time.
const MIN_SKEW: Duration = Duration::from_secs(10);

/// Larger differences are ignored as implausible.
const MAX_SKEW: Duration = Duration::from_secs(86_400);

/// Maximum number of origins. The oldest one is removed.
const MAX_ORIGINS: usize = 16;

/// Other machines' clock skews.
#[derive(Debug, Default)]
pub(super) struct ServerClocks(Mutex<VecDeque<(String, Skew)>>);

/// The difference between a clock and this machine's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Skew {
    Ahead(Duration),
    Behind(Duration),
}

impl ServerClocks {
    /// Remembers the `Date` header from a response that was received at `now`.
    pub(super) fn remember(&self, url: &Url, date: &str, now: SystemTime) {
        let Ok(date) = httpdate::parse_http_date(date) else { return };
        let skew = match date.duration_since(now) {
            Ok(ahead) => Skew::Ahead(ahead),
            Err(behind) => Skew::Behind(behind.duration()),
        };
        let (Skew::Ahead(size) | Skew::Behind(size)) = skew;
        let origin = url.origin().ascii_serialization();
        let mut clocks = lock(&self.0);
        clocks.retain(|(known, _)| *known != origin);
        if size < MIN_SKEW || size > MAX_SKEW {
            return;
        }
        if clocks.len() >= MAX_ORIGINS {
            clocks.pop_front();
        }
        clocks.push_back((origin, skew));
    }

    /// Returns `true` if the clock on a URL's host is known to differ.
    pub(super) fn knows(&self, url: &Url) -> bool {
        let origin = url.origin().ascii_serialization();
        lock(&self.0).iter().any(|(known, _)| *known == origin)
    }

    /// Returns the current time on a URL's host, corrected by the last known skew.
    pub(super) fn time_at(&self, url: &Url, now: SystemTime) -> SystemTime {
        let origin = url.origin().ascii_serialization();
        let skew = lock(&self.0).iter().find(|(known, _)| *known == origin).map(|(_, skew)| *skew);
        match skew {
            Some(Skew::Ahead(by)) => now + by,
            Some(Skew::Behind(by)) => now.checked_sub(by).unwrap_or(now),
            None => now,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_is_off_is_corrected_within_limits() {
        let clocks = ServerClocks::default();
        let url = Url::parse("https://a.example/token").expect("a URL");
        let now = httpdate::parse_http_date("Sun, 06 Nov 1994 08:49:37 GMT").expect("a date");
        let minutes = |count: u64| Duration::from_secs(60 * count);
        for (date, expected) in [
            ("Sun, 06 Nov 1994 08:54:37 GMT", now + minutes(5)),
            ("Sun, 06 Nov 1994 08:44:37 GMT", now - minutes(5)),
            ("Sun, 06 Nov 1994 08:49:40 GMT", now),
            ("Sun, 06 Nov 2094 08:49:40 GMT", now),
        ] {
            clocks.remember(&url, date, now);
            assert_eq!(clocks.time_at(&url, now), expected, "{date}");
        }
        clocks.remember(&url, "Sun, 06 Nov 1994 08:54:37 GMT", now);
        clocks.remember(&url, "nonsense", now);
        assert_eq!(clocks.time_at(&url, now), now + minutes(5));
        assert_eq!(clocks.time_at(&Url::parse("https://b.example/").expect("a URL"), now), now);
    }
}
