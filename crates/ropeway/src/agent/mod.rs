//! An agent: a model that uses tools.

mod budget;
mod offer;
mod policy;
mod sampling;
mod server;
mod spill;
