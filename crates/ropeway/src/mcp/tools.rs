//! The tools of one server: the list, and each as something that a model can call.

use std::collections::{BTreeMap, HashSet};
use std::hash::{DefaultHasher, Hasher};
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;

use super::call;
use super::shared::{Shared, chain};
use super::transport::Request;
use crate::event::Event;
use crate::protocol::{HeaderParams, Page, code, tool_definition};
use crate::tool::{Arguments, BoxFuture, CallContext, CallError, Origin, Tool, ToolDefinition, ToolOutput};

/// A server's tools as of one moment.
#[derive(Debug)]
pub(crate) struct ToolList {
    tools: Vec<Listed>,
    by_name: BTreeMap<String, usize>,
    fetched: Instant,
    ttl: Option<Duration>,
    /// How often the list had changed when it was asked for.
    changes: u64,
    /// Equal for lists that came in the same words.
    digest: u64,
}

/// A tool of the list.
#[derive(Debug)]
pub(crate) struct Listed {
    pub(crate) definition: ToolDefinition,
    pub(crate) headers: HeaderParams,
}

impl Listed {
    /// The server runs this tool only as a task (2025-11-25).
    pub(crate) fn must_be_task(&self) -> bool {
        self.definition.extra.get("execution").and_then(|execution| execution.get("taskSupport"))
            == Some(&json!("required"))
    }
}

impl ToolList {
    pub(crate) fn get(&self, name: &str) -> Option<&Listed> {
        self.by_name.get(name).map(|&at| &self.tools[at])
    }

    pub(crate) fn definitions(&self) -> impl Iterator<Item = &ToolDefinition> {
        self.tools.iter().map(|tool| &tool.definition)
    }

    pub(crate) fn same_as(&self, other: &Self) -> bool {
        self.digest == other.digest || self.definitions().eq(other.definitions())
    }

    pub(crate) fn is_fresh(&self, changes: u64) -> bool {
        self.changes == changes && self.ttl.is_none_or(|ttl| self.fetched.elapsed() < ttl)
    }
}

/// The tool list: as it is remembered, or fetched when it is not or has changed.
pub(crate) async fn list(shared: &Arc<Shared>, cx: &CallContext) -> Result<Arc<ToolList>, CallError> {
    // A list is only as good as the connection that it came over.
    shared.session(cx, shared.clocks(cx)).await?;
    match shared.tools() {
        Some(tools) if tools.is_fresh(shared.host.tools_changed()) => Ok(tools),
        _ => fetch(shared, cx).await,
    }
}

/// Fetches the tool list, page by page.
pub(crate) async fn fetch(shared: &Arc<Shared>, cx: &CallContext) -> Result<Arc<ToolList>, CallError> {
    let clocks = shared.clocks(cx);
    let changes = shared.host.tools_changed();
    let mut list = ToolList {
        tools: Vec::new(),
        by_name: BTreeMap::new(),
        fetched: Instant::now(),
        ttl: None,
        changes,
        digest: 0,
    };
    let mut digest = DefaultHasher::new();
    let mut cursor: Option<String> = None;
    let mut seen = HashSet::new();
    for page_number in 1.. {
        let params = cursor.as_ref().map_or_else(|| json!({}), |cursor| json!({"cursor": cursor})).to_string();
        let request = Request { idempotent: true, ..Request::new("tools/list", params.as_bytes()) };
        let (answer, session) = match shared.request(&request, cx, clocks, None).await {
            Ok(answer) => answer,
            // A server without tools need not know the question.
            Err(CallError::Refused { code: code::METHOD_NOT_FOUND, .. }) if page_number == 1 => break,
            Err(error) if page_number == 1 => return Err(error),
            Err(error @ (CallError::Cancelled | CallError::Timeout { .. })) => return Err(error),
            Err(error) => {
                // What is not the whole list is not kept.
                list.ttl = Some(Duration::ZERO);
                shared.host.warn(&format!("page {page_number} of the tools is missing: {}", chain(&error)));
                break;
            }
        };
        answer.digest(&mut digest);
        let result: Value = answer.read(&shared.host).map_err(|error| unreadable(shared, error))?;
        let page = Page::read(result, "tools");
        list.ttl = [list.ttl, page.ttl].into_iter().flatten().min();
        let wants_headers = session.wants_headers();
        for entry in page.items {
            list.take(shared, entry, wants_headers);
        }
        cursor = match page.next_cursor {
            None => break,
            Some(next) if !seen.insert(next.clone()) => {
                shared.host.warn(&format!("the tool list repeats its cursor `{next}`: the rest is left out"));
                break;
            }
            Some(_) if page_number >= shared.config.limits.pages => {
                shared.host.warn(&format!("the tool list has more than {page_number} pages: the rest is left out"));
                break;
            }
            next => next,
        };
    }
    list.digest = digest.finish();
    let list = Arc::new(list);
    if shared.replace_tools(list.clone()).is_some_and(|before| !before.same_as(&list)) {
        shared.host.events().tell(Event::ToolsChanged { server: shared.alias().clone() });
    }
    Ok(list)
}

impl ToolList {
    fn take(&mut self, shared: &Shared, entry: Value, wants_headers: bool) {
        let definition = match tool_definition(shared.alias(), entry) {
            Ok(definition) => definition,
            Err(why) => return shared.host.warn(&format!("the tool list holds {why}")),
        };
        let headers = match wants_headers.then(|| HeaderParams::read(&definition.input_schema)) {
            Some(Ok(headers)) => headers,
            Some(Err(invalid)) => {
                return shared.host.warn(&format!("tool `{}` cannot be used: {invalid}", definition.name));
            }
            None => HeaderParams::default(),
        };
        let name = definition.name.clone();
        let listed = Listed { definition, headers };
        match self.by_name.get(&name) {
            Some(&at) => {
                shared.host.warn(&format!("the tool list holds `{name}` twice: the later one counts"));
                self.tools[at] = listed;
            }
            None => {
                self.by_name.insert(name, self.tools.len());
                self.tools.push(listed);
            }
        }
    }
}

pub(crate) fn unreadable(shared: &Shared, error: serde_json::Error) -> CallError {
    CallError::Protocol { server: shared.alias().clone(), source: Box::new(error) }
}

/// A definition under the name that a model knows it by.
pub(crate) fn renamed(definition: &ToolDefinition, prefix: Option<&str>) -> ToolDefinition {
    let mut definition = definition.clone();
    if let Some(prefix) = prefix.filter(|prefix| !prefix.is_empty()) {
        definition.name = format!("{prefix}_{}", definition.name);
    }
    definition
}

/// A server's tool, as something that a model can call. It keeps the connection alive.
pub(crate) struct McpTool<K> {
    pub(crate) definition: ToolDefinition,
    pub(crate) shared: Arc<Shared>,
    /// What must live as long as the tool.
    pub(crate) _keep: K,
}

impl<K: Send + Sync + 'static> Tool for McpTool<K> {
    fn definition(&self) -> &ToolDefinition {
        &self.definition
    }

    fn call<'a>(&'a self, arguments: Arguments, cx: &'a CallContext) -> BoxFuture<'a, Result<ToolOutput, CallError>> {
        let name = match &self.definition.origin {
            Origin::Server { tool, .. } => tool,
            Origin::Local => self.definition.name.as_str(),
        };
        Box::pin(call::call_tool(&self.shared, name, arguments, cx))
    }
}
