//! The hidden command that restricts its process and then executes a server.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::os::fd::AsFd as _;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, ExitCode};

use ropeway_config::{SandboxFailure, SandboxLauncher, SandboxMode, SandboxProfile};

use super::support::{Support, missing};

/// The exit code if the program could not be executed, as in shells.
const NOT_EXECUTED: u8 = 126;

/// Applies the profile on standard input to this process, and executes the program after `--`. Returns only if that fails.
///
/// The process that starts the server owns the [`SandboxProfile`] and writes it to the launcher's standard input, before the
/// first message. The launcher reads exactly the profile, closes all inherited files except the standard streams, applies the
/// restrictions and calls `exec`, so the server keeps the process id and the pipes. The profile's variables are set only for
/// `exec`: a variable such as `LD_PRELOAD` must not affect the launcher, which is not restricted yet. The restrictions cannot be
/// lifted and apply to all descendants. If a step fails, one line on standard error reports the reason with the profile's token,
/// which the server never receives; an unreadable profile has no token and is reported as plain text.
pub(crate) fn launch(words: &[OsString]) -> ExitCode {
    let [separator, program, arguments @ ..] = words else { return usage() };
    if separator != "--" {
        return usage();
    }
    let profile = match read_profile() {
        Ok(profile) => profile,
        Err(reason) => {
            eprintln!("error: {reason}");
            return ExitCode::from(NOT_EXECUTED);
        }
    };
    close_inherited();
    let failure = match restrict(&profile, program) {
        Ok(()) => {
            let mut command = Command::new(program);
            command.args(arguments).envs(extra_variables(&profile, program));
            let error = command.envs(profile.env.iter().map(|(name, value)| (name, value))).exec();
            SandboxFailure::Exec(error.raw_os_error().unwrap_or_default())
        }
        Err(reason) => SandboxFailure::Refused(reason),
    };
    eprintln!("{}", profile.report(&failure));
    ExitCode::from(NOT_EXECUTED)
}

fn usage() -> ExitCode {
    let name = SandboxLauncher::ARGUMENT;
    eprintln!("error: `{name}` is internal: ropeway starts servers with a sandbox through it");
    ExitCode::from(2)
}

/// Reads the profile without a buffer, because the remaining input belongs to the server.
fn read_profile() -> Result<SandboxProfile, String> {
    let input = std::io::stdin().as_fd().try_clone_to_owned().map_err(|error| error.to_string())?;
    SandboxProfile::read(File::from(input))
}

/// Closes the files that this process has inherited, except for the standard streams. They could be read without any permission.
#[cfg(target_os = "linux")]
fn close_inherited() {
    let names = std::fs::read_dir("/proc/self/fd").into_iter().flatten().flatten().map(|entry| entry.file_name());
    let inherited: Vec<i32> =
        names.filter_map(|name| name.to_str()?.parse().ok()).filter(|number| *number > 2).collect();
    // The directory itself is closed by now.
    for number in inherited {
        let _ = nix::unistd::close(number);
    }
}

#[cfg(not(target_os = "linux"))]
fn close_inherited() {}

/// Returns variables that the server's entry may replace.
#[cfg(target_os = "linux")]
fn extra_variables(profile: &SandboxProfile, program: &OsStr) -> Option<(&'static str, std::path::PathBuf)> {
    super::runner_cache::tool_directory(program, profile.temp.as_deref())
}

#[cfg(not(target_os = "linux"))]
fn extra_variables(_: &SandboxProfile, _: &OsStr) -> Option<(&'static str, std::path::PathBuf)> {
    None
}

/// Applies all restrictions that the system supports. Returns the reason if a required one is not.
fn restrict(profile: &SandboxProfile, program: &OsStr) -> Result<(), String> {
    let mut gaps = missing(profile.processes.is_some(), &Support::detect());
    if gaps.is_empty() || profile.mode == SandboxMode::BestEffort {
        gaps.extend(apply(profile, program)?);
    }
    match profile.mode {
        _ if gaps.is_empty() => Ok(()),
        SandboxMode::Required => Err(gaps.join("; ")),
        SandboxMode::BestEffort => {
            eprintln!("ropeway: warning: the sandbox is incomplete: {}", gaps.join("; "));
            Ok(())
        }
    }
}

/// Returns the restrictions that could not be applied, or an error if the paths are not certain.
#[cfg(target_os = "linux")]
fn apply(profile: &SandboxProfile, program: &OsStr) -> Result<Vec<String>, String> {
    use super::access::FileAccess;
    use super::{capabilities, landlock, limits, seccomp};

    let limits = limits::Limits::of(profile);
    let access = FileAccess::new(profile, program)?;
    let steps = [
        landlock::restrict(profile, &access),
        seccomp::restrict(profile, &access),
        // The limits apply to this program, too.
        limits.and_then(|limits| limits.apply()),
        capabilities::restrict(),
    ];
    Ok(steps.into_iter().filter_map(Result::err).collect())
}

/// Other systems have no such restrictions, which [`missing`] reports.
#[cfg(not(target_os = "linux"))]
fn apply(_: &SandboxProfile, _: &OsStr) -> Result<Vec<String>, String> {
    Ok(Vec::new())
}
