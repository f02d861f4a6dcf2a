//! A log of events: one line of JSON for each, with its time.

use std::io::{self, Write};
use std::sync::{Mutex, mpsc};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::Serialize;
use tokio::sync::oneshot;

use super::{Event, EventStream, Events};
use crate::sync::lock;

/// How long a log that is dropped may take for its last lines: a disk that hangs must not hang the host.
const LAST_LINES: Duration = Duration::from_secs(2);

/// Writes events down as lines of JSON: `{"time": …, "event": …}`, and what else the event says.
///
/// It writes on a thread of its own, so that a slow disk holds nobody up: when it falls too far behind, it loses
/// events, and a line says how many. Dropping it writes down what was told so far; [`EventLog::close`] also says
/// whether all went well. Arguments and results are in it only where [`Events::with_payloads`] asks for them.
#[derive(Debug)]
pub struct EventLog {
    /// Dropped to end it.
    stop: Option<oneshot::Sender<()>>,
    outcome: Option<oneshot::Receiver<io::Result<()>>>,
    /// Its other end is dropped when all is over.
    over: Mutex<mpsc::Receiver<()>>,
}

impl EventLog {
    /// Writes down what is told from now on.
    pub fn start(events: &Events, to: impl Write + Send + 'static) -> io::Result<Self> {
        let (stop, stopped) = oneshot::channel();
        let (telling, outcome) = oneshot::channel();
        let (living, over) = mpsc::channel();
        let runtime = tokio::runtime::Builder::new_current_thread().build()?;
        let stream = events.listen();
        std::thread::Builder::new().name("event-log".to_owned()).spawn(move || {
            let _living = living;
            let outcome = runtime.block_on(write(stream, to, stopped));
            if let Err(error) = &outcome {
                tracing::warn!("the event log has ended: {error}");
            }
            // Nobody may be waiting for it.
            let _ = telling.send(outcome);
        })?;
        Ok(Self { stop: Some(stop), outcome: Some(outcome), over: Mutex::new(over) })
    }

    /// Writes down what was told so far, and ends.
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
        // Nothing is ever sent: it ends with the thread, or with our patience.
        let _ = lock(&self.over).recv_timeout(LAST_LINES);
    }
}

async fn write(mut events: EventStream, to: impl Write, mut stopped: oneshot::Receiver<()>) -> io::Result<()> {
    let mut to = Lines(to);
    loop {
        tokio::select! {
            biased;
            // It is dropped and never used. What comes after it is not waited for, however much that is.
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

struct Lines<W>(W);

impl<W: Write> Lines<W> {
    fn write(&mut self, event: &Event) -> io::Result<()> {
        let mut line = serde_json::to_vec(&Line { time: &timestamp(SystemTime::now()), event })?;
        line.push(b'\n');
        self.0.write_all(&line)?;
        // Whoever follows the log sees each line when it is written.
        self.0.flush()
    }
}

#[derive(Serialize)]
struct Line<'a> {
    time: &'a str,
    #[serde(flatten)]
    event: &'a Event,
}

/// A time in UTC as RFC 3339 has it, with milliseconds: what the lines of an [`EventLog`] begin with.
pub fn timestamp(time: SystemTime) -> String {
    // A clock before 1970 is a clock that is not set.
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    let (days, second) = (since.as_secs() / 86_400, since.as_secs() % 86_400);
    let (year, month, day) = date(days);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{:03}Z", since.subsec_millis())
}

/// The date so many days after the first of January 1970, in the Gregorian calendar.
fn date(days: u64) -> (u64, u64, u64) {
    // Years are counted from the first of March, so that the day that some of them lack is their last.
    let days = days + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    (400 * era + year_of_era + u64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::{Value, json};

    use super::*;

    /// What is written, and how often it was flushed.
    #[derive(Clone, Default)]
    struct Paper(Arc<Mutex<(Vec<u8>, usize)>>);

    impl Paper {
        /// The lines without their times, which are checked.
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

    impl Write for Paper {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().expect("no panic").0.extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            self.0.lock().expect("no panic").1 += 1;
            Ok(())
        }
    }

    /// Paper that is written on only while somebody allows it.
    struct Slow(mpsc::Receiver<()>, Paper);

    impl Write for Slow {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            // When the test has let go of it, it is as fast as any.
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
    async fn what_was_told_is_written_when_the_log_is_closed_or_dropped() {
        let (events, paper) = (Events::default(), Paper::default());
        let log = EventLog::start(&events, paper.clone()).expect("a thread");
        events.tell(closed("a"));
        events.tell(closed("b"));
        log.close().await.expect("all is written");
        assert_eq!(paper.lines(), [line("a"), line("b")]);
        assert_eq!(paper.0.lock().expect("no panic").1, 2);
        assert!(!events.heard());

        let log = EventLog::start(&events, paper.clone()).expect("a thread");
        events.tell(closed("c"));
        drop(log);
        assert_eq!(paper.lines(), [line("a"), line("b"), line("c")]);
    }

    #[tokio::test]
    async fn a_slow_disk_slows_nobody_and_what_is_lost_is_a_line() {
        let (events, paper) = (Events::new(2), Paper::default());
        let (allow, allowed) = mpsc::channel();
        let log = EventLog::start(&events, Slow(allowed, paper.clone())).expect("a thread");
        for name in ["a", "b", "c", "d", "e"] {
            events.tell(closed(name));
        }
        drop(allow);
        log.close().await.expect("all is written");
        let mut lines = paper.lines();
        // The thread may have been quick enough to take the first one out.
        if lines[0] == line("a") {
            lines.remove(0);
            assert_eq!(lines, [json!({"event": "lagged", "missed": 2}), line("d"), line("e")]);
        } else {
            assert_eq!(lines, [json!({"event": "lagged", "missed": 3}), line("d"), line("e")]);
        }
    }

    #[tokio::test]
    async fn a_full_disk_ends_the_log_and_nothing_else() {
        let events = Events::default();
        let log = EventLog::start(&events, Full).expect("a thread");
        events.tell(closed("a"));
        assert_eq!(log.close().await.expect_err("no room").kind(), io::ErrorKind::StorageFull);
        assert!(!events.heard());
    }

    #[tokio::test]
    async fn the_log_ends_by_itself_when_nobody_can_tell_any_more() {
        let (events, paper) = (Events::default(), Paper::default());
        let mut log = EventLog::start(&events, paper.clone()).expect("a thread");
        events.tell(closed("a"));
        drop(events);
        log.outcome.take().expect("an outcome").await.expect("no panic").expect("all is written");
        assert_eq!(paper.lines(), [line("a")]);
    }

    #[test]
    fn a_time_is_told_in_utc_with_milliseconds() {
        for (milliseconds, expected) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_399_999, "2000-02-28T23:59:59.999Z"),
            (951_782_400_000, "2000-02-29T00:00:00.000Z"),
            (1_772_323_199_001, "2026-02-28T23:59:59.001Z"),
            (1_772_323_200_000, "2026-03-01T00:00:00.000Z"),
            (1_798_761_599_000, "2026-12-31T23:59:59.000Z"),
            (4_107_542_400_000, "2100-03-01T00:00:00.000Z"),
        ] {
            assert_eq!(timestamp(UNIX_EPOCH + Duration::from_millis(milliseconds)), expected);
        }
        assert_eq!(timestamp(UNIX_EPOCH - Duration::from_secs(1)), "1970-01-01T00:00:00.000Z");
    }
}
