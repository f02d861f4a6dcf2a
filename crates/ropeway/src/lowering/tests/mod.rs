//! Tests of lowering as a whole.
