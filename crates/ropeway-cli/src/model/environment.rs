//! The environment that choosing a model depends on.

use std::path::Path;

use ropeway_core::secret::Secret;

use super::failures;
use super::local::{LOCAL_PORTS, LocalPort};
use crate::config::config_file::ConfigFile;
use crate::config::config_paths::Origin;
use crate::failure::Failure;

/// The environment variables, local ports and configuration file that a choice depends on.
pub(super) struct Environment<'a> {
    pub(super) variable: &'a (dyn Fn(&str) -> Option<String> + Sync),
    /// Model server ports on this machine.
    pub(super) local_ports: &'a [LocalPort],
    /// The file with the chat settings.
    pub(super) file: Option<&'a Path>,
    /// The file is the user's own, so API keys may be sent to its URLs.
    pub(super) is_own: bool,
}

impl<'a> Environment<'a> {
    /// Returns this process's environment.
    pub(super) fn of_process(file: Option<&'a ConfigFile>) -> Self {
        Environment {
            variable: &|name| std::env::var(name).ok(),
            local_ports: &LOCAL_PORTS,
            file: file.map(|file| file.path.as_path()),
            is_own: file.is_some_and(|file| file.origin == Origin::Own),
        }
    }

    /// Returns a variable's value if it is set and not blank.
    pub(super) fn get(&self, name: &str) -> Option<String> {
        (self.variable)(name).map(|value| value.trim().to_owned()).filter(|value| !value.is_empty())
    }

    /// Returns the API key in a variable.
    pub(super) fn key(&self, name: &str) -> Result<Secret, Failure> {
        let key = self.get(name).ok_or_else(|| failures::variable_not_set(name))?;
        if key.contains(['\n', '\r']) {
            return Err(failures::several_lines(name));
        }
        Ok(Secret::new(key))
    }
}

/// Returns `true` if the URL names this machine.
pub(crate) fn is_loopback(url: &url::Url) -> bool {
    match url.host() {
        Some(url::Host::Domain(name)) => name.eq_ignore_ascii_case("localhost"),
        Some(url::Host::Ipv4(address)) => address.is_loopback(),
        Some(url::Host::Ipv6(address)) => address.is_loopback(),
        None => false,
    }
}
