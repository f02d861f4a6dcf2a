//! Opens a URL in the user's browser.

use std::ffi::OsString;
use std::io;
use std::path::Path;
use std::process::Stdio;

use tokio::io::AsyncReadExt as _;
use tokio::process::{ChildStdout, Command};
use url::Url;

/// Starts a program in the background, and reports if it fails. The shell itself ends at once.
const START: &str = "( \"$@\" </dev/null >/dev/null 2>&1 || echo failed ) &";

/// The variables that decide which browser is used.
pub(crate) struct BrowserEnvironment<F>(F);

impl BrowserEnvironment<fn(&str) -> Option<OsString>> {
    /// Reads this process's environment.
    pub(crate) fn of_process() -> Self {
        Self(|name| std::env::var_os(name))
    }
}

impl<F: Fn(&str) -> Option<OsString>> BrowserEnvironment<F> {
    fn is_set(&self, name: &str) -> bool {
        (self.0)(name).is_some_and(|value| !value.is_empty())
    }

    /// Returns the command that opens a URL, without the URL, or `None` on a machine without a browser.
    ///
    /// `BROWSER` takes precedence: remote development tools set it to a program that opens pages on the other side. Otherwise,
    /// a browser in an SSH session would open on the wrong screen.
    pub(crate) fn command(&self) -> Option<Vec<String>> {
        if self.is_set("BROWSER") {
            let value = (self.0)("BROWSER")?.into_string().ok()?;
            let commands = value.split(':').filter_map(shlex::split).filter(|words| !words.is_empty());
            return commands.into_iter().find(|words| self.has_program(&words[0]));
        }
        if ["SSH_CONNECTION", "SSH_CLIENT", "SSH_TTY"].iter().any(|name| self.is_set(name)) {
            return None;
        }
        let programs: &[&str] = if cfg!(target_os = "macos") {
            &["open"]
        } else if self.is_set("WSL_DISTRO_NAME") {
            &["wslview", "xdg-open"]
        } else if self.is_set("DISPLAY") || self.is_set("WAYLAND_DISPLAY") {
            &["xdg-open"]
        } else {
            &[]
        };
        programs.iter().find(|program| self.has_program(program)).map(|program| vec![(*program).to_owned()])
    }

    fn has_program(&self, program: &str) -> bool {
        if program.contains('/') {
            return Path::new(program).is_file();
        }
        let path = (self.0)("PATH").unwrap_or_default();
        std::env::split_paths(&path).any(|folder| folder.is_absolute() && folder.join(program).is_file())
    }
}

/// Appends a URL to a command, or replaces `%s` with it.
fn with_url(command: &[String], url: &Url) -> Vec<String> {
    let mut words: Vec<String> = command.iter().map(|word| word.replace("%s", url.as_str())).collect();
    if words == command {
        words.push(url.to_string());
    }
    words
}

/// A browser that was started.
pub(crate) struct OpenedBrowser(Option<ChildStdout>);

impl OpenedBrowser {
    /// Waits until the program reports a failure, or forever.
    pub(crate) async fn failed(&mut self) {
        let mut text = [0; 6];
        if let Some(output) = &mut self.0
            && output.read_exact(&mut text).await.is_ok()
        {
            return;
        }
        std::future::pending().await
    }
}

/// Starts a browser. It is not a child process, and stays open when the command ends.
pub(crate) async fn open(command: &[String], url: &Url) -> io::Result<OpenedBrowser> {
    let _orphaned = OrphanGuard::begin();
    let mut shell = Command::new("/bin/sh");
    shell.args(["-c", START, "sh"]).args(with_url(command, url));
    // Ctrl-C in the terminal is not for the browser.
    shell.process_group(0).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut shell = shell.spawn()?;
    let output = shell.stdout.take();
    shell.wait().await?;
    Ok(OpenedBrowser(output))
}

/// Lets init adopt orphans while it lives. Otherwise this process adopts them, and they end with it.
struct OrphanGuard(bool);

impl OrphanGuard {
    #[cfg(target_os = "linux")]
    fn begin() -> Self {
        let is_subreaper = rustix::process::child_subreaper().is_ok_and(|process| process.is_some());
        Self(is_subreaper && rustix::process::set_child_subreaper(None).is_ok())
    }

    #[cfg(not(target_os = "linux"))]
    fn begin() -> Self {
        Self(false)
    }
}

impl Drop for OrphanGuard {
    fn drop(&mut self) {
        #[cfg(target_os = "linux")]
        if self.0 {
            // This process was a subreaper before.
            let _ = rustix::process::set_child_subreaper(Some(rustix::process::getpid()));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn command(variables: &[(&str, &str)]) -> Option<Vec<String>> {
        let find = |name: &str| {
            let found = variables.iter().find(|(variable, _)| *variable == name);
            found.map(|(_, value)| OsString::from(value))
        };
        BrowserEnvironment(find).command()
    }

    #[test]
    fn the_variable_takes_precedence_even_in_a_remote_session() {
        let ssh = ("SSH_CONNECTION", "a b");
        assert_eq!(command(&[("BROWSER", "/bin/sh -c"), ssh]), Some(vec!["/bin/sh".into(), "-c".into()]));
        assert_eq!(command(&[("BROWSER", "no-such:sh '%s'"), ("PATH", "/bin")]), Some(vec!["sh".into(), "%s".into()]));
        assert_eq!(command(&[("BROWSER", "no-such"), ("PATH", "/bin")]), None);
    }

    #[test]
    fn a_remote_session_or_a_machine_without_a_screen_has_no_browser() {
        assert_eq!(command(&[("DISPLAY", ":0"), ("SSH_TTY", "/dev/pts/1")]), None);
        assert_eq!(command(&[("DISPLAY", ":0"), ("PATH", "/no/such/folder")]), None);
    }

    #[test]
    fn the_url_is_one_word() {
        let url = Url::parse("https://a.example/x?y=1&z='$(reboot)'").expect("a URL");
        let words = |command: &[&str]| with_url(&command.iter().map(ToString::to_string).collect::<Vec<_>>(), &url);
        assert_eq!(words(&["open"]), ["open", url.as_str()]);
        assert_eq!(words(&["open", "--url=%s", "-x"]), ["open", &format!("--url={url}"), "-x"]);
    }

    #[tokio::test]
    async fn a_program_that_fails_is_noticed() {
        let url = Url::parse("https://a.example/").expect("a URL");
        let mut failing = open(&["false".to_owned()], &url).await.expect("a shell");
        tokio::time::timeout(Duration::from_secs(20), failing.failed()).await.expect("a failure");
        let mut working = open(&["true".to_owned()], &url).await.expect("a shell");
        let is_late = tokio::time::timeout(Duration::from_millis(300), working.failed()).await.is_err();
        assert!(is_late);
    }
}
