//! Doing in time what a conversation says is to be done.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};

use serde_json::Value;
use tokio::task::AbortHandle;

use super::fault::Fault;
use super::scripted::Prod;
use super::session::{Action, Deed, Session};
use crate::sync::lock;

/// A conversation with its clock. What is to be done is handed to `out` when its time has come.
pub(super) struct Stage {
    session: Mutex<Session>,
    waiting: Mutex<HashMap<String, Vec<AbortHandle>>>,
    out: Box<dyn Fn(Deed) + Send + Sync>,
}

impl Stage {
    pub(super) fn new(session: Session, out: impl Fn(Deed) + Send + Sync + 'static) -> Arc<Self> {
        Arc::new(Self { session: Mutex::new(session), waiting: Mutex::default(), out: Box::new(out) })
    }

    pub(super) fn open(self: &Arc<Self>) {
        let actions = self.session().open();
        self.perform(None, actions);
    }

    pub(super) fn hear(self: &Arc<Self>, message: Value, faults: Vec<Fault>) {
        let key = message.get("id").filter(|_| message.get("method").is_some()).map(Value::to_string);
        let actions = self.session().hear(message, faults);
        self.perform(key, actions);
    }

    pub(super) fn prod(self: &Arc<Self>, prod: Prod) {
        let actions = self.session().prod(prod);
        self.perform(None, actions);
    }

    /// The client has gone away from a request.
    pub(super) fn cancel(self: &Arc<Self>, id: &Value) {
        let actions = self.session().cancel(id);
        self.perform(None, actions);
    }

    /// Nothing more is done.
    pub(super) fn end(&self) {
        for (_, tasks) in self.waiting().drain() {
            tasks.iter().for_each(AbortHandle::abort);
        }
    }

    fn perform(self: &Arc<Self>, key: Option<String>, actions: Vec<Action>) {
        let mut actions = actions.into_iter().peekable();
        while let Some(action) = actions.next_if(|action| action.after.is_zero()) {
            self.act(action.deed);
        }
        if actions.peek().is_none() {
            return;
        }
        let stage = Arc::downgrade(self);
        let task = tokio::spawn(async move {
            for action in actions {
                tokio::time::sleep(action.after).await;
                let Some(stage) = stage.upgrade() else { return };
                stage.act(action.deed);
            }
        });
        self.waiting().entry(key.unwrap_or_default()).or_default().push(task.abort_handle());
    }

    fn act(&self, deed: Deed) {
        match deed {
            Deed::Cancel { to } => {
                let tasks = self.waiting().remove(&to.to_string()).unwrap_or_default();
                tasks.iter().for_each(AbortHandle::abort);
            }
            deed => (self.out)(deed),
        }
    }

    fn session(&self) -> MutexGuard<'_, Session> {
        lock(&self.session)
    }

    fn waiting(&self) -> MutexGuard<'_, HashMap<String, Vec<AbortHandle>>> {
        lock(&self.waiting)
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        self.end();
    }
}
