//! Programs that installing servers and some tests require.

use std::fs;
use std::process::Command;

use crate::process::{run_quietly, works};

/// Programs that are missing and could not be installed.
#[derive(Debug)]
pub struct Missing(pub Vec<Need>);

impl Missing {
    /// Returns the names on one line.
    pub fn names(&self) -> String {
        self.0.iter().map(|need| need.name).collect::<Vec<_>>().join(", ")
    }

    /// Returns one line per program: its name and the command that installs it.
    pub fn lines(&self) -> Vec<String> {
        self.0.iter().map(|need| format!("{}: try `apt-get install {}`", need.name, need.packages.join(" "))).collect()
    }
}

impl std::fmt::Display for Missing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "missing on this machine\n  {}", self.lines().join("\n  "))
    }
}

impl std::error::Error for Missing {}

/// A program that the installation or a test requires, and its Debian packages.
#[derive(Clone, Copy, Debug)]
pub struct Need {
    name: &'static str,
    test: (&'static str, &'static [&'static str]),
    packages: &'static [&'static str],
}

/// Any npm version works: it installs the Node that runs the servers.
pub const NPM: Need = Need { name: "npm", test: ("npm", &["--version"]), packages: &["nodejs", "npm"] };

pub const PYTHON: Need = Need {
    name: "Python 3.11 or later with venv and pip",
    test: ("python3", &["-c", "import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))"]),
    packages: &["python3", "python3-venv"],
};

/// For git server tests.
pub const GIT: Need = Need { name: "git", test: ("git", &["--version"]), packages: &["git"] };

/// For completion tests.
pub const ZSH: Need = Need { name: "zsh", test: ("zsh", &["--version"]), packages: &["zsh"] };
pub const FISH: Need = Need { name: "fish", test: ("fish", &["--version"]), packages: &["fish"] };

/// For pager tests.
pub const LESS: Need = Need { name: "less", test: ("less", &["--version"]), packages: &["less"] };

/// For tests with tokens whose key is in a keyring.
pub const DBUS: Need = Need { name: "dbus", test: ("dbus-run-session", &["--version"]), packages: &["dbus"] };
pub const GNOME_KEYRING: Need = Need {
    name: "gnome-keyring",
    // It may lack the right to lock memory in a container, but the tests use a copy.
    test: ("test", &["-x", "/usr/bin/gnome-keyring-daemon"]),
    packages: &["gnome-keyring"],
};
pub const SECRET_TOOL: Need =
    Need { name: "secret-tool", test: ("sh", &["-c", "command -v secret-tool"]), packages: &["libsecret-tools"] };

/// For web page tests.
pub const CHROMIUM: Need = Need { name: "chromium", test: ("chromium", &["--version"]), packages: &["chromium"] };

/// For tests with the `deploy/` files.
pub const HAPROXY: Need = Need { name: "haproxy", test: ("haproxy", &["-v"]), packages: &["haproxy"] };

/// For metrics tests. Debian has `promtool` in the server's package.
pub const PROMTOOL: Need = Need { name: "promtool", test: ("promtool", &["--version"]), packages: &["prometheus"] };

impl Need {
    fn is_met(&self) -> bool {
        works(self.test.0, self.test.1)
    }

    /// Installs it if necessary. Returns `true` if it is available.
    pub fn ensure(&self) -> bool {
        self.is_met() || self.install()
    }

    /// Tries to install it with apt-get, as root.
    fn install(&self) -> bool {
        let is_root = fs::metadata("/proc/self").is_ok_and(|own| std::os::unix::fs::MetadataExt::uid(&own) == 0);
        if !is_root || !works("apt-get", &["--version"]) {
            return false;
        }
        eprintln!("installing {} with apt-get", self.packages.join(", "));
        let apt =
            |args: &[&str]| run_quietly(Command::new("apt-get").args(args).env("DEBIAN_FRONTEND", "noninteractive"));
        let mut install = vec!["install", "--yes", "--no-install-recommends"];
        install.extend(self.packages);
        // An unknown package may need fresh package lists.
        let done = apt(&install).or_else(|_| apt(&["update"]).and_then(|()| apt(&install)));
        if let Err(error) = &done {
            eprintln!("{error:#}");
        }
        done.is_ok() && self.is_met()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_missing_program_has_an_install_command() {
        let missing = Missing(vec![NPM, GIT]);
        assert_eq!(missing.names(), "npm, git");
        assert_eq!(missing.lines(), ["npm: try `apt-get install nodejs npm`", "git: try `apt-get install git`"]);
    }
}
