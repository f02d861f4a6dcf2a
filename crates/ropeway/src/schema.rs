//! JSON Schema: argument validation, and conversion of results to their schema.
//!
//! Schemas come from servers and are not trusted: nothing is fetched, and depth, size and time are bounded. [`ValueChange`] is a
//! change that a result's conversion made.

pub use ropeway_core::schema::{MAX_BYTES, MAX_DEPTH, MAX_NODES, ValueChange};
