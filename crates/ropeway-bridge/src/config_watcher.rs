//! Reloads a configuration file when it changes.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::time::{Duration, SystemTime};

use super::state::BridgeState;
use ropeway_config::{Config, ConfigError, Secrets, read_text};
use ropeway_core::error_chain::chain;
use ropeway_core::tool::BoxError;

/// Interval between two checks of the file. Reading its metadata takes microseconds and works on every file system.
const POLL_INTERVAL: Duration = Duration::from_millis(500);

type Accept = dyn Fn(&str) -> Result<(), BoxError> + Send + Sync;

/// Watches a file for as long as the bridge exists. `accept` decides whether a text may be used, and `prepare` changes each
/// configuration before the bridge uses it.
///
/// The bridge owns the task: `BridgeState::watcher` holds its abort handle, and a stop, a later watch and the last dropped handle
/// abort it. The task refers to the bridge weakly and upgrades the reference only between two waits, so it neither keeps the
/// bridge alive nor holds a lock across an `.await`. It changes the bridge only through `replace_config`, like any other reload.
///
/// Between two checks it keeps the stamps of the last text that it read, and the text that `accept` refused, which every check
/// offers again. A secret callback that may block runs on its own thread. An abort does not end that thread, but its result is
/// dropped.
pub(super) async fn watch(
    bridge: Weak<BridgeState>,
    path: PathBuf,
    secrets: Secrets,
    accept: impl Fn(&str) -> Result<(), BoxError> + Send + Sync + 'static,
    prepare: impl Fn(Config) -> Config,
) {
    let accept: Arc<Accept> = Arc::new(accept);
    // Other files that the configuration includes.
    let mut included = Vec::new();
    // `None` at first: the file may have changed since the bridge was built.
    let mut seen = None;
    // The text that was refused, which may be accepted later.
    let mut refused: Option<String> = None;
    loop {
        let now = FileStamps::of(&path, &included);
        let is_new = seen.as_ref() != Some(&now);
        if is_new {
            // The file may be half written.
            tokio::time::sleep(POLL_INTERVAL / 5).await;
        }
        if (is_new || refused.is_some()) && FileStamps::of(&path, &included) == now {
            // The stamps are older than the text: a change in between is seen next time.
            let is_first = seen.replace(now).is_none();
            match load_in_background(&path, &secrets, &accept).await {
                Ok(config) => {
                    refused = None;
                    let config = prepare(config);
                    if included != config.files {
                        included.clone_from(&config.files);
                        seen = Some(FileStamps::of(&path, &included));
                    }
                    let Some(state) = bridge.upgrade() else { return };
                    if !is_first || state.differs(&config) {
                        apply(&state, config);
                    }
                }
                Err(error) => {
                    let Some(state) = bridge.upgrade() else { return };
                    let (text, cause) = match error {
                        ReloadError::Invalid(error) => (None, chain(&error)),
                        ReloadError::Refused { text, error } => (Some(text), chain(error.as_ref())),
                        ReloadError::Panicked => (None, "panicked while reading it".to_owned()),
                    };
                    if text.is_none() || text != refused {
                        state.shared.warn(None, not_reloaded(&cause));
                    }
                    refused = text;
                }
            }
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

/// Why a changed file is not used.
enum ReloadError {
    Invalid(ConfigError),
    Refused {
        text: String,
        error: BoxError,
    },
    /// `accept` or a secret callback panicked.
    Panicked,
}

/// Reads the file, on a separate thread if a secret callback may block.
async fn load_in_background(path: &Path, secrets: &Secrets, accept: &Arc<Accept>) -> Result<Config, ReloadError> {
    if !secrets.may_block() {
        return load(path, secrets, accept);
    }
    let (done, loaded) = tokio::sync::oneshot::channel();
    let work = {
        let (path, secrets, accept) = (path.to_owned(), secrets.clone(), accept.clone());
        // The receiver is dropped with the bridge.
        move || drop(done.send(load(&path, &secrets, &accept)))
    };
    match std::thread::Builder::new().name("config".to_owned()).spawn(work) {
        Ok(_) => loaded.await.unwrap_or_else(|_| Err(ReloadError::Panicked)),
        Err(_) => load(path, secrets, accept),
    }
}

/// Reads the file once, so the accepted text is the one that is used.
fn load(path: &Path, secrets: &Secrets, accept: &Arc<Accept>) -> Result<Config, ReloadError> {
    let text = read_text(path).map_err(ReloadError::Invalid)?;
    match accept(&text) {
        Ok(()) => Config::parse(&text, path, secrets).map_err(ReloadError::Invalid),
        Err(error) => Err(ReloadError::Refused { text, error }),
    }
}

/// Applies a configuration. Its servers start in a bridge task, so that the next file change does not wait for them.
fn apply(state: &BridgeState, config: Config) {
    if let Err(error) = state.replace_config(config) {
        state.shared.warn(None, not_reloaded(&chain(&error)));
    }
}

fn not_reloaded(cause: &str) -> String {
    format!("configuration not reloaded, using the previous one: {cause}")
}

/// Each file's modification time and size.
#[derive(Debug, PartialEq)]
struct FileStamps(BTreeMap<PathBuf, Option<(SystemTime, u64)>>);

impl FileStamps {
    fn of(path: &Path, included: &[PathBuf]) -> Self {
        let files = std::iter::once(path.to_owned()).chain(included.iter().cloned());
        let stamp = |file: &PathBuf| fs::metadata(file).and_then(|file| Ok((file.modified()?, file.len()))).ok();
        Self(files.map(|file| (file.clone(), stamp(&file))).collect())
    }
}
