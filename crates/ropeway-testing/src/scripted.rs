//! Scripted server handle.

use std::collections::HashMap;
use std::fmt;
use std::io::Write as _;
use std::sync::{Arc, Mutex, MutexGuard};

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::sync::{Notify, mpsc};

use super::fault::Fault;
use super::script::Script;
use super::task::Task;
use ropeway_core::sync::lock;

/// A handle to a scripted server, shared by all its connections. Cheap to clone.
#[derive(Clone)]
pub struct ScriptedServer(Arc<Shared>);

struct Shared {
    state: Mutex<State>,
    message_received: Notify,
}

struct State {
    script: Script,
    persistent: PersistentState,
    received: Vec<Value>,
    cancelled: Vec<Value>,
    command_senders: Vec<mpsc::UnboundedSender<Command>>,
    tasks: HashMap<String, Task>,
    extra_calls: HashMap<String, usize>,
    grandchild: Option<u32>,
}

/// State that a state file keeps across restarts.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct PersistentState {
    connections: u32,
    /// How often each rule has matched, in rule order.
    hits: Vec<u32>,
}

/// A command from the test to a connection.
#[derive(Clone, Debug)]
pub(super) enum Command {
    /// Send a message unchanged.
    Send(Value),
    /// Report that `tools`, `prompts` or `resources` changed.
    ListChanged(String),
    /// Report that a resource changed.
    ResourceUpdated(String),
    /// End every `subscriptions/listen`.
    EndListening,
}

impl fmt::Debug for ScriptedServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scripted").field("script", &self.script()).finish_non_exhaustive()
    }
}

impl ScriptedServer {
    /// Creates a server without any connections.
    pub fn new(script: Script) -> Self {
        let persistent = script
            .state_file
            .as_ref()
            .and_then(|path| std::fs::read(path).ok())
            .and_then(|bytes| serde_json::from_slice(&bytes).ok())
            .unwrap_or_default();
        let state = State {
            script,
            persistent,
            received: Vec::new(),
            cancelled: Vec::new(),
            command_senders: Vec::new(),
            tasks: HashMap::new(),
            extra_calls: HashMap::new(),
            grandchild: None,
        };
        Self(Arc::new(Shared { state: Mutex::new(state), message_received: Notify::new() }))
    }

    /// Returns the current script.
    pub fn script(&self) -> Script {
        self.state().script.clone()
    }

    /// Changes the script. If the faults change, their counts start over.
    pub fn set(&self, change: impl FnOnce(&mut Script)) {
        let mut state = self.state();
        let faults = state.script.faults.clone();
        change(&mut state.script);
        if state.script.faults != faults {
            state.persistent.hits.clear();
        }
    }

    /// Returns all client messages, in order.
    pub fn received(&self) -> Vec<Value> {
        self.state().received.clone()
    }

    /// Returns all messages with this method, in order.
    pub fn received_of(&self, method: &str) -> Vec<Value> {
        self.state().received.iter().filter(|message| message["method"] == method).cloned().collect()
    }

    /// Waits for the n-th message with this method, counted from one.
    pub async fn wait_for(&self, method: &str, n: usize) -> Value {
        loop {
            let heard = self.0.message_received.notified();
            if let Some(message) = self.received_of(method).into_iter().nth(n.saturating_sub(1)) {
                return message;
            }
            heard.await;
        }
    }

    /// Returns the ids of requests that were cancelled, by a notification or a closed connection.
    pub fn cancelled(&self) -> Vec<Value> {
        self.state().cancelled.clone()
    }

    /// Returns how many connections or starts there were.
    pub fn connections(&self) -> u32 {
        self.state().persistent.connections
    }

    /// Sends a message to every client, unchanged.
    pub fn push(&self, message: Value) {
        self.command(&Command::Send(message));
    }

    /// Notifies clients, as their era requires, that `tools`, `prompts` or `resources` have changed.
    pub fn changed(&self, list: &str) {
        self.command(&Command::ListChanged(list.to_owned()));
    }

    /// Notifies a resource's subscribers, as their era requires, that it has changed.
    pub fn touched(&self, uri: &str) {
        self.command(&Command::ResourceUpdated(uri.to_owned()));
    }

    /// Ends every `subscriptions/listen`.
    pub fn end_listening(&self) {
        self.command(&Command::EndListening);
    }

    pub(super) fn connect(&self) {
        let mut state = self.state();
        state.persistent.connections += 1;
        state.save();
    }

    pub(super) fn commands(&self) -> mpsc::UnboundedReceiver<Command> {
        let (sender, receiver) = mpsc::unbounded_channel();
        self.state().command_senders.push(sender);
        receiver
    }

    pub(super) fn record(&self, message: &Value) {
        let mut state = self.state();
        if let Some(path) = &state.script.record_file
            && let Ok(mut file) = std::fs::OpenOptions::new().create(true).append(true).open(path)
        {
            // A failed write shows in the test that reads the file.
            let _ = writeln!(file, "{message}");
        }
        state.received.push(message.clone());
        drop(state);
        self.0.message_received.notify_waiters();
    }

    pub(super) fn record_cancelled(&self, id: Value) {
        self.state().cancelled.push(id);
    }

    /// Returns a message's faults and counts them.
    pub(super) fn faults(&self, method: &str, name: Option<&str>) -> Vec<Fault> {
        let mut state = self.state();
        let State { script, persistent, .. } = &mut *state;
        persistent.hits.resize(script.faults.len(), 0);
        let mut faults = Vec::new();
        let mut counted = false;
        for (rule, hits) in script.faults.iter().zip(&mut persistent.hits) {
            if rule.on.matches(method, name, persistent.connections) {
                *hits += 1;
                counted = true;
                if rule.on.times.includes(*hits) {
                    faults.push(rule.fault.clone());
                }
            }
        }
        if counted {
            state.save();
        }
        faults
    }

    /// Returns the faults that a client message triggers.
    pub(super) fn faults_of(&self, message: &Value) -> Vec<Fault> {
        let params = &message["params"];
        let name = params["name"].as_str().or_else(|| params["uri"].as_str());
        message["method"].as_str().map(|method| self.faults(method, name)).unwrap_or_default()
    }

    /// Returns a scripted tool's raw result for this call.
    pub(super) fn extra_result(&self, name: &str) -> Option<Value> {
        let mut state = self.state();
        let tool = state.script.extra_tools.iter().find(|tool| tool.definition["name"] == name)?.clone();
        let calls = state.extra_calls.entry(name.to_owned()).or_default();
        let result = tool.results.get(*calls).or(tool.results.last()).cloned();
        *calls += 1;
        Some(result.unwrap_or_else(|| json!({ "content": [] })))
    }

    pub(super) fn grandchild(&self) -> Option<u32> {
        self.state().grandchild
    }

    pub(super) fn set_grandchild(&self, pid: u32) {
        self.state().grandchild = Some(pid);
    }

    pub(super) fn tasks<T>(&self, use_them: impl FnOnce(&mut HashMap<String, Task>) -> T) -> T {
        use_them(&mut self.state().tasks)
    }

    fn command(&self, command: &Command) {
        self.state().command_senders.retain(|commands| commands.send(command.clone()).is_ok());
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // The test that panicked while holding the lock has failed already.
        lock(&self.0.state)
    }
}

impl State {
    fn save(&self) {
        if let Some(path) = &self.script.state_file
            && let Ok(bytes) = serde_json::to_vec(&self.persistent)
        {
            // Without its state the server repeats its faults, which the test notices.
            let _ = std::fs::write(path, bytes);
        }
    }
}
