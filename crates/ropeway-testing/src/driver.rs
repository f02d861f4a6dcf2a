//! Performs a session's actions when they are due.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};

use serde_json::Value;
use tokio::task::AbortHandle;

use super::action::{Action, TimedAction};
use super::fault::Fault;
use super::scripted::Command;
use super::session::ScriptedSession;
use ropeway_core::sync::lock;

/// Performs a session's actions: passes each to `out` when its time has come.
pub(super) struct Driver {
    session: Mutex<ScriptedSession>,
    waiting: Mutex<HashMap<String, Vec<AbortHandle>>>,
    out: Box<dyn Fn(Action) + Send + Sync>,
}

impl Driver {
    pub(super) fn new(session: ScriptedSession, out: impl Fn(Action) + Send + Sync + 'static) -> Arc<Self> {
        Arc::new(Self { session: Mutex::new(session), waiting: Mutex::default(), out: Box::new(out) })
    }

    pub(super) fn open(self: &Arc<Self>) {
        let actions = self.session().open();
        self.perform(None, actions);
    }

    pub(super) fn receive(self: &Arc<Self>, message: Value, faults: Vec<Fault>) {
        let key = message.get("id").filter(|_| message.get("method").is_some()).map(Value::to_string);
        let actions = self.session().receive(message, faults);
        self.perform(key, actions);
    }

    pub(super) fn command(self: &Arc<Self>, command: Command) {
        let actions = self.session().command(command);
        self.perform(None, actions);
    }

    /// Cancels a request from which the client disconnected.
    pub(super) fn cancel(self: &Arc<Self>, id: &Value) {
        let actions = self.session().cancel(id);
        self.perform(None, actions);
    }

    /// Cancels all pending actions.
    pub(super) fn end(&self) {
        for (_, tasks) in self.waiting().drain() {
            tasks.iter().for_each(AbortHandle::abort);
        }
    }

    fn perform(self: &Arc<Self>, key: Option<String>, actions: Vec<TimedAction>) {
        let mut actions = actions.into_iter().peekable();
        while let Some(timed) = actions.next_if(|timed| timed.after.is_zero()) {
            self.act(timed.action);
        }
        if actions.peek().is_none() {
            return;
        }
        let driver = Arc::downgrade(self);
        let task = tokio::spawn(async move {
            for timed in actions {
                tokio::time::sleep(timed.after).await;
                let Some(driver) = driver.upgrade() else { return };
                driver.act(timed.action);
            }
        });
        self.waiting().entry(key.unwrap_or_default()).or_default().push(task.abort_handle());
    }

    fn act(&self, action: Action) {
        match action {
            Action::Cancel { to } => {
                let tasks = self.waiting().remove(&to.to_string()).unwrap_or_default();
                tasks.iter().for_each(AbortHandle::abort);
            }
            action => (self.out)(action),
        }
    }

    fn session(&self) -> MutexGuard<'_, ScriptedSession> {
        lock(&self.session)
    }

    fn waiting(&self) -> MutexGuard<'_, HashMap<String, Vec<AbortHandle>>> {
        lock(&self.waiting)
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        self.end();
    }
}
