//! The gateway from the outside, by clients that speak HTTP and JSON lines themselves.

mod eras;
mod http_servers;
mod isolation;
mod kit;
mod listeners;
mod questions;
mod retries;
mod routing;
mod separation;
mod sessions;
mod slow_clients;
mod sockets;
