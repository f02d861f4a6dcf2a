//! Processes that a server started and let go of: outside of its process group, but with its mark in their environment.

use std::fs;
use std::io;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use rustix::process::{Pid, Signal, WaitOptions, getpid, kill_process, waitpid};

use super::groups::groups;

/// The variable that carries the marks; whatever a server starts inherits it.
const VARIABLE: &str = "ROPEWAY_SERVER_ID";

/// How often processes are looked for that were started while others were ended.
const MOST_PASSES: usize = 20;

/// How long an adopted process may be a zombie: a child of the host's own has been waited for by then.
const ZOMBIE: Duration = Duration::from_secs(5);

/// Orphans come to this process.
static ADOPTS: AtomicBool = AtomicBool::new(false);

/// The mark of one server process, on it and on whatever it starts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ProcessMark(String);

impl ProcessMark {
    pub(super) fn new() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Self(format!("{}{}", Self::prefix(), NEXT.fetch_add(1, Ordering::Relaxed)))
    }

    /// What the marks of all servers of this process begin with.
    fn prefix() -> &'static str {
        static OURS: OnceLock<String> = OnceLock::new();
        OURS.get_or_init(|| format!("{:016x}.", fastrand::u64(..)))
    }

    /// The variable and its value. Should this process be a server of another one, its marks stay.
    pub(super) fn variable(&self) -> (&'static str, String) {
        let outer = std::env::var(VARIABLE).map(|outer| format!("{outer} ")).unwrap_or_default();
        (VARIABLE, format!("{outer}{}", self.0))
    }

    /// Sends a signal to each process with this mark, and says whether there was one.
    pub(super) fn signal(&self, signal: Signal) -> bool {
        signal_marked(|mark| mark == self.0, signal)
    }

    /// Is there a process with this mark?
    pub(super) fn is_alive(&self) -> bool {
        processes().any(|pid| is_marked(pid, |mark| mark == self.0))
    }

    /// Ends each process with this mark, at once.
    pub(super) fn kill(&self) {
        kill_marked(|mark| mark == self.0);
    }
}

/// Ends each process with a mark of this process, at once.
pub(super) fn kill_all() {
    kill_marked(|mark| mark.starts_with(ProcessMark::prefix()));
}

fn kill_marked(is_meant: impl Fn(&str) -> bool) {
    for _ in 0..MOST_PASSES {
        if !signal_marked(&is_meant, Signal::KILL) {
            return;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn signal_marked(is_meant: impl Fn(&str) -> bool, signal: Signal) -> bool {
    let found: Vec<Pid> = processes().filter(|pid| is_marked(*pid, &is_meant)).collect();
    for pid in &found {
        send(*pid, signal, |pid| is_marked(pid, &is_meant));
    }
    if signal == Signal::KILL && ADOPTS.load(Ordering::Relaxed) {
        found.iter().for_each(|pid| reap(*pid));
    }
    !found.is_empty()
}

/// Sends a signal to a process, unless its number has come to mean another one.
fn send(pid: Pid, signal: Signal, is_meant: impl Fn(Pid) -> bool) {
    #[cfg(target_os = "linux")]
    match rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty()) {
        Ok(process) => {
            if is_meant(pid) {
                // It fails only when nobody is left, which is what is wanted.
                let _ = rustix::process::pidfd_send_signal(process, signal);
            }
            return;
        }
        Err(rustix::io::Errno::SRCH) => return,
        // A system without such descriptors.
        Err(_) => {}
    }
    if is_meant(pid) {
        let _ = kill_process(pid, signal);
    }
}

/// Takes the exit status of a process that ended as our child, once it has.
fn reap(pid: Pid) {
    for _ in 0..20 {
        match waitpid(Some(pid), WaitOptions::NOHANG) {
            Ok(None) => std::thread::sleep(Duration::from_millis(1)),
            // It is gone, or is no child of ours.
            Ok(Some(_)) | Err(_) => return,
        }
    }
}

/// All processes but this one; none where there is no `/proc`.
fn processes() -> impl Iterator<Item = Pid> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| Pid::from_raw(entry.file_name().to_str()?.parse().ok()?));
    pids.filter(|pid| *pid != getpid())
}

fn is_marked(pid: Pid, is_meant: impl Fn(&str) -> bool) -> bool {
    let environment = fs::read(format!("/proc/{}/environ", pid.as_raw_nonzero())).unwrap_or_default();
    let mut variables = environment.split(|byte| *byte == 0).filter_map(|variable| std::str::from_utf8(variable).ok());
    let marks = variables.find_map(|variable| variable.strip_prefix(VARIABLE)?.strip_prefix('='));
    marks.is_some_and(|marks| marks.split(' ').any(is_meant))
}

/// Adopts what servers leave behind: from here on a process whose parent ends becomes a child of this process, and not of the
/// system's first one ([`PR_SET_CHILD_SUBREAPER`](https://man7.org/linux/man-pages/man2/PR_SET_CHILD_SUBREAPER.2const.html)).
///
/// A server is ended with all that it has started, whatever process group or session that is in, as long as it can be told by
/// the variable `ROPEWAY_SERVER_ID` in its environment. A process that has cleared its environment is found only by this and
/// [`end_descendants`].
///
/// This changes the whole process, so it is for programs and not for libraries: children that come in this way are waited for
/// on a thread of its own, and a child that the host has started itself and does not wait for within five seconds of its end
/// loses its status. Only Linux can do this.
pub fn become_subreaper() -> io::Result<()> {
    #[cfg(target_os = "linux")]
    rustix::process::set_child_subreaper(Some(getpid()))?;
    #[cfg(not(target_os = "linux"))]
    return Err(io::ErrorKind::Unsupported.into());
    #[cfg(target_os = "linux")]
    start_reaper()
}

/// Waits for adopted children on a thread of its own, once in a process.
#[cfg(target_os = "linux")]
fn start_reaper() -> io::Result<()> {
    if ADOPTS.swap(true, Ordering::Relaxed) {
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
                // What is there now and later again, nobody else waits for.
                let mut before = zombies();
                while !before.is_empty() {
                    tokio::time::sleep(ZOMBIE).await;
                    let now = zombies();
                    now.iter().filter(|pid| before.contains(pid)).for_each(|pid| reap(*pid));
                    before = now.into_iter().filter(|pid| !before.contains(pid)).collect();
                }
            }
        });
    })?;
    Ok(())
}

/// Ends every process that descends from this one, at once and for good.
///
/// For a program that starts no processes but servers, called [`become_subreaper`] and is about to end. What runs as another
/// user cannot be ended. Where `/proc` is missing, this does nothing.
pub fn end_descendants() {
    for _ in 0..MOST_PASSES {
        // The children of one that ends become ours, and are found in the next pass.
        let children: Vec<Pid> = processes().filter(|pid| is_child(*pid)).collect();
        if children.is_empty() {
            return;
        }
        for pid in children {
            send(pid, Signal::KILL, is_child);
            if ADOPTS.load(Ordering::Relaxed) {
                reap(pid);
            }
        }
    }
}

fn is_child(pid: Pid) -> bool {
    parent_and_state(pid).is_some_and(|(parent, _)| parent == getpid().as_raw_nonzero().get())
}

/// Children of this process that have ended and were not waited for, but for servers, which are.
fn zombies() -> Vec<Pid> {
    let is_zombie = |pid: &Pid| parent_and_state(*pid).is_some_and(|(_, state)| state == 'Z');
    let is_server = |pid: &Pid| groups().contains(&pid.as_raw_nonzero().get());
    processes().filter(|pid| is_child(*pid) && is_zombie(pid) && !is_server(pid)).collect()
}

fn parent_and_state(pid: Pid) -> Option<(i32, char)> {
    let stat = fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).ok()?;
    // The name of the program stands in parentheses, and may hold anything.
    let mut fields = stat.rsplit_once(") ")?.1.split(' ');
    let state = fields.next()?.chars().next()?;
    Some((fields.next()?.parse().ok()?, state))
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn a_process_in_a_session_of_its_own_is_found_by_its_mark_and_others_are_not() {
        let mark = ProcessMark::new();
        let sleeping = |mark: &ProcessMark| {
            let (name, value) = mark.variable();
            let mut command = Command::new("setsid");
            command.args(["sleep", "60.25"]).env(name, value).stdin(Stdio::null()).spawn().expect("it starts")
        };
        let (mut ours, mut other) = (sleeping(&mark), sleeping(&ProcessMark::new()));
        let id = |child: &std::process::Child| Pid::from_raw(child.id().cast_signed()).expect("a number");
        // While a program takes the place of another one, its environment reads as empty.
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
