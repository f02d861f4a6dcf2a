//! The rules for aliases of servers.

pub(super) use crate::settings::alias::{MAX_ALIAS, sanitize_alias};
