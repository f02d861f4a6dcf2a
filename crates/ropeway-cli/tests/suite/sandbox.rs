//! Sandboxes on the kernel of this machine: what a restricted process cannot do, and how ropeway reports it.

use std::io::Write as _;
use std::net::{TcpListener, UdpSocket};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::{Command, Stdio};

use ropeway_config::{CERTIFICATE_VARIABLES, Sandbox, SandboxMode, SandboxProfile};
use ropeway_testing::Script;
use serde_json::{Value, json};

use crate::Run;
use crate::process_marker::{ProcessMarker, signal};
use crate::real::{filesystem, real_entry};
use crate::temp_home::{TRUST, TempHome, entry, having};

/// The interpreter of programs that use sockets and signals.
const PYTHON: &str = "/usr/bin/python3";

/// Returns the version of Landlock's interface, 0 without Landlock: system call 444 with the flag for the version.
fn landlock_version() -> i64 {
    let program = "import ctypes; print(ctypes.CDLL(None).syscall(444, None, 0, 1))";
    let output = Command::new(PYTHON).args(["-c", program]).output().expect("python3 is installed");
    String::from_utf8_lossy(&output.stdout).trim().parse::<i64>().expect("a number").max(0)
}

/// Returns `true` if the kernel has the Landlock that sandboxes need. Otherwise, asserts that a required sandbox is refused.
fn is_enforced() -> bool {
    let version = landlock_version();
    if version >= 6 {
        return true;
    }
    let run = launch(&Sandbox::new(), &["echo", "started"]);
    assert!(run.stdout.is_empty() && run.stderr.contains("Landlock"), "ABI {version}: {}{}", run.stdout, run.stderr);
    eprintln!("this kernel has Landlock ABI {version}: only the refusal was tested");
    false
}

/// Runs a command in a sandbox, as the library starts servers.
fn launch(sandbox: &Sandbox, command: &[&str]) -> Run {
    launch_as(None, sandbox, command)
}

/// Like [`launch`], as another user.
fn launch_as(user: Option<u32>, sandbox: &Sandbox, command: &[&str]) -> Run {
    launch_profile(user, &SandboxProfile::new(sandbox, "token"), command)
}

fn launch_profile(user: Option<u32>, profile: &SandboxProfile, command: &[&str]) -> Run {
    let process_marker = ProcessMarker::new();
    let mut launcher = match user {
        None => Command::new(env!("CARGO_BIN_EXE_ropeway")),
        Some(user) => {
            let mut command = Command::new("setpriv");
            command.args([format!("--reuid={user}"), format!("--regid={user}"), "--clear-groups".to_owned()]);
            command.arg(env!("CARGO_BIN_EXE_ropeway"));
            command
        }
    };
    launcher.args(["__sandbox", "--"]).args(command);
    launcher.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    process_marker.put_on(&mut launcher);
    let mut child = launcher.spawn().expect("ropeway starts");
    let profile = profile.encode().expect("a profile");
    let mut stdin = child.stdin.take().expect("a pipe");
    stdin.write_all(&profile).and_then(|()| stdin.write_all(b"the rest\n")).expect("it reads");
    drop(stdin);
    let run = Run::from(child.wait_with_output().expect("an end"));
    process_marker.processes().into_iter().for_each(|id| signal("KILL", id));
    run
}

/// Runs a shell command in a sandbox.
fn shell(sandbox: &Sandbox, command: &str) -> Run {
    launch(sandbox, &["sh", "-c", command])
}

/// Runs a Python program that prints the number and the name of each error of the system.
fn python(sandbox: &Sandbox, lines: &[&str]) -> Vec<String> {
    let steps = lines.iter().map(|line| {
        format!("try:\n    {line}\n    print('allowed')\nexcept OSError as error:\n    print(errno.errorcode[error.errno])\n")
    });
    let program = format!("import ctypes, errno, os, signal, socket\n{}", steps.collect::<String>());
    let run = launch(sandbox, &[PYTHON, "-c", &program]);
    assert_eq!(run.stderr, "");
    run.stdout.lines().map(str::to_owned).collect()
}

/// Creates a place with the directory `in` and the directory `out`, each with a file.
fn two_folders() -> TempHome {
    let temp_home = TempHome::new();
    for folder in ["in", "out"] {
        std::fs::create_dir(temp_home.path().join(folder)).expect("a folder");
        temp_home.write(&format!("{folder}/file"), folder);
    }
    temp_home
}

#[test]
fn the_rest_of_the_input_belongs_to_the_server() {
    if is_enforced() {
        let run = launch(&Sandbox::new(), &["cat"]).expect(0);
        assert_eq!((run.stdout.as_str(), run.stderr.as_str()), ("the rest\n", ""));
    }
}

#[test]
fn a_file_outside_of_the_profile_can_be_neither_read_nor_changed() {
    if !is_enforced() {
        return;
    }
    let temp_home = two_folders();
    let folder = temp_home.path().display();
    let run = |sandbox: &Sandbox, command: &str| {
        let run = shell(sandbox, &format!("cd {folder}; {command}"));
        (run.code == Some(0), run.stdout)
    };
    let reader = Sandbox::new().with_read(temp_home.path().join("in"));
    assert_eq!(run(&reader, "cat in/file"), (true, "in".to_owned()));
    let writer = Sandbox::new().with_write(temp_home.path().join("in"));
    let changes = "echo new > in/file && mv in/file in/moved && rm in/moved && mkdir in/a && touch in/file";
    assert!(run(&writer, changes).0);
    for command in ["cat out/file", "ls out", "ls .", "cat ropeway.yaml", "ls ~", "cat /etc/shadow"] {
        assert!(!run(&writer, command).0, "{command}");
    }
    for command in ["touch in/new", "rm in/file", "truncate -s 0 in/file", "echo x >> in/file", "chmod 777 in/file"] {
        assert!(!run(&reader, command).0, "{command}");
    }
    for command in
        ["touch out/new", "rm out/file", "truncate -s 0 out/file", "ln out/file in/link", "mv out/file in/file"]
    {
        assert!(!run(&writer, command).0, "{command}");
    }
    // A link does not lead out.
    std::os::unix::fs::symlink("../out/file", temp_home.path().join("in/out")).expect("a link");
    assert!(!run(&writer, "cat in/out").0);
    assert_eq!(std::fs::read_to_string(temp_home.path().join("out/file")).expect("a file"), "out");
}

/// Writes a script that can be executed.
fn script(temp_home: &TempHome, name: &str, text: &str) -> String {
    let path = temp_home.write(name, text);
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).expect("permissions");
    temp_home.path().join(name).display().to_string()
}

#[test]
fn the_first_line_of_a_script_cannot_widen_its_sandbox() {
    if !is_enforced() {
        return;
    }
    let temp_home = two_folders();
    let secret = temp_home.path().join("out/file");
    let line = "#!/usr/bin/env -S -u /usr/../x /bin/sh";
    let server = script(&temp_home, "in/server", &format!("{line}\ncat {}\n", secret.display()));
    for mode in [SandboxMode::Required, SandboxMode::BestEffort] {
        let run = launch(&Sandbox::new().with_mode(mode), &[&server]);
        assert_eq!((run.code, run.stdout.as_str()), (Some(126), ""));
        assert!(run.stderr.contains(line) && run.stderr.contains("to `sandbox.read`"), "{}", run.stderr);
    }
    // An interpreter that is neither executable nor a file opens nothing.
    for interpreter in [temp_home.path().to_owned(), secret.clone()] {
        let server = script(&temp_home, "in/server", &format!("#!{}\n", interpreter.display()));
        let run = launch(&Sandbox::new(), &[&server]);
        assert!(run.stderr.starts_with("token {\"exec\":13}"), "{}", run.stderr);
    }
    let server = script(&temp_home, "in/server", "#!/bin/sh\necho started\n");
    assert_eq!(launch(&Sandbox::new(), &[&server]).expect(0).stdout, "started\n");
}

#[test]
fn files_beside_a_program_stay_closed() {
    if !is_enforced() {
        return;
    }
    let temp_home = two_folders();
    temp_home.write("in/.env", "SECRET=1");
    let server = script(&temp_home, "in/server", "#!/bin/sh\ncat \"${0%/*}/.env\" || echo closed\n");
    assert_eq!(launch(&Sandbox::new(), &[&server]).expect(0).stdout, "closed\n");
}

#[test]
fn the_variables_of_an_entry_do_not_affect_the_launcher() {
    if !is_enforced() {
        return;
    }
    let profile = SandboxProfile::new(&Sandbox::new(), "token").with_env([("X", "from the entry")]);
    assert_eq!(launch_profile(None, &profile, &["sh", "-c", "echo $X"]).expect(0).stdout, "from the entry\n");
    // The loader of the launcher would write a file, which the server cannot.
    let temp_home = TempHome::new();
    std::fs::create_dir(temp_home.path().join("leak")).expect("a folder");
    let output = temp_home.path().join("leak/file");
    let variables = json!({"LD_DEBUG": "libs", "LD_DEBUG_OUTPUT": output});
    let entry = scripted(json!(true));
    let mut env = entry["env"].as_object().cloned().unwrap_or_default();
    env.extend(variables.as_object().cloned().unwrap_or_default());
    temp_home.configure(&[having(entry, json!({"env": env}))]);
    temp_home.run("call s.echo message=hi").expect(0);
    assert_eq!(std::fs::read_dir(temp_home.path().join("leak")).expect("a folder").count(), 0);
}

#[test]
fn an_entry_cannot_choose_the_cache_of_a_package_runner() {
    if !is_enforced() {
        return;
    }
    let temp_home = two_folders();
    let out = temp_home.path().join("out");
    let text = format!("#!/bin/sh\ntouch {}/new || echo denied\n", out.display());
    for (name, variable) in [("npx", "npm_config_cache"), ("uvx", "UV_CACHE_DIR"), ("uv", "XDG_DATA_HOME")] {
        let runner = script(&temp_home, &format!("in/{name}"), &text);
        let folder = temp_home.path().join("in").display().to_string();
        for (command, path) in
            [(runner.as_str(), "/usr/bin:/bin".to_owned()), (name, format!("{folder}:/usr/bin:/bin"))]
        {
            let variables = [(variable, out.display().to_string()), ("PATH", path)];
            let profile = SandboxProfile::new(&Sandbox::new(), "token").with_env(variables);
            assert_eq!(launch_profile(None, &profile, &[command]).expect(0).stdout, "denied\n", "{command}");
        }
    }
}

#[test]
fn certificates_of_the_users_own_environment_can_be_read() {
    if !is_enforced() {
        return;
    }
    let temp_home = TempHome::new();
    let certificate = temp_home.write("ca.pem", "company-certificate");
    // The server ends, so its standard error is shown.
    let command = "cat \"$SSL_CERT_FILE\" >&2";
    let server = json!({"alias": "s", "command": "sh", "args": ["-c", command], "sandbox": true});
    let said = |server: &Value, own: Option<&Path>| {
        temp_home.configure(std::slice::from_ref(server));
        let command = temp_home.ropeway(&["doctor", "s"]).with(|command| {
            for name in CERTIFICATE_VARIABLES {
                command.env_remove(name);
            }
            command.envs(own.map(|own| ("SSL_CERT_FILE", own)));
        });
        command.run().expect(3).stdout
    };
    let report = said(&server, Some(&certificate));
    let shown = format!("reads the certificates of your environment: `{}` (SSL_CERT_FILE)", certificate.display());
    assert!(report.contains(&shown) && report.contains("company-certificate"), "{report}");
    // An entry cannot open a file this way.
    let hostile = having(server, json!({"env": {"SSL_CERT_FILE": certificate}}));
    let report = said(&hostile, None);
    assert!(report.contains("Permission denied") && !report.contains("company-certificate"), "{report}");
}

#[test]
fn inherited_files_do_not_reach_the_server() {
    if !is_enforced() {
        return;
    }
    let temp_home = two_folders();
    let profile = SandboxProfile::new(&Sandbox::new(), "token").encode().expect("a profile");
    let command = format!(
        "exec 9<{} {} __sandbox -- sh -c 'cat <&9 || echo closed'",
        temp_home.path().join("out/file").display(),
        env!("CARGO_BIN_EXE_ropeway")
    );
    let mut shell = Command::new("sh");
    shell.args(["-c", &command]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = shell.spawn().expect("sh starts");
    child.stdin.take().expect("a pipe").write_all(&profile).expect("it reads");
    assert_eq!(Run::from(child.wait_with_output().expect("an end")).stdout, "closed\n");
}

#[test]
fn limits_and_priorities_of_other_processes_cannot_be_changed() {
    if !is_enforced() {
        return;
    }
    let lines = [
        "__import__('resource').prlimit(os.getppid(), 0, (99999, 99999))",
        "os.setpriority(os.PRIO_PROCESS, os.getppid(), 19)",
        "os.setpriority(os.PRIO_USER, 0, 19)",
        "os.sched_setaffinity(os.getppid(), os.sched_getaffinity(0))",
        "os.sched_setscheduler(os.getppid(), os.SCHED_BATCH, os.sched_param(0))",
    ];
    assert_eq!(python(&Sandbox::new(), &lines), ["EPERM"; 5]);
    let own = [
        "__import__('resource').prlimit(os.getppid(), 0)",
        "__import__('resource').prlimit(0, 0, (99999, 99999))",
        "os.setpriority(os.PRIO_PROCESS, 0, 19)",
        "os.sched_setaffinity(0, os.sched_getaffinity(0))",
    ];
    // Reading the limits of a process outside of the sandbox is left to the kernel.
    assert_eq!(python(&Sandbox::new(), &own)[1..], ["allowed"; 3]);
}

#[test]
fn shared_memory_of_other_processes_is_out_of_reach() {
    if !is_enforced() {
        return;
    }
    let call = |name: &str| {
        format!(
            "ctypes.CDLL(None, use_errno=True).{name}(0, 4096, 0o1600) < 0 and \
             (_ for _ in ()).throw(OSError(ctypes.get_errno(), ''))"
        )
    };
    let lines = ["shmget", "msgget", "semget"].map(call);
    assert_eq!(python(&Sandbox::new(), &lines.each_ref().map(String::as_str)), ["EPERM"; 3]);
}

#[test]
fn metadata_cannot_be_changed_through_an_open_file() {
    if !is_enforced() {
        return;
    }
    let temp_home = two_folders();
    let (file, folder) = (temp_home.path().join("in/file"), temp_home.path().join("in"));
    let open = format!("os.open('{}', os.O_RDONLY)", file.display());
    let reader = Sandbox::new().with_read(&folder);
    let lines = [
        format!("os.fchmod({open}, 0o777)"),
        format!("os.fchown({open}, os.getuid(), os.getgid())"),
        format!("os.utime({open})"),
        format!("os.setxattr({open}, 'user.x', b'')"),
        format!("__import__('fcntl').ioctl({open}, 0x40086602, bytes(8))"),
    ];
    assert_eq!(python(&reader, &lines.each_ref().map(String::as_str)), ["EPERM"; 5]);
    // A server that may change files can create no program that runs with the rights of its owner.
    let path = file.display();
    let lines = [
        format!("os.chmod('{path}', 0o4755)"),
        format!("os.chmod('{path}', 0o2755)"),
        format!("os.fchmod({open}, 0o4755)"),
        format!("os.open('{path}.new', os.O_CREAT | os.O_WRONLY, 0o4755)"),
        format!("os.open('{}', os.O_TMPFILE | os.O_WRONLY, 0o4755)", folder.display()),
        format!("os.mknod('{path}.node', 0o104755)"),
        format!("os.chmod('{path}', 0o755)"),
        format!("os.open('{path}.new', os.O_CREAT | os.O_WRONLY, 0o644)"),
    ];
    let found = python(&Sandbox::new().with_write(&folder), &lines.each_ref().map(String::as_str));
    assert_eq!(found, ["EPERM", "EPERM", "EPERM", "EPERM", "EPERM", "EPERM", "allowed", "allowed"]);
}

#[test]
fn without_write_paths_no_permission_can_be_changed() {
    if !is_enforced() {
        return;
    }
    let temp_home = two_folders();
    let file = temp_home.path().join("out/file");
    let mode = || std::fs::metadata(&file).expect("a file").permissions().mode() & 0o777;
    let before = mode();
    let run = shell(&Sandbox::new(), &format!("chmod 777 {}", file.display()));
    assert!(run.stderr.contains("Operation not permitted"), "{}", run.stderr);
    assert_eq!(mode(), before);
}

#[test]
fn other_processes_are_out_of_reach() {
    if !is_enforced() {
        return;
    }
    let (own, parent) = (std::process::id(), format!("/proc/{}/environ", std::process::id()));
    let run = shell(&Sandbox::new(), &format!("cat {parent}"));
    assert!(run.code != Some(0) && run.stdout.is_empty(), "{}", run.stdout);
    // Its own environment is there.
    assert!(shell(&Sandbox::new(), "cat /proc/self/environ").expect(0).stdout.contains("PATH="));
    let attach = format!(
        "ctypes.CDLL(None, use_errno=True).ptrace(16, {own}, 0, 0) and (_ for _ in ()).throw(OSError(ctypes.get_errno(), ''))"
    );
    let signal = format!("os.kill({own}, 0)");
    let found = python(&Sandbox::new(), &[&attach, &signal]);
    assert_eq!(found[0], "EPERM");
    if landlock_version() >= 6 {
        assert_eq!(found[1], "EPERM");
    }
}

#[test]
fn without_network_no_socket_of_any_kind_can_be_made() {
    if !is_enforced() {
        return;
    }
    let tcp = TcpListener::bind("127.0.0.1:0").expect("a port");
    let udp = UdpSocket::bind("127.0.0.1:0").expect("a port");
    let (tcp, udp) = (tcp.local_addr().expect("an address").port(), udp.local_addr().expect("an address").port());
    let connect = format!("socket.socket().connect(('127.0.0.1', {tcp}))");
    let send = format!("socket.socket(type=socket.SOCK_DGRAM).sendto(b'x', ('127.0.0.1', {udp}))");
    let lines = [
        connect.as_str(),
        &send,
        "socket.socket(socket.AF_INET6)",
        "socket.socket(socket.AF_INET, socket.SOCK_RAW, 1)",
        "socket.socket(socket.AF_PACKET, socket.SOCK_RAW)",
        "socket.socket(socket.AF_VSOCK)",
    ];
    assert_eq!(python(&Sandbox::new(), &lines), ["EPERM"; 6]);
    let open = Sandbox::new().with_network(true);
    assert_eq!(python(&open, &lines[..2]), ["allowed"; 2]);
    // Addresses and routes can be read, but not the sockets of the machine or the events of its devices.
    let netlink = |protocol: u32| format!("socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, {protocol})");
    assert_eq!(python(&Sandbox::new(), &[&netlink(0)]), ["allowed"]);
    for protocol in [2, 4, 6, 9, 12, 15, 16] {
        assert_eq!(python(&Sandbox::new(), &[&netlink(protocol)]), ["EPERM"], "{protocol}");
    }
    // Node.js uses pairs of sockets as pipes.
    assert_eq!(python(&Sandbox::new(), &["socket.socketpair()"]), ["allowed"]);
}

#[test]
fn unix_sockets_need_a_key_of_their_own() {
    if !is_enforced() {
        return;
    }
    let temp_home = TempHome::new();
    let path = temp_home.path().join("daemon.sock");
    let _daemon = UnixListener::bind(&path).expect("a socket");
    let connect = format!("socket.socket(socket.AF_UNIX).connect('{}')", path.display());
    assert_eq!(python(&Sandbox::new().with_network(true), &[&connect]), ["EPERM"]);
    assert_eq!(python(&Sandbox::new().with_unix_sockets(true), &[&connect]), ["allowed"]);
    // Datagrams of a connected pair can be sent to any path.
    let pair = |kind: &str| format!("socket.socketpair(type=socket.{kind})");
    let pairs = ["SOCK_DGRAM", "SOCK_RAW", "SOCK_STREAM", "SOCK_SEQPACKET"].map(pair);
    let pairs = pairs.each_ref().map(String::as_str);
    assert_eq!(python(&Sandbox::new().with_network(true), &pairs), ["EPERM", "EPERM", "allowed", "allowed"]);
    assert_eq!(python(&Sandbox::new().with_unix_sockets(true), &pairs[..1]), ["allowed"]);
}

#[test]
fn dangerous_system_calls_are_refused_and_not_fatal() {
    if !is_enforced() {
        return;
    }
    let call = |number: i64, first: i64| {
        format!(
            "ctypes.CDLL(None, use_errno=True).syscall({number}, {first}, 0, 0, 0, 0) < 0 and \
             (_ for _ in ()).throw(OSError(ctypes.get_errno(), ''))"
        )
    };
    // The numbers from 424 on are the same on every architecture: io_uring_setup, clone3, open_tree, pidfd_getfd.
    let lines: Vec<String> = [(425, 1), (435, 0), (428, 0), (438, 0)].map(|(number, first)| call(number, first)).into();
    let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
    assert_eq!(python(&Sandbox::new(), &lines), ["EPERM", "ENOSYS", "EPERM", "EPERM"]);
    let unshare = launch(&Sandbox::new(), &["unshare", "--user", "true"]);
    assert!(unshare.stderr.contains("Operation not permitted"), "{}", unshare.stderr);
    if cfg!(target_arch = "x86_64") {
        // `socket` with the number of the x32 interface: the kernel may not have it, but must not allow it.
        let found = python(&Sandbox::new(), &[&call(0x4000_0000 + 41, 2), &call(321, 0), &call(165, 0), &call(250, 0)]);
        assert_eq!(found, ["EPERM", "EPERM", "EPERM", "EPERM"]);
    }
    // Threads and processes still work.
    let threads = "import threading, subprocess; t = threading.Thread(target=print, args=('thread',)); t.start(); t.join(); subprocess.run(['echo', 'process'])";
    assert_eq!(launch(&Sandbox::new(), &[PYTHON, "-u", "-c", threads]).expect(0).stdout, "thread\nprocess\n");
}

#[test]
fn open_files_and_memory_are_limited() {
    if !is_enforced() {
        return;
    }
    let sandbox = Sandbox::new().with_files(32).with_memory(256 << 20);
    let found = python(&sandbox, &["[os.open('/dev/null', os.O_RDONLY) for _ in range(100)]"]);
    assert_eq!(found, ["EMFILE"]);
    let found = launch(&sandbox, &[PYTHON, "-c", "x = bytearray(512 << 20)"]);
    assert!(found.stderr.contains("MemoryError"), "{}", found.stderr);
    launch(&sandbox, &[PYTHON, "-c", "x = bytearray(64 << 20)"]).expect(0);
    assert_eq!(shell(&sandbox, "ulimit -c; ulimit -n").expect(0).stdout, "0\n32\n");
    // Not even root can raise a limit again.
    assert!(shell(&sandbox, "ulimit -n 64").code != Some(0));
}

#[test]
fn processes_are_limited_except_for_root() {
    if !is_enforced() {
        return;
    }
    // Bounded, in case that the limit does not work.
    let bomb = "n=0; while [ $n -lt 200 ]; do sleep 20 & n=$((n+1)); done; echo all of them";
    let sandbox = Sandbox::new().with_processes(20);
    let is_root = rustix::process::getuid().is_root();
    if is_root {
        let run = launch(&sandbox, &["true"]);
        assert!(run.stderr.contains("`processes` has no effect for root"), "{}", run.stderr);
    }
    let run = launch_as(is_root.then_some(54_321), &sandbox, &["dash", "-c", bomb]);
    assert!(run.stdout.is_empty() && run.stderr.contains("Cannot fork"), "{}{}", run.stdout, run.stderr);
}

#[test]
fn a_restriction_that_the_kernel_refuses_ends_a_required_sandbox() {
    if !is_enforced() {
        return;
    }
    // The kernel allows 16 Landlock sandboxes inside of each other.
    let binary = env!("CARGO_BIN_EXE_ropeway");
    let nested = |sandbox: &Sandbox| {
        let sandbox = sandbox.clone().with_read(Path::new(binary).parent().expect("a folder"));
        let profile = SandboxProfile::new(&sandbox, "token").encode().expect("a profile");
        let mut launcher = Command::new(binary);
        for _ in 0..16 {
            launcher.args(["__sandbox", "--", binary]);
        }
        launcher.args(["__sandbox", "--", "echo", "started"]);
        launcher.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = launcher.spawn().expect("ropeway starts");
        child.stdin.take().expect("a pipe").write_all(&profile.repeat(17)).expect("it reads");
        Run::from(child.wait_with_output().expect("an end"))
    };
    let run = nested(&Sandbox::new());
    assert_eq!((run.code, run.stdout.as_str()), (Some(126), ""));
    assert!(run.stderr.starts_with("token {\"refused\":\"could not restrict files: "), "{}", run.stderr);
    let run = nested(&Sandbox::new().with_mode(SandboxMode::BestEffort));
    assert_eq!((run.code, run.stdout.as_str()), (Some(0), "started\n"));
    assert!(run.stderr.contains("warning: the sandbox is incomplete: could not restrict files: "), "{}", run.stderr);
}

#[test]
fn the_launcher_refuses_input_that_is_not_a_profile() {
    let run = Run::of(&["__sandbox", "--", "echo", "started"]);
    assert_eq!((run.code, run.stdout.as_str()), (Some(126), ""));
    assert!(run.stderr.starts_with("error: could not read the profile: "), "{}", run.stderr);
    let run = Run::of(&["__sandbox", "echo"]);
    assert_eq!(run.code, Some(2));
    assert!(run.stderr.contains("`__sandbox` is internal"), "{}", run.stderr);
}

/// Returns the entry of a scripted server with a sandbox.
fn scripted(sandbox: Value) -> Value {
    having(entry("s", &Script::default()), json!({"sandbox": sandbox}))
}

#[test]
fn a_program_that_is_missing_is_reported_as_without_a_sandbox() {
    if !is_enforced() {
        return;
    }
    let temp_home = two_folders();
    let script = temp_home.write("script", "#!/no/such/interpreter\n");
    std::fs::set_permissions(&script, PermissionsExt::from_mode(0o755)).expect("permissions");
    let plain = temp_home.write("plain", "");
    for entry in [
        json!({"alias": "s", "command": "no-such-program"}),
        json!({"alias": "s", "command": "/no/such/program"}),
        json!({"alias": "s", "command": script}),
        json!({"alias": "s", "command": plain}),
        json!({"alias": "s", "command": "cat", "cwd": "no/such/folder"}),
    ] {
        let said = |entry: Value| {
            temp_home.configure(&[entry]);
            let run = temp_home.run("call s.echo");
            (run.code, run.stderr.replace(", or add its directory to `sandbox.read`", ""))
        };
        let expected = said(entry.clone());
        assert!(expected.1.contains("could not start `"), "{}", expected.1);
        assert_eq!(said(having(entry, json!({"sandbox": true}))), expected);
    }
}

#[test]
fn a_sandboxed_server_ends_with_the_command_and_leaves_no_files() {
    if !is_enforced() {
        return;
    }
    let temp_home = TempHome::with(&[scripted(json!(true))]);
    std::fs::create_dir(temp_home.path().join("tmp")).expect("a folder");
    // The mark of the command detects processes that are left.
    let command = temp_home.ropeway(&["call", "s.echo", "message=hi"]);
    let command = command.with(|command| {
        command.env("TMPDIR", temp_home.path().join("tmp"));
    });
    let run = command.run().expect(0);
    assert!(run.stdout.contains("hi"), "{}", run.stdout);
    assert_eq!(std::fs::read_dir(temp_home.path().join("tmp")).expect("a folder").count(), 0);
}

#[test]
fn failed_starts_and_signals_leave_no_files() {
    if !is_enforced() {
        return;
    }
    let temp_home =
        TempHome::with(&[having(entry("s", &Script::default()), json!({"sandbox": true, "command": "/bin/false"}))]);
    let temp = temp_home.path().join("tmp");
    std::fs::create_dir(&temp).expect("a folder");
    let count = || std::fs::read_dir(&temp).expect("a folder").count();
    for _ in 0..5 {
        let command = temp_home.ropeway(&["call", "s.echo", "message=hi"]);
        let run = command.with(|command| {
            command.env("TMPDIR", &temp);
        });
        assert_ne!(run.run().code, Some(0));
        assert_eq!(count(), 0);
    }
    // A server that does not answer.
    temp_home.configure(&[json!({"alias": "s", "command": "sleep", "args": ["60"], "sandbox": true})]);
    for name in ["TERM", "INT", "HUP"] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ropeway"));
        command.args(["call", "s.echo", "--config"]).arg(temp_home.path().join("ropeway.yaml"));
        command.env("TMPDIR", &temp).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut child = command.spawn().expect("ropeway starts");
        while count() == 0 {
            assert!(child.try_wait().expect("a child").is_none(), "it has ended");
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        signal(name, child.id());
        child.wait().expect("an end");
        assert_eq!(count(), 0, "{name}");
    }
}

#[test]
fn the_filesystem_server_cannot_leave_its_profile() {
    if !is_enforced() {
        return;
    }
    // The server itself allows the whole folder.
    let (server, folder) = filesystem("files");
    for name in ["open", "closed"] {
        std::fs::create_dir(folder.path().join(name)).expect("a folder");
        std::fs::write(folder.path().join(name).join("note.txt"), name).expect("a file");
    }
    let temp_home = TempHome::with(&[having(server, json!({"sandbox": {"read": [folder.path().join("open")]}}))]);
    let path = |name: &str| folder.path().join(name).display().to_string();
    let run = temp_home.run(&format!("call files.read_text_file path={}", path("open/note.txt"))).expect(0);
    assert_eq!(run.stdout, "open\n");
    let run = temp_home.run(&format!("call files.read_text_file path={}", path("closed/note.txt"))).expect(1);
    assert_eq!(run.stdout, format!("EACCES: permission denied, open '{}'\n", path("closed/note.txt")));
    let run = temp_home.run(&format!("call files.write_file content=x path={}", path("open/note.txt"))).expect(1);
    assert!(run.stdout.starts_with("EACCES: permission denied"), "{}", run.stdout);
    assert_eq!(std::fs::read_to_string(path("open/note.txt")).expect("a file"), "open");
}

#[test]
fn a_fetch_server_without_network_fetches_nothing() {
    if !is_enforced() {
        return;
    }
    let page = serve_page("<html><body><p>a public page</p></body></html>");
    let (closed, _first) = real_entry("fetch", "closed");
    let (open, _second) = real_entry("fetch", "open");
    let temp_home = TempHome::with(&[
        having(closed, json!({"sandbox": true})),
        having(open, json!({"sandbox": {"network": true}})),
    ]);
    let run = temp_home.run(&format!("call closed.fetch url={page}")).expect(1);
    assert!(run.stdout.contains("due to a connection issue"), "{}", run.stdout);
    let run = temp_home.run(&format!("call open.fetch url={page}")).expect(0);
    assert!(run.stdout.contains("a public page"), "{}{}", run.stdout, run.stderr);
}

/// Serves one page at every path, and returns its URL.
fn serve_page(body: &'static str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}/", listener.local_addr().expect("an address"));
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            let mut request = std::io::BufReader::new(stream.try_clone().expect("a socket"));
            let mut line = String::new();
            while std::io::BufRead::read_line(&mut request, &mut line).is_ok_and(|count| count > 2) {
                line.clear();
            }
            let (length, kind) = (body.len(), "text/html");
            let head = format!(
                "HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n"
            );
            let _ = stream.write_all(format!("{head}{body}").as_bytes());
        }
    });
    url
}

#[test]
fn npx_starts_in_a_sandbox_with_network() {
    if !is_enforced() {
        return;
    }
    let temp_home = TempHome::new();
    temp_home.configure(&[json!({"alias": "memory", "command": "npx",
        "args": ["-y", "@modelcontextprotocol/server-memory@2026.8.31"], "sandbox": {"network": true}})]);
    let run = temp_home.run("tools --timeout 120").expect(0);
    assert!(run.stdout.contains("create_entities"), "{}{}", run.stdout, run.stderr);
}

#[test]
fn doctor_shows_the_profile_and_what_the_kernel_supports() {
    let temp_home = TempHome::with(&[scripted(json!({"read": ["docs"], "memory": "2G"}))]);
    let run = temp_home.run("doctor");
    if is_enforced() {
        assert!(
            run.stdout.contains("sandbox    required; reads `docs`; no network; memory 2G (Landlock ABI "),
            "{}",
            run.stdout
        );
        assert!(
            run.stdout.contains("`read` path `docs` does not exist, so the server cannot use it"),
            "{}",
            run.stdout
        );
        assert!(run.stdout.contains("handshake  scripted"), "{}", run.stdout);
    }
}

#[test]
fn check_warns_about_paths_that_are_missing_or_too_wide() {
    let temp_home = TempHome::with(&[scripted(json!({"read": ["docs"], "write": ["~", "/"]}))]);
    let run = temp_home.run("config check").expect(0);
    let text = run.stdout.split_whitespace().collect::<Vec<_>>().join(" ");
    for words in [
        "sandbox of server `s`: `read` path `docs` does not exist",
        "sandbox of server `s`: `write` path `~` includes your home directory, and with it files such as `~/.ssh`",
        "sandbox of server `s`: `write` path `/` includes the whole file system",
    ] {
        assert!(text.contains(words), "{words}\n{text}");
    }
}

#[test]
fn check_warns_about_runners_without_network_and_little_memory() {
    let temp_home = two_folders();
    std::os::unix::fs::symlink("/etc", temp_home.path().join("docs")).expect("a link");
    temp_home.configure(&[
        json!({"alias": "s", "command": "npx", "args": ["x"], "sandbox": {"memory": "1K", "read": ["docs", "in"]}}),
    ]);
    let run = temp_home.run("config check").expect(0);
    let text = run.stdout.split_whitespace().collect::<Vec<_>>().join(" ");
    for words in [
        "sandbox of server `s`: `npx` may have to download the server; set `network: true`",
        "sandbox of server `s`: `memory` is too small to start a program",
        "sandbox of server `s`: `read` path `docs` is outside of the project: it resolves to `/etc`",
    ] {
        assert!(text.contains(words), "{words}\n{text}");
    }
    let run = temp_home.ropeway(&["trust"]).with(|command| {
        command.env_remove(TRUST);
    });
    let run = run.run().expect(0);
    let text = format!("{}{}", run.stdout, run.stderr).split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(text.contains("no network; memory 1K; changes the package cache of `npx`"), "{text}");
}

#[test]
fn a_removed_sandbox_is_found_without_starting_the_server() {
    if !is_enforced() {
        return;
    }
    let temp_home = TempHome::new();
    let configure = |entry: Value, policy: &str| {
        temp_home.write("ropeway.yaml", &json!({"servers": [entry], "lock": policy}).to_string());
    };
    configure(scripted(json!(true)), "warn");
    temp_home.run("lock").expect(0);
    let without = entry("s", &Script::default());
    configure(having(without.clone(), json!({"command": "/bin/false"})), "warn");
    let run = temp_home.run("lock --check");
    assert_ne!(run.code, Some(0));
    assert!(run.stdout.contains("sandbox removed (wider)"), "{}{}", run.stdout, run.stderr);
    configure(without, "strict");
    let run = temp_home.run("call s.echo message=hi");
    assert!(run.stderr.contains("run `ropeway lock` to accept it"), "{}", run.stderr);
    assert!(!run.stderr.contains("correct or remove the key"), "{}", run.stderr);
}

#[test]
fn the_trust_review_shows_the_sandbox() {
    let temp_home = TempHome::with(&[scripted(json!({"write": ["${NOTES}"], "network": true}))]);
    let command = temp_home.ropeway(&["trust"]).with(|command| {
        command.env_remove(TRUST);
    });
    let run = command.run().expect(0);
    let text = format!("{}{}", run.stdout, run.stderr);
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    for words in [
        "sandbox required; writes `${NOTES}`; network",
        "the environment or `.env` sets paths of the sandbox",
        "reads variable NOTES",
    ] {
        assert!(text.contains(words), "{words}\n{text}");
    }
}

#[test]
fn a_wider_sandbox_differs_from_the_lock() {
    if !is_enforced() {
        return;
    }
    let temp_home = TempHome::new();
    let configure = |sandbox: Option<Value>, policy: &str| {
        let entry = entry("s", &Script::default());
        let entry = sandbox.map_or_else(|| entry.clone(), |sandbox| having(entry.clone(), json!({"sandbox": sandbox})));
        temp_home.write("ropeway.yaml", &json!({"servers": [entry], "lock": policy}).to_string());
    };
    configure(Some(json!({"read": ["docs"], "memory": "2G"})), "warn");
    temp_home.run("lock").expect(0);
    let lock = std::fs::read_to_string(temp_home.path().join("ropeway.lock")).expect("a lock");
    assert!(
        lock.contains("\"read\": [\n          \"docs\"\n        ]") && lock.contains("\"memory\": 2147483648"),
        "{lock}"
    );
    temp_home.run("lock --check").expect(0);

    configure(Some(json!({"write": ["docs"], "network": true, "mode": "best-effort"})), "warn");
    let run = temp_home.run("lock --check").expect(1);
    assert_eq!(
        run.stdout,
        "~ s sandbox changed\n    mode changed from required to best-effort (wider)\n    read path `docs` removed\n    \
         write path `docs` added (wider)\n    network allowed (wider)\n    limit of memory removed (was 2G) (wider)\n"
    );
    let json = temp_home.run("lock --check --json").expect(1).json();
    assert_eq!((&json["sandboxes"][0]["server"], &json["sandboxes"][0]["widens"]), (&json!("s"), &json!(true)));
    let run = temp_home.run("call s.echo message=hi").expect(0);
    assert!(
        run.stderr.contains("warning: server `s`: its sandbox is wider than the locked one (mode changed"),
        "{}",
        run.stderr
    );

    configure(None, "strict");
    let run = temp_home.run("call s.echo message=hi");
    assert!(
        run.code != Some(0) && run.stderr.contains("its sandbox is wider than the locked one (sandbox removed)"),
        "{}",
        run.stderr
    );
    temp_home.run("lock --yes").expect(0);
    temp_home.run("call s.echo message=hi").expect(0);
}
