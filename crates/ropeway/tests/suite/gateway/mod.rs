//! The gateway from the outside, by clients that speak HTTP and JSON lines themselves.

mod eras;
mod kit;
mod listeners;
mod routing;
mod sessions;
