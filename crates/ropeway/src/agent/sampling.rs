//! Sampling: a model that servers may ask.
