//! Sign-ins with the keyring of a real session: gnome-keyring and `secret-tool` on a D-Bus of the test's own.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use super::{Protected, SECRETS, assert_no_secrets, mode, sign_in_with, tokens_folder};
use crate::temp_home::TempHome;
use crate::{Ropeway, Run};

/// The password of the keyring.
const PASSWORD: &str = "correct horse";

/// Maximum time of a command whose keyring does not work. Its own limit, in which a person may unlock the keyring, is 30 s.
const PROMPT: Duration = Duration::from_secs(10);

/// How long the keyring may take to start.
const START: Duration = Duration::from_secs(20);

/// A bus without services that are started on demand.
const BUS: &str = r#"<busconfig>
  <type>session</type>
  <listen>unix:tmpdir=/tmp</listen>
  <policy context="default">
    <allow send_destination="*" eavesdrop="true"/>
    <allow eavesdrop="true"/>
    <allow own="*"/>
  </policy>
</busconfig>
"#;

/// A session of the user: a D-Bus that ends with it.
struct Session {
    bus: Child,
    /// The variables of a program of the session.
    variables: [(&'static str, PathBuf); 4],
}

impl Session {
    fn start(temp_home: &TempHome) -> Self {
        let config = temp_home.write("bus.conf", BUS);
        let runtime = temp_home.path().join("run");
        std::fs::create_dir_all(&runtime).expect("a folder");
        std::fs::set_permissions(&runtime, std::os::unix::fs::PermissionsExt::from_mode(0o700)).expect("permissions");
        let mut bus = Command::new("dbus-run-session")
            .arg(format!("--config-file={}", config.display()))
            .args(["--", "sh", "-c", "echo \"$DBUS_SESSION_BUS_ADDRESS\"; exec cat"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("dbus-run-session: try `apt-get install dbus gnome-keyring libsecret-tools`");
        let mut address = String::new();
        let output = bus.stdout.take().expect("standard output");
        BufReader::new(output).read_line(&mut address).expect("an address");
        assert!(address.starts_with("unix:"), "{address}");
        let variables = [
            ("DBUS_SESSION_BUS_ADDRESS", address.trim().into()),
            ("HOME", temp_home.path().to_owned()),
            ("XDG_DATA_HOME", temp_home.path().join("data")),
            ("XDG_RUNTIME_DIR", runtime),
        ];
        Self { bus, variables }
    }

    /// Makes a program part of the session.
    fn put_on(&self, command: &mut Command) {
        command.envs(self.variables.iter().map(|(name, value)| (name, value)));
        // No dialog asks for a password.
        command.env_remove("DISPLAY").env_remove("WAYLAND_DISPLAY");
    }

    fn ropeway(&self, temp_home: &TempHome, words: &[&str], keyring: &str) -> Ropeway {
        temp_home.ropeway(words).with(|command| {
            self.put_on(command);
            command.env("ROPEWAY_KEYRING", keyring);
        })
    }

    /// Runs a command that must not wait for the keyring, which it can use.
    fn run(&self, temp_home: &TempHome, words: &[&str], keyring: &str) -> Run {
        let began = Instant::now();
        let run = self.ropeway(temp_home, words, keyring).run();
        assert!(began.elapsed() < PROMPT, "{words:?} took {:?}", began.elapsed());
        run
    }

    fn secret_tool(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new("secret-tool");
        self.put_on(command.args(arguments).env("LC_ALL", "C").stdin(Stdio::null()));
        command.output().expect("secret-tool: try `apt-get install libsecret-tools`")
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // The session ends with its first program, which ends with its input.
        drop(self.bus.stdin.take());
        let _ = self.bus.wait();
    }
}

/// The keyring of a session.
struct Keyring(Child);

impl Keyring {
    /// Starts the keyring. A password unlocks it, and creates it the first time; without one it stays locked.
    fn start(session: &Session, temp_home: &TempHome, password: Option<&str>) -> Self {
        // A copy has no file capabilities, which containers may not grant.
        let program = temp_home.path().join("gnome-keyring-daemon");
        if !program.exists() {
            let installed = Path::new("/usr/bin/gnome-keyring-daemon");
            std::fs::copy(installed, &program).expect("gnome-keyring-daemon: try `apt-get install gnome-keyring`");
        }
        let mut command = Command::new(program);
        command.args(["--foreground", "--components=secrets"]).args(password.map(|_| "--unlock"));
        session.put_on(&mut command);
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        let began = Instant::now();
        let mut child = loop {
            match command.spawn() {
                // A process that another test is starting still has the copy open.
                Err(error) if error.kind() == std::io::ErrorKind::ExecutableFileBusy && began.elapsed() < START => {
                    std::thread::sleep(Duration::from_millis(10));
                }
                started => break started.expect("a start"),
            }
        };
        let mut input = child.stdin.take().expect("standard input");
        input.write_all(password.unwrap_or_default().as_bytes()).expect("a reader");
        drop(input);
        let (keyring, began) = (Self(child), Instant::now());
        // Nothing has this name: no output, and exit code 1.
        while !session.secret_tool(&["lookup", "service", "none"]).stderr.is_empty() {
            assert!(began.elapsed() < START, "the keyring has not started");
            std::thread::sleep(Duration::from_millis(50));
        }
        keyring
    }
}

impl Drop for Keyring {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn log_in(session: &Session, temp_home: &TempHome, protected: &Protected, keyring: &str) -> Run {
    sign_in_with(session.ropeway(temp_home, &["login", "web", "--no-browser"], keyring), &protected.server)
}

/// Returns the contents of all files of the token store.
fn stored(temp_home: &TempHome) -> String {
    let files =
        std::fs::read_dir(tokens_folder(temp_home)).expect("a folder").map(|entry| entry.expect("an entry").path());
    files.map(|path| String::from_utf8_lossy(&std::fs::read(path).expect("a file")).into_owned()).collect()
}

#[test]
fn a_keyring_has_the_key_of_the_tokens() {
    let protected = Protected::start();
    let temp_home = protected.temp_home();
    let session = Session::start(&temp_home);
    let _keyring = Keyring::start(&session, &temp_home, Some(PASSWORD));
    let run = log_in(&session, &temp_home, &protected, "auto");
    assert!(run.stdout.ends_with(" · stored: keyring\n"), "{}", run.stdout);
    assert_no_secrets(&run);
    let files = stored(&temp_home);
    assert!(files.contains(&protected.server.mcp()) && !SECRETS.iter().any(|secret| files.contains(secret)), "{files}");
    let found = session.secret_tool(&["search", "--all", "service", "ropeway"]);
    let found = format!("{}{}", String::from_utf8_lossy(&found.stdout), String::from_utf8_lossy(&found.stderr));
    assert!(found.contains("label = Ropeway tokens") && found.contains("attribute.store = "), "{found}");
    assert_eq!(found.matches("label = ").count(), 1, "{found}");
    assert!(!SECRETS.iter().any(|secret| found.contains(secret)), "tokens are in the files only");
    // Other processes find the key.
    for mode in ["auto", "required"] {
        session.run(&temp_home, &["call", "web.scopes"], mode).expect(0);
    }
    let status = session.run(&temp_home, &["auth", "status"], "auto").expect(0);
    assert!(status.stdout.contains("● signed in") && status.stdout.contains("keyring"), "{}", status.stdout);
    assert_no_secrets(&status);
    let off = session.run(&temp_home, &["call", "web.scopes"], "off");
    assert!(off.code != Some(0) && off.stderr.contains("ROPEWAY_KEYRING"), "{}", off.stderr);
    let run = session.run(&temp_home, &["logout", "web"], "auto").expect(0);
    assert_eq!(run.stdout, "signed out of `web` · tokens revoked\n");
    let status = session.run(&temp_home, &["auth", "status"], "auto").expect(0);
    assert_eq!(status.stdout, "no sign-ins; sign in with `ropeway login SERVER`\n");
    assert!(!stored(&temp_home).contains(&protected.server.mcp()));
    session.run(&temp_home, &["call", "web.scopes"], "auto").expect(4);
}

#[test]
fn a_locked_keyring_is_reported_until_it_is_unlocked() {
    let protected = Protected::start();
    let temp_home = protected.temp_home();
    let session = Session::start(&temp_home);
    let keyring = Keyring::start(&session, &temp_home, Some(PASSWORD));
    log_in(&session, &temp_home, &protected, "auto");
    drop(keyring);
    let keyring = Keyring::start(&session, &temp_home, None);
    for words in [&["call", "web.scopes"][..], &["login", "web", "--no-browser"]] {
        for mode in ["auto", "required"] {
            let run = session.run(&temp_home, words, mode);
            // `secret-tool` does not find an entry of a locked keyring.
            let expected = "if the keyring is locked, unlock it and try again";
            assert!(run.code != Some(0) && run.stderr.contains(expected), "{words:?}: {}", run.stderr);
        }
    }
    // Another store has no key that could be replaced.
    let run = session.ropeway(&temp_home, &["login", "web", "--no-browser"], "auto").with(|command| {
        command.env("ROPEWAY_TOKENS_DIR", temp_home.path().join("other"));
    });
    let run = run.run();
    assert!(run.code != Some(0) && run.stderr.contains("the keyring is locked; unlock it"), "{}", run.stderr);
    assert!(run.stderr.contains("ROPEWAY_KEYRING=off"), "{}", run.stderr);
    drop(keyring);
    let _keyring = Keyring::start(&session, &temp_home, Some(PASSWORD));
    session.run(&temp_home, &["call", "web.scopes"], "auto").expect(0);
}

#[test]
fn tokens_are_in_files_if_the_session_has_no_keyring() {
    let protected = Protected::start();
    let temp_home = protected.temp_home();
    let session = Session::start(&temp_home);
    let run = session.run(&temp_home, &["login", "web", "--no-browser"], "required");
    assert!(run.code != Some(0) && run.stderr.contains("no keyring is available"), "{}", run.stderr);
    let run = log_in(&session, &temp_home, &protected, "auto");
    assert!(run.stdout.ends_with(" · stored: 0600 file\n"), "{}", run.stdout);
    for entry in std::fs::read_dir(tokens_folder(&temp_home)).expect("a folder") {
        assert_eq!(mode(&entry.expect("an entry").path()), 0o600);
    }
    session.run(&temp_home, &["call", "web.scopes"], "auto").expect(0);
    let status = session.run(&temp_home, &["auth", "status"], "auto").expect(0);
    assert!(status.stdout.contains("0600 file"), "{}", status.stdout);
}
