//! The tools of one server: the list, and each as something that a model can call.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use serde_json::value::RawValue;
use tokio::time::Instant;

use super::call;
use super::pages::{self, Complaints, Paged, Whole};
use super::redaction;
use super::session::Session;
use super::shared::Shared;
use crate::protocol::{HeaderParams, tool_definition};
use crate::tool::{
    Arguments, BoxFuture, CallContext, CallError, Origin, Tool, ToolDefinition, ToolOutput, is_same_definition,
};

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
    /// Which limit the list has reached, in words.
    cut: Option<String>,
}

/// A tool of the list.
#[derive(Debug)]
pub(crate) struct Listed {
    pub(crate) definition: Arc<ToolDefinition>,
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

    pub(crate) fn definitions(&self) -> impl Iterator<Item = &Arc<ToolDefinition>> {
        self.tools.iter().map(|tool| &tool.definition)
    }

    pub(crate) fn ptr_eq(&self, other: &Self) -> bool {
        self.digest == other.digest || self.definitions().eq(other.definitions())
    }

    /// How long the server says that it may be kept.
    #[cfg(feature = "bridge")]
    pub(crate) fn life(&self) -> Option<Duration> {
        self.ttl
    }

    /// Which limit the list has reached, in words.
    #[cfg(feature = "bridge")]
    pub(crate) fn cut(&self) -> Option<&str> {
        self.cut.as_deref()
    }

    pub(crate) fn is_fresh(&self, changes: u64) -> bool {
        self.changes == changes && self.is_alive()
    }

    /// May the list still be kept, by what the server said when it gave it?
    pub(crate) fn is_alive(&self) -> bool {
        self.ttl.is_none_or(|ttl| self.fetched.elapsed() < ttl)
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

/// The tool list as it is remembered, also while it is known to have changed: the connection fetches it again by itself,
/// at a pace of its own, and tells when it has. Fetched only when there is none.
#[cfg(feature = "bridge")]
pub(crate) async fn settled(shared: &Arc<Shared>, cx: &CallContext) -> Result<Arc<ToolList>, CallError> {
    shared.session(cx, shared.clocks(cx)).await?;
    match shared.tools() {
        Some(tools) if tools.is_alive() => Ok(tools),
        _ => fetch(shared, cx).await,
    }
}

/// Fetches the tool list, page by page.
pub(crate) async fn fetch(shared: &Arc<Shared>, cx: &CallContext) -> Result<Arc<ToolList>, CallError> {
    let changes = shared.host.tools_changed();
    let mut list = ToolList {
        tools: Vec::new(),
        by_name: BTreeMap::new(),
        fetched: Instant::now(),
        ttl: None,
        changes,
        digest: 0,
        cut: None,
    };
    let paged = Paged { method: "tools/list", key: "tools", noun: "tool" };
    let take = |entry: &RawValue, session: &Session, complaints: &mut Complaints<'_>| {
        list.take(shared, entry, session.wants_headers(), complaints);
    };
    let Whole { ttl, digest, cut } = pages::fetch(shared, paged, cx, take).await?;
    (list.ttl, list.digest, list.cut) = (ttl, digest, cut);
    let list = Arc::new(list);
    shared.replace_tools(list.clone());
    Ok(list)
}

impl ToolList {
    fn take(&mut self, shared: &Shared, entry: &RawValue, wants_headers: bool, complaints: &mut Complaints<'_>) {
        let mask = shared.host.mask();
        let Some(entry) = redaction::entry(mask, entry) else {
            return complaints.warn("an entry of the tool list cannot be redacted and is left out");
        };
        let definition = match tool_definition(shared.alias(), &entry) {
            Ok(definition) => definition,
            Err(why) => return complaints.warn(&format!("the tool list holds {why}")),
        };
        // A call needs the name as it is, and a model's vendor must not have it.
        if mask.unmistakable().is_in(&definition.name) {
            return shared.host.warn(&format!("tool `{}` cannot be used: its name holds a secret", definition.name));
        }
        let headers = match wants_headers.then(|| HeaderParams::read(&definition.input_schema)) {
            Some(Ok(headers)) => headers,
            Some(Err(invalid)) => {
                return complaints.warn(&format!("tool `{}` cannot be used: {invalid}", definition.name));
            }
            None => HeaderParams::default(),
        };
        let name = definition.name.clone();
        let listed = Listed { definition: Arc::new(definition), headers };
        match self.by_name.get(&name) {
            Some(&at) => {
                complaints.warn(&format!("the tool list holds `{name}` twice: the later one counts"));
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
    // Its words may quote the server's.
    CallError::Protocol { server: shared.alias().clone(), source: shared.host.hide(&error.to_string()).into() }
}

/// A definition under the name that a model knows it by.
pub(crate) fn renamed(definition: &Arc<ToolDefinition>, prefix: Option<&str>) -> Arc<ToolDefinition> {
    let mut definition = definition.clone();
    if let Some(prefix) = prefix.filter(|prefix| !prefix.is_empty()) {
        let renamed = Arc::make_mut(&mut definition);
        renamed.name = format!("{prefix}_{}", renamed.name);
    }
    definition
}

/// A server's tool, as something that a model can call.
pub(crate) struct McpTool<K> {
    pub(crate) definition: Arc<ToolDefinition>,
    pub(crate) shared: Arc<Shared>,
    /// What must live as long as the tool: the connection, or nothing.
    pub(crate) _keep: K,
}

impl<K> McpTool<K> {
    /// Fails if the server does not define the tool as it was when it was handed out. A list that the server called changed is
    /// fetched first.
    async fn check_unchanged(&self, name: &str, cx: &CallContext) -> Result<(), CallError> {
        let current = list(&self.shared, cx).await?;
        let tool = || self.definition.name.clone();
        match current.get(name) {
            Some(listed) if is_same_definition(&listed.definition, &self.definition) => Ok(()),
            Some(_) => Err(CallError::Changed { tool: tool() }),
            None => Err(CallError::UnknownTool { tool: tool(), nearest: Vec::new() }),
        }
    }
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
        Box::pin(async move {
            if cx.requires_unchanged() {
                self.check_unchanged(name, cx).await?;
            }
            call::call_tool(&self.shared, name, arguments, cx).await
        })
    }
}

#[cfg(test)]
mod tests {
    use crate::config::ServerConfig;
    use crate::mcp::Mcp;
    use crate::testing::{self, Script};
    use crate::tool::{Arguments, CallContext, CallError};

    #[tokio::test]
    async fn a_loose_tool_works_while_the_connection_lives_and_does_not_keep_it_alive() {
        let server = Mcp::new(ServerConfig::new("s", testing::in_process(Script::default())));
        server.connect().await.expect("a connection");
        let tools = server.loose_tools().await.expect("tools");
        let echo = tools.iter().find(|tool| tool.definition().name == "echo").expect("a tool");
        let call = async || {
            let arguments = Arguments::from_iter([("message".to_owned(), "hi".into())]);
            echo.call(arguments, &CallContext::default()).await
        };
        assert_eq!(call().await.expect("an answer").plain_text().as_deref(), Some("hi"));
        let mut state = server.state();
        drop(server);
        while state.changed().await.is_ok() && !matches!(*state.borrow(), crate::mcp::ConnectionState::Closed) {}
        assert!(matches!(call().await, Err(CallError::NotConnected { .. })));
    }
}
