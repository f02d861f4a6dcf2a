//! A gateway in the background: the socket for other commands, and the description of its process.

use std::convert::Infallible;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use ropeway::event::{Event, EventStream};

use super::endpoint::bind_private;
use crate::connect::gateway_files::{GatewayFiles, GatewayInfo, start_time};
use crate::connect::running_gateway::VERSION;
use crate::connect::servers::Servers;
use crate::failure::Failure;
use crate::output::print::say;
use crate::terminal::style::warning;
use crate::trust::sha256;

/// The files of a gateway in the background. Dropping it removes them.
pub(super) struct Background {
    files: GatewayFiles,
    listener: UnixListener,
    info: Mutex<GatewayInfo>,
    accepted: Arc<Mutex<String>>,
}

impl Drop for Background {
    fn drop(&mut self) {
        self.files.remove();
    }
}

impl Background {
    /// Listens on the socket of a configuration file, and leaves the terminal.
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
        let pid = std::process::id();
        let digest = sha256(&file.text);
        let started = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let config = std::fs::canonicalize(&file.path).unwrap_or_else(|_| file.path.clone());
        let accepted = Arc::new(Mutex::new(digest.clone()));
        let version = VERSION.to_owned();
        let info = GatewayInfo { pid, start_time: start_time(pid), version, config, digest, started };
        Ok(Self { files, listener, info: Mutex::new(info), accepted })
    }

    /// Returns a handle of the listener.
    pub(super) fn listener(&self) -> Result<UnixListener, Failure> {
        self.listener.try_clone().map_err(|error| Failure::usage("could not use the socket").caused_by(&error))
    }

    /// Returns the digest of the text that was accepted last.
    pub(super) fn accepted(&self) -> Arc<Mutex<String>> {
        self.accepted.clone()
    }

    /// Writes the description of this process.
    pub(super) fn publish(&self) -> Result<(), Failure> {
        self.files.write_info(&self.info.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Writes the digest of the configuration that was loaded last.
    fn update(&self) -> Result<(), Failure> {
        let digest = self.accepted.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let mut info = self.info.lock().unwrap_or_else(PoisonError::into_inner);
        info.digest = digest;
        self.files.write_info(&info)
    }
}

/// Updates the description after each change of the configuration.
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
