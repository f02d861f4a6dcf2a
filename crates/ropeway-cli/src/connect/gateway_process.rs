//! A gateway process in the background: starting it, finding it and stopping it.

use std::fs::{File, OpenOptions};
use std::io::{Read as _, Seek as _, SeekFrom};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::{Signal, kill_process};
use serde::Deserialize;
use serde_json::Value;
use tokio::time::Instant;

use ropeway_bridge::registry::ServerStatus;
use ropeway_core::tool::Alias;

use crate::connect::advice::is_pending;
use crate::connect::gateway_client::{self, GatewayProblem};
use crate::connect::gateway_files::{GatewayFiles, GatewayInfo};
use crate::failure::{Exit, Failure};

/// Time for a gateway to start listening.
const START_TIMEOUT: Duration = Duration::from_secs(15);

/// Time for a gateway to stop by itself: it finishes the calls in progress.
const STOP_TIMEOUT: Duration = Duration::from_secs(15);

/// Time for a gateway to end after a signal.
const KILL_TIMEOUT: Duration = Duration::from_secs(2);

/// Time limit per request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(1);

/// Interval between two checks on a gateway that starts or stops.
const INTERVAL: Duration = Duration::from_millis(20);

/// Maximum log bytes and lines in an error.
const LOG_BYTES: u64 = 8 << 10;
const LOG_LINES: usize = 12;

/// A running gateway's status.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct RunningStatus {
    pub(crate) servers: Vec<ServerStatus>,
    /// Servers whose tools were listed at least once.
    #[serde(default)]
    pub(crate) listed: Vec<Alias>,
    /// Each failed server's last error, also if the server is connected again.
    #[serde(default)]
    failures: Vec<(Alias, String)>,
    /// Open client connections, without the one that asked.
    pub(crate) connections: usize,
    pub(crate) sessions: usize,
    pub(crate) requests: usize,
}

impl RunningStatus {
    fn read(status: Value) -> Result<Self, GatewayProblem> {
        let mut status: Self = serde_json::from_value(status).map_err(|_| GatewayProblem::NoResponse)?;
        status.connections = status.connections.saturating_sub(1);
        Ok(status)
    }

    /// Returns a server's last error, also if the server is connected again.
    pub(crate) fn failure(&self, alias: &Alias) -> Option<&str> {
        self.failures.iter().find(|(server, _)| server == alias).map(|(_, cause)| cause.as_str())
    }

    /// Returns the servers that are being connected for the first time.
    pub(crate) fn starting(&self) -> Vec<&Alias> {
        let is_starting = |server: &&ServerStatus| {
            is_pending(&server.state) && !self.listed.contains(&server.server) && self.failure(&server.server).is_none()
        };
        self.servers.iter().filter(is_starting).map(|server| &server.server).collect()
    }
}

/// Returns the status from the gateway behind these files.
pub(crate) async fn running(files: &GatewayFiles) -> Result<RunningStatus, GatewayProblem> {
    gateway_client::status(&files.socket, REQUEST_TIMEOUT).await.and_then(RunningStatus::read)
}

/// Starts a gateway in the background and waits until it listens.
pub(crate) async fn start(files: &GatewayFiles, arguments: &[&str], config: &Path) -> Result<RunningStatus, Failure> {
    let failed = |error: std::io::Error| Failure::usage("could not start the gateway").caused_by(&error);
    let log = OpenOptions::new().create(true).write(true).truncate(true).mode(0o600).open(&files.log);
    let log =
        log.map_err(|error| Failure::usage(format!("could not write `{}`", files.log.display())).caused_by(&error))?;
    let mut command = Command::new(std::env::current_exe().map_err(failed)?);
    command.args(["serve", "--background"]).arg(&files.socket).arg("--config").arg(config).args(arguments);
    command.stdin(Stdio::null()).stdout(log.try_clone().map_err(failed)?).stderr(log);
    let mut child = command.spawn().map_err(failed)?;
    let end = Instant::now() + START_TIMEOUT;
    loop {
        if let Ok(status) = running(files).await {
            return Ok(status);
        }
        if child.try_wait().is_ok_and(|ended| ended.is_some()) {
            return Err(log_failure(files, "the gateway did not start"));
        }
        if Instant::now() > end {
            end_child(&mut child).await;
            return Err(log_failure(files, "the gateway did not respond").with_exit(Exit::Timeout));
        }
        tokio::time::sleep(INTERVAL).await;
    }
}

/// Waits until each server is connected or has failed once, or until `end`. Calls `show` with the servers that are starting.
pub(crate) async fn settled(
    files: &GatewayFiles,
    mut status: RunningStatus,
    end: Option<Instant>,
    mut show: impl FnMut(&[&Alias]),
) -> RunningStatus {
    loop {
        let starting = status.starting();
        show(&starting);
        if starting.is_empty() || end.is_some_and(|end| Instant::now() >= end) {
            return status;
        }
        tokio::time::sleep(INTERVAL).await;
        match running(files).await {
            Ok(now) => status = now,
            Err(_) => return status,
        }
    }
}

async fn end_child(child: &mut Child) {
    let pid = i32::try_from(child.id()).ok().and_then(rustix::process::Pid::from_raw);
    if let Some(pid) = pid {
        let _ = kill_process(pid, Signal::TERM);
    }
    let end = Instant::now() + KILL_TIMEOUT;
    while Instant::now() < end {
        if child.try_wait().is_ok_and(|ended| ended.is_some()) {
            return;
        }
        tokio::time::sleep(INTERVAL).await;
    }
    // It has ended already if this fails.
    let _ = child.kill();
}

/// Stops a gateway: asks it, then ends its process. Removes its files.
pub(crate) async fn stop(files: &GatewayFiles) -> Result<(), Failure> {
    let info = files.read_info();
    let asked = gateway_client::stop(&files.socket, REQUEST_TIMEOUT).await;
    let stopped = match &info {
        Some(info) if asked.is_ok() => has_ended(info, STOP_TIMEOUT).await,
        Some(info) => !info.is_alive(),
        None => true,
    };
    if let Some(info) = info.filter(|_| !stopped) {
        end_process(&info).await?;
    }
    files.remove();
    Ok(())
}

async fn end_process(info: &GatewayInfo) -> Result<(), Failure> {
    for signal in [Signal::TERM, Signal::KILL] {
        if let Some(pid) = info.process().filter(|_| info.is_alive()) {
            // It has ended already if this fails.
            let _ = kill_process(pid, signal);
        }
        if has_ended(info, KILL_TIMEOUT).await {
            return Ok(());
        }
    }
    Err(Failure::new(Exit::Timeout, format!("could not end process {}", info.pid)))
}

async fn has_ended(info: &GatewayInfo, limit: Duration) -> bool {
    let end = Instant::now() + limit;
    while info.is_alive() {
        if Instant::now() > end {
            return false;
        }
        tokio::time::sleep(INTERVAL).await;
    }
    true
}

/// Returns a failure with the end of the log.
fn log_failure(files: &GatewayFiles, message: &str) -> Failure {
    let lines = log_tail(&files.log).unwrap_or_default();
    let failure = Failure::new(Exit::Unreachable, message);
    let failure = lines.iter().fold(failure, |failure, line| failure.hint(line.as_str()));
    failure.hint(format!("see `{}`", files.log.display()))
}

fn log_tail(path: &Path) -> std::io::Result<Vec<String>> {
    let mut file = File::open(path)?;
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(LOG_BYTES)))?;
    let mut bytes = Vec::new();
    file.take(LOG_BYTES).read_to_end(&mut bytes)?;
    let text = String::from_utf8_lossy(&bytes);
    let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    Ok(lines[lines.len().saturating_sub(LOG_LINES)..].iter().map(|line| (*line).to_owned()).collect())
}
