//! Command failures: message, causes, hints and exit code.

mod chain;
mod exit;

use std::error::Error;

use anstyle::{AnsiColor, Style};
use ropeway_bridge::BridgeError;
use ropeway_config::{ConfigError, ConfigProblem};
use ropeway_core::tool::{Alias, ArgumentProblem, BoxError, CallError, ToolDefinition};
use ropeway_mcp::oauth::Challenge;
use ropeway_providers::{ProviderError, ProviderErrorKind};
use serde_json::{Value, json};

pub(crate) use self::chain::chain_text;
use self::chain::{chain, challenge, connect_errors};
pub(crate) use self::exit::{EXIT_CODES, Exit, exit_of_connect, exit_of_oauth, worst_exit};
use self::exit::{exit_of, exit_of_cause};
use crate::describe::signature::{arguments, signature};
use crate::terminal::text::{clean_line, clean_names, strip_model_prefix, terminal_width, width, wrap};

/// A failure's source. Servers and providers share exit codes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FailureOrigin {
    /// An MCP server, or the command itself.
    Servers,
    /// The model provider.
    Provider,
}

/// Maximum server output lines shown.
const SERVER_LINES: usize = 12;

/// Why a command failed.
#[derive(Debug)]
pub(crate) struct Failure {
    exit: Exit,
    concerns: FailureOrigin,
    message: String,
    causes: Vec<String>,
    server_said: Box<[String]>,
    hints: Vec<String>,
    tool: Option<Box<ToolDefinition>>,
    /// The `kind` in JSON output, if it is more specific than the exit code.
    kind: Option<&'static str>,
}

impl Failure {
    /// Creates a failure with a message.
    pub(crate) fn new(exit: Exit, message: impl Into<String>) -> Self {
        let message = message.into();
        let concerns = FailureOrigin::Servers;
        let (causes, server_said, hints) = (Vec::new(), Box::default(), Vec::new());
        Self { exit, concerns, message, causes, server_said, hints, tool: None, kind: None }
    }

    /// Invalid usage, configuration or arguments.
    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self::new(Exit::Usage, message)
    }

    /// Creates the failure for a connection error.
    pub(crate) fn connect(server: &Alias, error: impl Into<BoxError>) -> Self {
        let error = error.into();
        let challenge = connect_errors(error.as_ref()).find_map(challenge);
        if let Some(challenge) = challenge {
            return CallError::NeedsAuth { server: server.clone(), challenge }.into();
        }
        // Errors above the connection's own repeat the message.
        let own = connect_errors(error.as_ref()).next().map(|error| error as &(dyn Error + 'static));
        let cause = own.unwrap_or(error.as_ref());
        Self::new(exit_of_cause(cause), format!("server `{server}` is unavailable")).caused_by(cause)
    }

    /// Creates the failure for a tool listing. No tool failed, so the server counts as unreachable.
    pub(crate) fn listing(error: &CallError) -> Self {
        let failure = Self::from(error);
        if failure.exit == Exit::ToolError { failure.with_exit(Exit::Unreachable) } else { failure }
    }

    /// Creates the failure for an invalid configuration.
    pub(crate) fn config(error: &ConfigError) -> Self {
        let file = error.file.display();
        let place = |problem: &ConfigProblem| match problem.line {
            0 => format!("{file}: {problem}"),
            line => format!("{file}:{line}:{}: {problem}", problem.column),
        };
        match &error.problems[..] {
            [] => Self::usage(error.to_string()).kind("config").caused_by_source(error),
            [problem] => Self::usage(place(problem)).kind("config"),
            many => {
                let more = if error.truncated { "more than " } else { "" };
                let message = format!("`{file}` has {more}{} problems", many.len());
                many.iter().map(place).fold(Self::usage(message).kind("config"), Self::hint)
            }
        }
    }

    /// Creates the failure for a bridge that did not start.
    pub(crate) fn start(error: BridgeError) -> Self {
        match error {
            BridgeError::Required { server, source } => Self::connect(&server, source),
            error => Self::usage(error.to_string()).caused_by_source(&error),
        }
    }

    /// Creates the failure for a model provider error.
    pub(crate) fn provider(message: impl Into<String>, error: &ProviderError) -> Self {
        let exit = match error.kind {
            ProviderErrorKind::Auth | ProviderErrorKind::Quota => Exit::NeedsAuth,
            ProviderErrorKind::Timeout => Exit::Timeout,
            ProviderErrorKind::Unusable | ProviderErrorKind::NotFound | ProviderErrorKind::InvalidRequest => {
                Exit::Usage
            }
            ProviderErrorKind::ContextLength | ProviderErrorKind::TooLarge | ProviderErrorKind::Media => Exit::Usage,
            _ => Exit::Unreachable,
        };
        let mut failure = Self { concerns: FailureOrigin::Provider, ..Self::new(exit, message) }.caused_by(error);
        // Tool names in provider errors have the prefix for models.
        failure.causes.iter_mut().chain([&mut failure.message]).for_each(|words| *words = strip_model_prefix(words));
        failure
    }

    /// Adds an error's causes, without the error itself.
    pub(crate) fn caused_by_source(self, error: &(dyn Error + 'static)) -> Self {
        match error.source() {
            Some(cause) => self.caused_by(cause),
            None => self,
        }
    }

    /// Adds an error and its causes.
    pub(crate) fn caused_by(mut self, error: &(dyn Error + 'static)) -> Self {
        for cause in chain(error).map(ToString::to_string) {
            // Some errors repeat their cause's message.
            let last = self.causes.last().unwrap_or(&self.message);
            if cause != *last {
                self.causes.push(cause);
            }
        }
        self
    }

    /// Adds the last lines that the server wrote to standard error.
    pub(crate) fn with_stderr(mut self, lines: Vec<String>) -> Self {
        if let [line] = lines.as_slice()
            && self.causes.iter().any(|cause| cause.contains(line.trim()))
        {
            return self;
        }
        let skipped = lines.len().saturating_sub(SERVER_LINES);
        self.server_said = lines.into_iter().skip(skipped).collect();
        self
    }

    /// Adds a hint.
    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hints.push(hint.into());
        self
    }

    /// Replaces a tool's name for models by the displayed one.
    pub(crate) fn rename_tool(mut self, tool: &str, shown: &str) -> Self {
        self.message = self.message.replace(&format!("`{tool}`"), &format!("`{shown}`"));
        self
    }

    /// Sets the exit code.
    pub(crate) fn with_exit(mut self, exit: Exit) -> Self {
        self.exit = exit;
        self
    }

    /// Sets the `kind` in JSON output.
    pub(crate) fn kind(mut self, kind: &'static str) -> Self {
        self.kind = Some(kind);
        self
    }

    /// Returns the `error` object for JSON output, in the form that envelopes use.
    pub(crate) fn record(&self) -> Value {
        let kind = self.kind.unwrap_or(match self.exit {
            Exit::Done | Exit::ToolError => "failed",
            Exit::Usage => "usage",
            Exit::Unreachable => "unavailable",
            Exit::NeedsAuth => "needs_auth",
            Exit::Timeout => "timeout",
            Exit::Interrupted => "cancelled",
        });
        let retryable = matches!(kind, "unavailable" | "timeout");
        let mut record =
            json!({"kind": kind, "message": self.line(), "retryable": retryable, "exit_code": self.exit as u8});
        let hints: Vec<String> = self.hints.iter().map(|hint| clean_line(hint)).collect();
        if !hints.is_empty() {
            record["hints"] = json!(hints);
        }
        record
    }

    /// Appends a tool's signature and arguments.
    pub(crate) fn about(mut self, tool: &ToolDefinition) -> Self {
        self.tool = Some(Box::new(tool.clone()));
        self
    }

    /// Returns the exit code.
    pub(crate) fn exit(&self) -> Exit {
        self.exit
    }

    /// Returns `true` if no server has the tool.
    pub(crate) fn is_unknown_tool(&self) -> bool {
        self.kind == Some("unknown_tool")
    }

    /// Returns the message.
    #[cfg(test)]
    pub(crate) fn message(&self) -> &str {
        &self.message
    }

    /// Returns `true` for model provider failures.
    pub(crate) fn is_provider_failure(&self) -> bool {
        self.concerns == FailureOrigin::Provider
    }

    /// Returns the message and its causes in one line.
    pub(crate) fn line(&self) -> String {
        [&self.message].into_iter().chain(&self.causes).map(|words| clean_line(words)).collect::<Vec<_>>().join(": ")
    }

    /// Returns `true` if server output may explain the failure.
    pub(crate) fn needs_server_output(&self) -> bool {
        matches!(self.exit, Exit::Unreachable | Exit::Timeout)
    }

    /// Formats the failure for standard error.
    pub(crate) fn render(&self) -> String {
        const ERROR: Style = AnsiColor::Red.on_default().bold();
        const FAINT: Style = Style::new().dimmed();
        // Lines in a file or pipe are not wrapped.
        let width = terminal_width(&std::io::stderr()).unwrap_or(usize::MAX);
        let hang = |text: &str| {
            let wrapped = wrap(text, width, 4);
            wrapped.strip_prefix("  ").unwrap_or(&wrapped).to_owned()
        };
        let message = wrap(&format!("error: {}", clean_names(&self.message)), width, 4);
        let mut lines = message.trim_start().replacen("error:", &format!("{ERROR}error:{ERROR:#}"), 1);
        for cause in &self.causes {
            let cause = hang(&format!("caused by: {}", clean_names(cause)));
            lines.push_str(&cause.replacen("caused by:", &format!("{FAINT}caused by:{FAINT:#}"), 1));
        }
        match &*self.server_said {
            [] => {}
            [line] => lines.push_str(&format!("  {FAINT}server output:{FAINT:#} {}\n", clean_line(line))),
            said => {
                lines.push_str(&format!("  {FAINT}server output:{FAINT:#}\n"));
                for line in said {
                    lines.push_str(&format!("    {}\n", clean_names(line).replace('\n', " ").trim_end()));
                }
            }
        }
        for hint in &self.hints {
            lines.push_str(&hang(hint));
        }
        if let Some(tool) = &self.tool {
            lines.push('\n');
            lines.push_str(&tool_usage(tool));
        }
        lines
    }
}

/// Returns a tool's signature and argument descriptions.
fn tool_usage(tool: &ToolDefinition) -> String {
    let width = width();
    format!("{}\n{}", signature(tool, width), arguments(tool, width, 2))
}

impl From<CallError> for Failure {
    fn from(error: CallError) -> Self {
        Self::from(&error)
    }
}

impl From<&CallError> for Failure {
    fn from(error: &CallError) -> Self {
        if let CallError::InvalidArguments { tool, problems } = error {
            let failure = Self::usage(format!("invalid arguments for tool `{tool}`")).kind(error.kind());
            return problems.iter().map(problem_line).fold(failure, Self::hint);
        }
        let mut failure = Self::new(exit_of(error), error.to_string()).kind(error.kind());
        if let Some(cause) = error.source() {
            failure = failure.caused_by(cause);
        }
        match error {
            CallError::NeedsAuth { challenge, .. } => {
                let asks = challenge.as_ref().map(|challenge| format!("challenge: {}", clean_line(challenge)));
                let scopes = challenge.as_deref().and_then(scope_hint);
                asks.into_iter().chain(scopes).fold(failure, Self::hint)
            }
            CallError::Refused { data: Some(data), .. } => {
                failure.hint(format!("details: {}", clean_line(&data.to_string())))
            }
            _ => failure,
        }
    }
}

/// Returns how to request the scopes that a token lacks.
fn scope_hint(challenge: &str) -> Option<String> {
    let challenge = Challenge::parse([challenge]).filter(Challenge::is_insufficient_scope)?;
    let options: Vec<String> =
        challenge.scopes().iter().map(|scope| format!("--scope {}", clean_line(scope))).collect();
    let requested = format!("the token lacks a scope; `ropeway login` requests it with {}", options.join(" "));
    (!options.is_empty()).then_some(requested)
}

/// Formats an argument problem in one line.
pub(crate) fn problem_line(problem: &ArgumentProblem) -> String {
    let reason = clean_line(&problem.reason);
    match problem.path.as_str() {
        "" => reason,
        path => format!("at `{}`: {reason}", clean_line(path)),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use ropeway_mcp::ConnectErrorKind;

    use super::*;

    fn plain(failure: &Failure) -> String {
        anstream::adapter::strip_str(&failure.render()).to_string()
    }

    #[test]
    fn a_failure_prints_each_cause_once() {
        let source = std::io::Error::new(std::io::ErrorKind::NotFound, "no such file");
        let failure = Failure::connect(&"x".into(), ConnectErrorKind::Spawn { program: "npx".into(), source });
        assert_eq!(failure.exit(), Exit::Unreachable);
        assert_eq!(
            plain(&failure),
            "error: server `x` is unavailable\n  caused by: could not start `npx`\n  caused by: no such file\n"
        );
    }

    #[test]
    fn a_missing_scope_is_named_with_its_option() {
        let challenge = r#"Bearer error="insufficient_scope", scope="read write""#;
        let failure = |challenge: &str| {
            Failure::from(&CallError::NeedsAuth { server: Alias::from("s"), challenge: Some(challenge.to_owned()) })
        };
        let shown = plain(&failure(challenge)).split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(shown.contains("requests it with --scope read --scope write"), "{shown}");
        assert!(!plain(&failure(r#"Bearer scope="read""#)).contains("--scope"));
    }

    #[test]
    fn a_nested_auth_challenge_is_an_auth_failure() {
        let strict = || ConnectErrorKind::NeedsAuth { challenge: Some("Bearer realm=\"a\"".into()) };
        let shared: BoxError = Box::new(Arc::new(strict()));
        for error in [Box::new(strict()) as BoxError, shared] {
            let failure = Failure::connect(&"x".into(), error);
            assert_eq!(failure.exit(), Exit::NeedsAuth);
            assert!(plain(&failure).contains("challenge: Bearer realm=\"a\""));
        }
    }

    #[test]
    fn the_only_stderr_line_of_the_server_is_not_repeated() {
        let mut failure = Failure::new(Exit::Unreachable, "gone");
        failure.causes.push("the process exited (exit status: 7): `no licence`".to_owned());
        let said = vec!["no licence".to_owned()];
        assert_eq!(
            plain(&failure.with_stderr(said)),
            "error: gone\n  caused by: the process exited (exit status: 7): `no licence`\n"
        );
    }

    #[test]
    fn arguments_that_do_not_fit_are_a_usage_error_with_a_line_for_each() {
        let problem = |path: &str, reason: &str| ArgumentProblem { path: path.into(), reason: reason.into() };
        let problems = vec![problem("/a", "must be a number"), problem("", "`b` is missing")];
        let failure = Failure::from(CallError::InvalidArguments { tool: "t".into(), problems });
        assert_eq!(failure.exit(), Exit::Usage);
        assert_eq!(
            plain(&failure),
            "error: invalid arguments for tool `t`\n  at `/a`: must be a number\n  `b` is missing\n"
        );
    }

    #[test]
    fn a_refused_call_is_a_tool_error() {
        let refused =
            CallError::Refused { server: "x".into(), code: -32602, message: "no \u{1b}[31mway".into(), data: None };
        let failure = Failure::from(refused);
        assert_eq!(failure.exit(), Exit::ToolError);
        assert_eq!(plain(&failure), "error: server `x` returned error -32602: no way\n");
    }

    #[test]
    fn the_stderr_of_the_server_is_shown_without_escapes() {
        let said = (0..40).map(|line| format!("line {line}\u{1b}[2J")).collect();
        let text = Failure::new(Exit::Unreachable, "gone").with_stderr(said).render();
        assert!(!text.contains("[2J"));
        assert!(text.contains("line 39") && !text.contains("line 27\n"));
    }
}
