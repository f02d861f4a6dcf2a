//! How secrets and times are stored: strings, and seconds since 1970.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Deserializer, Serializer};

use ropeway_core::secret::Secret;

/// For `#[serde(with)]` on a [`Secret`].
pub(super) mod secret {
    use super::{Deserialize, Deserializer, Secret, Serializer};

    pub(in crate::oauth) fn serialize<S: Serializer>(secret: &Secret, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(secret.expose())
    }

    pub(in crate::oauth) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Secret, D::Error> {
        String::deserialize(from).map(Secret::new)
    }
}

/// For `#[serde(with)]` on an optional [`Secret`].
pub(super) mod optional_secret {
    use super::{Deserialize, Deserializer, Secret, Serializer};

    pub(in crate::oauth) fn serialize<S: Serializer>(secret: &Option<Secret>, to: S) -> Result<S::Ok, S::Error> {
        match secret {
            Some(secret) => to.serialize_some(secret.expose()),
            None => to.serialize_none(),
        }
    }

    pub(in crate::oauth) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Secret>, D::Error> {
        Ok(Option::<String>::deserialize(from)?.map(Secret::new))
    }
}

/// For `#[serde(with)]` on a [`SystemTime`].
pub(super) mod time {
    use super::{Deserialize, Deserializer, Serializer, SystemTime, from_unix, unix};

    pub(in crate::oauth) fn serialize<S: Serializer>(time: &SystemTime, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_u64(unix(*time))
    }

    pub(in crate::oauth) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<SystemTime, D::Error> {
        u64::deserialize(from).map(from_unix)
    }
}

/// For `#[serde(with)]` on an optional [`SystemTime`].
pub(super) mod optional_time {
    use super::{Deserialize, Deserializer, Serializer, SystemTime, from_unix, unix};

    pub(in crate::oauth) fn serialize<S: Serializer>(time: &Option<SystemTime>, to: S) -> Result<S::Ok, S::Error> {
        match time {
            Some(time) => to.serialize_some(&unix(*time)),
            None => to.serialize_none(),
        }
    }

    pub(in crate::oauth) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<SystemTime>, D::Error> {
        Ok(Option::<u64>::deserialize(from)?.map(from_unix))
    }
}

/// Returns the seconds since 1970.
pub(super) fn unix(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

/// The last second that is stored: the end of the year 9999.
const MAX_UNIX: u64 = 253_402_300_799;

/// Returns the time at this many seconds after 1970.
pub(super) fn from_unix(seconds: u64) -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(seconds.min(MAX_UNIX))
}
