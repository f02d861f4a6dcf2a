//! A session: one command's connection to one server, from start to end, within its time.

use std::sync::Arc;
use std::time::Duration;

use ropeway::config::ServerConfig;
use ropeway::mcp::{Mcp, ServerInfo};
use ropeway::tool::{Alias, Arguments, CallContext, CallError, ToolDefinition, ToolOutput};
use tokio::time::Instant;

use crate::failure::{Exit, Failure};
use crate::status::Status;

/// How long a server has to end by itself, unless the command's time ends sooner.
const CLOSE: Duration = Duration::from_secs(1);

/// How long a command may take as a whole.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Deadline {
    at: Instant,
    after: Duration,
}

impl Deadline {
    /// So long from now.
    pub(crate) fn new(after: Duration) -> Self {
        Self { at: Instant::now() + after, after }
    }
}

/// One command's connection to one server.
pub(crate) struct Session {
    server: Mcp,
    alias: Alias,
    deadline: Option<Deadline>,
    status: Status,
}

impl Session {
    /// Connects, does the work, and closes; `work` should print what it has, since closing takes its time.
    pub(crate) async fn with<T>(
        config: ServerConfig,
        deadline: Option<Deadline>,
        status: Status,
        work: impl AsyncFnOnce(&Self) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let alias = config.alias.clone();
        let session = Self { server: Mcp::new(prepare(config, deadline)), alias, deadline, status };
        let done = async {
            session.connect().await?;
            work(&session).await
        };
        let done = done.await.map_err(|failure| match failure.concerns_the_server() {
            true => failure.server_said(session.server.stderr_tail()),
            false => failure,
        });
        session.close().await;
        done
    }

    async fn connect(&self) -> Result<(), Failure> {
        let connected = self.step("connecting to", self.server.connect()).await?;
        connected.map_err(|error| Failure::connect(&self.alias, error))
    }

    /// Our name for the server.
    pub(crate) fn alias(&self) -> &Alias {
        &self.alias
    }

    /// What the server says about itself.
    pub(crate) fn server_info(&self) -> Option<Arc<ServerInfo>> {
        self.server.server_info()
    }

    /// The server's tools.
    pub(crate) async fn tools(&self) -> Result<Vec<ToolDefinition>, Failure> {
        let tools = self.step("listing the tools of", self.server.list_tool_definitions(None)).await?;
        tools.map_err(Failure::from)
    }

    /// Calls a tool by the server's own name for it.
    pub(crate) async fn call(&self, tool: &str, arguments: Arguments) -> Result<ToolOutput, Failure> {
        let status = self.status.clone();
        let context = CallContext::default().with_progress(move |progress| status.progress(progress));
        let output = self.step("waiting for", self.server.call_tool(tool, arguments, &context)).await?;
        output.map_err(Failure::from)
    }

    /// Waits for one step, but no longer than the command may take.
    async fn step<T>(&self, what: &str, step: impl Future<Output = T>) -> Result<T, Failure> {
        let label = format!("{what} {}", self.alias);
        let step = self.status.during(&label, step);
        match self.deadline {
            None => Ok(step.await),
            Some(Deadline { at, after }) => tokio::time::timeout_at(at, step).await.map_err(|_| {
                let message = format!("server `{}` gave no answer within {after:?}", self.alias);
                Failure::new(Exit::Timeout, message).hint(format!("this was while {what} it"))
            }),
        }
    }

    async fn close(&self) {
        let patience = Instant::now() + CLOSE + Duration::from_millis(500);
        let until = self.deadline.map_or(patience, |deadline| {
            // A server whose time is up is still told to stop, but not waited for.
            patience.min(deadline.at.max(Instant::now() + Duration::from_millis(100)))
        });
        // Whoever is still there after this is killed by the caller.
        let _ = tokio::time::timeout_at(until, self.server.close()).await;
    }
}

/// The settings of a command: it makes one try, and its own timeout, which began earlier, is the clock that counts.
fn prepare(mut config: ServerConfig, deadline: Option<Deadline>) -> ServerConfig {
    config.reconnect.enabled = false;
    config.timeouts.close = CLOSE;
    if let Some(Deadline { after, .. }) = deadline {
        config.timeouts.connect = after;
        config.timeouts.idle = after;
        config.timeouts.total = after;
    }
    config
}

/// Finds the tool that a person means by a name: the server's own name, or the same after the server's alias.
pub(crate) fn find<'a>(tools: &'a [ToolDefinition], name: &str, server: &Alias) -> Result<&'a ToolDefinition, Failure> {
    let named = |name: &str| tools.iter().find(|tool| tool.name == name);
    let without_server = || name.strip_prefix(server.as_str())?.strip_prefix('.');
    if let Some(tool) = named(name).or_else(|| named(without_server()?)) {
        return Ok(tool);
    }
    let asked = without_server().unwrap_or(name);
    let failure = Failure::from(CallError::UnknownTool { tool: asked.to_owned() });
    let names: Vec<String> = tools.iter().map(|tool| crate::text::clean_line(&tool.name)).collect();
    Err(match crate::suggest::question(asked, names.iter().map(String::as_str)) {
        Some(question) => failure.hint(question),
        None if tools.is_empty() => failure.hint(format!("server `{server}` has no tools")),
        None if tools.len() <= 12 => failure.hint(format!("server `{server}` has: {}", names.join(", "))),
        None => failure.hint(format!("`ropeway tools` lists the {} tools of server `{server}`", tools.len())),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tools(names: &[&str]) -> Vec<ToolDefinition> {
        names.iter().map(|name| ToolDefinition::new(*name)).collect()
    }

    #[test]
    fn a_tool_is_found_by_its_name_or_behind_the_name_of_its_server() {
        let tools = tools(&["chart", "demo.time", "time"]);
        let find = |name: &str| find(&tools, name, &"demo".into()).map(|tool| tool.name.clone());
        assert_eq!(find("chart").ok().as_deref(), Some("chart"));
        assert_eq!(find("demo.chart").ok().as_deref(), Some("chart"));
        // The server's own name wins.
        assert_eq!(find("demo.time").ok().as_deref(), Some("demo.time"));
        assert!(find("other.chart").is_err());
        assert!(find("demochart").is_err());
    }

    #[test]
    fn a_mistyped_tool_is_a_usage_error_with_a_suggestion() {
        let failure = find(&tools(&["chart", "time"]), "demo.chrat", &"demo".into()).expect_err("no such tool");
        assert_eq!(failure.exit(), Exit::Usage);
        let text = anstream::adapter::strip_str(&failure.render()).to_string();
        assert_eq!(text, "error: there is no tool `chrat`\n  did you mean `chart`?\n");
    }
}
