//! Listeners: sockets, TLS, HTTP, JSON lines. Bytes arrive, requests leave.

pub(crate) mod accept;
pub(crate) mod certificate;
pub(crate) mod connections;
pub(crate) mod http;
pub(crate) mod line_io;
pub(crate) mod origin;
pub(crate) mod pipe;
pub(crate) mod socket;
pub(crate) mod stdio;
pub(crate) mod step;
pub(crate) mod tls;
