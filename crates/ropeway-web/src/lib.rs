//! HTTP building blocks: the client, server-sent events, error bodies, TLS errors and certificate encoding.

mod body;
mod client;
mod der;
mod head_tail;
mod retry_after;
mod sse;
mod tls;
mod transport_error;

pub use self::body::readable;
pub use self::body::{brief, looks_like_sse};
pub use self::client::client;
pub use self::der::DerElement;
pub use self::head_tail::HeadTail;
pub use self::retry_after::retry_after;
pub use self::sse::{SseEvent, SseParser};
pub use self::tls::TlsError;
pub use self::transport_error::TransportError;
