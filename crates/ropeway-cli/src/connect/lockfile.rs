//! `ropeway.lock` next to the configuration file in use.

use std::path::Path;

use ropeway_agent::Approvals;
use ropeway_config::lock::{Lock, LockError, LockFile};
use ropeway_config::{Config, LockPolicy, ServerEntry, ServerSettings};

use crate::connect::servers::{ServerSource, Servers};
use crate::failure::Failure;
use crate::trust::{TrustStore, TrustSummary};

/// A command's lock and its policy.
#[derive(Clone, Debug)]
pub(crate) struct LoadedLock {
    pub(crate) lock: Lock,
    pub(crate) policy: LockPolicy,
    /// The content was accepted on this machine, so its approvals are valid.
    is_trusted: bool,
}

/// Reads the lock file. A missing or invalid lock is a failure if the policy is strict.
pub(crate) fn load(servers: &Servers) -> Result<Option<LoadedLock>, Failure> {
    let ServerSource::File(config) = &servers.source else { return Ok(None) };
    if servers.config.lock == Some(LockPolicy::Off) {
        return Ok(None);
    }
    let file = LockFile::beside(config);
    let read = file
        .read()
        .map_err(|error| lock_failure(&error).hint("set `lock: off` in the configuration file to ignore it"))?;
    match (read, servers.config.lock) {
        (Some((lock, text)), policy) => {
            let policy = policy.unwrap_or(LockPolicy::Warn);
            let is_trusted = lock.has_approvals() && is_trusted(file.path(), &text);
            Ok(Some(LoadedLock { lock, policy, is_trusted }))
        }
        (None, Some(LockPolicy::Strict)) => {
            let path = file.path().display();
            let failure = Failure::usage(format!("`{path}` does not exist, but `lock: strict` requires it"));
            Err(failure.hint("try `ropeway lock` to review the tools and create it"))
        }
        (None, _) => Ok(None),
    }
}

impl LoadedLock {
    /// Returns a lock that contains nothing.
    pub(crate) fn empty(policy: LockPolicy) -> Self {
        Self { lock: Lock::new(), policy, is_trusted: false }
    }

    /// Returns the permanent approvals that earlier versions stored here.
    pub(crate) fn approvals(&self) -> Approvals {
        let approvals = Approvals::new();
        if self.is_trusted {
            for server in self.lock.servers() {
                for (tool, locked) in self.lock.tools(server) {
                    if let Some(digest) = locked.always {
                        approvals.allow_digest(server, tool, digest, locked.definition.clone());
                    }
                }
            }
        }
        approvals
    }

    /// Returns why the strict policy does not start a server.
    pub(crate) fn start_refusal(&self, entry: &ServerEntry) -> Option<String> {
        self.lock.start_refusal(entry).filter(|_| self.policy == LockPolicy::Strict)
    }

    /// Marks servers that the strict policy does not start as invalid, for programs that connect without this lock.
    pub(crate) fn refuse_servers(&self, config: &mut Config) {
        for entry in config.servers.iter_mut().filter(|entry| entry.enabled) {
            if let Some(reason) = self.start_refusal(entry) {
                entry.settings = ServerSettings::Invalid { reason };
            }
        }
    }

    /// Returns warnings about servers whose sandbox is wider than the accepted one. Under the strict policy, they are not started.
    pub(crate) fn sandbox_warnings(&self, config: &Config) -> Vec<String> {
        let complete = config.servers.iter().filter(|entry| entry.enabled && entry.config().is_some());
        let compared = complete.filter_map(|entry| self.lock.compare_sandbox(&entry.alias, entry.sandbox()));
        let widened = compared.filter(|difference| self.policy == LockPolicy::Warn && difference.widens());
        widened.map(|difference| format!("server `{}`: {}", difference.server, difference.reason())).collect()
    }

    /// Returns `true` if the lock has approvals that were not given on this machine.
    pub(crate) fn has_foreign_approvals(&self) -> bool {
        self.lock.has_approvals() && !self.is_trusted
    }
}

/// Changes the lock next to a configuration file. Approvals from other machines are dropped, because the file that
/// ropeway writes is trusted.
pub(crate) fn change(config: &Path, change: impl FnOnce(&mut Lock)) -> Result<(), Failure> {
    let file = LockFile::beside(config);
    let written = file.update(|lock, before| {
        if lock.has_approvals() && !before.is_some_and(|text| is_trusted(file.path(), text)) {
            lock.clear_approvals();
        }
        change(lock);
        lock.has_approvals()
    });
    let (text, has_approvals) = written.map_err(|error| lock_failure(&error))?;
    if has_approvals {
        let recorded =
            TrustStore::open().and_then(|mut store| store.record(file.path(), &text, TrustSummary::default()));
        recorded.map_err(|error| {
            Failure::usage(format!("wrote `{}`, but could not record its approvals", file.path().display()))
                .caused_by(&error)
        })?;
    }
    Ok(())
}

fn is_trusted(path: &Path, text: &str) -> bool {
    TrustStore::open().is_ok_and(|store| store.is_trusted(path, text))
}

/// Converts a lock error to a failure with a fix.
pub(crate) fn lock_failure(error: &LockError) -> Failure {
    let failure = Failure::usage(error.to_string()).caused_by_source(error);
    match error {
        LockError::Broken { .. } => failure.hint("fix or delete the file, then run `ropeway lock`"),
        LockError::Newer { .. } => failure.hint("update ropeway"),
        _ => failure,
    }
}
