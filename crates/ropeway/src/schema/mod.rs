//! JSON Schema: validation of arguments, and conversion of results to their schema.
//!
//! Schemas come from servers and are not trusted: nothing is fetched, and depth, size and time are bounded. [`ValueChange`] is a
//! change that the conversion of a result made.

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
// Hidden from the docs: used by the binary, the fuzz targets and test servers; not covered by semantic versioning.
#[doc(hidden)]
pub use cast::{Cast, cast};
#[doc(hidden)]
pub use pointer::resolve as resolve_reference;
#[doc(hidden)]
pub use validator::Validator;
