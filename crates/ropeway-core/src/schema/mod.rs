//! JSON Schema: validating arguments, and converting results to their schema.

pub(crate) mod bounds;
mod cast;
mod deep_stack;
mod draft;
pub(crate) mod pointer;
mod reason;
mod validator;
mod work_budget;

pub use bounds::{MAX_BYTES, MAX_DEPTH, MAX_NODES};
pub use cast::ValueChange;
pub(crate) use cast::fill_required;
pub use cast::{Cast, cast};
pub use pointer::resolve as resolve_reference;
pub use validator::Validator;
