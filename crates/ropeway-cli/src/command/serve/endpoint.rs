//! A gateway's address for HTTP clients.

use std::io::{self, ErrorKind};
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::FileTypeExt as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use ropeway_config::{GatewaySettings, ListenAddress};
use rustix::fs::Mode;
use rustix::process::umask;

use super::port_owner::port_owner;
use crate::failure::{Exit, Failure};

/// A bound address.
pub(super) struct Endpoint {
    pub(super) listener: Listener,
    address: String,
}

/// The listener on an address.
pub(super) enum Listener {
    Tcp(TcpListener),
    Unix(UnixListener, SocketFile),
}

/// Removes a socket when it is dropped.
pub(super) struct SocketFile(PathBuf);

impl Drop for SocketFile {
    fn drop(&mut self) {
        // Another process may have removed it.
        let _ = std::fs::remove_file(&self.0);
    }
}

impl Endpoint {
    /// Binds an address. Without authentication, only this machine may reach it.
    pub(super) fn bind(address: &ListenAddress, settings: &GatewaySettings) -> Result<Self, Failure> {
        match address {
            ListenAddress::Tcp(address) => Self::bind_tcp(*address, settings),
            ListenAddress::Unix(path) => Ok(Self {
                listener: Listener::Unix(bind_private(path)?, SocketFile(path.clone())),
                address: format!("unix:{}", path.display()),
            }),
            other => Err(Failure::usage(format!("`{other}` is not supported"))),
        }
    }

    fn bind_tcp(address: SocketAddr, settings: &GatewaySettings) -> Result<Self, Failure> {
        if !settings.auth.is_required() && !address.ip().to_canonical().is_loopback() {
            let port = address.port();
            return Err(Failure::usage(format!("listening on `{address}` needs authentication"))
                .hint("set `gateway.auth`, and create a key with `ropeway key new NAME`")
                .hint(format!("for clients on this machine, try `--listen 127.0.0.1:{port}`")));
        }
        let failed = |error: io::Error| listen_failure(address, &error);
        let listener = TcpListener::bind(address).map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let scheme = if settings.tls.is_some() { "https" } else { "http" };
        Ok(Self { listener: Listener::Tcp(listener), address: format!("{scheme}://{address}/mcp") })
    }

    /// Returns the URL for a profile, or for all servers. A socket has no URL and is named by its
    /// path.
    pub(super) fn url(&self, profile: Option<&str>) -> String {
        match (profile, &self.listener) {
            (Some(profile), Listener::Tcp(_)) => format!("{}/{profile}", self.address),
            _ => self.address.clone(),
        }
    }
}

fn listen_failure(address: SocketAddr, error: &io::Error) -> Failure {
    let failure = Failure::new(Exit::Unreachable, format!("could not listen on `{address}`")).caused_by(error);
    match error.kind() {
        ErrorKind::AddrInUse => {
            let failure = match port_owner(address.port()) {
                Some((pid, program)) => failure.hint(format!("process {pid} (`{program}`) uses the port")),
                None => failure,
            };
            failure.hint(format!("end the other program, or try `--listen {}:0` for a free port", ip(address)))
        }
        ErrorKind::PermissionDenied => failure.hint(format!("try `--listen {}:8931`", ip(address))),
        _ => failure,
    }
}

/// Formats the IP address as in a URL.
fn ip(address: SocketAddr) -> String {
    match address {
        SocketAddr::V4(address) => address.ip().to_string(),
        SocketAddr::V6(address) => format!("[{}]", address.ip()),
    }
}

/// Binds a socket with mode 0600. Replaces a socket that no process listens on.
pub(super) fn bind_private(path: &Path) -> Result<UnixListener, Failure> {
    let failed = |error: &io::Error| {
        Failure::new(Exit::Unreachable, format!("could not listen on `{}`", path.display())).caused_by(error)
    };
    let is_socket = std::fs::symlink_metadata(path).is_ok_and(|file| file.file_type().is_socket());
    if is_socket {
        match UnixStream::connect(path) {
            Err(error) if error.kind() == ErrorKind::ConnectionRefused => {
                std::fs::remove_file(path).map_err(|error| failed(&error))?;
            }
            _ => return Err(failed(&ErrorKind::AddrInUse.into()).hint("another program listens on the socket")),
        }
    }
    // The umask determines a new socket's mode. No other thread creates files yet.
    let before = umask(Mode::from_raw_mode(0o177));
    let bound = UnixListener::bind(path);
    umask(before);
    bound.map_err(|error| failed(&error))
}
