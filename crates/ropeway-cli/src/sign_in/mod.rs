//! Interactive sign-in to servers with OAuth: browser, pasted callback and device code.

mod browser;
mod callback;
mod callback_request;
pub(crate) mod failure;
pub(crate) mod flow;
pub(crate) mod offer;
mod page;
pub(crate) mod target;
