//! The outcome of a tool call.
//!
//! Every call returns one [`Envelope`], which contains the data of the result or the error.

pub use ropeway_core::envelope::{Envelope, EnvelopeData, EnvelopeMeta, ResultError};
