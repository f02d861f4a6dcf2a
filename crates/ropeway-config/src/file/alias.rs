//! The rules for server aliases.

pub(super) use crate::settings::alias::{MAX_ALIAS, sanitize_alias};
