//! Signal handling: terminates the started servers when a signal ends this process.

use std::future::poll_fn;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;

use tokio::signal::unix::{Signal, SignalKind, signal};

use super::transport::child::end_children_for_good;

/// Set while SIGINT is meant for another program.
static INTERRUPTS_IGNORED: AtomicBool = AtomicBool::new(false);

/// Set once a signal ends this process.
static IS_ENDING: AtomicBool = AtomicBool::new(false);

/// Returns `true` once a signal that [`end_children_on_signals`] handles ends this process, and its servers with it.
pub fn is_ending() -> bool {
    IS_ENDING.load(Ordering::Acquire)
}

/// Ignores SIGINT, or stops ignoring it, once [`end_children_on_signals`] handles signals.
///
/// For a program that hands the terminal to another one, such as a pager: Ctrl-C is sent to both, but meant for the other.
pub fn ignore_interrupts(ignore: bool) {
    INTERRUPTS_IGNORED.store(ignore, Ordering::Relaxed);
}

/// Handles SIGINT, SIGTERM, SIGHUP and SIGQUIT: kills all servers that this process has started, and exits.
///
/// For a program that does not handle these signals itself. By default they end a process without running destructors, and a
/// server that ignores closed input would keep running. `last` runs just before the exit. The exit code is 128 plus the
/// signal number. After SIGQUIT the process ends by that signal, with a core dump where those are enabled. Signals are
/// handled on a separate thread, so that a busy program handles them as well.
///
/// SIGKILL cannot be handled: servers see that their input ends, and those that ignore it keep running. SIGTSTP stops only
/// this process, and servers wait until it continues.
///
/// # Errors
///
/// Fails if a signal handler cannot be installed or the thread cannot be started.
pub fn end_children_on_signals(last: impl FnOnce() + Send + 'static) -> io::Result<()> {
    end_children_on_signals_with(|_| last())
}

/// Like [`end_children_on_signals`], but passes the signal number to `last`, such as 2 for SIGINT.
pub fn end_children_on_signals_with(last: impl FnOnce(i32) + Send + 'static) -> io::Result<()> {
    end_on([SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup(), SignalKind::quit()], last)
}

/// Like [`end_children_on_signals`], but without SIGINT, for a program that handles it itself.
pub fn end_children_on_termination(last: impl FnOnce() + Send + 'static) -> io::Result<()> {
    end_on([SignalKind::terminate(), SignalKind::hangup(), SignalKind::quit()], |_| last())
}

fn end_on<const COUNT: usize>(kinds: [SignalKind; COUNT], last: impl FnOnce(i32) + Send + 'static) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
    // The handlers are installed before this function returns, so that no server is started earlier.
    let signals: Vec<(SignalKind, Signal)> = {
        let _context = runtime.enter();
        kinds.into_iter().map(|kind| Ok((kind, signal(kind)?))).collect::<io::Result<_>>()?
    };
    std::thread::Builder::new().name("signals".to_owned()).spawn(move || {
        let signal = runtime.block_on(received(signals));
        IS_ENDING.store(true, Ordering::Release);
        let _held = end_children_for_good();
        last(signal.as_raw_value());
        if signal == SignalKind::quit() {
            // SIGQUIT's sender expects it in the exit status, and a core dump.
            let _ = signal_hook::low_level::emulate_default_handler(signal.as_raw_value());
        }
        std::process::exit(128 + signal.as_raw_value());
    })?;
    Ok(())
}

async fn received(mut signals: Vec<(SignalKind, Signal)>) -> SignalKind {
    let signal = poll_fn(|cx| {
        for (kind, signal) in &mut signals {
            while let Poll::Ready(Some(())) = signal.poll_recv(cx) {
                if *kind != SignalKind::interrupt() || !INTERRUPTS_IGNORED.load(Ordering::Relaxed) {
                    return Poll::Ready(*kind);
                }
            }
        }
        Poll::Pending
    });
    signal.await
}
