//! Other parties for Ropeway's tests and benchmarks: what the servers offer, what the contestants run.

pub mod contest;
pub mod course;
pub mod floor;
pub mod meter;
pub mod offer;
pub mod recorded;
pub mod script;
pub mod turns;
