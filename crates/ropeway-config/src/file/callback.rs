//! A callback that returns secrets by name, called on its own thread with a timeout.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use ropeway_core::secret::Secret;

/// Maximum total time for all calls per configuration. A user may have to unlock a vault.
const TIMEOUT: Duration = Duration::from_secs(30);

type Function = dyn Fn(&str) -> Option<Secret> + Send + Sync;

/// A function that returns secrets by name.
#[derive(Clone)]
pub(super) struct SecretCallback {
    function: Arc<Function>,
    timeout: Duration,
}

impl SecretCallback {
    pub(super) fn new(function: impl Fn(&str) -> Option<Secret> + Send + Sync + 'static) -> Self {
        Self { function: Arc::new(function), timeout: TIMEOUT }
    }
}

/// Error from a callback.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum CallbackError {
    #[error("secrets callback panicked")]
    Panicked,
    /// All calls together have taken this long.
    #[error("secrets callback timed out after {} s", .0.as_secs_f64())]
    TimedOut(Duration),
    /// An earlier call has not returned.
    #[error("secrets callback has not returned from an earlier call")]
    StillRunning,
    /// The thread could not be started.
    #[error("could not start a thread for the secrets callback")]
    SpawnFailed,
}

type CallbackResult = Result<Option<Secret>, CallbackError>;

/// Calls a callback while a configuration is read, once for each name.
pub(super) struct CallbackRunner {
    callback: SecretCallback,
    known: RefCell<HashMap<String, CallbackResult>>,
    worker: RefCell<Worker>,
    /// The remaining time.
    remaining: Cell<Duration>,
}

enum Worker {
    /// Not started yet.
    Idle,
    Running {
        names: Sender<String>,
        answers: Receiver<CallbackResult>,
    },
    /// Timed out.
    Abandoned,
}

impl CallbackRunner {
    pub(super) fn new(callback: &SecretCallback) -> Self {
        let remaining = Cell::new(callback.timeout);
        Self { callback: callback.clone(), known: RefCell::default(), worker: RefCell::new(Worker::Idle), remaining }
    }

    /// Returns the secret with this name, if the callback has one.
    pub(super) fn get(&self, name: &str) -> CallbackResult {
        if let Some(known) = self.known.borrow().get(name) {
            return known.clone();
        }
        let answer = self.call(name);
        self.known.borrow_mut().insert(name.to_owned(), answer.clone());
        answer
    }

    fn call(&self, name: &str) -> CallbackResult {
        let mut worker = self.worker.borrow_mut();
        if matches!(*worker, Worker::Idle) {
            *worker = start(self.callback.function.clone()).ok_or(CallbackError::SpawnFailed)?;
        }
        let Worker::Running { names, answers } = &*worker else { return Err(CallbackError::StillRunning) };
        let began = Instant::now();
        let answer = match names.send(name.to_owned()) {
            Ok(()) => answers.recv_timeout(self.remaining.get()),
            Err(_) => Err(RecvTimeoutError::Disconnected),
        };
        self.remaining.set(self.remaining.get().saturating_sub(began.elapsed()));
        match answer {
            Ok(answer) => answer,
            Err(RecvTimeoutError::Timeout) => {
                *worker = Worker::Abandoned;
                Err(CallbackError::TimedOut(self.callback.timeout))
            }
            // The thread ends early only by a panic that cannot be caught.
            Err(RecvTimeoutError::Disconnected) => Err(CallbackError::Panicked),
        }
    }
}

/// Starts the thread that calls the function. It ends when the runner is dropped and the function has returned.
fn start(function: Arc<Function>) -> Option<Worker> {
    let (names, requests) = channel::<String>();
    let (results, answers) = channel();
    let work = move || {
        for name in requests {
            let answer = catch_unwind(AssertUnwindSafe(|| function(&name))).map_err(|_| CallbackError::Panicked);
            if results.send(answer).is_err() {
                return;
            }
        }
    };
    std::thread::Builder::new().name("secrets".to_owned()).spawn(work).ok()?;
    Some(Worker::Running { names, answers })
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    #[test]
    fn every_name_is_requested_once_and_a_panic_affects_one_name() {
        let asked: Arc<Mutex<Vec<String>>> = Arc::default();
        let names = asked.clone();
        let runner = CallbackRunner::new(&SecretCallback::new(move |name| {
            names.lock().expect("the names").push(name.to_owned());
            match name {
                "BAD" => panic!("on purpose"),
                "A" => Some(Secret::new("a")),
                _ => None,
            }
        }));
        for _ in 0..2 {
            assert_eq!(runner.get("BAD"), Err(CallbackError::Panicked));
            assert_eq!(
                runner.get("A").map(|secret| secret.map(|secret| secret.expose().to_owned())),
                Ok(Some("a".into()))
            );
            assert_eq!(runner.get("B"), Ok(None));
        }
        assert_eq!(*asked.lock().expect("the names"), ["BAD", "A", "B"]);
    }

    #[test]
    fn a_callback_that_blocks_times_out() {
        let (go, wait) = channel::<()>();
        let wait = Mutex::new(wait);
        let mut callback = SecretCallback::new(move |_| {
            drop(wait.lock().map(|wait| wait.recv()));
            None
        });
        callback.timeout = Duration::from_millis(20);
        let runner = CallbackRunner::new(&callback);
        assert_eq!(runner.get("A"), Err(CallbackError::TimedOut(Duration::from_millis(20))));
        assert_eq!(runner.get("B"), Err(CallbackError::StillRunning));
        assert_eq!(runner.get("A"), Err(CallbackError::TimedOut(Duration::from_millis(20))));
        drop(go);
    }
}
