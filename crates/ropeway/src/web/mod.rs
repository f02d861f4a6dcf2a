//! The web: what every part needs that speaks HTTP.

mod body;
mod client;
mod ends;
mod retry_after;
mod sse;
mod tls;

pub(crate) use self::body::{brief, looks_like_events};
pub(crate) use self::client::{client, is_loopback};
pub use self::ends::Ends;
pub(crate) use self::retry_after::retry_after;
pub use self::sse::{SseEvent, SseParser};
pub use self::tls::TlsTrouble;
pub(crate) use self::tls::{tls_error, tls_trouble};
