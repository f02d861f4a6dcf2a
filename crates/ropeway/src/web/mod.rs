//! The web: what every part needs that speaks HTTP.

mod body;
mod broken;
mod client;
mod ends;
mod retry_after;
mod sse;
mod tls;

#[cfg(feature = "providers")]
pub(crate) use self::body::readable;
pub(crate) use self::body::{brief, looks_like_events};
pub(crate) use self::broken::Broken;
pub(crate) use self::client::client;
pub use self::ends::HeadTail;
pub(crate) use self::retry_after::retry_after;
pub use self::sse::{SseEvent, SseParser};
pub use self::tls::TlsError;
