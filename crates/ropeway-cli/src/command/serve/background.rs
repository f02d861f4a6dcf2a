//! A gateway in the background: the socket for other commands, and the description of its process.

use std::convert::Infallible;
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ropeway_core::event::{Event, EventStream};

use super::endpoint::bind_private;
use crate::connect::gateway_files::{GatewayFiles, GatewayInfo, start_time};
use crate::connect::running_gateway::VERSION;
use crate::connect::servers::Servers;
use crate::failure::Failure;
use crate::output::print::say;
use crate::terminal::style::warning;
use crate::trust::sha256;

/// How often a gateway checks that its socket is still there.
const SOCKET_INTERVAL: Duration = Duration::from_secs(2);

/// A file's device, inode and last change time.
type FileId = (u64, u64, i64, i64);

/// The files that belong to a gateway in the background.
///
/// The running `serve` command owns it and drops it before it drains. The configuration watch writes `accepted`;
/// [`follow`] copies it into `info` and into the file after each reload. Both locks are std mutexes that are held for a
/// few lines and never across `.await`; `accepted` is released before `info` is taken.
///
/// Dropping it removes the socket and the description, unless they belong to another gateway by then.
pub(super) struct Background {
    files: GatewayFiles,
    listener: UnixListener,
    socket: Option<FileId>,
    info: Mutex<GatewayInfo>,
    accepted: Arc<Mutex<String>>,
}

impl Drop for Background {
    fn drop(&mut self) {
        if self.has_socket() {
            self.files.remove();
        }
    }
}

impl Background {
    /// Listens on a configuration file's socket, and leaves the terminal.
    pub(super) fn listen(socket: &Path, servers: &Servers) -> Result<Self, Failure> {
        // This fails if the process leads a group, and then it has left the terminal already.
        let _ = rustix::process::setsid();
        let file = servers.file.as_ref().ok_or_else(|| Failure::usage("`--background` needs a configuration file"))?;
        let files = GatewayFiles::of(&file.path)?;
        if files.socket != socket {
            return Err(Failure::usage("`--background` is used by `ropeway up` only"));
        }
        files.create_folder()?;
        let listener = bind_private(socket)?;
        let socket = file_id(socket);
        let pid = std::process::id();
        let digest = sha256(&file.text);
        let started = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let config = std::fs::canonicalize(&file.path).unwrap_or_else(|_| file.path.clone());
        let accepted = Arc::new(Mutex::new(digest.clone()));
        let version = VERSION.to_owned();
        let info = GatewayInfo { pid, start_time: start_time(pid), version, config, digest, started };
        Ok(Self { files, listener, socket, info: Mutex::new(info), accepted })
    }

    /// Returns another handle to the listener.
    pub(super) fn listener(&self) -> Result<UnixListener, Failure> {
        self.listener.try_clone().map_err(|error| Failure::usage("could not duplicate the socket").caused_by(&error))
    }

    /// Returns the digest for the last accepted text.
    pub(super) fn accepted(&self) -> Arc<Mutex<String>> {
        self.accepted.clone()
    }

    /// Returns `true` if other commands can still find this gateway. Its folder may be deleted, for example at a logout.
    fn has_socket(&self) -> bool {
        self.socket.is_some() && file_id(&self.files.socket) == self.socket
    }

    /// Writes this process's description.
    pub(super) fn publish(&self) -> Result<(), Failure> {
        self.files.write_info(&self.info.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Writes the digest for the last loaded configuration.
    fn update(&self) -> Result<(), Failure> {
        if !self.has_socket() {
            return Ok(());
        }
        let digest = self.accepted.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let mut info = self.info.lock().unwrap_or_else(PoisonError::into_inner);
        info.digest = digest;
        self.files.write_info(&info)
    }
}

/// Updates the description after each configuration change.
pub(super) async fn follow(background: Option<&Background>, mut events: EventStream) -> Infallible {
    if let Some(background) = background {
        while let Some(event) = events.next().await {
            if !matches!(event, Event::Reloaded { .. }) {
                continue;
            }
            if let Err(failure) = background.update() {
                say(&warning(&failure.line()));
            }
        }
    }
    std::future::pending().await
}

/// Waits until other commands cannot find this gateway anymore.
pub(super) async fn lost(background: Option<&Background>) {
    let Some(background) = background else { return std::future::pending().await };
    while background.has_socket() {
        tokio::time::sleep(SOCKET_INTERVAL).await;
    }
    say(&warning("the socket of the gateway was removed"));
}

fn file_id(path: &Path) -> Option<FileId> {
    let metadata = std::fs::symlink_metadata(path).ok()?;
    Some((metadata.dev(), metadata.ino(), metadata.ctime(), metadata.ctime_nsec()))
}
