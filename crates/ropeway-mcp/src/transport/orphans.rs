//! Processes that a server has started outside its process group, found by a mark in their environment.

use std::collections::HashSet;
use std::fs;
use std::io;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, WaitOptions, getpid, kill_process, waitid, waitpid};

use super::groups::groups;

/// The environment variable that carries the marks. All descendants of a server inherit it.
const VARIABLE: &str = "ROPEWAY_SERVER_ID";

/// Maximum nesting of servers that are themselves clients. A gateway that lists itself as a server would start itself
/// without end.
const MAX_NESTING: usize = 4;

/// Maximum passes, for processes that are started while others are killed.
const MAX_PASSES: usize = 20;

/// How long an adopted process may stay a zombie. The program itself has waited for its own children by then.
const ZOMBIE_LIMIT: Duration = Duration::from_secs(5);

/// Set if this process is a subreaper.
static IS_SUBREAPER: AtomicBool = AtomicBool::new(false);

/// The mark that one server process and its descendants carry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ProcessMark(String);

impl ProcessMark {
    pub(super) fn new() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Self(format!("{}{}", Self::prefix(), NEXT.fetch_add(1, Ordering::Relaxed)))
    }

    /// Returns the prefix that all of this process's marks share.
    fn prefix() -> &'static str {
        static PREFIX: OnceLock<String> = OnceLock::new();
        PREFIX.get_or_init(|| format!("{:016x}.", fastrand::u64(..)))
    }

    /// Returns `true` for the variable's name, which a server's `env` entries cannot set.
    pub(super) fn is_variable(name: &str) -> bool {
        name == VARIABLE
    }

    /// Returns an error if this process is itself a server, and is nested too deeply to start others.
    pub(super) fn check_nesting() -> io::Result<()> {
        let depth = std::env::var(VARIABLE).map_or(0, |marks| marks.split(' ').count());
        if depth < MAX_NESTING {
            return Ok(());
        }
        let words = format!(
            "servers are nested {depth} levels deep; one of them may start itself, such as with `ropeway serve`"
        );
        Err(io::Error::other(words))
    }

    /// Returns the variable and its value. If this process is itself a server, its own marks are kept.
    pub(super) fn variable(&self) -> (&'static str, String) {
        let outer = std::env::var(VARIABLE).map(|outer| format!("{outer} ")).unwrap_or_default();
        (VARIABLE, format!("{outer}{}", self.0))
    }

    /// Sends a signal to each process with this mark. Returns `true` if at least one was found.
    pub(super) fn signal(&self, signal: Signal) -> bool {
        signal_marked(|mark| mark == self.0, signal)
    }

    /// Returns `true` if a process with this mark exists.
    pub(super) fn is_alive(&self) -> bool {
        processes().into_iter().any(|pid| is_marked(pid, |mark| mark == self.0))
    }

    /// Kills each process with this mark.
    pub(super) fn kill(&self) {
        kill_marked(|mark| mark == self.0);
    }
}

/// Kills each process that carries one of this process's marks.
pub(super) fn kill_all() {
    kill_marked(|mark| mark.starts_with(ProcessMark::prefix()));
}

fn kill_marked(is_target: impl Fn(&str) -> bool) {
    for _ in 0..MAX_PASSES {
        if !signal_marked(&is_target, Signal::KILL) {
            return;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn signal_marked(is_target: impl Fn(&str) -> bool, signal: Signal) -> bool {
    let found: Vec<Pid> = processes().into_iter().filter(|pid| is_marked(*pid, &is_target)).collect();
    for pid in &found {
        send(*pid, signal, |pid| is_marked(pid, &is_target));
    }
    if signal == Signal::KILL && IS_SUBREAPER.load(Ordering::Relaxed) {
        found.iter().for_each(|pid| reap(*pid));
    }
    !found.is_empty()
}

/// Sends a signal to a process, unless its id has been reused.
fn send(pid: Pid, signal: Signal, is_target: impl Fn(Pid) -> bool) {
    #[cfg(target_os = "linux")]
    match rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty()) {
        Ok(process) => {
            if is_target(pid) {
                // This fails only if the process has exited.
                let _ = rustix::process::pidfd_send_signal(process, signal);
            }
            return;
        }
        Err(rustix::io::Errno::SRCH) => return,
        // The system does not support pidfds.
        Err(_) => {}
    }
    if is_target(pid) {
        let _ = kill_process(pid, signal);
    }
}

/// Reaps a child process, after a short wait for its exit.
fn reap(pid: Pid) {
    for _ in 0..20 {
        match waitpid(Some(pid), WaitOptions::NOHANG) {
            Ok(None) => std::thread::sleep(Duration::from_millis(1)),
            // It has exited, or is not this process's child.
            Ok(Some(_)) | Err(_) => return,
        }
    }
}

/// Returns the processes that a server may have started, without this one. Returns none where `/proc` is missing.
///
/// Orphans below a subreaper stay its descendants, so that only those are read. Otherwise an orphan can be any process.
fn processes() -> Vec<Pid> {
    let adopted = IS_SUBREAPER.load(Ordering::Relaxed).then(descendants).flatten();
    adopted.unwrap_or_else(all_processes)
}

fn all_processes() -> Vec<Pid> {
    numbers("/proc").filter_map(Pid::from_raw).filter(|pid| *pid != getpid()).collect()
}

/// Returns this process's descendants, or `None` if the kernel does not list children
/// ([`CONFIG_PROC_CHILDREN`](https://man7.org/linux/man-pages/man5/proc_tid_children.5.html)).
fn descendants() -> Option<Vec<Pid>> {
    // A set, because a server can start as many processes as the system allows.
    let mut found = HashSet::new();
    let mut parents = vec![getpid()];
    while let Some(parent) = parents.pop() {
        let tasks = format!("/proc/{}/task", parent.as_raw_nonzero());
        for task in numbers(&tasks) {
            let children = match fs::read_to_string(format!("{tasks}/{task}/children")) {
                Ok(children) => children,
                // A thread in this process may have ended; if it is the main thread, the file does not exist at all.
                Err(_) if parent == getpid() && task == getpid().as_raw_nonzero().get() => return None,
                Err(_) => continue,
            };
            let children = children.split_ascii_whitespace().filter_map(|pid| Pid::from_raw(pid.parse().ok()?));
            parents.extend(children.filter(|pid| found.insert(*pid)));
        }
    }
    // The kernel's child list can miss one while another one ends, so an empty list is verified.
    (!found.is_empty() || !has_children()).then(|| found.into_iter().collect())
}

/// Returns `true` if this process has a child, running or not waited for.
fn has_children() -> bool {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    !matches!(waitid(WaitId::All, options), Err(rustix::io::Errno::CHILD))
}

/// Returns a directory's entries whose names are numbers.
fn numbers(folder: &str) -> impl Iterator<Item = i32> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

fn is_marked(pid: Pid, is_target: impl Fn(&str) -> bool) -> bool {
    let environment = fs::read(format!("/proc/{}/environ", pid.as_raw_nonzero())).unwrap_or_default();
    let mut variables = environment.split(|byte| *byte == 0).filter_map(|variable| std::str::from_utf8(variable).ok());
    let marks = variables.find_map(|variable| variable.strip_prefix(VARIABLE)?.strip_prefix('='));
    marks.is_some_and(|marks| marks.split(' ').any(is_target))
}

/// Makes this process the parent of orphaned descendants, instead of init
/// ([`PR_SET_CHILD_SUBREAPER`](https://man7.org/linux/man-pages/man2/PR_SET_CHILD_SUBREAPER.2const.html)).
///
/// Closing a server also terminates the processes that it has started, in any process group or session, if they carry the
/// variable `ROPEWAY_SERVER_ID` in their environment. A process with a cleared environment is only found by this function
/// together with [`end_descendants`].
///
/// This affects the whole process, so it is meant for programs, not for libraries. A separate thread reaps adopted children.
/// A child that the program has started itself and does not wait for within five seconds of its exit loses its status.
///
/// # Errors
///
/// Fails on systems other than Linux.
pub fn become_subreaper() -> io::Result<()> {
    #[cfg(target_os = "linux")]
    rustix::process::set_child_subreaper(Some(getpid()))?;
    #[cfg(not(target_os = "linux"))]
    return Err(io::ErrorKind::Unsupported.into());
    #[cfg(target_os = "linux")]
    start_reaper()
}

/// Starts the thread that reaps adopted children, once per process.
#[cfg(target_os = "linux")]
fn start_reaper() -> io::Result<()> {
    if IS_SUBREAPER.swap(true, Ordering::Relaxed) {
        return Ok(());
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let mut children = {
        let _context = runtime.enter();
        tokio::signal::unix::signal(tokio::signal::unix::SignalKind::child())?
    };
    std::thread::Builder::new().name("orphans".to_owned()).spawn(move || {
        runtime.block_on(async {
            while children.recv().await.is_some() {
                // Nothing else waits for a zombie that is still present later.
                let mut before = zombies();
                while !before.is_empty() {
                    tokio::time::sleep(ZOMBIE_LIMIT).await;
                    let now = zombies();
                    now.iter().filter(|pid| before.contains(pid)).for_each(|pid| reap(*pid));
                    before = now.into_iter().filter(|pid| !before.contains(pid)).collect();
                }
            }
        });
    })?;
    Ok(())
}

/// Kills every descendant of this process.
///
/// For a program that starts only servers, has called [`become_subreaper`] and is about to exit. Other users' processes are
/// not killed. Where `/proc` is missing, this does nothing.
pub fn end_descendants() {
    for _ in 0..MAX_PASSES {
        // A killed process's children are adopted and found in the next pass.
        let children: Vec<Pid> = processes().into_iter().filter(|pid| is_child(*pid)).collect();
        if children.is_empty() {
            return;
        }
        for pid in children {
            send(pid, Signal::KILL, is_child);
            if IS_SUBREAPER.load(Ordering::Relaxed) {
                reap(pid);
            }
        }
    }
}

fn is_child(pid: Pid) -> bool {
    parent_and_state(pid).is_some_and(|(parent, _)| parent == getpid().as_raw_nonzero().get())
}

/// Returns this process's zombie children, except for servers.
fn zombies() -> Vec<Pid> {
    let is_zombie = |pid: &Pid| parent_and_state(*pid).is_some_and(|(_, state)| state == 'Z');
    let is_server = |pid: &Pid| groups().contains(&pid.as_raw_nonzero().get());
    processes().into_iter().filter(|pid| is_child(*pid) && is_zombie(pid) && !is_server(pid)).collect()
}

fn parent_and_state(pid: Pid) -> Option<(i32, char)> {
    let stat = fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).ok()?;
    // The program's name is in parentheses and may contain anything.
    let mut fields = stat.rsplit_once(") ")?.1.split(' ');
    let state = fields.next()?.chars().next()?;
    Some((fields.next()?.parse().ok()?, state))
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn descendants_are_found_without_reading_other_processes() {
        let mut shell = Command::new("sh");
        shell.args(["-c", "sleep 60.5 & wait"]).stdin(Stdio::null());
        let mut shell = shell.spawn().expect("it starts");
        let id = Pid::from_raw(shell.id().cast_signed()).expect("a number");
        let is_child_of_shell =
            |pid: &Pid| parent_and_state(*pid).is_some_and(|(parent, _)| parent == id.as_raw_nonzero().get());
        let grandchild = (0..1000).find_map(|_| {
            let found = descendants().expect("the kernel lists children");
            assert!(!found.contains(&getpid()));
            let grandchild = found.iter().copied().find(is_child_of_shell).filter(|_| found.contains(&id));
            if grandchild.is_none() {
                std::thread::sleep(Duration::from_millis(10));
            }
            grandchild
        });
        let _ = kill_process(grandchild.expect("the shell's child"), Signal::KILL);
        shell.kill().expect("it is alive");
        shell.wait().expect("it ends");
    }

    #[test]
    fn a_process_in_another_session_is_found_by_its_mark() {
        let mark = ProcessMark::new();
        let sleeping = |mark: &ProcessMark| {
            let (name, value) = mark.variable();
            let mut command = Command::new("setsid");
            command.args(["sleep", "60.25"]).env(name, value).stdin(Stdio::null()).spawn().expect("it starts")
        };
        let (mut ours, mut other) = (sleeping(&mark), sleeping(&ProcessMark::new()));
        let id = |child: &std::process::Child| Pid::from_raw(child.id().cast_signed()).expect("a number");
        // During exec, the environment reads as empty.
        let is_ours = || is_marked(id(&ours), |found| found == mark.0) && mark.is_alive();
        let found = (0..1000).any(|_| {
            let is_ours = is_ours();
            if !is_ours {
                std::thread::sleep(Duration::from_millis(10));
            }
            is_ours
        });
        assert!(found);
        assert!(!is_marked(id(&other), |found| found == mark.0));
        mark.kill();
        assert!(!ours.wait().expect("it ends").success());
        assert!(other.try_wait().expect("a child").is_none(), "another server's is left alone");
        other.kill().expect("it is alive");
        other.wait().expect("it ends");
    }
}
