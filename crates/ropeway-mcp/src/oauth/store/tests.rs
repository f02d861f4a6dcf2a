//! Tests of the token store as a whole.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::error::{KeyringError, StoreError};
use super::handle::{ImportReport, TokenStore};
use super::keyring::{Keyring, KeyringMode};
use super::keyring_tool::{KeyringTool, ToolKind};
use super::summary::Protection;
use crate::oauth::client::RegisteredClient;
use crate::oauth::credentials::Credentials;
use crate::oauth::serialized::from_unix;
use crate::oauth::token_set::TokenSet;

const SERVER: &str = "https://a.example/mcp";

/// A `secret-tool` that keeps its secrets in a folder.
const WORKING: &str = r#"for last; do :; done
case "$1" in
lookup) [ -f "$home/$last" ] || exit 1; cat "$home/$last";;
store) cat > "$home/$last";;
esac
echo "$1" >> "$home/calls""#;

const LOCKED: &str = "echo 'secret-tool: Cannot create an item in a locked collection' >&2; exit 1";

const HANGING: &str = "sleep 60";

const NO_SERVICE: &str =
    "echo 'secret-tool: The name org.freedesktop.secrets was not provided by any .service files' >&2; exit 1";

struct Bench {
    root: tempfile::TempDir,
}

impl Bench {
    fn new() -> Self {
        let bench = Self { root: tempfile::tempdir().expect("a folder") };
        fs::create_dir(bench.root.path().join("keyring")).expect("a folder");
        bench
    }

    fn folder(&self) -> PathBuf {
        self.root.path().join("state/tokens")
    }

    fn plain(&self) -> TokenStore {
        TokenStore::open(self.folder()).with_keyring(KeyringMode::Off)
    }

    /// Replaces the program that accesses the keyring. Returns a new store that uses it.
    fn keyring(&self, mode: KeyringMode, script: &str) -> TokenStore {
        let program = self.root.path().join("secret-tool");
        let home = self.root.path().join("keyring");
        let new = self.root.path().join("new");
        fs::write(&new, format!("#!/bin/sh\nhome='{}'\n{script}\n", home.display())).expect("a script");
        fs::set_permissions(&new, Permissions::from_mode(0o700)).expect("permissions");
        fs::rename(&new, &program).expect("a rename");
        let tool = KeyringTool::new(program, ToolKind::SecretTool, Duration::from_secs(2));
        TokenStore::files(self.folder(), Ok(mode), Keyring::with_tool(tool))
    }

    /// Returns the only token file.
    fn file(&self) -> PathBuf {
        let mut files = super::files::token_files(&self.folder()).expect("files");
        assert_eq!(files.len(), 1);
        files.remove(0)
    }

    fn calls(&self) -> usize {
        fs::read_to_string(self.root.path().join("keyring/calls")).map_or(0, |calls| calls.lines().count())
    }
}

fn credentials(server: &str, token: &str) -> Credentials {
    let client = RegisteredClient::public("client");
    let tokens = TokenSet::bearer(token);
    let mut credentials = Credentials::new(server, server, "https://as", "https://as/token", client, tokens);
    credentials.obtained_at = from_unix(1_700_000_000);
    credentials
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).expect("a file").permissions().mode() & 0o777
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).expect("permissions");
}

#[tokio::test]
async fn a_sign_in_is_stored_listed_and_removed_by_server_and_account() {
    let bench = Bench::new();
    for store in [bench.plain(), TokenStore::in_memory()] {
        assert_eq!(store.load(SERVER, None).await.expect("nothing"), None);
        assert!(store.list().await.expect("a list").entries.is_empty());
        let mut second = credentials(SERVER, "t2");
        second.account = Some("bob".to_owned());
        let mut first = credentials(SERVER, "t1");
        first.server = "https://A.example:443/mcp#top".to_owned();
        for sign_in in [&first, &second, &credentials("https://b", "t3")] {
            store.save(sign_in).await.expect("saved");
        }
        assert_eq!(store.load(SERVER, None).await.expect("one"), Some(credentials(SERVER, "t1")));
        assert_eq!(store.load(SERVER, Some("bob")).await.expect("one"), Some(second));
        assert_eq!(store.load(SERVER, Some("eve")).await.expect("nothing"), None);
        let list = store.list().await.expect("a list");
        let listed: Vec<_> = list.entries.iter().map(|it| (it.server.as_str(), it.account.as_deref())).collect();
        assert_eq!(listed, [(SERVER, None), (SERVER, Some("bob")), ("https://b", None)]);
        assert!(store.remove(SERVER, None).await.expect("removed"));
        assert!(!store.remove(SERVER, None).await.expect("nothing"));
        assert_eq!(store.load(SERVER, None).await.expect("nothing"), None);
        assert_eq!(store.remove_all().await.expect("removed"), 2);
    }
}

#[tokio::test]
async fn folder_files_and_locks_are_private() {
    let bench = Bench::new();
    let store = bench.plain();
    assert_eq!(store.check().await.expect("usable"), Protection::File);
    store.save(&credentials(SERVER, "t")).await.expect("saved");
    let _lock = store.lock(SERVER, None).await.expect("a lock");
    assert_eq!((mode(&bench.folder()), mode(bench.folder().parent().expect("a parent"))), (0o700, 0o700));
    let names: Vec<_> = fs::read_dir(bench.folder()).expect("a folder").flatten().map(|entry| entry.path()).collect();
    assert_eq!(names.len(), 2, "{names:?}");
    assert!(names.iter().all(|path| mode(path) == 0o600));
}

#[tokio::test]
async fn files_that_others_can_access_are_refused_with_the_command_that_helps() {
    let bench = Bench::new();
    let store = bench.plain();
    store.save(&credentials(SERVER, "s3cret")).await.expect("saved");
    let file = bench.file();
    for mode in [0o640, 0o604, 0o666, 0o620] {
        set_mode(&file, mode);
        let error = store.load(SERVER, None).await.expect_err("refused").to_string();
        assert!(error.contains(&format!("(mode {mode:o}); run `chmod 600 {}`", file.display())), "{error}");
        assert_eq!(store.list().await.expect("a list").unreadable.len(), 1);
    }
    store.save(&credentials(SERVER, "new")).await.expect("a new sign-in replaces it");
    assert_eq!(mode(&file), 0o600);
    set_mode(&bench.folder(), 0o770);
    let errors = [
        store.load(SERVER, None).await.expect_err("refused"),
        store.save(&credentials(SERVER, "t")).await.expect_err("refused"),
        store.check().await.expect_err("refused"),
        store.lock(SERVER, None).await.expect_err("refused"),
        store.list().await.expect_err("refused"),
    ];
    for error in errors {
        assert!(error.to_string().contains(&format!("chmod 700 {}", bench.folder().display())), "{error}");
    }
}

#[tokio::test]
async fn links_and_pipes_are_neither_read_nor_followed() {
    let bench = Bench::new();
    let store = bench.plain();
    store.save(&credentials(SERVER, "t")).await.expect("saved");
    let (file, target) = (bench.file(), bench.root.path().join("target"));
    fs::rename(&file, &target).expect("a rename");
    symlink(&target, &file).expect("a link");
    let error = store.load(SERVER, None).await.expect_err("refused").to_string();
    assert!(error.contains("symbolic link; remove it with `rm "), "{error}");
    store.save(&credentials(SERVER, "new")).await.expect("saved");
    assert!(fs::read_to_string(&target).expect("a file").contains(r#""t""#), "the target is unchanged");
    fs::remove_file(&file).expect("removed");
    assert!(std::process::Command::new("mkfifo").arg(&file).status().expect("mkfifo").success());
    assert!(matches!(store.load(SERVER, None).await, Err(StoreError::Read { .. })));
    assert!(store.remove(SERVER, None).await.expect("removed"));
}

#[tokio::test]
async fn damaged_files_are_described_listed_and_removed() {
    let bench = Bench::new();
    let store = bench.plain();
    store.save(&credentials(SERVER, "s3cret-t0ken")).await.expect("saved");
    let (file, whole) = (bench.file(), fs::read(bench.file()).expect("a file"));
    let large = vec![b' '; 2 << 20];
    let newer = br#"{"version":9}"#;
    for damaged in [&whole[..0], &whole[..whole.len() / 2], b"\xff\xfe", b"[]", br#"{"version":1}"#, &large, newer] {
        fs::write(&file, damaged).expect("a file");
        let error = store.load(SERVER, None).await.expect_err("damaged").to_string();
        assert!(error.contains(&file.display().to_string()) && error.contains("ropeway logout SERVER"), "{error}");
        assert!(!error.contains("t0ken"), "{error}");
        let list = store.list().await.expect("a list");
        assert_eq!((list.entries.len(), list.unreadable.len()), (0, 1));
    }
    store.save(&credentials(SERVER, "new")).await.expect("a new sign-in replaces it");
    fs::write(&file, "x").expect("a file");
    assert!(store.remove(SERVER, None).await.expect("removed"));
    fs::write(&file, "x").expect("a file");
    assert_eq!(store.remove_all().await.expect("removed"), 1);
}

#[tokio::test]
async fn a_file_of_one_server_is_not_used_for_another() {
    let bench = Bench::new();
    let store = bench.plain();
    store.save(&credentials("https://evil", "t")).await.expect("saved");
    let evil = bench.file();
    store.save(&credentials(SERVER, "t")).await.expect("saved");
    let files = super::files::token_files(&bench.folder()).expect("files");
    let other = files.iter().find(|path| **path != evil).expect("a file");
    fs::copy(&evil, other).expect("a copy");
    let error = store.load(SERVER, None).await.expect_err("refused").to_string();
    assert!(error.contains("belongs to another server"), "{error}");
    let list = store.list().await.expect("a list");
    assert_eq!((list.entries.len(), list.unreadable.len()), (1, 1));
}

#[tokio::test]
async fn a_stamp_notices_changes_of_its_own_sign_in_only() {
    let bench = Bench::new();
    for store in [bench.plain(), TokenStore::in_memory()] {
        let none = store.stamp(SERVER, None);
        assert!(!store.changed_since(SERVER, None, &none));
        store.save(&credentials(SERVER, "1")).await.expect("saved");
        assert!(store.changed_since(SERVER, None, &none));
        let one = store.stamp(SERVER, None);
        store.save(&credentials("https://b", "1")).await.expect("saved");
        assert!(!store.changed_since(SERVER, None, &one));
        store.save(&credentials(SERVER, "1")).await.expect("saved");
        assert!(store.changed_since(SERVER, None, &one));
        let two = store.stamp(SERVER, None);
        store.remove(SERVER, None).await.expect("removed");
        assert!(store.changed_since(SERVER, None, &two));
    }
}

#[tokio::test]
async fn a_lock_is_held_by_one_task_and_does_not_affect_other_sign_ins() {
    let bench = Bench::new();
    for store in [bench.plain(), TokenStore::in_memory()] {
        let limit = Duration::from_millis(100);
        let held = store.lock(SERVER, None).await.expect("a lock");
        let error = store.lock_within("https://A.example/mcp", None, limit).await.expect_err("busy");
        assert!(matches!(&error, StoreError::Busy { server, .. } if server == SERVER), "{error}");
        let _other = store.lock_within(SERVER, Some("bob"), limit).await.expect("a lock");
        let waiting = tokio::spawn({
            let store = store.clone();
            async move { store.lock(SERVER, None).await.map(drop) }
        });
        tokio::time::sleep(Duration::from_millis(50)).await;
        assert!(!waiting.is_finished());
        drop(held);
        waiting.await.expect("no panic").expect("a lock");
    }
}

#[tokio::test]
async fn sign_ins_that_are_too_large_are_refused() {
    let bench = Bench::new();
    let store = bench.plain();
    let error = store.save(&credentials(SERVER, &"x".repeat(1 << 20))).await.expect_err("too large");
    assert!(matches!(error, StoreError::TooLarge { .. }), "{error}");
    let long = format!("https://a/{}", "x".repeat(10 << 10));
    assert!(matches!(store.save(&credentials(&long, "t")).await, Err(StoreError::TooLarge { .. })));
}

#[tokio::test]
async fn the_number_of_listed_sign_ins_is_bounded() {
    let bench = Bench::new();
    let store = bench.plain();
    store.check().await.expect("a folder");
    for number in 0..=super::MAX_ENTRIES {
        fs::write(bench.folder().join(format!("{number}.json")), "").expect("a file");
    }
    let list = store.list().await.expect("a list");
    assert_eq!((list.unreadable.len(), list.truncated), (super::MAX_ENTRIES, true));
}

#[tokio::test]
async fn a_keyring_holds_the_key_that_encrypts_the_files() {
    let bench = Bench::new();
    let store = bench.keyring(KeyringMode::Auto, WORKING);
    store.save(&credentials(SERVER, "s3cret-t0ken")).await.expect("saved");
    assert!(!fs::read_to_string(bench.file()).expect("a file").contains("s3cret-t0ken"));
    assert_eq!(store.load(SERVER, None).await.expect("one"), Some(credentials(SERVER, "s3cret-t0ken")));
    assert_eq!(store.list().await.expect("a list").entries[0].protection, Protection::Keyring);
    let calls = bench.calls();
    store.save(&credentials(SERVER, "2")).await.expect("saved");
    store.load(SERVER, None).await.expect("one");
    assert_eq!(bench.calls(), calls, "the key is read once");
    let another = bench.keyring(KeyringMode::Required, WORKING);
    assert_eq!(another.load(SERVER, None).await.expect("one"), Some(credentials(SERVER, "2")));
    let error = bench.plain().load(SERVER, None).await.expect_err("encrypted").to_string();
    assert!(error.contains("`ROPEWAY_KEYRING=off` disables"), "{error}");
    assert!(bench.plain().remove(SERVER, None).await.expect("removed"));
}

#[tokio::test]
async fn stores_that_start_together_make_one_key() {
    let bench = Bench::new();
    let stores: Vec<_> = (0..6).map(|_| bench.keyring(KeyringMode::Required, WORKING)).collect();
    let tasks = stores.into_iter().enumerate().map(|(number, store)| {
        tokio::spawn(async move { store.save(&credentials(&format!("https://{number}.example"), "t")).await })
    });
    let tasks: Vec<_> = tasks.collect();
    for task in tasks {
        task.await.expect("no panic").expect("saved");
    }
    let fresh = bench.keyring(KeyringMode::Required, WORKING);
    for number in 0..6 {
        assert!(fresh.load(&format!("https://{number}.example"), None).await.expect("one").is_some());
    }
}

#[tokio::test]
async fn a_machine_without_a_keyring_uses_private_files_unless_it_is_required() {
    let bench = Bench::new();
    let store = bench.keyring(KeyringMode::Auto, NO_SERVICE);
    assert_eq!(store.check().await.expect("usable"), Protection::File);
    store.save(&credentials(SERVER, "t")).await.expect("saved");
    assert_eq!(store.load(SERVER, None).await.expect("one"), Some(credentials(SERVER, "t")));
    let store = bench.keyring(KeyringMode::Required, NO_SERVICE);
    for error in
        [store.check().await.expect_err("required"), store.save(&credentials(SERVER, "t")).await.expect_err("required")]
    {
        assert!(matches!(error, StoreError::Keyring(KeyringError::Unavailable { .. })), "{error}");
    }
    assert!(store.load(SERVER, None).await.expect("readable").is_some(), "files without encryption stay readable");
}

#[tokio::test]
async fn a_locked_keyring_is_an_error_and_no_reason_to_store_in_plain() {
    let bench = Bench::new();
    let store = bench.keyring(KeyringMode::Auto, LOCKED);
    for error in
        [store.check().await.expect_err("locked"), store.save(&credentials(SERVER, "t")).await.expect_err("locked")]
    {
        assert!(error.to_string().starts_with("the keyring is locked; unlock it and try again, or set"), "{error}");
    }
    assert_eq!(super::files::token_files(&bench.folder()).expect("files").len(), 0);
    bench.keyring(KeyringMode::Auto, WORKING).save(&credentials(SERVER, "t")).await.expect("saved");
    let store = bench.keyring(KeyringMode::Auto, LOCKED);
    let error = store.load(SERVER, None).await.expect_err("locked");
    assert!(matches!(error, StoreError::Keyring(KeyringError::Locked)), "{error}");
    assert_eq!(store.list().await.expect("a list").entries.len(), 1, "listing needs no key");
    assert!(store.remove(SERVER, None).await.expect("removing needs no key"));
}

#[tokio::test]
async fn a_keyring_that_hangs_is_ended_once_for_all_callers() {
    let bench = Bench::new();
    let store = bench.keyring(KeyringMode::Auto, HANGING);
    let began = Instant::now();
    let tasks: Vec<_> = (0..5)
        .map(|_| {
            tokio::spawn({
                let store = store.clone();
                async move { store.save(&credentials(SERVER, "t")).await }
            })
        })
        .collect();
    for task in tasks {
        let error = task.await.expect("no panic").expect_err("hangs");
        assert!(matches!(error, StoreError::Keyring(KeyringError::Timeout { seconds: 2, .. })), "{error}");
    }
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
}

#[tokio::test]
async fn a_key_that_files_need_is_never_replaced() {
    let bench = Bench::new();
    bench.keyring(KeyringMode::Auto, WORKING).save(&credentials(SERVER, "t")).await.expect("saved");
    // A dismissed prompt looks like a keyring without the key.
    let store = bench.keyring(KeyringMode::Auto, "[ $1 = store ] && exit 9; exit 1");
    for error in [
        store.save(&credentials("https://b", "t")).await.expect_err("no key"),
        store.load(SERVER, None).await.expect_err("no key"),
    ] {
        assert!(
            matches!(&error, StoreError::Keyring(KeyringError::MissingKey { server }) if server == SERVER),
            "{error}"
        );
        assert!(error.to_string().contains(&format!("`ropeway logout {SERVER}`")), "{error}");
    }
    store.remove(SERVER, None).await.expect("removed");
    let store = bench.keyring(KeyringMode::Auto, WORKING);
    store.save(&credentials("https://b", "t")).await.expect("saved");
}

#[tokio::test]
async fn a_keyring_that_forgets_or_garbles_the_key_is_an_error() {
    let bench = Bench::new();
    for script in ["[ $1 = store ] && exit 0; exit 1", "echo garbage", "kill -9 $$", "exit 3"] {
        let error = bench.keyring(KeyringMode::Auto, script).save(&credentials(SERVER, "t")).await.expect_err(script);
        assert!(matches!(error, StoreError::Keyring(KeyringError::Failed { .. })), "{script}: {error}");
    }
}

#[tokio::test]
async fn the_keyring_program_gets_a_minimal_environment_and_no_secret_arguments() {
    let bench = Bench::new();
    let script = format!("env | cut -d= -f1 | sort -u > $home/env; echo \"$@\" >> $home/args; {WORKING}");
    bench.keyring(KeyringMode::Auto, &script).save(&credentials(SERVER, "t")).await.expect("saved");
    let read = |name: &str| fs::read_to_string(bench.root.path().join("keyring").join(name)).expect("a file");
    let (variables, arguments) = (read("env"), read("args"));
    let allowed = |name: &str| {
        name.starts_with("XDG_")
            || name.starts_with("DBUS_")
            || [
                "LC_ALL",
                "HOME",
                "PATH",
                "PWD",
                "_",
                "SHLVL",
                "OLDPWD",
                "DISPLAY",
                "LOGNAME",
                "TMPDIR",
                "USER",
                "WAYLAND_DISPLAY",
                "XAUTHORITY",
            ]
            .contains(&name)
    };
    assert!(variables.lines().all(allowed), "{variables}");
    let name = arguments.split_whitespace().last().expect("a name").to_owned();
    assert!(!arguments.contains(read(&name).trim()), "{arguments}");
}

#[tokio::test]
async fn exports_move_sign_ins_between_stores_and_keep_newer_ones() {
    let (from, to) = (Bench::new(), Bench::new());
    let source = from.keyring(KeyringMode::Required, WORKING);
    for server in ["https://a", "https://b"] {
        source.save(&credentials(server, "old")).await.expect("saved");
    }
    assert!(matches!(source.export(&"short".into()).await, Err(StoreError::WeakPassphrase)));
    let text = source.export(&"correct horse".into()).await.expect("an export");
    let target = to.plain();
    let mut newer = credentials("https://b", "new");
    newer.obtained_at = from_unix(1_800_000_000);
    target.save(&newer).await.expect("saved");
    assert!(matches!(target.import(text.expose(), &"wrong horse".into()).await, Err(StoreError::Passphrase)));
    let report = target.import(text.expose(), &"correct horse".into()).await.expect("imported");
    assert_eq!(report, ImportReport { imported: 1, kept: 1 });
    assert_eq!(target.load("https://a", None).await.expect("one"), Some(credentials("https://a", "old")));
    assert_eq!(target.load("https://b", None).await.expect("one"), Some(newer));
}

#[tokio::test]
async fn an_invalid_keyring_setting_is_reported_and_an_entry_can_be_removed() {
    let bench = Bench::new();
    bench.plain().save(&credentials(SERVER, "t")).await.expect("saved");
    let keyring = Keyring::new(Duration::from_secs(1));
    let store = TokenStore::files(bench.folder(), Err("of".to_owned()), keyring);
    let error = store.load(SERVER, None).await.expect_err("invalid").to_string();
    assert_eq!(error, "invalid `ROPEWAY_KEYRING` value `of`: use `off`, `auto` or `required`");
    assert!(store.remove(SERVER, None).await.expect("removed"));
    assert!("Off".parse::<KeyringMode>().is_err());
    assert_eq!("".parse::<KeyringMode>().expect("the default"), KeyringMode::Auto);
}

#[test]
fn debug_output_of_a_store_has_no_secrets() {
    let store = TokenStore::in_memory();
    assert_eq!(format!("{store:?}"), "TokenStore { folder: None, .. }");
}
