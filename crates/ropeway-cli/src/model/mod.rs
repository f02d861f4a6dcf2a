//! Chooses a chat's model: from options, the configuration, API keys or local servers.

mod args;
mod choose;
mod environment;
mod failures;
mod local;
mod saved;
#[cfg(test)]
mod tests;
mod vendor;

pub(crate) use self::args::{ModelArgs, ModelChoice};
pub(crate) use self::environment::is_loopback;
pub(crate) use self::saved::{ResumedChoice, SavedModel};
