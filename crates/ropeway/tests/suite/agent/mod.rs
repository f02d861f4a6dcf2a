//! An agent from the outside.

mod sampling;
mod servers;
