//! Where a server's settings come from, and so where a fix belongs.

/// Where a server's settings come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ConfigSource {
    /// Command-line options.
    CommandLine,
    /// Keys in a configuration file.
    File,
}

impl ConfigSource {
    /// Returns the advice for this source.
    pub(super) fn pick<'a>(self, command_line: &'a str, file: &'a str) -> &'a str {
        match self {
            Self::CommandLine => command_line,
            Self::File => file,
        }
    }
}
