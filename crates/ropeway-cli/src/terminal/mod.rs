//! The terminal: text made safe, wrapped and styled, tables, the pager and the status line.

pub(crate) mod charset;
pub(crate) mod color;
pub(crate) mod duration;
pub(crate) mod hidden_input;
pub(crate) mod pager;
pub(crate) mod status;
pub(crate) mod status_icon;
pub(crate) mod style;
pub(crate) mod table;
pub(crate) mod text;
