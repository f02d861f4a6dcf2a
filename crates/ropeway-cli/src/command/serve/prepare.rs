//! A gateway's configuration: what this command changes in it, and changes to its file.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use ropeway_config::{
    AuthSettings, Config, EraChoice, GatewaySettings, LockPolicy, ResourceSettings, Secrets, ServerSettings,
    ToolSettings,
};
use ropeway_gateway::Gateway;

use super::source_watch::SourceWatch;
use crate::config::config_paths::Origin;
use crate::connect::command_context::CommandContext;
use crate::connect::lockfile::{self, LoadedLock};
use crate::connect::servers::{ServerSource, Servers};
use crate::output::print::say;
use crate::terminal::style::warning;
use crate::trust::{ReloadGuard, sha256};

/// What a command changes in a configuration.
#[derive(Clone, Copy, Debug)]
pub(super) struct ConfigChange {
    /// The `--era` value.
    pub(super) era: Option<EraChoice>,
    /// Shows the servers as they are. Commands that use a gateway in the background apply filters, names and the lock themselves.
    pub(super) is_plain: bool,
    /// Serves HTTP clients, which have to authenticate. Others are the user who runs the gateway.
    pub(super) is_http: bool,
}

impl ConfigChange {
    pub(super) fn apply(self, mut config: Config) -> Config {
        for entry in &mut config.servers {
            if let (Some(era), ServerSettings::Known(settings)) = (self.era, &mut entry.settings) {
                settings.era = era;
            }
            if self.is_plain {
                entry.required = false;
                entry.prefix = String::new();
                entry.description_prefix = None;
                entry.tools = ToolSettings::default();
                entry.resources = ResourceSettings::default();
                entry.prompt_tools = false;
            }
        }
        if self.is_plain {
            config.gateway.profiles.clear();
        }
        if !self.is_http {
            config.gateway.auth = AuthSettings::default();
        }
        config
    }
}

/// Applies configuration file changes, if they are trusted. `accepted` receives each accepted text's digest, and `sources` each
/// configuration.
pub(super) fn watch(
    gateway: &Gateway,
    servers: &Servers,
    context: &CommandContext,
    change: ConfigChange,
    accepted: Option<Arc<Mutex<String>>>,
    sources: Option<SourceWatch>,
) {
    let (ServerSource::File(path), Some(file)) = (&servers.source, &servers.file) else { return };
    let is_project = file.origin == Origin::Project;
    let guard = is_project.then(|| ReloadGuard::new(&file.path, &file.text, context.trust));
    let accept = move |text: &str| {
        if let Some(guard) = &guard {
            guard.accepts(text)?;
        }
        if let Some(accepted) = &accepted {
            *accepted.lock().unwrap_or_else(PoisonError::into_inner) = sha256(text);
        }
        Ok(())
    };
    let before = Mutex::new(servers.config.gateway.clone());
    let source = Path::to_owned(path);
    let prepare = move |config: Config| {
        let config = change.apply(config);
        let mut servers = Servers::new(config, ServerSource::File(source.clone()));
        servers.redact_secrets();
        if let Some(sources) = &sources {
            sources.set_config(&servers.config);
        }
        if change.is_plain {
            refuse_unlocked(&mut servers);
        }
        let mut before = before.lock().unwrap_or_else(PoisonError::into_inner);
        for key in fixed_changes(&before, &servers.config.gateway) {
            say(&warning(&format!("`gateway.{key}` changed; restart the gateway to apply it")));
        }
        before.clone_from(&servers.config.gateway);
        servers.config
    };
    gateway.watch(path, Secrets::from_env(), accept, prepare);
}

/// Marks servers that a strict lock does not contain as invalid; all commands, if it cannot be read.
fn refuse_unlocked(servers: &mut Servers) {
    let locked = match lockfile::load(servers) {
        Ok(Some(locked)) => locked,
        Ok(None) => return,
        Err(_) => LoadedLock::empty(servers.config.lock.unwrap_or(LockPolicy::Warn)),
    };
    locked.refuse_servers(&mut servers.config);
}

/// Returns the keys that differ and that a running gateway does not apply.
fn fixed_changes(before: &GatewaySettings, after: &GatewaySettings) -> Vec<&'static str> {
    let changes = [
        ("listen", before.listen != after.listen),
        ("keys", before.keys != after.keys),
        ("session_life", before.session_life != after.session_life),
        ("limits", before.limits != after.limits),
        ("tls", before.tls != after.tls),
        ("drain", before.drain != after.drain),
        ("audit", before.audit != after.audit),
        ("access_log", before.access_log != after.access_log),
        ("auth", before.auth.is_required() && !after.auth.is_required()),
    ];
    changes.into_iter().filter(|(_, is_changed)| *is_changed).map(|(key, _)| key).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_that_needs_a_restart_is_named() {
        let before = GatewaySettings::default();
        let mut after = before.clone();
        after.name = "other".to_owned();
        assert_eq!(fixed_changes(&before, &after), [""; 0]);
        after.listen = "127.0.0.1:1".parse().expect("an address");
        after.limits.calls = 1;
        assert_eq!(fixed_changes(&before, &after), ["listen", "limits"]);
    }
}
