//! Token store errors.

use std::io;
use std::path::PathBuf;

/// Why tokens could not be read, written or locked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// No environment variable names the token directory.
    #[error("no folder for tokens: set `ROPEWAY_TOKENS_DIR` or `HOME` to an absolute path")]
    NoFolder,
    /// The `ROPEWAY_KEYRING` value is not a mode.
    #[error("invalid `ROPEWAY_KEYRING` value `{value}`: use `off`, `auto` or `required`")]
    Setting {
        /// The beginning of the value.
        value: String,
    },
    /// A file or folder could not be read.
    #[error("could not read `{}`", path.display())]
    Read {
        /// The file's or folder's path.
        path: PathBuf,
        /// The file system's error.
        source: io::Error,
    },
    /// A file or folder could not be written.
    #[error("could not write `{}`", path.display())]
    Write {
        /// The file's or folder's path.
        path: PathBuf,
        /// The file system's error.
        source: io::Error,
    },
    /// Other users can access a file or folder, or chose its target.
    #[error("refusing to use `{}`: {problem}; {fix}", path.display())]
    Insecure {
        /// The file's or folder's path.
        path: PathBuf,
        /// A description of the problem.
        problem: String,
        /// What the user can do, with a command.
        fix: String,
    },
    /// A file is damaged, or is not a token file.
    #[error(
        "`{}` is not a valid token file: {problem}; run `ropeway logout SERVER` or delete the file, then sign in again",
        path.display()
    )]
    Invalid {
        /// The file's path.
        path: PathBuf,
        /// A description of the problem.
        problem: String,
    },
    /// A newer version of this program wrote a file.
    #[error(
        "`{}` has format version {version}, which this version does not support; update ropeway, or remove the file \
         with `ropeway logout SERVER`",
        path.display()
    )]
    Newer {
        /// The file's path.
        path: PathBuf,
        /// The file's version.
        version: u64,
    },
    /// A server's tokens are too large to be stored.
    #[error("the tokens of `{server}` are too large to be stored (maximum {} KiB)", super::MAX_FILE_BYTES >> 10)]
    TooLarge {
        /// The server's URL.
        server: String,
    },
    /// Another process held the lock for too long.
    #[error(
        "another process has used the sign-in of `{server}` for {} s; end that process, or try again later",
        waited.as_secs()
    )]
    Busy {
        /// The server's URL.
        server: String,
        /// The time that was waited.
        waited: std::time::Duration,
    },
    /// The operating system's keyring could not be used.
    #[error(transparent)]
    Keyring(#[from] KeyringError),
    /// The export's passphrase is wrong.
    #[error("could not decrypt the export: the passphrase is wrong, or the text was changed")]
    Passphrase,
    /// The passphrase for an export is too short.
    #[error("the passphrase is too short: use at least {} characters", super::MIN_PASSPHRASE_CHARS)]
    WeakPassphrase,
    /// A text is not an export.
    #[error("not a valid export: {problem}; copy the whole output of `ropeway auth export`")]
    Import {
        /// A description of the problem.
        problem: String,
    },
    /// Too many sign-ins are stored.
    #[error("more than {} stored sign-ins; remove some with `ropeway logout SERVER`", super::MAX_ENTRIES)]
    TooMany,
}

/// Why the operating system's keyring could not be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum KeyringError {
    /// This machine or session has no keyring.
    #[error(
        "no keyring is available ({problem}); start one, or set `ROPEWAY_KEYRING=off` to store tokens in files that only \
         you can read"
    )]
    Unavailable {
        /// A description of the problem.
        problem: String,
    },
    /// The keyring is locked and was not unlocked.
    #[error(
        "the keyring is locked; unlock it and try again, or set `ROPEWAY_KEYRING=off` to store new tokens in files that \
         only you can read"
    )]
    Locked,
    /// The program that accesses the keyring did not finish in time.
    #[error(
        "`{program}` did not answer within {seconds} s; the keyring may be waiting to be unlocked: unlock it and try \
         again, or set `ROPEWAY_KEYRING=off` to store new tokens in files that only you can read"
    )]
    Timeout {
        /// The program's name.
        program: &'static str,
        /// The time limit.
        seconds: u64,
    },
    /// The program that accesses the keyring failed.
    #[error(
        "`{program}` failed: {problem}; set `ROPEWAY_KEYRING=off` to store new tokens in files that only you can read"
    )]
    Failed {
        /// The program's name.
        program: &'static str,
        /// The start of its error output.
        problem: String,
    },
    /// Tokens are encrypted with a key that the keyring does not return.
    #[error(
        "the tokens of `{server}` are encrypted with a key that is not in the keyring; if the keyring is locked, unlock it \
         and try again, otherwise remove them with `ropeway logout {server}` and sign in again"
    )]
    MissingKey {
        /// The server's URL.
        server: String,
    },
    /// A file is encrypted, and the settings forbid using the keyring.
    #[error(
        "`{}` is encrypted with a key in the keyring, which `ROPEWAY_KEYRING=off` disables; unset the variable, or \
         remove the file with `ropeway logout SERVER` and sign in again",
        path.display()
    )]
    Disabled {
        /// The file's path.
        path: PathBuf,
    },
}
