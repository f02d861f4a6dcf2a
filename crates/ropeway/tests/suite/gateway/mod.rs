//! The gateway from the outside, by clients that speak HTTP and JSON lines themselves.

mod auth;
mod eras;
mod hostile_clients;
mod http_servers;
mod isolation;
mod issuer;
mod jwt;
pub(crate) mod kit;
mod limits;
mod listeners;
mod nested;
mod observe;
mod operators;
mod page;
mod questions;
mod requests;
mod retries;
mod roots;
mod routing;
mod separation;
mod sessions;
mod sign_in;
mod slow_clients;
mod sockets;
mod starting;
mod subscriptions;
mod whole_lists;
