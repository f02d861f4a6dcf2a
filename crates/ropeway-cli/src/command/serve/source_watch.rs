//! Restarts stdio servers when their files change.

use std::convert::Infallible;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ropeway_config::Config;
use ropeway_core::tool::Alias;
use ropeway_gateway::Gateway;

use crate::connect::source_files::{FileStamps, MAX_FILES, SourceFiles, difference};
use crate::failure::Failure;
use crate::output::print::say;
use crate::terminal::style::warning;

/// Interval between two scans, as for the configuration file: file metadata is read in microseconds, on every file system.
const INTERVAL: Duration = Duration::from_millis(500);
/// How long files must stay the same before a server is restarted. Editors and compilers write several files.
const QUIET: Duration = Duration::from_millis(150);
/// Maximum scans that wait for files to stay the same.
const MAX_SCANS: usize = 40;

/// The files that belong to all servers, and how they looked when they were last scanned.
///
/// The running `serve` command owns it, and clones share the list. [`follow`](Self::follow) scans the files and stores the new
/// stamps; [`set_config`](Self::set_config) replaces the list when the configuration changes. The list has a std mutex that is
/// never held across `.await`: each scan works on a copy, and results for servers that were removed meanwhile are dropped.
#[derive(Clone, Debug)]
pub(super) struct SourceWatch {
    given: Vec<PathBuf>,
    servers: Arc<Mutex<Vec<WatchedServer>>>,
}

#[derive(Clone, Debug)]
struct WatchedServer {
    files: SourceFiles,
    seen: FileStamps,
}

impl SourceWatch {
    /// Watches the given files, or those that each stdio server's command names.
    pub(super) fn new(config: &Config, given: &[PathBuf]) -> Result<Self, Failure> {
        if let Some(missing) = given.iter().find(|path| !path.exists()) {
            return Err(Failure::usage(format!("could not watch `{}`: no such file or directory", missing.display())));
        }
        let watch = Self { given: given.to_vec(), servers: Arc::default() };
        watch.set_config(config);
        let servers = watch.servers.lock().unwrap_or_else(PoisonError::into_inner);
        if servers.is_empty() {
            return Err(Failure::usage("`--watch` needs a stdio server").hint("servers with a `url` run elsewhere"));
        }
        for server in servers.iter() {
            let alias = &server.files.alias;
            match server.seen.len() {
                _ if server.files.is_empty() => {
                    say(&warning(&format!("no files of server `{alias}` found; try `--watch PATH`")));
                }
                MAX_FILES => say(&warning(&format!("server `{alias}`: only the first {MAX_FILES} files are watched"))),
                _ => {}
            }
        }
        drop(servers);
        Ok(watch)
    }

    /// Watches another configuration's servers. Servers that stay have their files compared with those seen before.
    pub(super) fn set_config(&self, config: &Config) {
        let mut servers = self.servers.lock().unwrap_or_else(PoisonError::into_inner);
        let before = std::mem::take(&mut *servers);
        *servers = SourceFiles::of(config, &self.given)
            .into_iter()
            .map(|files| {
                let known = before.iter().find(|known| known.files == files).map(|known| known.seen.clone());
                let seen = known.unwrap_or_else(|| files.stamps());
                WatchedServer { files, seen }
            })
            .collect();
    }

    /// Restarts servers whose files change.
    pub(super) async fn follow(&self, gateway: &Gateway) -> Infallible {
        loop {
            tokio::time::sleep(INTERVAL).await;
            for (alias, reason) in self.changes().await {
                gateway.restart_server(&alias, reason).await;
            }
        }
    }

    /// Returns the servers whose files have changed, and are not changing anymore.
    async fn changes(&self) -> Vec<(Alias, String)> {
        let mut current = self.scan().await;
        if self.compare(&current).is_empty() {
            return Vec::new();
        }
        for _ in 0..MAX_SCANS {
            tokio::time::sleep(QUIET).await;
            let next = self.scan().await;
            if std::mem::replace(&mut current, next) == current {
                break;
            }
        }
        let changes = self.compare(&current);
        let mut servers = self.servers.lock().unwrap_or_else(PoisonError::into_inner);
        for (files, stamps) in current {
            if let Some(server) = servers.iter_mut().find(|server| server.files == files) {
                server.seen = stamps;
            }
        }
        changes
    }

    /// Reads all file stamps, on the blocking thread pool.
    async fn scan(&self) -> Vec<(SourceFiles, FileStamps)> {
        let files: Vec<SourceFiles> = {
            let servers = self.servers.lock().unwrap_or_else(PoisonError::into_inner);
            servers.iter().map(|server| server.files.clone()).collect()
        };
        let scan = move || files.into_iter().map(|files| (files.clone(), files.stamps())).collect();
        tokio::task::spawn_blocking(scan).await.unwrap_or_default()
    }

    fn compare(&self, current: &[(SourceFiles, FileStamps)]) -> Vec<(Alias, String)> {
        let servers = self.servers.lock().unwrap_or_else(PoisonError::into_inner);
        let change = |server: &WatchedServer| {
            let (_, stamps) = current.iter().find(|(files, _)| *files == server.files)?;
            Some((server.files.alias.clone(), difference(&server.seen, stamps)?))
        };
        servers.iter().filter_map(change).collect()
    }
}

/// Restarts servers whose files change, if they are watched.
pub(super) async fn follow(watch: Option<&SourceWatch>, gateway: &Gateway) -> Infallible {
    match watch {
        Some(watch) => watch.follow(gateway).await,
        None => std::future::pending().await,
    }
}
