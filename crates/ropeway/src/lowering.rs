//! Translates tool definitions into the form that a model dialect accepts, and calls back into the form that tools
//! expect.
//!
//! Lowering is a pure function with a report. A tool that cannot be lowered is omitted and does not affect the others.

pub use ropeway_core::lowering::Toolset;
