//! A tool whose calls are validated and always return an envelope.
//!
//! A [`Registry`](crate::registry::Registry) holds its tools as [`CheckedTool`]s.

pub use ropeway_core::checked::CheckedTool;
