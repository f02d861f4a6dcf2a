//! Signals: what ends this process ends the servers that it started, too.

use std::future::poll_fn;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;

use tokio::signal::unix::{Signal, SignalKind, signal};

use super::transport::child::end_children_for_good;

/// Whether SIGINT is for another program.
static INTERRUPTS_IGNORED: AtomicBool = AtomicBool::new(false);

/// Ignores SIGINT, or stops ignoring it, once [`end_children_on_signals`] handles signals.
///
/// For a host that lets another program have the terminal, such as a pager: Ctrl-C goes to both, and means the other one.
pub fn ignore_interrupts(ignore: bool) {
    INTERRUPTS_IGNORED.store(ignore, Ordering::Relaxed);
}

/// From here on SIGINT, SIGTERM, SIGHUP and SIGQUIT end this process, and with it all servers that it has started.
///
/// For a host that does not handle these signals itself: they end a process without running its destructors, and a
/// server that does not mind the end of its input would live on. `last` runs just before the end; the exit code is
/// 128 plus the signal's number. After SIGQUIT the process ends by that signal, with a core file where those are written.
/// Signals are handled on a thread of their own, so that a busy host handles them as well.
///
/// SIGKILL cannot be handled: a server then sees the end of its input, and one that ignores that lives on. SIGTSTP stops this
/// process only; servers wait until it goes on.
pub fn end_children_on_signals(last: impl FnOnce() + Send + 'static) -> io::Result<()> {
    end_children_on_signals_with(|_| last())
}

/// The same; `last` gets the number of the signal, such as 2 for SIGINT.
pub fn end_children_on_signals_with(last: impl FnOnce(i32) + Send + 'static) -> io::Result<()> {
    end_on([SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup(), SignalKind::quit()], last)
}

/// The same on SIGTERM, SIGHUP and SIGQUIT only, for a host to whom SIGINT means something else.
pub fn end_children_on_termination(last: impl FnOnce() + Send + 'static) -> io::Result<()> {
    end_on([SignalKind::terminate(), SignalKind::hangup(), SignalKind::quit()], |_| last())
}

fn end_on<const COUNT: usize>(kinds: [SignalKind; COUNT], last: impl FnOnce(i32) + Send + 'static) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
    // Listening begins here and not on the thread, so that no server is started before it.
    let signals: Vec<(SignalKind, Signal)> = {
        let _context = runtime.enter();
        kinds.into_iter().map(|kind| Ok((kind, signal(kind)?))).collect::<io::Result<_>>()?
    };
    std::thread::Builder::new().name("signals".to_owned()).spawn(move || {
        let signal = runtime.block_on(received(signals));
        let _held = end_children_for_good();
        last(signal.as_raw_value());
        if signal == SignalKind::quit() {
            // Whoever sends it wants to see it in the status, and in a core file.
            let _ = signal_hook::low_level::emulate_default_handler(signal.as_raw_value());
        }
        std::process::exit(128 + signal.as_raw_value());
    })?;
    Ok(())
}

/// Waits for a signal.
async fn received(mut signals: Vec<(SignalKind, Signal)>) -> SignalKind {
    let came = poll_fn(|cx| {
        for (kind, signal) in &mut signals {
            while let Poll::Ready(Some(())) = signal.poll_recv(cx) {
                if *kind != SignalKind::interrupt() || !INTERRUPTS_IGNORED.load(Ordering::Relaxed) {
                    return Poll::Ready(*kind);
                }
            }
        }
        Poll::Pending
    });
    came.await
}
