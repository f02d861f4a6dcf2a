//! The records in a review.

use std::fmt;

use crate::settings::SandboxSummary;

/// The commands, files and URLs in a configuration file.
///
/// A review depends only on the file's text: no other file is read, no reference resolved and no program started, so that an
/// untrusted file can be reviewed before use. Values contain their `${NAME}` references. A secret in the file is replaced by
/// `***` and a short digest, which differs between secrets. Only single tokens are replaced, never commands or hosts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ConfigReview {
    /// The servers, in file order.
    pub servers: Vec<ServerReview>,
    /// The chat settings.
    pub chat: Option<ChatReview>,
    /// All variable names that the file refers to. A `.env` next to the file can set those that the environment does not.
    pub variables: Vec<String>,
    /// Paths to the files that would be read: `.env` where variables are used, `secrets_file`, `env_file` and `${file:…}`.
    pub files: Vec<String>,
    /// Other settings in the file: names and values.
    pub settings: Vec<(String, String)>,
}

/// A server in a [`ConfigReview`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ServerReview {
    /// Server alias.
    pub alias: String,
    /// Whether the server is started.
    pub enabled: bool,
    /// The command or URL.
    pub transport: TransportReview,
    /// The programs that print tokens for the server. They run with the user's permissions.
    pub token_commands: Vec<TokenCommandReview>,
    /// The variables and files whose values the server receives in arguments, variables or requests.
    pub receives: Vec<ValueReference>,
    /// The server's warnings and other settings: names and values.
    pub settings: Vec<(String, String)>,
}

/// A program that prints tokens.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TokenCommandReview {
    /// The program and its arguments.
    pub command: Vec<String>,
    /// The working directory.
    pub cwd: Option<String>,
    /// The program's environment variables.
    pub env: Vec<(String, String)>,
}

/// A server's command or URL.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TransportReview {
    /// A program that runs with the user's permissions.
    #[non_exhaustive]
    Command {
        /// The program.
        command: String,
        /// The program's arguments.
        args: Vec<String>,
        /// The working directory.
        cwd: Option<String>,
        /// The program's environment variables.
        env: Vec<(String, String)>,
        /// A file with further environment variables.
        env_file: Option<String>,
        /// Whether the program inherits the whole environment.
        inherit_env: bool,
        /// The sandbox that the program runs in.
        sandbox: Option<SandboxSummary>,
    },
    /// A URL that requests go to.
    #[non_exhaustive]
    Url {
        /// The URL.
        url: String,
        /// The host and port that requests go to. Contains references if they determine the host.
        host: String,
        /// Headers for every request, including `Authorization` from `auth`.
        headers: Vec<(String, String)>,
    },
}

/// The chat settings in a [`ConfigReview`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ChatReview {
    /// Provider name.
    pub provider: Option<String>,
    /// The provider's base URL.
    pub base_url: Option<String>,
    /// The base URL's host and port.
    pub host: Option<String>,
    /// The API key, redacted unless it is a reference.
    pub key: Option<String>,
    /// The variables and files whose values are sent to the provider.
    pub receives: Vec<ValueReference>,
    /// The tools that the model may call without asking.
    pub allow: Vec<String>,
    /// The tools that require approval.
    pub ask: Vec<String>,
    /// The tools that the model may not call.
    pub deny: Vec<String>,
    /// Warnings and other chat settings: names and values.
    pub settings: Vec<(String, String)>,
}

/// A reference to a value outside the file.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum ValueReference {
    /// A variable, by its name.
    Variable(String),
    /// A file, by its path.
    File(String),
}

impl fmt::Display for ValueReference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Variable(name) => write!(f, "${name}"),
            Self::File(path) => f.write_str(path),
        }
    }
}
