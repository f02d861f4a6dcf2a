//! Servers with a sandbox, and the launcher that a host names.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use ropeway::bridge::Bridge;
use ropeway::config::{LockPolicy, Sandbox};
use ropeway::lock::Lock;
use ropeway::registry::ServerState;
use ropeway::testing::Script;
use ropeway_config::SandboxProfile;

use super::{child, config, entry, outcomes, pid, started};
use crate::scene::scene;

/// Writes a launcher that stores the profile and restricts nothing.
fn launcher(folder: &Path) -> (PathBuf, PathBuf) {
    let (program, profile) = (folder.join("launcher"), folder.join("profile"));
    let digits = "$(dd bs=1 count=8 2>/dev/null)";
    let text = format!(
        "#!/bin/sh\n[ \"$1 $2\" = '__sandbox --' ] || exit 1\nshift 2\nlength={digits}\n\
         {{ printf %s \"$length\"; dd bs=1 count=$((0x$length)) 2>/dev/null; }} > {}\nexec \"$@\"\n",
        profile.display()
    );
    std::fs::write(&program, text).expect("a file");
    std::fs::set_permissions(&program, PermissionsExt::from_mode(0o755)).expect("permissions");
    (program, profile)
}

#[test]
fn without_a_launcher_only_a_required_sandbox_is_refused() {
    scene(|scene| async move {
        let script = Script::default();
        let required = child(&scene, &script).with_sandbox(Sandbox::new());
        let optional = Sandbox::new().best_effort();
        let optional = child(&scene, &script).with_sandbox(optional);
        let bridge = started(config([entry("a", required), entry("b", optional)])).await;
        let listing = bridge.tools();
        let cause = "could not apply the sandbox: this program has no sandbox launcher".to_owned();
        assert_eq!(outcomes(&listing)["a"], ServerState::Down { cause });
        assert!(matches!(outcomes(&listing)["b"], ServerState::Ready { .. }), "{:?}", outcomes(&listing)["b"]);
        bridge.stop().await;
    });
}

#[test]
fn a_launcher_receives_the_profile_before_the_messages() {
    scene(|scene| async move {
        let (launcher, stored) = launcher(scene.directory());
        let sandbox = Sandbox::new().with_read("/srv").with_network(true).with_files(64);
        let server = child(&scene, &Script::default()).with_sandbox(sandbox.clone());
        let builder = Bridge::builder(config([entry("a", server)]));
        let bridge = builder.sandbox_launcher(launcher).build().expect("a bridge");
        bridge.start().await.expect("a start");
        pid(&bridge, "a").await;
        let bytes = std::fs::read(&stored).expect("a profile");
        let profile = SandboxProfile::read(bytes.as_slice()).expect("a profile");
        assert_eq!((profile.read, profile.network, profile.files), (vec!["/srv".into()], true, Some(64)));
        // The temporary directory exists as long as the server.
        let temp = profile.temp.expect("a folder");
        assert!(temp.is_dir());
        bridge.stop().await;
        assert!(!temp.exists());
    });
}

#[test]
fn entries_with_different_sandboxes_have_their_own_processes() {
    scene(|scene| async move {
        let (launcher, _) = launcher(scene.directory());
        let server = |sandbox: Sandbox| child(&scene, &Script::default()).with_sandbox(sandbox);
        let entries = [
            entry("a", server(Sandbox::new())),
            entry("b", server(Sandbox::new().with_network(true))),
            entry("c", server(Sandbox::new())),
            entry("d", child(&scene, &Script::default())),
        ];
        let bridge = Bridge::builder(config(entries)).sandbox_launcher(launcher).build().expect("a bridge");
        bridge.start().await.expect("a start");
        let mut processes = Vec::new();
        for alias in ["a", "b", "c", "d"] {
            processes.push(pid(&bridge, alias).await);
        }
        assert_eq!(processes[0], processes[2]);
        processes.sort_unstable();
        processes.dedup();
        assert_eq!(processes.len(), 3);
        bridge.stop().await;
    });
}

#[test]
fn a_strict_lock_does_not_start_a_command_that_was_renamed() {
    scene(|scene| async move {
        let marker = scene.directory().join("started");
        let mut lock = Lock::new();
        lock.accept_sandbox(&"before".into(), Some(&Sandbox::new()));
        let mut server = child(&scene, &Script::default());
        (server.command, server.args) = ("touch".to_owned(), vec![marker.display().to_string()]);
        let builder = Bridge::builder(config([entry("now", server)]));
        let bridge = builder.lock(lock, LockPolicy::Strict).build().expect("a bridge");
        bridge.start().await.expect("a start");
        let reason = "it is not in `ropeway.lock`; run `ropeway lock` to accept it, and restart a running gateway";
        assert_eq!(outcomes(&bridge.tools())["now"], ServerState::Invalid { reason: reason.to_owned() });
        assert!(!marker.exists());
        bridge.stop().await;
    });
}

#[test]
fn a_strict_lock_does_not_start_a_server_with_a_wider_sandbox() {
    scene(|scene| async move {
        let (launcher, stored) = launcher(scene.directory());
        let mut lock = Lock::new();
        lock.accept_sandbox(&"a".into(), Some(&Sandbox::new()));
        let server = child(&scene, &Script::default()).with_sandbox(Sandbox::new().with_network(true));
        let builder = Bridge::builder(config([entry("a", server)])).sandbox_launcher(launcher);
        let bridge = builder.lock(lock, LockPolicy::Strict).build().expect("a bridge");
        bridge.start().await.expect("a start");
        let reason = "its sandbox is wider than the locked one (network allowed); run `ropeway lock` to accept it";
        assert_eq!(outcomes(&bridge.tools())["a"], ServerState::Invalid { reason: reason.to_owned() });
        assert!(!stored.exists());
        bridge.stop().await;
    });
}
