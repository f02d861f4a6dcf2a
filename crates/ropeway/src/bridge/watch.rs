//! A watch on a configuration file: when it changes, the bridge follows.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Weak;
use std::time::{Duration, SystemTime};

use super::{Bridge, Inner};
use crate::config::{Config, Secrets};
use crate::mcp::chain;

/// How often the file is looked at. Asking for its age costs microseconds and works on every file system.
const LOOK: Duration = Duration::from_millis(500);

/// Follows a file for as long as the bridge lives.
pub(super) async fn follow(bridge: Weak<Inner>, path: PathBuf, secrets: Secrets) {
    // Which files hold secrets is said in the file itself.
    let mut files = match Config::load(&path, &secrets) {
        Ok(config) => config.files,
        Err(_) => Vec::new(),
    };
    let mut seen = Stamp::of(&path, &files);
    loop {
        tokio::time::sleep(LOOK).await;
        let now = Stamp::of(&path, &files);
        if now == seen {
            continue;
        }
        // Somebody may be writing right now: half a file is not looked at.
        tokio::time::sleep(LOOK / 5).await;
        if Stamp::of(&path, &files) != now {
            continue;
        }
        seen = now;
        let config = Config::load(&path, &secrets);
        let Some(inner) = bridge.upgrade() else { return };
        let bridge = Bridge { inner };
        match config {
            Ok(config) => {
                files.clone_from(&config.files);
                seen = Stamp::of(&path, &files);
                if let Err(error) = bridge.reload(config).await {
                    bridge.inner.roof.warn(None, not_used(&chain(&error)));
                }
            }
            Err(error) => bridge.inner.roof.warn(None, not_used(&chain(&error))),
        }
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
