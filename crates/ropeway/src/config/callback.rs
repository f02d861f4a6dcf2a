//! A callback that returns secrets by name: asked on a thread of its own, for a bounded time.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use crate::secret::Secret;

/// How long the callback may take for all names of a configuration. A person may have to unlock a vault meanwhile.
const PATIENCE: Duration = Duration::from_secs(30);

type Function = dyn Fn(&str) -> Option<Secret> + Send + Sync;

/// A function of the host that returns secrets by name.
#[derive(Clone)]
pub(super) struct Callback {
    function: Arc<Function>,
    patience: Duration,
}

impl Callback {
    pub(super) fn new(function: impl Fn(&str) -> Option<Secret> + Send + Sync + 'static) -> Self {
        Self { function: Arc::new(function), patience: PATIENCE }
    }
}

/// Why a callback has not told a secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CallbackError {
    Panicked,
    /// All that was asked of it has taken this long.
    Late(Duration),
    /// It has not returned from an earlier name.
    Stuck,
    /// No thread could be started for it.
    NoThread,
}

impl fmt::Display for CallbackError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Panicked => f.write_str("the secrets callback panicked"),
            Self::Late(after) => write!(f, "the secrets callback did not return within {} s", after.as_secs_f64()),
            Self::Stuck => f.write_str("the secrets callback has not returned from an earlier call"),
            Self::NoThread => f.write_str("no thread could be started for the secrets callback"),
        }
    }
}

type Answer = Result<Option<Secret>, CallbackError>;

/// Asks a callback while one configuration is read. Every name is asked for once.
pub(super) struct Asker {
    callback: Callback,
    known: RefCell<HashMap<String, Answer>>,
    worker: RefCell<Worker>,
    /// What is left of its time.
    left: Cell<Duration>,
}

enum Worker {
    /// No name was asked for yet.
    Idle,
    Running {
        names: Sender<String>,
        answers: Receiver<Answer>,
    },
    /// It is not waited for any more.
    Stuck,
}

impl Asker {
    pub(super) fn new(callback: &Callback) -> Self {
        let left = Cell::new(callback.patience);
        Self { callback: callback.clone(), known: RefCell::default(), worker: RefCell::new(Worker::Idle), left }
    }

    /// Returns the secret of this name, if the callback has one.
    pub(super) fn ask(&self, name: &str) -> Answer {
        if let Some(known) = self.known.borrow().get(name) {
            return known.clone();
        }
        let answer = self.call(name);
        self.known.borrow_mut().insert(name.to_owned(), answer.clone());
        answer
    }

    fn call(&self, name: &str) -> Answer {
        let mut worker = self.worker.borrow_mut();
        if matches!(*worker, Worker::Idle) {
            *worker = start(self.callback.function.clone()).ok_or(CallbackError::NoThread)?;
        }
        let Worker::Running { names, answers } = &*worker else { return Err(CallbackError::Stuck) };
        let began = Instant::now();
        let answer = match names.send(name.to_owned()) {
            Ok(()) => answers.recv_timeout(self.left.get()),
            Err(_) => Err(RecvTimeoutError::Disconnected),
        };
        self.left.set(self.left.get().saturating_sub(began.elapsed()));
        match answer {
            Ok(answer) => answer,
            Err(RecvTimeoutError::Timeout) => {
                *worker = Worker::Stuck;
                Err(CallbackError::Late(self.callback.patience))
            }
            // It ends only with us, or by a panic that could not be caught.
            Err(RecvTimeoutError::Disconnected) => Err(CallbackError::Panicked),
        }
    }
}

/// Starts the thread that calls the function. It ends when the asker is dropped and the function has returned.
fn start(function: Arc<Function>) -> Option<Worker> {
    let (names, asked) = channel::<String>();
    let (told, answers) = channel();
    let work = move || {
        for name in asked {
            let answer = catch_unwind(AssertUnwindSafe(|| function(&name))).map_err(|_| CallbackError::Panicked);
            if told.send(answer).is_err() {
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
    fn every_name_is_asked_for_once_and_a_panic_concerns_one_name() {
        let asked: Arc<Mutex<Vec<String>>> = Arc::default();
        let names = asked.clone();
        let asker = Asker::new(&Callback::new(move |name| {
            names.lock().expect("the names").push(name.to_owned());
            match name {
                "BAD" => panic!("on purpose"),
                "A" => Some(Secret::new("a")),
                _ => None,
            }
        }));
        for _ in 0..2 {
            assert_eq!(asker.ask("BAD"), Err(CallbackError::Panicked));
            assert_eq!(
                asker.ask("A").map(|secret| secret.map(|secret| secret.expose().to_owned())),
                Ok(Some("a".into()))
            );
            assert_eq!(asker.ask("B"), Ok(None));
        }
        assert_eq!(*asked.lock().expect("the names"), ["BAD", "A", "B"]);
    }

    #[test]
    fn a_callback_that_blocks_is_given_up() {
        let (go, wait) = channel::<()>();
        let wait = Mutex::new(wait);
        let mut callback = Callback::new(move |_| {
            drop(wait.lock().map(|wait| wait.recv()));
            None
        });
        callback.patience = Duration::from_millis(20);
        let asker = Asker::new(&callback);
        assert_eq!(asker.ask("A"), Err(CallbackError::Late(Duration::from_millis(20))));
        assert_eq!(asker.ask("B"), Err(CallbackError::Stuck));
        assert_eq!(asker.ask("A"), Err(CallbackError::Late(Duration::from_millis(20))));
        drop(go);
    }
}
