//! Starts servers through their sandbox's launcher.

use std::ffi::OsStr;
use std::path::Path;

use tokio::process::Command;

use super::orphans::ProcessMark;
use super::private_temp::PrivateTemp;
use crate::error::ConnectErrorKind;
use ropeway_config::{SandboxFailure, SandboxLauncher, SandboxMode, SandboxProfile, StdioServer};

/// The variable that names the directory for temporary files.
const TEMP_VARIABLE: &str = "TMPDIR";

/// How a server's process is started.
#[derive(Debug)]
pub(super) struct SandboxStart {
    launcher: SandboxLauncher,
    /// The profile, which precedes all messages on standard input: other users can read arguments, and a variable would be
    /// visible to the server.
    pub(super) preamble: Vec<u8>,
    pub(super) reports: LaunchReports,
    /// The server's temporary directory, unless its environment names one.
    pub(super) temp: Option<PrivateTemp>,
}

/// Recognizes a launcher's reports on standard error.
#[derive(Clone, Debug)]
pub(super) struct LaunchReports {
    token: String,
}

impl LaunchReports {
    /// Returns the failure that a line reports.
    pub(super) fn parse(&self, line: &[u8]) -> Option<SandboxFailure> {
        SandboxProfile::parse_report(&self.token, line)
    }
}

impl SandboxStart {
    /// Returns `None` for a server without a sandbox.
    pub(super) fn new(server: &StdioServer) -> Result<Option<Self>, ConnectErrorKind> {
        let Some(sandbox) = &server.sandbox else { return Ok(None) };
        let refused = |reason: &str| ConnectErrorKind::Sandbox { reason: reason.to_owned() };
        let Some(launcher) = &sandbox.launcher else {
            let reason = "this program has no sandbox launcher";
            return match sandbox.mode {
                SandboxMode::Required => Err(refused(reason)),
                SandboxMode::BestEffort => {
                    tracing::warn!("`{}` runs without its sandbox: {reason}", server.command);
                    Ok(None)
                }
            };
        };
        let token = format!("ropeway-sandbox-{:016x}{:016x}", fastrand::u64(..), fastrand::u64(..));
        let has_temp = server.env.iter().any(|(name, _)| name == TEMP_VARIABLE);
        let temp = if has_temp { None } else { Some(PrivateTemp::new()) };
        let temp =
            temp.transpose().map_err(|error| refused(&format!("could not create a temporary directory: {error}")))?;
        let profile = SandboxProfile::new(sandbox, &token).with_temp(temp.as_ref().map(PrivateTemp::path));
        let variables = server.env.iter().filter(|(name, _)| !ProcessMark::is_variable(name));
        let profile = profile.with_env(variables.map(|(name, value)| (name, value.expose())));
        let preamble = profile.encode().map_err(|reason| refused(&reason))?;
        Ok(Some(Self { launcher: launcher.clone(), preamble, reports: LaunchReports { token }, temp }))
    }

    /// Returns the launcher's command.
    pub(super) fn command(&self, server: &StdioServer) -> Command {
        let mut command = Command::new(self.launcher.program());
        let words = [SandboxLauncher::ARGUMENT, "--", &server.command];
        command.args(words.map(OsStr::new)).args(&server.args);
        command
    }

    /// Returns the variable that names the temporary directory.
    pub(super) fn variable(&self) -> Option<(&'static str, &Path)> {
        self.temp.as_ref().map(|temp| (TEMP_VARIABLE, temp.path()))
    }

    /// Returns the error for a launcher that could not be started.
    pub(super) fn error(&self, source: &std::io::Error) -> ConnectErrorKind {
        let program = self.launcher.program().display();
        ConnectErrorKind::Sandbox { reason: format!("could not start the launcher `{program}`: {source}") }
    }
}
