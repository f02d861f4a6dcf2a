//! A stdio server's sandbox: the files, networks and resources that its process may use.

use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Restricts a stdio server's process.
///
/// A launcher applies the restrictions and then executes the server: the `ropeway` program, on Linux. This library only starts the
/// launcher. Without one, the server is not started, unless the sandbox is [`best_effort`](Self::best_effort).
///
/// The process can read system files such as `/usr` and its program's folder. Everything else has to be listed.
///
/// ```
/// use ropeway::config::{Sandbox, StdioServer};
///
/// let sandbox = Sandbox::new().with_read("/srv/docs").with_launcher("/usr/bin/ropeway");
/// let server = StdioServer::command("docs-server").with_sandbox(sandbox);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Sandbox {
    /// What happens if the system does not support a restriction.
    pub mode: SandboxMode,
    /// Files and directories that the server may read and execute, in addition to system files.
    pub read: Vec<SandboxPath>,
    /// Files and directories that the server may read, execute, change, create and remove.
    pub write: Vec<SandboxPath>,
    /// Whether the server may use the network.
    pub network: bool,
    /// Whether the server may connect to Unix sockets, such as Docker's, D-Bus's or an SSH agent's.
    pub unix_sockets: bool,
    /// Maximum memory per process in bytes.
    pub memory: Option<u64>,
    /// Maximum processes and threads, in addition to those that the user runs already.
    pub processes: Option<u64>,
    /// Maximum open files per process.
    pub files: Option<u64>,
    /// The program that applies the restrictions.
    pub launcher: Option<SandboxLauncher>,
}

/// What happens if the system does not support a restriction of a sandbox.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum SandboxMode {
    /// Do not start the server.
    #[default]
    Required,
    /// Start the server with the restrictions that the system supports, with a warning.
    BestEffort,
}

impl SandboxMode {
    /// Returns the mode's name in a configuration file.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Required => "required",
            Self::BestEffort => "best-effort",
        }
    }
}

/// A path in a [`Sandbox`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SandboxPath {
    /// The path.
    pub path: PathBuf,
    /// The path as in the configuration file, before `~` and references were replaced.
    pub text: String,
}

impl<P: AsRef<Path> + ?Sized> From<&P> for SandboxPath {
    fn from(path: &P) -> Self {
        let path = path.as_ref();
        Self { path: path.to_owned(), text: path.to_string_lossy().into_owned() }
    }
}

/// The program that applies a [`Sandbox`] to itself and then executes the server.
///
/// It is started as `PROGRAM __sandbox -- COMMAND ARGS…`, with the server's working directory and pipes, and with the inherited
/// part of its environment. Its standard input begins with a [`SandboxProfile`] as [`SandboxProfile::encode`] writes it. It
/// reads exactly those bytes, restricts itself, and replaces itself with the server, whose environment gets the variables in
/// [`SandboxProfile::env`]. They must not affect the launcher: `LD_PRELOAD` would run code outside the sandbox. If it fails, it
/// writes one line to standard error, made by [`SandboxProfile::report`], and exits.
///
/// On Linux, the `ropeway` program is a launcher.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SandboxLauncher(PathBuf);

impl SandboxLauncher {
    /// The argument that makes a program a launcher.
    pub const ARGUMENT: &str = "__sandbox";

    /// Creates a launcher from a program's path.
    pub fn new(program: impl Into<PathBuf>) -> Self {
        Self(program.into())
    }

    /// Returns the program's path.
    pub fn program(&self) -> &Path {
        &self.0
    }
}

impl Sandbox {
    /// Creates a sandbox without network and without files other than system files.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a path that the server may read.
    #[must_use]
    pub fn with_read(mut self, path: impl AsRef<Path>) -> Self {
        self.read.push(path.as_ref().into());
        self
    }

    /// Starts the server with the restrictions that the system supports, even if it does not support them all.
    #[must_use]
    pub fn best_effort(mut self) -> Self {
        self.mode = SandboxMode::BestEffort;
        self
    }

    /// Sets the program that applies the restrictions: the path to `ropeway`, on Linux.
    #[must_use]
    pub fn with_launcher(mut self, program: impl Into<PathBuf>) -> Self {
        self.launcher = Some(SandboxLauncher::new(program));
        self
    }

    /// Adds a path that the server may read and change.
    #[must_use]
    pub fn with_write(mut self, path: impl AsRef<Path>) -> Self {
        self.write.push(path.as_ref().into());
        self
    }
}

/// Variables that name certificates from a company's own authority. Servers inherit them, and a sandbox allows reading the files.
pub const CERTIFICATE_VARIABLES: &[&str] = &[
    "CURL_CA_BUNDLE",
    "DENO_CERT",
    "GIT_SSL_CAINFO",
    "GIT_SSL_CAPATH",
    "NIX_SSL_CERT_FILE",
    "NODE_EXTRA_CA_CERTS",
    "NPM_CONFIG_CAFILE",
    "PIP_CERT",
    "REQUESTS_CA_BUNDLE",
    "SSL_CERT_DIR",
    "SSL_CERT_FILE",
];

/// [`SandboxProfile`] format version.
const VERSION: u32 = 2;

/// Maximum encoded profile size in bytes.
const MAX_PROFILE: usize = 4 << 20;

/// How many hexadecimal digits before a profile hold its length.
const LENGTH_DIGITS: usize = 8;

/// Maximum report text in bytes, so that its line is never split.
const MAX_REPORT: usize = 2 << 10;

/// A [`Sandbox`] as a launcher receives it. Its variables may be secrets, so it must not be logged.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct SandboxProfile {
    version: u32,
    /// Marks the launcher's reports. The server never receives it.
    token: String,
    /// What happens if the system does not support a restriction.
    pub mode: SandboxMode,
    /// Paths to read.
    pub read: Vec<PathBuf>,
    /// Paths to read and change.
    pub write: Vec<PathBuf>,
    /// The temporary directory, to which the server may also write.
    pub temp: Option<PathBuf>,
    /// Variables from the server's entry, which are set when the server is executed.
    pub env: Vec<(String, String)>,
    /// Whether the network may be used.
    pub network: bool,
    /// Whether Unix sockets may be used.
    pub unix_sockets: bool,
    /// Maximum memory in bytes.
    pub memory: Option<u64>,
    /// Maximum additional processes.
    pub processes: Option<u64>,
    /// Maximum open files.
    pub files: Option<u64>,
}

/// Why a launcher has not started the server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SandboxFailure {
    /// A restriction could not be applied; the reason.
    Refused(String),
    /// The program could not be executed; contains the system's error number.
    Exec(i32),
}

impl SandboxProfile {
    /// Creates a sandbox's profile with a new token.
    pub fn new(sandbox: &Sandbox, token: impl Into<String>) -> Self {
        let paths = |paths: &[SandboxPath]| paths.iter().map(|path| path.path.clone()).collect();
        Self {
            version: VERSION,
            token: token.into(),
            mode: sandbox.mode,
            read: paths(&sandbox.read),
            write: paths(&sandbox.write),
            temp: None,
            env: Vec::new(),
            network: sandbox.network,
            unix_sockets: sandbox.unix_sockets,
            memory: sandbox.memory,
            processes: sandbox.processes,
            files: sandbox.files,
        }
    }

    /// Sets the temporary directory.
    #[must_use]
    pub fn with_temp(self, temp: Option<&Path>) -> Self {
        Self { temp: temp.map(Path::to_owned), ..self }
    }

    /// Sets the variables from the server's entry.
    #[must_use]
    pub fn with_env<N: Into<String>, V: Into<String>>(self, env: impl IntoIterator<Item = (N, V)>) -> Self {
        Self { env: env.into_iter().map(|(name, value)| (name.into(), value.into())).collect(), ..self }
    }

    /// Returns a variable's value in the server's entry.
    pub fn variable(&self, name: &str) -> Option<&str> {
        self.env.iter().rev().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    /// Encodes the profile: its length as hexadecimal digits, then JSON.
    ///
    /// # Errors
    ///
    /// Returns an error if a path is not valid UTF-8, or if the profile is too large.
    pub fn encode(&self) -> Result<Vec<u8>, String> {
        let text = serde_json::to_string(self).map_err(|error| error.to_string())?;
        if text.len() > MAX_PROFILE {
            return Err(format!("the profile is larger than {} MiB", MAX_PROFILE >> 20));
        }
        Ok(format!("{:0width$x}{text}", text.len(), width = LENGTH_DIGITS).into_bytes())
    }

    /// Reads an encoded profile, and nothing after it. The reader must not be buffered.
    ///
    /// # Errors
    ///
    /// Returns an error if the input is not a profile in this version.
    pub fn read(mut input: impl std::io::Read) -> Result<Self, String> {
        let mut length = [0; LENGTH_DIGITS];
        input.read_exact(&mut length).map_err(|error| format!("could not read the profile: {error}"))?;
        let length = std::str::from_utf8(&length).ok().and_then(|digits| usize::from_str_radix(digits, 16).ok());
        let Some(length) = length.filter(|length| *length <= MAX_PROFILE) else {
            return Err("standard input does not start with a profile".to_owned());
        };
        let mut text = vec![0; length];
        input.read_exact(&mut text).map_err(|error| format!("could not read the profile: {error}"))?;
        let profile: Self = serde_json::from_slice(&text).map_err(|error| format!("invalid profile: {error}"))?;
        if profile.version != VERSION {
            return Err(format!("unknown profile version {}", profile.version));
        }
        Ok(profile)
    }

    /// Returns the line that reports a failure to the program that started the launcher.
    pub fn report(&self, failure: &SandboxFailure) -> String {
        let failure = match failure {
            SandboxFailure::Refused(reason) => {
                SandboxFailure::Refused(reason[..reason.floor_char_boundary(MAX_REPORT)].to_owned())
            }
            failure => failure.clone(),
        };
        format!("{} {}", self.token, serde_json::to_string(&failure).unwrap_or_default())
    }

    /// Parses a line from [`report`](Self::report). Returns `None` for other lines.
    pub fn parse_report(token: &str, line: &[u8]) -> Option<SandboxFailure> {
        let json = line.strip_prefix(token.as_bytes())?.strip_prefix(b" ")?;
        serde_json::from_slice(json).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn profile() -> SandboxProfile {
        let sandbox = Sandbox { memory: Some(1 << 30), ..Sandbox::new().with_read("/srv").with_write("/tmp/ö") };
        SandboxProfile::new(&sandbox, "t0ken")
    }

    #[test]
    fn a_profile_is_read_without_what_follows_it() {
        let mut bytes = profile().encode().expect("UTF-8");
        bytes.extend(b"{\"jsonrpc\":\"2.0\"}\n");
        let mut input = bytes.as_slice();
        assert_eq!(SandboxProfile::read(&mut input), Ok(profile()));
        assert_eq!(input, b"{\"jsonrpc\":\"2.0\"}\n");
    }

    #[test]
    fn input_that_is_not_a_profile_is_refused() {
        let said = |input: &[u8]| SandboxProfile::read(input).expect_err("no profile");
        assert!(said(b"").starts_with("could not read the profile: "));
        assert!(said(b"000000ff{}").starts_with("could not read the profile: "));
        assert_eq!(said(b"{\"jsonrpc\":"), "standard input does not start with a profile");
        assert_eq!(said(b"ffffffff"), "standard input does not start with a profile");
        assert!(said(b"00000002{}").starts_with("invalid profile: missing field"));
        let encode = |text: &str| format!("{:08x}{text}", text.len());
        let text = serde_json::to_string(&profile()).expect("JSON");
        let newer = encode(&text.replace("\"version\":2", "\"version\":3"));
        assert_eq!(said(newer.as_bytes()), "unknown profile version 3");
        // A restriction that this version does not know must not be ignored.
        let unknown = encode(&text.replace("\"version\":2", "\"version\":2,\"seal\":true"));
        assert!(said(unknown.as_bytes()).starts_with("invalid profile: unknown field `seal`"));
    }

    #[test]
    fn only_a_line_with_the_token_is_a_report() {
        for failure in [SandboxFailure::Exec(2), SandboxFailure::Refused("no \"Landlock\"\n".to_owned())] {
            let line = profile().report(&failure);
            assert!(!line.contains('\n'));
            assert_eq!(SandboxProfile::parse_report("t0ken", line.as_bytes()), Some(failure));
            assert_eq!(SandboxProfile::parse_report("other", line.as_bytes()), None);
        }
        assert_eq!(SandboxProfile::parse_report("t0ken", b"t0ken hello"), None);
        let long = profile().report(&SandboxFailure::Refused("é".repeat(10_000)));
        assert!(long.len() < 4 << 10, "{}", long.len());
    }
}
