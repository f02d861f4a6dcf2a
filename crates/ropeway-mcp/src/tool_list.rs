//! A snapshot of a server's tools.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use serde_json::value::RawValue;
use tokio::time::Instant;

use super::host::Host;
use crate::protocol::{HeaderParams, tool_definition};
use ropeway_core::tool::ToolDefinition;

/// A snapshot of a server's tools.
#[derive(Debug)]
pub(crate) struct ToolList {
    tools: Vec<ListedTool>,
    by_name: BTreeMap<String, usize>,
    fetched: Instant,
    pub(crate) ttl: Option<Duration>,
    /// [`Host::tools_changed`] when the list was requested.
    changes: u64,
    /// A hash over the received bytes.
    pub(crate) digest: u64,
    /// The limit that truncated the list, if any.
    pub(crate) truncation: Option<String>,
}

#[derive(Debug)]
pub(crate) struct ListedTool {
    pub(crate) definition: Arc<ToolDefinition>,
    pub(crate) headers: HeaderParams,
}

impl ListedTool {
    /// Returns `true` if the server runs this tool only as a task
    /// ([2025-11-25](https://modelcontextprotocol.io/specification/2025-11-25/basic/utilities/tasks)).
    pub(crate) fn requires_task(&self) -> bool {
        self.definition.extra.get("execution").and_then(|execution| execution.get("taskSupport"))
            == Some(&json!("required"))
    }
}

impl ToolList {
    /// Creates an empty list. `changes` is the current [`Host::tools_changed`].
    pub(crate) fn new(changes: u64) -> Self {
        Self {
            tools: Vec::new(),
            by_name: BTreeMap::new(),
            fetched: Instant::now(),
            ttl: None,
            changes,
            digest: 0,
            truncation: None,
        }
    }

    pub(crate) fn get(&self, name: &str) -> Option<&ListedTool> {
        self.by_name.get(name).map(|&at| &self.tools[at])
    }

    pub(crate) fn definitions(&self) -> impl Iterator<Item = &Arc<ToolDefinition>> {
        self.tools.iter().map(|tool| &tool.definition)
    }

    pub(crate) fn ptr_eq(&self, other: &Self) -> bool {
        self.digest == other.digest || self.definitions().eq(other.definitions())
    }

    /// Returns how long the server allows the list to be cached.
    pub(crate) fn ttl(&self) -> Option<Duration> {
        self.ttl
    }

    /// Returns the limit that truncated the list, if any.
    pub(crate) fn truncation(&self) -> Option<&str> {
        self.truncation.as_deref()
    }

    /// Returns `true` if the list is neither expired nor changed.
    pub(crate) fn is_fresh(&self, changes: u64) -> bool {
        self.changes == changes && self.is_within_ttl()
    }

    /// Returns `true` if the TTL has not expired.
    pub(crate) fn is_within_ttl(&self) -> bool {
        self.ttl.is_none_or(|ttl| self.fetched.elapsed() < ttl)
    }

    /// Adds a redacted `tools/list` entry. `warn` gets the reason if the entry is skipped or replaces another one.
    pub(crate) fn push(&mut self, host: &Host, entry: &RawValue, wants_headers: bool, mut warn: impl FnMut(&str)) {
        let definition = match tool_definition(host.alias(), entry) {
            Ok(definition) => definition,
            Err(problem) => return warn(&format!("the tool list contains {problem}")),
        };
        // A call needs the exact name, but the name must not reach the model.
        if host.redactor().only_long_secrets().contains_secret(&definition.name) {
            return host.warn(&format!("tool `{}` cannot be used: its name contains a secret", definition.name));
        }
        let headers = match wants_headers.then(|| HeaderParams::read(&definition.input_schema)) {
            Some(Ok(headers)) => headers,
            Some(Err(invalid)) => {
                return warn(&format!("tool `{}` cannot be used: {invalid}", definition.name));
            }
            None => HeaderParams::default(),
        };
        let name = definition.name.clone();
        let listed = ListedTool { definition: Arc::new(definition), headers };
        match self.by_name.get(&name) {
            Some(&at) => {
                warn(&format!("the tool list contains `{name}` twice; using the last one"));
                self.tools[at] = listed;
            }
            None => {
                self.by_name.insert(name, self.tools.len());
                self.tools.push(listed);
            }
        }
    }
}
