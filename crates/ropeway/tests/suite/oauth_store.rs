//! The token store between processes: locks, processes that die, and the keyring of the session.

use std::fs::{self, Permissions};
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use ropeway::oauth::{Credentials, StoreError, TokenStore};
use ropeway_mcp::oauth::store::{KeyringError, KeyringMode, Protection};
use ropeway_mcp::oauth::{RegisteredClient, TokenSet};

/// Names the folder of the store in a process that [`Helper`] started.
const FOLDER: &str = "ROPEWAY_TEST_TOKENS";

const SERVER: &str = "https://a.example/mcp";

/// Maximum time of a step of a helper.
const PATIENCE: Duration = Duration::from_secs(30);

/// Another process that uses a store. It obeys the commands on its standard input.
struct Helper {
    child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
}

impl Helper {
    fn start(folder: &Path, env: &[(&str, &str)]) -> Self {
        let mut command = Command::new(std::env::current_exe().expect("this program"));
        command.args(["--exact", "oauth_store::the_helper_process", "--nocapture", "--test-threads=1"]);
        command.env(FOLDER, folder).env("ROPEWAY_KEYRING", "off").envs(env.iter().copied());
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("a process");
        let stdin = child.stdin.take().expect("a pipe");
        let stdout = BufReader::new(child.stdout.take().expect("a pipe"));
        Self { child, stdin, stdout }
    }

    fn send(&mut self, command: &str) {
        writeln!(self.stdin, "{command}").expect("a helper");
    }

    /// Returns the next answer.
    fn answer(&mut self) -> String {
        loop {
            let mut line = String::new();
            assert_ne!(self.stdout.read_line(&mut line).expect("a line"), 0, "the helper ended");
            // The test harness writes to the same pipe.
            if let Some((_, answer)) = line.split_once("answer: ") {
                return answer.trim_end().to_owned();
            }
        }
    }

    fn run(&mut self, command: &str) -> String {
        self.send(command);
        self.answer()
    }

    fn kill(mut self) {
        self.child.kill().expect("a signal");
        self.child.wait().expect("an end");
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Runs as the other process; does nothing in the test run itself.
#[test]
fn the_helper_process() {
    let Some(folder) = std::env::var_os(FOLDER) else { return };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let store = TokenStore::open(folder);
    let mut held = None;
    for command in std::io::stdin().lines().map_while(Result::ok) {
        let (command, argument) = command.split_once(' ').unwrap_or((&command, ""));
        let answer = runtime.block_on(async {
            match command {
                "lock" => store.lock_within(SERVER, None, PATIENCE).await.map(|lock| {
                    held = Some(lock);
                    "locked".to_owned()
                }),
                "unlock" => {
                    held = None;
                    Ok("unlocked".to_owned())
                }
                "save" => store.save(&credentials(SERVER, argument)).await.map(|()| "saved".to_owned()),
                "load" => store.load(SERVER, None).await.map(|found| token(found.as_ref()).to_owned()),
                "check" => store.check().await.map(|protection| protection.to_string()),
                "increment" => increment(&store, argument.parse().expect("a number")).await.map(|()| "done".to_owned()),
                _ => Ok("unknown command".to_owned()),
            }
        });
        println!("answer: {}", answer.unwrap_or_else(|error| format!("error: {error}")));
    }
}

/// Adds one to the number that is stored as the token, the way a refresh replaces a token.
async fn increment(store: &TokenStore, times: u32) -> Result<(), StoreError> {
    for _ in 0..times {
        let _lock = store.lock(SERVER, None).await?;
        let stored = store.load(SERVER, None).await?;
        let number: u32 = token(stored.as_ref()).parse().unwrap_or_default();
        store.save(&credentials(SERVER, &(number + 1).to_string())).await?;
    }
    Ok(())
}

fn credentials(server: &str, token: &str) -> Credentials {
    let (client, tokens) = (RegisteredClient::public("client"), TokenSet::bearer(token));
    Credentials::new(server, server, "https://as.example", "https://as.example/token", client, tokens)
}

fn token(credentials: Option<&Credentials>) -> &str {
    credentials.map_or("", |credentials| credentials.tokens.access_token.expose())
}

fn folder() -> (tempfile::TempDir, PathBuf) {
    let root = tempfile::tempdir().expect("a folder");
    let folder = root.path().join("tokens");
    (root, folder)
}

fn plain(folder: &Path) -> TokenStore {
    TokenStore::open(folder).with_keyring(KeyringMode::Off)
}

#[tokio::test]
async fn a_lock_of_another_process_is_waited_for() {
    let (_root, folder) = folder();
    let (store, mut helper) = (plain(&folder), Helper::start(&folder, &[]));
    assert_eq!(helper.run("lock"), "locked");
    let began = Instant::now();
    let busy = store.lock_within(SERVER, None, Duration::from_millis(300)).await.expect_err("busy");
    assert!(matches!(&busy, StoreError::Busy { server, .. } if server == SERVER), "{busy}");
    assert!((Duration::from_millis(300)..Duration::from_secs(5)).contains(&began.elapsed()));
    let other = store.lock_within("https://b.example", None, Duration::ZERO).await;
    drop(other.expect("the lock of another server is free"));
    let waiting = tokio::spawn({
        let store = store.clone();
        async move { store.lock_within(SERVER, None, PATIENCE).await.map(drop) }
    });
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert!(!waiting.is_finished());
    assert_eq!(helper.run("unlock"), "unlocked");
    waiting.await.expect("no panic").expect("the lock");
}

#[tokio::test]
async fn a_process_that_is_killed_releases_its_lock_and_leaves_complete_tokens() {
    let (_root, folder) = folder();
    let (store, mut helper) = (plain(&folder), Helper::start(&folder, &[]));
    assert_eq!(helper.run("save before"), "saved");
    assert_eq!(helper.run("lock"), "locked");
    helper.kill();
    let _lock = store.lock_within(SERVER, None, PATIENCE).await.expect("the lock of a dead process");
    assert_eq!(token(store.load(SERVER, None).await.expect("tokens").as_ref()), "before");
}

#[tokio::test]
async fn processes_that_are_killed_while_they_save_leave_complete_tokens() {
    let (_root, folder) = folder();
    let store = plain(&folder);
    store.save(&credentials(SERVER, "0")).await.expect("saved");
    let mut last = 0;
    for round in 0..8u64 {
        let mut helper = Helper::start(&folder, &[]);
        assert_eq!(helper.run("load"), last.to_string());
        helper.send("increment 1000000");
        tokio::time::sleep(Duration::from_millis(20 + 7 * round)).await;
        helper.kill();
        let stored = store.load(SERVER, None).await.expect("complete tokens");
        let number: u64 = token(stored.as_ref()).parse().expect("a number");
        assert!(number >= last);
        last = number;
    }
    assert!(last > 0);
    assert_eq!(store.list().await.expect("a list").entries.len(), 1, "files that were not finished are not listed");
}

#[tokio::test]
async fn processes_that_change_tokens_under_the_lock_lose_no_change() {
    let (_root, folder) = folder();
    let store = plain(&folder);
    let mut helpers: Vec<_> = (0..3).map(|_| Helper::start(&folder, &[])).collect();
    helpers.iter_mut().for_each(|helper| helper.send("increment 20"));
    increment(&store, 20).await.expect("incremented");
    for mut helper in helpers {
        assert_eq!(helper.answer(), "done");
    }
    assert_eq!(token(store.load(SERVER, None).await.expect("tokens").as_ref()), "80");
}

#[tokio::test]
async fn a_sign_in_of_another_process_is_noticed() {
    let (_root, folder) = folder();
    let (store, mut helper) = (plain(&folder), Helper::start(&folder, &[]));
    let stamp = store.stamp(SERVER, None);
    assert!(!store.changed_since(SERVER, None, &stamp));
    assert_eq!(helper.run("save new"), "saved");
    assert!(store.changed_since(SERVER, None, &stamp));
    assert_eq!(token(store.load(SERVER, None).await.expect("tokens").as_ref()), "new");
}

/// A folder with a fake `secret-tool`, to be put on the search path.
struct FakeKeyring {
    root: tempfile::TempDir,
}

impl FakeKeyring {
    fn new(script: &str) -> Self {
        let fake = Self { root: tempfile::tempdir().expect("a folder") };
        let program = fake.root.path().join("secret-tool");
        fs::write(&program, format!("#!/bin/sh\nhome='{}'\n{script}\n", fake.root.path().display())).expect("a script");
        fs::set_permissions(&program, Permissions::from_mode(0o700)).expect("permissions");
        fake
    }

    /// A keyring that works.
    fn working() -> Self {
        Self::new(
            r#"for last; do :; done
case "$1" in
lookup) [ -f "$home/$last" ] || exit 1; cat "$home/$last";;
store) cat > "$home/$last";;
esac"#,
        )
    }

    /// Starts a helper whose session has this keyring.
    fn start(&self, folder: &Path, mode: &str) -> Helper {
        let path = std::env::var("PATH").unwrap_or_default();
        let path = format!("{}:{path}", self.root.path().display());
        let bus = "unix:path=/nonexistent";
        Helper::start(folder, &[("PATH", &path), ("ROPEWAY_KEYRING", mode), ("DBUS_SESSION_BUS_ADDRESS", bus)])
    }
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn processes_share_the_key_of_the_session_keyring() {
    let (_root, folder) = folder();
    let keyring = FakeKeyring::working();
    let mut helpers: Vec<_> = (0..3).map(|_| keyring.start(&folder, "required")).collect();
    helpers.iter_mut().for_each(|helper| helper.send("save s3cret-t0ken"));
    helpers.iter_mut().for_each(|helper| assert_eq!(helper.answer(), "saved"));
    helpers.iter_mut().for_each(|helper| assert_eq!(helper.run("load"), "s3cret-t0ken"));
    let list = plain(&folder).list().await.expect("a list");
    assert_eq!(list.entries[0].protection, Protection::Keyring);
    let files = fs::read_dir(&folder).expect("a folder").flatten().map(|entry| entry.path());
    for file in files {
        let text = fs::read_to_string(&file).expect("a text");
        assert!(!text.contains("s3cret-t0ken"), "{}", file.display());
    }
    let error = plain(&folder).load(SERVER, None).await.expect_err("encrypted");
    assert!(matches!(error, StoreError::Keyring(KeyringError::Disabled { .. })), "{error}");
}

#[cfg(target_os = "linux")]
#[test]
fn a_locked_session_keyring_is_reported_with_what_to_do() {
    let (_root, folder) = folder();
    let script = "echo 'secret-tool: Cannot create an item in a locked collection' >&2; exit 1";
    let keyring = FakeKeyring::new(script);
    let mut helper = keyring.start(&folder, "auto");
    for command in ["check", "save t"] {
        let answer = helper.run(command);
        assert!(answer.starts_with("error: the keyring is locked; unlock it and try again"), "{answer}");
    }
    assert_eq!(helper.run("load"), "");
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn an_invalid_mode_and_a_missing_keyring_are_reported() {
    let (_root, folder) = folder();
    let keyring = FakeKeyring::working();
    let answer = keyring.start(&folder, "yes").run("check");
    assert_eq!(answer, "error: invalid `ROPEWAY_KEYRING` value `yes`: use `off`, `auto` or `required`");
    let empty = tempfile::tempdir().expect("a folder");
    let path = empty.path().display().to_string();
    let session =
        |mode| [("PATH", path.as_str()), ("ROPEWAY_KEYRING", mode), ("DBUS_SESSION_BUS_ADDRESS", "unix:path=/x")];
    let answer = Helper::start(&folder, &session("required")).run("save t");
    assert!(answer.starts_with("error: no keyring is available (`secret-tool` is not installed)"), "{answer}");
    assert_eq!(Helper::start(&folder, &session("auto")).run("check"), "0600 file");
}

#[tokio::test]
async fn an_export_is_imported_on_another_machine() {
    let ((_one, source), (_two, target)) = (folder(), folder());
    let (source, target) = (plain(&source), plain(&target));
    source.save(&credentials(SERVER, "s3cret-t0ken")).await.expect("saved");
    let text = source.export(&"correct horse".into()).await.expect("an export");
    let text = text.expose();
    assert!(!text.contains("s3cret-t0ken") && text.is_ascii() && text.lines().count() == 1);
    let error = target.import(text, &"wrong horse".into()).await.expect_err("wrong").to_string();
    assert!(error.contains("the passphrase is wrong"), "{error}");
    let error = target.import(&text[..text.len() - 9], &"correct horse".into()).await.expect_err("cut").to_string();
    assert!(error.contains("incomplete") && error.contains("ropeway auth export"), "{error}");
    let began = Instant::now();
    let absurd = text.replace(":600000:", ":4000000000:");
    assert!(target.import(&absurd, &"correct horse".into()).await.is_err());
    assert!(began.elapsed() < Duration::from_secs(2));
    assert!(target.list().await.expect("a list").entries.is_empty());
    assert_eq!(target.import(text, &"correct horse".into()).await.expect("imported").imported, 1);
    assert_eq!(token(target.load(SERVER, None).await.expect("tokens").as_ref()), "s3cret-t0ken");
}
