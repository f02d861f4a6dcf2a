//! A session: one command's connection to one server, from start to end, within its time.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use ropeway::checked::CheckedTool;
use ropeway::config::ServerConfig;
use ropeway::envelope::Envelope;
use ropeway::mcp::{Mcp, ServerInfo};
use ropeway::tool::{Alias, Arguments, CallContext, CallError, ToolDefinition};
use tokio::time::Instant;

use crate::failure::{Exit, Failure};
use crate::status::Status;
use crate::suggest;
use crate::text::clean_line;

/// How long a server has to end by itself, unless the command's time ends sooner.
const CLOSE: Duration = Duration::from_secs(1);

/// How long a command may take as a whole, and whom it waits for meanwhile.
#[derive(Clone, Debug)]
pub(crate) struct Deadline {
    at: Instant,
    after: Duration,
    server: Arc<OnceLock<Alias>>,
}

impl Deadline {
    /// So long from now.
    pub(crate) fn new(after: Duration) -> Self {
        Self { at: Instant::now() + after, after, server: Arc::default() }
    }

    /// When it is over.
    pub(crate) fn at(&self) -> Instant {
        self.at
    }

    /// What to say when it is over.
    pub(crate) fn failure(&self) -> Failure {
        let after = self.after;
        let message = match self.server.get() {
            Some(server) => format!("server `{server}` gave no answer within {after:?}"),
            None => format!("the command did not end within {after:?}"),
        };
        Failure::new(Exit::Timeout, message)
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
        if let Some(deadline) = &deadline {
            // A command has one server.
            let _ = deadline.server.set(alias.clone());
        }
        let session = Self { server: Mcp::new(prepare(config, deadline.as_ref())), alias, deadline, status };
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

    /// What the server says about its tools.
    pub(crate) async fn definitions(&self) -> Result<Vec<ToolDefinition>, Failure> {
        let definitions = self.step("listing the tools of", self.server.list_tool_definitions(None)).await?;
        Ok(definitions?)
    }

    /// The tool that a person means by a name.
    pub(crate) async fn tool(&self, name: &str) -> Result<CheckedTool, Failure> {
        let mut tools = self.step("listing the tools of", self.server.list_tools(None)).await??;
        let names: Vec<&str> = tools.iter().map(|tool| tool.definition().name.as_str()).collect();
        let chosen = choose(&names, name, &self.alias)?;
        Ok(CheckedTool::new(tools.swap_remove(chosen)))
    }

    /// Calls a tool. An answer in which the tool reports a failure is an answer.
    pub(crate) async fn call(&self, tool: &CheckedTool, arguments: Arguments) -> Result<Envelope, Failure> {
        let status = self.status.clone();
        let context = CallContext::default().with_progress(move |progress| status.progress(progress));
        let envelope = self.step("waiting for", tool.call(arguments, &context)).await?;
        match envelope.error.as_deref() {
            None => Ok(envelope),
            Some(error @ CallError::InvalidArguments { .. }) => Err(Failure::from(error).about(tool.definition())),
            Some(error) => Err(Failure::from(error)),
        }
    }

    /// Waits for one step, but no longer than the command may take.
    async fn step<T>(&self, what: &str, step: impl Future<Output = T>) -> Result<T, Failure> {
        let label = format!("{what} {}", self.alias);
        let step = self.status.during(&label, step);
        match &self.deadline {
            None => Ok(step.await),
            Some(deadline) => tokio::time::timeout_at(deadline.at, step)
                .await
                .map_err(|_| deadline.failure().hint(format!("this was while {what} it"))),
        }
    }

    async fn close(&self) {
        let patience = Instant::now() + CLOSE + Duration::from_millis(500);
        let until = self.deadline.as_ref().map_or(patience, |deadline| {
            // A server whose time is up is still told to stop, but not waited for.
            patience.min(deadline.at.max(Instant::now() + Duration::from_millis(100)))
        });
        // Whoever is still there after this is killed by the caller.
        let _ = tokio::time::timeout_at(until, self.server.close()).await;
    }
}

/// The settings of a command: it makes one try, and its own timeout, which began earlier, is the clock that counts.
fn prepare(mut config: ServerConfig, deadline: Option<&Deadline>) -> ServerConfig {
    config.reconnect.enabled = false;
    config.timeouts.close = CLOSE;
    if let Some(&Deadline { after, .. }) = deadline {
        config.timeouts.connect = after;
        config.timeouts.idle = after;
        config.timeouts.total = after;
    }
    config
}

/// Which tool a person means by a name: the server's own name, or the same after the server's alias.
fn choose(names: &[&str], name: &str, server: &Alias) -> Result<usize, Failure> {
    let named = |name: &str| names.iter().position(|known| *known == name);
    let without_server = || name.strip_prefix(server.as_str())?.strip_prefix('.');
    if let Some(chosen) = named(name).or_else(|| named(without_server()?)) {
        return Ok(chosen);
    }
    let asked = without_server().unwrap_or(name);
    let failure = Failure::from(&CallError::UnknownTool { tool: asked.to_owned(), nearest: Vec::new() });
    let names: Vec<String> = names.iter().map(|name| clean_line(name)).collect();
    Err(match suggest::question(asked, names.iter().map(String::as_str)) {
        Some(question) => failure.hint(question),
        None if names.is_empty() => failure.hint(format!("server `{server}` has no tools")),
        None if names.len() <= 12 => failure.hint(format!("server `{server}` has: {}", names.join(", "))),
        None => failure.hint(format!("`ropeway tools` lists the {} tools of server `{server}`", names.len())),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tool_is_found_by_its_name_or_behind_the_name_of_its_server() {
        let choose = |name: &str| choose(&["chart", "demo.time", "time"], name, &"demo".into()).ok();
        assert_eq!(choose("chart"), Some(0));
        assert_eq!(choose("demo.chart"), Some(0));
        // The server's own name wins.
        assert_eq!(choose("demo.time"), Some(1));
        assert_eq!(choose("other.chart"), None);
        assert_eq!(choose("demochart"), None);
    }

    #[test]
    fn a_mistyped_tool_is_a_usage_error_with_a_suggestion() {
        let failure = choose(&["chart", "time"], "demo.chrat", &"demo".into()).expect_err("no such tool");
        assert_eq!(failure.exit(), Exit::Usage);
        let text = anstream::adapter::strip_str(&failure.render()).to_string();
        assert_eq!(text, "error: there is no tool `chrat`\n  did you mean `chart`?\n");
    }
}
