//! A session: one command's connections to its servers, from start to end, within its time.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use ropeway::bridge::{Bridge, Health, Listing};
use ropeway::checked::CheckedTool;
use ropeway::config::{Settings, Start};
use ropeway::envelope::Envelope;
use ropeway::mcp::{Mcp, ServerInfo, State};
use ropeway::registry::{Outcome, Verdict};
use ropeway::tool::{Alias, Arguments, CallContext, CallError, Origin, ToolDefinition};
use tokio::time::Instant;

use crate::failure::{Exit, Failure};
use crate::servers::{Servers, memory_folder};
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

/// One command's connections to its servers.
pub(crate) struct Session {
    bridge: Bridge,
    /// Whom the command is about, in words.
    whom: String,
    deadline: Option<Deadline>,
    status: Status,
}

impl Session {
    /// Connects, does the work, and closes; `work` should print what it has, since closing takes its time.
    ///
    /// Where there is just one server, that it cannot be reached is a failure; of many, it is a verdict.
    pub(crate) async fn with<T>(
        servers: Servers,
        deadline: Option<Deadline>,
        status: Status,
        work: impl AsyncFnOnce(&Self) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let single = servers.single().map(|entry| entry.alias.clone());
        Self::run(servers, single, deadline, status, work).await
    }

    /// The same, but also of one server that it cannot be reached is only a verdict.
    pub(crate) async fn with_any<T>(
        servers: Servers,
        deadline: Option<Deadline>,
        status: Status,
        work: impl AsyncFnOnce(&Self) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        Self::run(servers, None, deadline, status, work).await
    }

    async fn run<T>(
        servers: Servers,
        single: Option<Alias>,
        deadline: Option<Deadline>,
        status: Status,
        work: impl AsyncFnOnce(&Self) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        if let (Some(deadline), Some(alias)) = (&deadline, &single) {
            // A command has one server.
            let _ = deadline.server.set(alias.clone());
        }
        let whom =
            single.as_ref().map_or_else(|| format!("{} servers", servers.config.servers.len()), Alias::to_string);
        let mut builder = Bridge::builder(prepare(servers, deadline.as_ref()).config);
        if let Some(folder) = memory_folder() {
            builder = builder.remember_in(folder);
        }
        let bridge = builder.build().map_err(|error| Failure::usage(error.to_string()).caused_by_source(&error))?;
        let session = Self { bridge, whom, deadline, status };
        let done = async {
            session.start(single.as_ref()).await?;
            work(&session).await
        };
        let done = done.await.map_err(|failure| match (failure.concerns_the_server(), single) {
            (true, Some(alias)) => failure.server_said(session.stderr_tail(&alias)),
            _ => failure,
        });
        session.close().await;
        done
    }

    async fn start(&self, single: Option<&Alias>) -> Result<(), Failure> {
        let started = self.step("connecting to", self.bridge.start()).await;
        match (started, single) {
            (Ok(Err(error)), _) => Err(Failure::start(error)),
            (Ok(Ok(verdicts)), Some(alias)) => verdicts.iter().try_for_each(|verdict| self.refuse(alias, verdict)),
            (Err(failure), Some(_)) => Err(failure),
            // Those that are there are there; the others are told to be late.
            (Err(_) | Ok(Ok(_)), None) => Ok(()),
        }
    }

    /// A failure where the one server of a command is not there.
    fn refuse(&self, alias: &Alias, verdict: &Verdict) -> Result<(), Failure> {
        match &verdict.outcome {
            Outcome::Ready { .. } | Outcome::Cached { .. } | Outcome::FilteredToZero { .. } => return Ok(()),
            Outcome::Disabled | Outcome::Skipped { .. } => return Err(Failure::usage(verdict.to_string())),
            _ => {}
        }
        let state = self.bridge.server(alias).map(|server| server.state().borrow().clone());
        Err(match state {
            Some(State::Down { cause, .. }) => Failure::connect(alias, cause),
            Some(State::NeedsAuth { challenge }) => {
                Failure::from(CallError::NeedsAuth { server: alias.clone(), challenge })
            }
            _ => Failure::new(Exit::Unreachable, verdict.to_string()),
        })
    }

    /// The tools, and how each server stands.
    pub(crate) fn listing(&self) -> Listing {
        self.bridge.tools()
    }

    /// What a server says about itself.
    pub(crate) fn server_info(&self, alias: &Alias) -> Option<Arc<ServerInfo>> {
        self.server(alias)?.server_info()
    }

    /// The connection to a server.
    pub(crate) fn server(&self, alias: &Alias) -> Option<Mcp> {
        self.bridge.server(alias)
    }

    fn stderr_tail(&self, alias: &Alias) -> Vec<String> {
        self.server(alias).map(|server| server.stderr_tail()).unwrap_or_default()
    }

    /// How every server does.
    pub(crate) async fn health(&self) -> Result<Health, Failure> {
        self.step("looking after", self.bridge.health_check()).await
    }

    /// The tool that a person means by a name.
    pub(crate) fn tool(&self, name: &str) -> Result<CheckedTool, Failure> {
        let listing = self.listing();
        let tools: Vec<&CheckedTool> = listing.registry.tools().collect();
        let definitions: Vec<&ToolDefinition> = tools.iter().map(|tool| tool.definition()).collect();
        choose(&definitions, name).map(|chosen| tools[chosen].clone()).map_err(|failure| {
            // What is not there may be a tool of one that is not there.
            let absent = listing.verdicts.iter().filter(|verdict| is_absent(&verdict.outcome));
            absent.fold(failure, |failure, verdict| failure.hint(verdict.to_string()))
        })
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
    pub(crate) async fn step<T>(&self, what: &str, step: impl Future<Output = T>) -> Result<T, Failure> {
        let label = format!("{what} {}", self.whom);
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
        let _ = tokio::time::timeout_at(until, self.bridge.stop()).await;
    }
}

fn is_absent(outcome: &Outcome) -> bool {
    !matches!(outcome, Outcome::Ready { .. } | Outcome::Cached { .. } | Outcome::Disabled)
}

/// The settings of a command: it makes one try, and its own timeout, which began earlier, is the clock that counts.
fn prepare(mut servers: Servers, deadline: Option<&Deadline>) -> Servers {
    let single = servers.config.servers.len() == 1;
    for entry in &mut servers.config.servers {
        if single {
            // Whoever names it wants it.
            entry.start = Start::Eager;
        }
        entry.required = false;
        let Settings::Known(config) = &mut entry.settings else { continue };
        config.reconnect.enabled = false;
        config.timeouts.close = CLOSE;
        if let Some(&Deadline { after, .. }) = deadline {
            config.timeouts.connect = after;
            config.timeouts.idle = after;
            config.timeouts.total = after;
        }
    }
    servers
}

/// The name of a tool as it is shown beside its server, and typed after it.
pub(crate) fn short_name(definition: &ToolDefinition) -> &str {
    match &definition.origin {
        // A rename shows in the name that models know; a prefix, and what was cut off, do not.
        Origin::Server { tool, .. } if definition.name.ends_with(&**tool) => tool,
        Origin::Server { .. } | Origin::Local => &definition.name,
    }
}

/// The server of a tool.
pub(crate) fn server_of(definition: &ToolDefinition) -> Option<&Alias> {
    match &definition.origin {
        Origin::Server { server, .. } => Some(server),
        Origin::Local => None,
    }
}

/// Which tool a person means: by the name that models know, by the server's own, or by either after the server's alias.
fn choose(tools: &[&ToolDefinition], name: &str) -> Result<usize, Failure> {
    let is_called = |tool: &ToolDefinition, name: &str| {
        let own = match &tool.origin {
            Origin::Server { tool, .. } => Some(&**tool),
            Origin::Local => None,
        };
        tool.name == name || own == Some(name)
    };
    let behind = |tool: &ToolDefinition| {
        let rest = name.strip_prefix(server_of(tool)?.as_str())?.strip_prefix('.')?;
        Some(rest.to_owned())
    };
    let all = || tools.iter().enumerate();
    // What is written out in full wins over what is short for it.
    let full: Vec<usize> = all().filter(|(_, tool)| tool.name == name).map(|(at, _)| at).collect();
    let dotted = all().filter(|(_, tool)| behind(tool).is_some_and(|rest| is_called(tool, &rest)));
    let dotted: Vec<usize> = dotted.map(|(at, _)| at).collect();
    let short: Vec<usize> = all().filter(|(_, tool)| is_called(tool, name)).map(|(at, _)| at).collect();
    let found = [full, dotted, short].into_iter().find(|found| !found.is_empty()).unwrap_or_default();
    match found[..] {
        [one] => Ok(one),
        [] => Err(unknown(tools, name, tools.iter().find_map(|tool| behind(tool)))),
        _ => {
            let servers = found.iter().filter_map(|at| server_of(tools[*at]));
            let names: Vec<String> = servers.map(|server| format!("`{server}.{name}`")).collect();
            let failure = Failure::usage(format!("several servers have a tool `{name}`"));
            Err(failure.hint(format!("say which one: {}", names.join(", "))))
        }
    }
}

fn unknown(tools: &[&ToolDefinition], name: &str, behind: Option<String>) -> Failure {
    let asked = behind.as_deref().unwrap_or(name);
    let failure = Failure::from(&CallError::UnknownTool { tool: asked.to_owned(), nearest: Vec::new() });
    let names: Vec<String> = tools.iter().map(|tool| clean_line(short_name(tool))).collect();
    let servers: Vec<&Alias> = {
        let mut servers: Vec<&Alias> = tools.iter().filter_map(|tool| server_of(tool)).collect();
        servers.dedup();
        servers
    };
    let whose = match servers[..] {
        [server] => format!("server `{server}` has"),
        _ => "there are".to_owned(),
    };
    match suggest::question(asked, names.iter().map(String::as_str)) {
        Some(question) => failure.hint(question),
        None if names.is_empty() => failure.hint("there are no tools"),
        None if names.len() <= 12 => failure.hint(format!("{whose}: {}", names.join(", "))),
        None => failure
            .hint(format!("`ropeway tools` lists all {}, and `ropeway tools --find WORDS` finds one", names.len())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tool(server: &str, own: &str, name: &str) -> ToolDefinition {
        let mut tool = ToolDefinition::new(name);
        tool.origin = Origin::Server { server: server.into(), tool: own.into() };
        tool
    }

    fn chosen(tools: &[ToolDefinition], name: &str) -> Result<usize, String> {
        let tools: Vec<&ToolDefinition> = tools.iter().collect();
        choose(&tools, name).map_err(|failure| anstream::adapter::strip_str(&failure.render()).to_string())
    }

    #[test]
    fn a_tool_is_found_by_its_name_or_behind_the_name_of_its_server() {
        let tools =
            [tool("demo", "chart", "chart"), tool("demo", "demo.time", "demo.time"), tool("demo", "time", "time")];
        assert_eq!(chosen(&tools, "chart"), Ok(0));
        assert_eq!(chosen(&tools, "demo.chart"), Ok(0));
        // What is written out in full wins.
        assert_eq!(chosen(&tools, "demo.time"), Ok(1));
        assert!(chosen(&tools, "other.chart").is_err());
        assert!(chosen(&tools, "demochart").is_err());
    }

    #[test]
    fn a_tool_of_many_servers_is_found_by_each_of_its_names() {
        let tools = [
            tool("web", "get", "mcp_web_get"),
            tool("files", "get", "mcp_files_fetch"),
            tool("files", "put", "mcp_files_put"),
        ];
        assert_eq!(chosen(&tools, "web.get"), Ok(0));
        assert_eq!(chosen(&tools, "mcp_web_get"), Ok(0));
        assert_eq!(chosen(&tools, "files.get"), Ok(1));
        assert_eq!(chosen(&tools, "put"), Ok(2));
        let several = chosen(&tools, "get").expect_err("which one?");
        assert_eq!(several, "error: several servers have a tool `get`\n  say which one: `web.get`, `files.get`\n");
        assert_eq!(short_name(&tools[0]), "get");
        assert_eq!(short_name(&tools[1]), "mcp_files_fetch");
    }

    #[test]
    fn a_mistyped_tool_is_a_usage_error_with_a_suggestion() {
        let tools = [tool("demo", "chart", "chart"), tool("demo", "time", "time")];
        let text = chosen(&tools, "demo.chrat").expect_err("no such tool");
        assert_eq!(text, "error: there is no tool `chrat`\n  did you mean `chart`?\n");
    }
}
