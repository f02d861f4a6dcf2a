//! Messages to the service manager that started the gateway.
//!
//! See [sd_notify](https://www.freedesktop.org/software/systemd/man/latest/sd_notify.html).

use std::convert::Infallible;
use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::UnixDatagram;
use std::time::Duration;

/// The service manager's socket. Without one, messages are dropped.
#[derive(Default)]
pub(super) struct ServiceManager {
    socket: Option<UnixDatagram>,
    /// Half the time within which the service manager expects a watchdog notification.
    watchdog: Option<Duration>,
}

impl ServiceManager {
    /// Connects to the socket that the environment names.
    pub(super) fn from_env() -> Self {
        let Some(path) = std::env::var_os("NOTIFY_SOCKET").filter(|path| !path.is_empty()) else {
            return Self::default();
        };
        let socket = connect(&path).inspect_err(|error| tracing::warn!(%error, "could not reach the service manager"));
        let number = |name: &str| std::env::var(name).ok()?.parse::<u64>().ok();
        let is_own = number("WATCHDOG_PID").is_none_or(|pid| pid == u64::from(std::process::id()));
        let watchdog = number("WATCHDOG_USEC").filter(|usec| *usec > 1 && is_own);
        Self { socket: socket.ok(), watchdog: watchdog.map(|usec| Duration::from_micros(usec / 2)) }
    }

    /// Reports that clients are served.
    pub(super) fn ready(&self, address: Option<&str>) {
        let status = address.map(|address| format!("\nSTATUS=listening on {address}")).unwrap_or_default();
        self.send(&format!("READY=1{status}"));
    }

    /// Reports that the gateway stops.
    pub(super) fn stopping(&self) {
        self.send("STOPPING=1\nSTATUS=draining");
    }

    /// Sends watchdog notifications as long as the runtime makes progress.
    pub(super) async fn keep_alive(&self) -> Infallible {
        let Some(interval) = self.watchdog else { return std::future::pending().await };
        loop {
            self.send("WATCHDOG=1");
            tokio::time::sleep(interval).await;
        }
    }

    fn send(&self, message: &str) {
        if let Some(socket) = &self.socket {
            // A full socket must not stop the gateway.
            let _ = socket.send(message.as_bytes());
        }
    }
}

fn connect(path: &OsString) -> io::Result<UnixDatagram> {
    let socket = UnixDatagram::unbound()?;
    socket.set_nonblocking(true)?;
    match path.as_bytes().strip_prefix(b"@") {
        #[cfg(target_os = "linux")]
        Some(name) => {
            use std::os::linux::net::SocketAddrExt as _;
            socket.connect_addr(&std::os::unix::net::SocketAddr::from_abstract_name(name)?)?;
        }
        _ => socket.connect(path)?,
    }
    Ok(socket)
}
