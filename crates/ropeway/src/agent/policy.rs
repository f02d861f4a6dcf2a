//! A policy: which calls are made, which are asked about, and which are not made.
