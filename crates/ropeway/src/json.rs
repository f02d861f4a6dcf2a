//! Lenient JSON parsing for other programs' output: accepts lone surrogates, large numbers and invalid UTF-8.
//!
//! JavaScript writes half of a surrogate pair as `"\ud83d"`, which a Rust string cannot hold, so `serde_json` rejects the whole
//! message. This module's functions replace each lone surrogate by U+FFFD, as browsers do. They add no cost to valid text.
//!
//! # Numbers
//!
//! With the feature `arbitrary-precision`, a [`Value`](https://docs.rs/serde_json/1/serde_json/enum.Value.html) holds numbers
//! with any size and precision. Without it, a number becomes the nearest `f64` unless it is an integer between [`i64::MIN`] and
//! [`u64::MAX`]. A number beyond the `f64` range, such as `1e400`, becomes a string with the same digits.

pub use ropeway_core::json::{from_slice, from_str};
