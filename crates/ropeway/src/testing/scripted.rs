//! A scripted server as its test sees it: told what to do, asked what it heard.

use std::collections::HashMap;
use std::fmt;
use std::io::Write as _;
use std::sync::{Arc, Mutex, MutexGuard};

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::sync::{Notify, mpsc};

use super::fault::Fault;
use super::pipe;
use super::script::Script;
use super::task::Task;
use crate::config::InProcessServer;
use crate::sync::lock;

/// A handle on a scripted server, shared by all of its connections. Cheap to clone.
#[derive(Clone)]
pub struct ScriptedServer(Arc<Shared>);

struct Shared {
    state: Mutex<State>,
    heard: Notify,
}

struct State {
    script: Script,
    memory: Memory,
    received: Vec<Value>,
    cancelled: Vec<Value>,
    mailboxes: Vec<mpsc::UnboundedSender<Prod>>,
    tasks: HashMap<String, Task>,
    extra_calls: HashMap<String, usize>,
    grandchild: Option<u32>,
}

/// What outlives one process when there is a state file.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Memory {
    connections: u32,
    /// How often each rule has matched, in the order of the rules.
    hits: Vec<u32>,
}

/// Something that the test, and not the client, makes a connection do.
#[derive(Clone, Debug)]
pub(super) enum Prod {
    /// Say this, as it is.
    Push(Value),
    /// `tools`, `prompts` or `resources` have changed.
    Changed(String),
    /// A resource has changed.
    Touched(String),
    /// Every `subscriptions/listen` comes to its end.
    EndListening,
}

impl fmt::Debug for ScriptedServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scripted").field("script", &self.script()).finish_non_exhaustive()
    }
}

impl ScriptedServer {
    /// A server that does what the script says, reachable by nobody yet.
    pub fn new(script: Script) -> Self {
        let memory = script
            .state_file
            .as_ref()
            .and_then(|path| std::fs::read(path).ok())
            .and_then(|bytes| serde_json::from_slice(&bytes).ok())
            .unwrap_or_default();
        let state = State {
            script,
            memory,
            received: Vec::new(),
            cancelled: Vec::new(),
            mailboxes: Vec::new(),
            tasks: HashMap::new(),
            extra_calls: HashMap::new(),
            grandchild: None,
        };
        Self(Arc::new(Shared { state: Mutex::new(state), heard: Notify::new() }))
    }

    /// A way to it inside this process; every `open` is a new connection.
    pub fn in_process(&self) -> InProcessServer {
        let scripted = self.clone();
        InProcessServer::new(move || pipe::open(&scripted))
    }

    /// The script as it is now.
    pub fn script(&self) -> Script {
        self.state().script.clone()
    }

    /// Changes the script from now on. When the faults change, they are counted anew.
    pub fn set(&self, change: impl FnOnce(&mut Script)) {
        let mut state = self.state();
        let faults = state.script.faults.clone();
        change(&mut state.script);
        if state.script.faults != faults {
            state.memory.hits.clear();
        }
    }

    /// Everything that clients have said, in order.
    pub fn received(&self) -> Vec<Value> {
        self.state().received.clone()
    }

    /// The messages of one method that clients have sent, in order.
    pub fn received_of(&self, method: &str) -> Vec<Value> {
        self.state().received.iter().filter(|message| message["method"] == method).cloned().collect()
    }

    /// Waits until a client has sent the n-th message of a method, counted from one.
    pub async fn heard(&self, method: &str, n: usize) -> Value {
        loop {
            let heard = self.0.heard.notified();
            if let Some(message) = self.received_of(method).into_iter().nth(n.saturating_sub(1)) {
                return message;
            }
            heard.await;
        }
    }

    /// The ids of the requests that clients have cancelled, by a notification or by going away.
    pub fn cancelled(&self) -> Vec<Value> {
        self.state().cancelled.clone()
    }

    /// How often it was connected to, or started.
    pub fn connections(&self) -> u32 {
        self.state().memory.connections
    }

    /// Says this to every client, as it is.
    pub fn push(&self, message: Value) {
        self.prod(&Prod::Push(message));
    }

    /// Tells clients, as their era asks for, that its `tools`, `prompts` or `resources` have changed.
    pub fn changed(&self, list: &str) {
        self.prod(&Prod::Changed(list.to_owned()));
    }

    /// Tells the clients that subscribed to a resource, as their era asks for, that it has changed.
    pub fn touched(&self, uri: &str) {
        self.prod(&Prod::Touched(uri.to_owned()));
    }

    /// Brings every `subscriptions/listen` to its end.
    pub fn end_listening(&self) {
        self.prod(&Prod::EndListening);
    }

    pub(super) fn connect(&self) {
        let mut state = self.state();
        state.memory.connections += 1;
        state.remember();
    }

    pub(super) fn mailbox(&self) -> mpsc::UnboundedReceiver<Prod> {
        let (sender, receiver) = mpsc::unbounded_channel();
        self.state().mailboxes.push(sender);
        receiver
    }

    pub(super) fn record(&self, message: &Value) {
        let mut state = self.state();
        if let Some(path) = &state.script.record_file
            && let Ok(mut file) = std::fs::OpenOptions::new().create(true).append(true).open(path)
        {
            // A record that cannot be written shows in the test that reads it.
            let _ = writeln!(file, "{message}");
        }
        state.received.push(message.clone());
        drop(state);
        self.0.heard.notify_waiters();
    }

    pub(super) fn record_cancelled(&self, id: Value) {
        self.state().cancelled.push(id);
    }

    /// The faults of this moment; asking is what counts them.
    pub(super) fn faults(&self, method: &str, name: Option<&str>) -> Vec<Fault> {
        let mut state = self.state();
        let State { script, memory, .. } = &mut *state;
        memory.hits.resize(script.faults.len(), 0);
        let mut faults = Vec::new();
        let mut counted = false;
        for (rule, hits) in script.faults.iter().zip(&mut memory.hits) {
            if rule.on.matches(method, name, memory.connections) {
                *hits += 1;
                counted = true;
                if rule.on.times.includes(*hits) {
                    faults.push(rule.fault.clone());
                }
            }
        }
        if counted {
            state.remember();
        }
        faults
    }

    /// The faults that a message from the client brings about.
    pub(super) fn faults_of(&self, message: &Value) -> Vec<Fault> {
        let params = &message["params"];
        let name = params["name"].as_str().or_else(|| params["uri"].as_str());
        message["method"].as_str().map(|method| self.faults(method, name)).unwrap_or_default()
    }

    /// The raw result that a tool of the script has for this call.
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

    fn prod(&self, prod: &Prod) {
        self.state().mailboxes.retain(|mailbox| mailbox.send(prod.clone()).is_ok());
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // A test that failed while it held the lock has already said so.
        lock(&self.0.state)
    }
}

impl State {
    fn remember(&self) {
        if let Some(path) = &self.script.state_file
            && let Ok(bytes) = serde_json::to_vec(&self.memory)
        {
            // Without its memory the server repeats its faults, which the test then sees.
            let _ = std::fs::write(path, bytes);
        }
    }
}
