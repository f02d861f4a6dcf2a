//! Schemas: are these arguments what a tool wants, and can this answer be read as its schema says?
//!
//! Schemas come from servers, so none of this trusts them: nothing is fetched, and depth, size and
//! time are bounded.

pub(crate) mod bounds;
mod cast;
mod effort;
pub(crate) mod pointer;
mod reason;
mod tall;
mod validator;

pub use bounds::{MAX_BYTES, MAX_DEPTH, MAX_NODES};
pub use cast::{Cast, ValueChange, ValueEdit, cast};
pub use validator::Validator;
