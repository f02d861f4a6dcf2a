//! Tests of generated code.
