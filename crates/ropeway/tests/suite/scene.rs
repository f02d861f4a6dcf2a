//! A scene: the environment of one integration test, which must leave no process or task behind.

use std::ffi::OsStr;
use std::fs;
use std::future::Future;
use std::net::TcpListener;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use ropeway::config::{HttpServer, StdioServer, Transport};
use serde_json::Value;
use tempfile::TempDir;
use tokio::net::TcpStream;
use tokio::runtime::Runtime;

/// The environment variable that marks every process of a scene. Child processes inherit it.
const MARKER: &str = "ROPEWAY_TEST_SCENE";

/// Maximum duration of a test, and maximum lifetime of its processes and tasks after it.
#[derive(Clone, Copy)]
struct Patience {
    test: Duration,
    leftovers: Duration,
}

/// The limits of a real test. They only end hanging tests: on an overloaded machine, the longest test takes minutes.
const PATIENCE: Patience = Patience { test: Duration::from_secs(240), leftovers: Duration::from_secs(5) };

/// Maximum time until an HTTP server listens; Python starts slowly on a busy machine.
const START: Duration = Duration::from_secs(30);

/// Runs a test, and asserts that no process of the scene and no task of its runtime is left.
pub(crate) fn scene<F, R>(body: F)
where
    F: FnOnce(Scene) -> R,
    R: Future<Output = ()>,
{
    run(PATIENCE, body);
}

fn run<F, R>(patience: Patience, body: F)
where
    F: FnOnce(Scene) -> R,
    R: Future<Output = ()>,
{
    static NEXT: AtomicU32 = AtomicU32::new(1);
    let marker = format!("{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
    let test = std::thread::current().name().unwrap_or("a test").to_owned();
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime");

    let directory = tempfile::tempdir().expect("a temporary folder");
    let scene = Scene { marker: marker.clone(), directory };
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        runtime.block_on(async {
            let ended = tokio::time::timeout(patience.test, body(scene)).await;
            assert!(ended.is_ok(), "`{test}` was not over after {:?}", patience.test);
        });
    }));

    let left = processes_left(&marker, patience.leftovers);
    for process in &left {
        process.end();
    }
    // A failure of the test itself takes precedence.
    if let Err(panic) = outcome {
        runtime.shutdown_background();
        resume_unwind(panic);
    }
    let tasks = tasks_left(&runtime, patience.leftovers);
    runtime.shutdown_background();
    assert!(left.is_empty(), "`{test}` left processes behind: {}", names(&left));
    assert_eq!(tasks, 0, "`{test}` left tasks behind");
}

/// The environment of a test.
pub(crate) struct Scene {
    marker: String,
    directory: TempDir,
}

impl Scene {
    /// Returns the temporary folder of the test.
    pub(crate) fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// Returns the variable that marks processes of this scene.
    pub(crate) fn mark(&self) -> [(&str, &str); 1] {
        [(MARKER, &self.marker)]
    }

    /// Returns a stdio server with the mark of this scene.
    pub(crate) fn stdio<A: Into<String>>(
        &self,
        command: impl Into<String>,
        args: impl IntoIterator<Item = A>,
    ) -> StdioServer {
        StdioServer::new(command, args).with_env(MARKER, self.marker.as_str())
    }

    /// Returns the processes of the scene, by id and command line.
    pub(crate) fn processes(&self) -> Vec<(i32, String)> {
        marked_processes(&self.marker).into_iter().map(|process| (process.id, process.command)).collect()
    }

    /// Returns an installed stdio server, by its name in `servers.json`.
    pub(crate) fn server(&self, name: &str) -> StdioServer {
        let launch = self.launch(name, 0, "");
        let server = self.stdio(launch.command, launch.args);
        launch.env.into_iter().fold(server, |server, (name, value)| server.with_env(name, value))
    }

    /// Starts an installed HTTP server on a free port, by its name in `servers.json`.
    pub(crate) async fn http_server(&self, name: &str) -> Listening {
        self.http_server_of(name, "").await
    }

    /// Starts an installed HTTP server that accepts the tokens of an authorization server.
    pub(crate) async fn http_server_of(&self, name: &str, issuer: &str) -> Listening {
        // Another process may take the free port before the server does.
        for _ in 0..3 {
            let port = free_port();
            let mut server =
                Listening { launch: self.launch(name, port, issuer), port, log: self.log(name, port), child: None };
            if server.start().await {
                return server;
            }
        }
        panic!("`{name}` does not listen");
    }

    fn log(&self, name: &str, port: u16) -> PathBuf {
        self.directory().join(format!("{name}-{port}.log"))
    }

    fn launch(&self, name: &str, port: u16, issuer: &str) -> Launch {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).with_file_name("servers").join("servers.json");
        let text = fs::read_to_string(path).expect("the servers are not installed: run cargo xtask servers");
        let table: Value = serde_json::from_str(&text).expect("servers.json is JSON");
        let entry = table.get(name).unwrap_or_else(|| panic!("there is no server `{name}`: run cargo xtask servers"));

        let directory = self.directory().to_string_lossy();
        let fill = |value: &Value| {
            let text = value.as_str().unwrap_or_default();
            text.replace("{PORT}", &port.to_string()).replace("{DIR}", &directory).replace("{ISSUER}", issuer)
        };
        let mut env: Vec<_> =
            entry["env"].as_object().into_iter().flatten().map(|(k, v)| (k.clone(), fill(v))).collect();
        env.push((MARKER.to_owned(), self.marker.clone()));
        Launch {
            command: fill(&entry["command"]),
            args: entry["args"].as_array().into_iter().flatten().map(fill).collect(),
            env,
            url: fill(&entry["url"]),
        }
    }
}

/// The start command of a server.
struct Launch {
    command: String,
    args: Vec<String>,
    env: Vec<(String, String)>,
    url: String,
}

/// A listening server. Dropping it terminates the server.
pub(crate) struct Listening {
    launch: Launch,
    port: u16,
    log: PathBuf,
    child: Option<Child>,
}

impl Listening {
    /// Returns the address of the server.
    pub(crate) fn url(&self) -> &str {
        &self.launch.url
    }

    /// Returns settings for the server over Streamable HTTP.
    pub(crate) fn http(&self) -> Transport {
        Transport::Http(HttpServer::new(&self.launch.url))
    }

    /// Returns settings for the server over legacy HTTP+SSE.
    pub(crate) fn sse(&self) -> Transport {
        Transport::Sse(HttpServer::new(&self.launch.url))
    }

    /// Kills the server, like a crash.
    pub(crate) fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            // An error means that it has already exited.
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// Starts the server again on the same port.
    pub(crate) async fn restart(&mut self) {
        self.kill();
        assert!(self.start().await, "`{}` does not listen again", self.launch.url);
    }

    /// Starts the server and waits until its port accepts connections. Returns `false` if the server exits instead.
    async fn start(&mut self) -> bool {
        let log = fs::File::create(&self.log).expect("a log file");
        let mut command = Command::new(&self.launch.command);
        command.args(&self.launch.args).envs(self.launch.env.iter().cloned()).stdin(Stdio::null());
        command.stdout(log.try_clone().expect("a second handle")).stderr(log);
        let mut child = command.spawn().unwrap_or_else(|error| panic!("could not start {command:?}: {error}"));

        let started = Instant::now();
        loop {
            if TcpStream::connect(("127.0.0.1", self.port)).await.is_ok() {
                self.child = Some(child);
                return true;
            }
            let has_ended = child.try_wait().is_ok_and(|status| status.is_some());
            if has_ended || started.elapsed() > START {
                let said = fs::read_to_string(&self.log).unwrap_or_default();
                eprintln!("{command:?} does not listen on {}:\n{said}", self.port);
                self.child = Some(child);
                self.kill();
                return false;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Returns a free port below the ephemeral range. An outgoing connection, even the client's own connection attempt, may take a
/// port of that range at any time.
fn free_port() -> u16 {
    const PORTS: std::ops::Range<u32> = 20_000..32_000;
    static NEXT: AtomicU32 = AtomicU32::new(0);
    // Concurrent test processes start at different ports.
    let start = std::process::id().wrapping_mul(101);
    let count = PORTS.end - PORTS.start;
    let candidates = (0..count).map(|_| start.wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed)) % count + PORTS.start);
    let mut ports = candidates.filter_map(|port| u16::try_from(port).ok());
    ports.find(|port| TcpListener::bind(("127.0.0.1", *port)).is_ok()).expect("a free port")
}

/// A process with the mark of a scene.
#[derive(Debug)]
struct Process {
    id: i32,
    command: String,
}

impl Process {
    fn end(&self) {
        if let Some(id) = rustix::process::Pid::from_raw(self.id) {
            // It may have exited in the meantime.
            let _ = rustix::process::kill_process(id, rustix::process::Signal::KILL);
        }
    }
}

fn names(processes: &[Process]) -> String {
    let names: Vec<_> = processes.iter().map(|process| format!("{} `{}`", process.id, process.command)).collect();
    names.join(", ")
}

/// Returns the processes with the mark that are still alive after the grace period.
fn processes_left(marker: &str, patience: Duration) -> Vec<Process> {
    let started = Instant::now();
    loop {
        let left = marked_processes(marker);
        if left.is_empty() || started.elapsed() > patience {
            return left;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn marked_processes(marker: &str) -> Vec<Process> {
    let entry = format!("{MARKER}={marker}");
    let process = |folder: fs::DirEntry| {
        let id = folder.file_name().to_str()?.parse().ok()?;
        // Zombies have no environment.
        let environment = fs::read(folder.path().join("environ")).ok()?;
        environment.split(|byte| *byte == 0).find(|variable| *variable == entry.as_bytes())?;
        let command = fs::read(folder.path().join("cmdline")).unwrap_or_default();
        let command = String::from_utf8_lossy(&command).replace('\0', " ").trim().to_owned();
        Some(Process { id, command })
    };
    fs::read_dir("/proc").expect("a list of processes").filter_map(Result::ok).filter_map(process).collect()
}

/// Returns the number of tasks that are still alive after the grace period.
fn tasks_left(runtime: &Runtime, patience: Duration) -> usize {
    let started = Instant::now();
    loop {
        let left = runtime.metrics().num_alive_tasks();
        if left == 0 || started.elapsed() > patience {
            return left;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

const IMPATIENT: Patience = Patience { test: Duration::from_millis(300), leftovers: Duration::from_millis(300) };

/// Returns the failure message of a scene.
fn complaint<F, R>(body: F) -> String
where
    F: FnOnce(Scene) -> R,
    R: Future<Output = ()>,
{
    let panic = catch_unwind(AssertUnwindSafe(|| run(IMPATIENT, body))).expect_err("a complaint");
    panic.downcast_ref::<String>().cloned().unwrap_or_default()
}

fn start(command: impl AsRef<OsStr>, args: &[&str], marker: &str) -> Child {
    let child = Command::new(command).args(args).env(MARKER, marker).spawn().expect("a child");
    // For a moment after it starts, a process has no environment yet.
    let environment = format!("/proc/{}/environ", child.id());
    let started = Instant::now();
    while fs::read(&environment).is_ok_and(|environment| environment.is_empty())
        && started.elapsed().as_millis() < 1_000
    {
        std::thread::sleep(Duration::from_millis(1));
    }
    child
}

#[test]
fn a_child_that_outlives_its_scene_is_found_and_named() {
    let mut child = None;
    let complaint = complaint(|scene| {
        child = Some(start("sleep", &["30.5"], &scene.marker));
        async {}
    });
    let mut child = child.expect("a child");
    assert!(complaint.contains("left processes behind"), "{complaint}");
    assert!(complaint.contains(&format!("{} `sleep 30.5`", child.id())), "{complaint}");
    assert!(!child.wait().expect("its end").success(), "the scene ended it");
}

#[test]
fn a_grandchild_that_outlives_its_scene_is_found_as_well() {
    let complaint = complaint(|scene| {
        let mut child = start("sh", &["-c", "sleep 30.25 & exit"], &scene.marker);
        child.wait().expect("the shell's end");
        async {}
    });
    assert!(complaint.contains("`sleep 30.25`"), "{complaint}");
}

#[test]
fn a_task_that_outlives_its_scene_is_found() {
    let complaint = complaint(|_| async {
        tokio::spawn(std::future::pending::<()>());
    });
    assert!(complaint.contains("left tasks behind"), "{complaint}");
}

#[test]
fn a_test_that_takes_too_long_is_ended_by_name() {
    let complaint = complaint(|_| std::future::pending());
    assert!(complaint.contains("a_test_that_takes_too_long_is_ended_by_name"), "{complaint}");
    assert!(complaint.contains("was not over after 300ms"), "{complaint}");
}

#[test]
fn a_failing_test_keeps_its_message_even_if_it_leaks() {
    let complaint = complaint(|scene| {
        let mut child = start("sh", &["-c", "sleep 30.125 & exit"], &scene.marker);
        child.wait().expect("the shell's end");
        async { panic!("on purpose: {}", 1 + 1) }
    });
    assert_eq!(complaint, "on purpose: 2");
}
