//! A tool call's outcome.
//!
//! Every call returns one [`Envelope`], which contains the result's data or the error.

pub use ropeway_core::envelope::{Envelope, EnvelopeData, EnvelopeMeta, ResultError};
