//! Writes events as JSON Lines.

use std::io::{self, Write};
use std::sync::{Mutex, mpsc};
use std::time::{Duration, SystemTime};

use serde::Serialize;
use tokio::sync::oneshot;

use super::{Event, EventStream, Events};
use crate::rfc3339::timestamp;
use crate::sync::lock;

/// Maximum time to write the remaining lines on drop, so that a hanging disk does not block the program.
const DROP_TIMEOUT: Duration = Duration::from_secs(2);

/// Writes events as JSON Lines: `{"time": …, "event": …}` and the fields of the event.
///
/// A separate thread writes, so that a slow disk does not delay callers. If it falls too far behind, it drops events and writes
/// a line with their number. Dropping the log writes all events so far; [`EventLog::close`] also returns errors. Arguments and
/// results are included only with [`Events::with_payloads`].
///
/// The thread owns the writer and its event stream, and runs them on its own current-thread runtime. The log only holds
/// channel ends: it drops `stop` to stop the thread, receives the first write error through `outcome`, and learns from
/// `over` that the thread has ended. The mutex around `over` makes the log `Sync`; only `drop` locks it. The thread also
/// ends after a write error, and when all clones of the [`Events`] are dropped. Dropping the log blocks the current thread
/// until the last line is written, for at most two seconds; after that the thread is left to finish on its own.
#[derive(Debug)]
pub struct EventLog {
    /// Dropped to stop the thread.
    stop: Option<oneshot::Sender<()>>,
    outcome: Option<oneshot::Receiver<io::Result<()>>>,
    /// The thread drops the sender when it has finished.
    over: Mutex<mpsc::Receiver<()>>,
}

impl EventLog {
    /// Starts to write future events.
    ///
    /// # Errors
    ///
    /// Fails if the thread cannot be started.
    pub fn start(events: &Events, to: impl Write + Send + 'static) -> io::Result<Self> {
        let (stop, stopped) = oneshot::channel();
        let (outcome_sender, outcome) = oneshot::channel();
        let (living, over) = mpsc::channel();
        let runtime = tokio::runtime::Builder::new_current_thread().build()?;
        let stream = events.subscribe();
        std::thread::Builder::new().name("event-log".to_owned()).spawn(move || {
            let _living = living;
            let outcome = runtime.block_on(write(stream, to, stopped));
            if let Err(error) = &outcome {
                tracing::warn!("could not write the event log: {error}");
            }
            // The receiver may be dropped.
            let _ = outcome_sender.send(outcome);
        })?;
        Ok(Self { stop: Some(stop), outcome: Some(outcome), over: Mutex::new(over) })
    }

    /// Writes all events so far and stops.
    ///
    /// # Errors
    ///
    /// Returns the writer's first error.
    pub async fn close(mut self) -> io::Result<()> {
        self.stop = None;
        match self.outcome.take() {
            Some(outcome) => outcome.await.unwrap_or_else(|_| Err(io::Error::other("the event log panicked"))),
            None => Ok(()),
        }
    }
}

impl Drop for EventLog {
    fn drop(&mut self) {
        self.stop = None;
        // Nothing is ever sent. This returns when the thread ends, or after the timeout.
        let _ = lock(&self.over).recv_timeout(DROP_TIMEOUT);
    }
}

async fn write(mut events: EventStream, to: impl Write, mut stopped: oneshot::Receiver<()>) -> io::Result<()> {
    let mut to = LineWriter(to);
    loop {
        tokio::select! {
            biased;
            // The sender is only dropped. Later events are not written.
            _ = &mut stopped => break,
            event = events.next() => match event {
                Some(event) => to.write(&event)?,
                None => return Ok(()),
            },
        }
    }
    for _ in 0..events.waiting() {
        let Some(event) = events.try_next() else { break };
        to.write(&event)?;
    }
    Ok(())
}

struct LineWriter<W>(W);

impl<W: Write> LineWriter<W> {
    fn write(&mut self, event: &Event) -> io::Result<()> {
        let mut line = serde_json::to_vec(&Line { time: &timestamp(SystemTime::now()), event })?;
        line.push(b'\n');
        self.0.write_all(&line)?;
        // Flushed, so that the file's readers see each line at once.
        self.0.flush()
    }
}

#[derive(Serialize)]
struct Line<'a> {
    time: &'a str,
    #[serde(flatten)]
    event: &'a Event,
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::{Value, json};

    use super::*;

    /// The written bytes and the flush count.
    #[derive(Clone, Default)]
    struct Output(Arc<Mutex<(Vec<u8>, usize)>>);

    impl Output {
        /// Returns the lines without their times, which are checked.
        fn lines(&self) -> Vec<Value> {
            let text = String::from_utf8(self.0.lock().expect("no panic").0.clone()).expect("UTF-8");
            let line = |line: &str| {
                let mut line: Value = serde_json::from_str(line).expect("a line of JSON");
                let time = line.as_object_mut().expect("an object").remove("time").expect("a time");
                let time = time.as_str().expect("text");
                assert!(time.len() == 24 && time.starts_with("20") && time.ends_with('Z'), "{time}");
                line
            };
            text.lines().map(line).collect()
        }
    }

    impl Write for Output {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().expect("no panic").0.extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            self.0.lock().expect("no panic").1 += 1;
            Ok(())
        }
    }

    /// A writer that waits for permission before each write.
    struct Slow(mpsc::Receiver<()>, Output);

    impl Write for Slow {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            // Does not wait after the test has dropped the sender.
            let _ = self.0.recv();
            self.1.write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            self.1.flush()
        }
    }

    struct Full;

    impl Write for Full {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(io::ErrorKind::StorageFull.into())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn closed(name: &str) -> Event {
        Event::Closed { server: name.into() }
    }

    fn line(name: &str) -> Value {
        json!({"event": "server.closed", "server": name})
    }

    #[tokio::test]
    async fn events_are_written_when_the_log_is_closed_or_dropped() {
        let (events, output) = (Events::default(), Output::default());
        let log = EventLog::start(&events, output.clone()).expect("a thread");
        events.emit(closed("a"));
        events.emit(closed("b"));
        log.close().await.expect("all is written");
        assert_eq!(output.lines(), [line("a"), line("b")]);
        assert_eq!(output.0.lock().expect("no panic").1, 2);
        assert!(!events.has_listeners());

        let log = EventLog::start(&events, output.clone()).expect("a thread");
        events.emit(closed("c"));
        drop(log);
        assert_eq!(output.lines(), [line("a"), line("b"), line("c")]);
    }

    #[tokio::test]
    async fn a_slow_disk_drops_events_and_reports_their_number() {
        let (events, output) = (Events::new(2), Output::default());
        let (allow, allowed) = mpsc::channel();
        let log = EventLog::start(&events, Slow(allowed, output.clone())).expect("a thread");
        for name in ["a", "b", "c", "d", "e"] {
            events.emit(closed(name));
        }
        drop(allow);
        log.close().await.expect("all is written");
        let mut lines = output.lines();
        let kept = lines.split_off(lines.len() - 2);
        assert_eq!(kept, [line("d"), line("e")]);
        // The thread may have read the first event, or a first `lagged`, before the others were emitted.
        let missed: u64 = lines.iter().filter_map(|line| line["missed"].as_u64()).sum();
        let written = lines.iter().take_while(|found| **found == line("a")).count() as u64;
        assert_eq!(missed + written, 3, "{lines:?}");
        assert!(missed >= 2, "{lines:?}");
    }

    #[tokio::test]
    async fn a_full_disk_ends_only_the_log() {
        let events = Events::default();
        let log = EventLog::start(&events, Full).expect("a thread");
        events.emit(closed("a"));
        assert_eq!(log.close().await.expect_err("no room").kind(), io::ErrorKind::StorageFull);
        assert!(!events.has_listeners());
    }

    #[tokio::test]
    async fn the_log_ends_when_the_channel_is_closed() {
        let (events, output) = (Events::default(), Output::default());
        let mut log = EventLog::start(&events, output.clone()).expect("a thread");
        events.emit(closed("a"));
        drop(events);
        log.outcome.take().expect("an outcome").await.expect("no panic").expect("all is written");
        assert_eq!(output.lines(), [line("a")]);
    }
}
