//! Signals: what ends this process ends the servers that it started, too.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

use super::end_children;

/// From here on SIGINT, SIGTERM and SIGHUP end this process, and with it all servers that it has started.
///
/// For a host that does not handle these signals itself: they end a process without running its destructors, and a
/// server that does not mind the end of its input would live on. `last` runs just before the end; the exit code is
/// 128 plus the signal's number. Signals are heard on a thread of its own, so that a busy host hears them as well.
pub fn end_children_on_signals(last: impl FnOnce() + Send + 'static) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
    // Listening begins here and not on the thread, so that no server is started before it.
    let code = {
        let _context = runtime.enter();
        code(signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?, signal(SignalKind::hangup())?)
    };
    std::thread::Builder::new().name("signals".to_owned()).spawn(move || {
        let code = runtime.block_on(code);
        end_children();
        last();
        std::process::exit(code);
    })?;
    Ok(())
}

/// Waits for a signal and says with which exit code it ends the process.
async fn code(mut interrupt: Signal, mut terminate: Signal, mut hangup: Signal) -> i32 {
    tokio::select! {
        _ = interrupt.recv() => 128 + SignalKind::interrupt().as_raw_value(),
        _ = terminate.recv() => 128 + SignalKind::terminate().as_raw_value(),
        _ = hangup.recv() => 128 + SignalKind::hangup().as_raw_value(),
    }
}
