//! The gateway from the outside, by clients that speak HTTP and JSON lines themselves.

mod kit;
mod listeners;
