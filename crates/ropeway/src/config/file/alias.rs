//! The rules for aliases of servers.

pub(super) use crate::config::settings::alias::{MAX_ALIAS, sanitize_alias};
