//! The sandbox of a server, key for key.

use super::shorthand::RawShorthand;
use super::values::{RawByteSize, record};
use crate::settings::{SandboxMode, SandboxSummary};

record! {
    /// What the process of a stdio server may use. Paths are relative to this file, `~` is the home directory, and `${NAME}` is
    /// replaced by the value of a variable.
    #[derive(Eq)]
    #[serde(default)]
    #[schemars(rename = "Sandbox")]
    pub struct RawSandbox {
        /// What happens if the system does not support a restriction. Defaults to `required`.
        pub mode: Option<SandboxMode>,
        /// Files and directories that the server may read and execute, in addition to those of the system and of its program. Example:
        /// `[./docs]`.
        pub read: Vec<String>,
        /// Files and directories that the server may read, execute and change. Example: `[./notes]`.
        pub write: Vec<String>,
        /// Whether the server may use the network. Defaults to `false`.
        pub network: Option<bool>,
        /// Whether the server may connect to Unix sockets, such as those of Docker, D-Bus or an SSH agent. Defaults to `false`.
        pub unix_sockets: Option<bool>,
        /// Maximum memory of each process of the server. Example: `512M`.
        pub memory: Option<RawByteSize>,
        /// Maximum number of processes and threads, in addition to those that the user runs when the server starts. Example: 64.
        pub processes: Option<u32>,
        /// Maximum number of open files of each process of the server. Example: 256.
        pub files: Option<u32>,
    }
}

impl RawSandbox {
    /// Returns the sandbox as written. `false` stands for no sandbox.
    pub(crate) fn summary(raw: &RawShorthand<bool, Self>) -> Option<SandboxSummary> {
        let raw = match raw {
            RawShorthand::Short(false) => return None,
            RawShorthand::Short(true) => &Self::default(),
            RawShorthand::Full(raw) => raw,
        };
        Some(SandboxSummary {
            mode: raw.mode.unwrap_or_default(),
            read: raw.read.clone(),
            write: raw.write.clone(),
            network: raw.network.unwrap_or(false),
            unix_sockets: raw.unix_sockets.unwrap_or(false),
            memory: raw.memory.map(|RawByteSize(bytes)| bytes as u64),
            processes: raw.processes.map(u64::from),
            files: raw.files.map(u64::from),
        })
    }
}
