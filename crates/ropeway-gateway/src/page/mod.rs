//! The gateway's web page: its files, and its API's data.

mod assets;
mod calls;
mod logins;
mod names;
mod status;

pub(crate) use self::assets::{Asset, asset};
pub(crate) use self::calls::recent_calls;
pub(crate) use self::names::tool_names;
pub(crate) use self::status::status;
