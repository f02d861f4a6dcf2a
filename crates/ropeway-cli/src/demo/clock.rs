//! The time in a time zone.

use jiff::Timestamp;
use jiff::tz::TimeZone;
use ropeway_core::suggest;

/// Returns the current date and time as text.
pub(super) fn now(zone: &str) -> Result<String, String> {
    let zone = zone.trim();
    let Ok(found) = TimeZone::get(zone) else { return Err(unknown(zone)) };
    Ok(describe(Timestamp::now(), found, zone))
}

fn describe(timestamp: Timestamp, zone: TimeZone, asked: &str) -> String {
    let name = zone.iana_name().unwrap_or(asked).to_owned();
    let time = timestamp.to_zoned(zone);
    format!("{} in {name} (UTC{})", time.strftime("%A %-d %B %Y, %H:%M:%S"), time.strftime("%:z"))
}

fn unknown(zone: &str) -> String {
    let names: Vec<String> = jiff::tz::db().available().map(|name| name.to_string()).collect();
    // Users type the city: `Lisbon` means `Europe/Lisbon`.
    let city = |name: &str| name.rsplit('/').next().unwrap_or(name).to_owned();
    let asked = city(zone).replace(' ', "_");
    let same_city = names.iter().filter(|name| city(name).eq_ignore_ascii_case(&asked)).map(|name| format!("`{name}`"));
    let mut suggestions: Vec<String> = same_city.take(3).collect();
    if suggestions.is_empty() {
        suggestions =
            suggest::closest(zone, names.iter().map(String::as_str)).iter().map(|name| format!("`{name}`")).collect();
    }
    if suggestions.is_empty() {
        let cities: Vec<String> = names.iter().map(|name| city(name)).collect();
        let near = suggest::closest(&asked, cities.iter().map(String::as_str));
        let zones = names.iter().zip(&cities).filter(|(_, city)| near.contains(&city.as_str()));
        suggestions = zones.map(|(name, _)| format!("`{name}`")).take(3).collect();
    }
    match suggestions.as_slice() {
        [] => format!("unknown time zone `{zone}`: use an IANA name such as `Europe/Lisbon` or `UTC`"),
        suggestions => format!("unknown time zone `{zone}`: did you mean {}?", suggestions.join(" or ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_described_in_words() {
        let moment: Timestamp = "2026-07-28T12:34:56Z".parse().expect("a moment");
        let zone = TimeZone::get("europe/berlin").expect("a zone");
        assert_eq!(describe(moment, zone, ""), "Tuesday 28 July 2026, 14:34:56 in Europe/Berlin (UTC+02:00)");
        assert_eq!(describe(moment, TimeZone::UTC, ""), "Tuesday 28 July 2026, 12:34:56 in UTC (UTC+00:00)");
    }

    #[test]
    fn an_unknown_zone_suggests_a_known_one() {
        for (wrong, right) in [
            ("Lisbon", "Europe/Lisbon"),
            ("Europe/Lisbn", "Europe/Lisbon"),
            ("new york", "America/New_York"),
            ("Tokio", "Asia/Tokyo"),
        ] {
            let reason = now(wrong).expect_err(wrong);
            assert!(reason.contains(&format!("`{right}`")), "{reason}");
        }
        for nonsense in ["", "../../etc/passwd", "\0", "xyzzy plugh"] {
            assert!(now(nonsense).is_err(), "{nonsense}");
        }
    }
}
