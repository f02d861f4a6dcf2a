//! A watch on a configuration file: when it changes, the bridge follows.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::time::{Duration, SystemTime};

use super::Inner;
use crate::config::{Config, ConfigError, Secrets, read_text};
use crate::mcp::chain;
use crate::tool::BoxError;

/// How often the file is looked at. Asking for its age costs microseconds and works on every file system.
const LOOK: Duration = Duration::from_millis(500);

/// Follows a file for as long as the bridge lives; `accept` decides whether a text may be used.
pub(super) async fn follow(
    bridge: Weak<Inner>,
    path: PathBuf,
    secrets: Secrets,
    accept: impl Fn(&str) -> Result<(), BoxError> + Send + Sync + 'static,
) {
    let accept: Arc<Accept> = Arc::new(accept);
    // Which other files take part is said in the file itself.
    let mut files = Vec::new();
    // The first look is at what may have changed since the bridge was made.
    let mut seen = None;
    // The text that was not accepted, which may be accepted later.
    let mut refused: Option<String> = None;
    loop {
        let now = Stamp::of(&path, &files);
        let is_new = seen.as_ref() != Some(&now);
        if is_new {
            // Somebody may be writing right now: half a file is not looked at.
            tokio::time::sleep(LOOK / 5).await;
        }
        if (is_new || refused.is_some()) && Stamp::of(&path, &files) == now {
            // The stamp is older than what is read: a change in between is seen the next time.
            let is_first = seen.replace(now).is_none();
            match load_aside(&path, &secrets, &accept).await {
                Ok(config) => {
                    refused = None;
                    if files != config.files {
                        files.clone_from(&config.files);
                        seen = Some(Stamp::of(&path, &files));
                    }
                    let Some(inner) = bridge.upgrade() else { return };
                    if !is_first || inner.differs(&config) {
                        take_over(inner, config).await;
                    }
                }
                Err(error) => {
                    let Some(inner) = bridge.upgrade() else { return };
                    let (text, why) = match error {
                        ReloadError::Broken(error) => (None, chain(&error)),
                        ReloadError::Refused { text, error } => (Some(text), chain(error.as_ref())),
                        ReloadError::Panicked => (None, "reading it panicked".to_owned()),
                    };
                    if text.is_none() || text != refused {
                        inner.roof.warn(None, not_used(&why));
                    }
                    refused = text;
                }
            }
        }
        tokio::time::sleep(LOOK).await;
    }
}

/// Why a changed file is not used.
enum ReloadError {
    Broken(ConfigError),
    Refused {
        text: String,
        error: BoxError,
    },
    /// What decides about the text has panicked.
    Panicked,
}

type Accept = dyn Fn(&str) -> Result<(), BoxError> + Send + Sync;

/// Reads the file; on a thread of its own if a callback may block, so that the runtime neither waits for it nor for its end.
async fn load_aside(path: &Path, secrets: &Secrets, accept: &Arc<Accept>) -> Result<Config, ReloadError> {
    if !secrets.may_block() {
        return load(path, secrets, accept);
    }
    let (done, loaded) = tokio::sync::oneshot::channel();
    let work = {
        let (path, secrets, accept) = (path.to_owned(), secrets.clone(), accept.clone());
        // The bridge may be gone by then.
        move || drop(done.send(load(&path, &secrets, &accept)))
    };
    match std::thread::Builder::new().name("config".to_owned()).spawn(work) {
        Ok(_) => loaded.await.unwrap_or_else(|_| Err(ReloadError::Panicked)),
        Err(_) => load(path, secrets, accept),
    }
}

/// Reads the file once: what is accepted is what is used.
fn load(path: &Path, secrets: &Secrets, accept: &Arc<Accept>) -> Result<Config, ReloadError> {
    let text = read_text(path).map_err(ReloadError::Broken)?;
    match accept(&text) {
        Ok(()) => Config::parse(&text, path, secrets).map_err(ReloadError::Broken),
        Err(error) => Err(ReloadError::Refused { text, error }),
    }
}

async fn take_over(bridge: Arc<Inner>, config: Config) {
    match bridge.swap(config) {
        Ok((_, change)) => {
            let roof = bridge.roof.clone();
            // The bridge may go while its servers are slow.
            drop(bridge);
            change.carry_out().await;
            roof.change();
        }
        Err(error) => bridge.roof.warn(None, not_used(&chain(&error))),
    }
}

fn not_used(why: &str) -> String {
    format!("the changed configuration is not used, the old one stays: {why}")
}

/// By what a change is noticed: age and size of every file that takes part.
#[derive(Debug, PartialEq)]
struct Stamp(BTreeMap<PathBuf, Option<(SystemTime, u64)>>);

impl Stamp {
    fn of(path: &Path, others: &[PathBuf]) -> Self {
        let files = std::iter::once(path.to_owned()).chain(others.iter().cloned());
        let stamp = |file: &PathBuf| fs::metadata(file).and_then(|about| Ok((about.modified()?, about.len()))).ok();
        Self(files.map(|file| (file.clone(), stamp(&file))).collect())
    }
}
