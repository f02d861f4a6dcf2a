//! Server status for people, with advice on problems.

use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anstyle::Style;
use ropeway_bridge::Bridge;
use ropeway_bridge::registry::{ServerState, ServerStatus};
use ropeway_config::{ServerAuth, ServerConfig, Transport, is_manifest, read_text};
use ropeway_core::duration::format_duration;
use ropeway_core::tool::Alias;
use ropeway_mcp::ConnectionState;

use crate::config::config_paths::find_path;
use crate::connect::servers::ServerSource;
use crate::doctor::{ConfigSource, remedy};
use crate::failure::{Exit, Failure, worst_exit};
use crate::terminal::status_icon::StatusIcon;
use crate::terminal::style::faint;
use crate::terminal::text::{clean_line, counted, width, wrap};

/// The text for a server that the running gateway has not connected yet.
pub(crate) const STARTING: &str = "still starting in the running gateway";

const NAME: Style = Style::new().bold();
const FAINT: Style = Style::new().dimmed();

/// Describes server status and suggests fixes.
#[derive(Clone, Debug)]
pub(crate) struct ServerAdvice {
    source: ServerSource,
    patience: Option<Duration>,
    /// The connections and their settings, which hold more details than a status.
    servers: Option<(Bridge, Arc<[ServerConfig]>)>,
    /// Servers that the running gateway is starting.
    starting: HashSet<Alias>,
}

/// Formats how many tools there are.
pub(crate) fn tool_count(count: usize) -> String {
    if count == 0 { "no tools".to_owned() } else { counted(count, "tool") }
}

impl ServerAdvice {
    /// Creates advice for servers from `source`. `patience` is the command's time limit.
    pub(crate) fn new(source: ServerSource, patience: Option<Duration>) -> Self {
        Self { source, patience, servers: None, starting: HashSet::new() }
    }

    /// Adds a bridge's connections and their settings.
    pub(crate) fn with_servers(mut self, bridge: &Bridge, servers: Arc<[ServerConfig]>) -> Self {
        self.servers = Some((bridge.clone(), servers));
        self
    }

    /// Adds the servers that the running gateway is starting.
    pub(crate) fn with_starting(self, starting: HashSet<Alias>) -> Self {
        Self { starting, ..self }
    }

    /// Returns `true` if the running gateway is starting the server.
    pub(crate) fn is_starting(&self, server: &Alias) -> bool {
        self.starting.contains(server)
    }

    /// Returns where the servers come from.
    pub(crate) fn source(&self) -> &ServerSource {
        &self.source
    }

    fn settings(&self, server: &Alias) -> Option<&ServerConfig> {
        self.servers.as_ref()?.1.iter().find(|config| config.alias == *server)
    }

    /// Returns a fix for a server's last connection error.
    pub(crate) fn remedy(&self, server: &Alias) -> Option<String> {
        let connection = self.servers.as_ref()?.0.server(server)?;
        let ConnectionState::Down { cause, .. } = connection.state().borrow().clone() else { return None };
        let given = match self.source {
            ServerSource::File(_) => ConfigSource::File,
            ServerSource::Line | ServerSource::Clients | ServerSource::Demo => ConfigSource::CommandLine,
        };
        remedy(&cause, self.settings(server)?, &connection.stderr_tail(), given)
    }

    /// Returns `true` if a token or an `Authorization` header is configured.
    pub(crate) fn sends_token(&self, server: &Alias) -> bool {
        self.settings(server).is_some_and(|config| match &config.transport {
            Transport::Http(server) | Transport::Sse(server) => {
                let is_authorization = |name: &str| name.eq_ignore_ascii_case("authorization");
                server.bearer.is_some() || server.headers.iter().any(|(name, _)| is_authorization(name))
            }
            _ => false,
        })
    }

    /// Describes a server's state in a few words.
    pub(crate) fn status_text(&self, state: &ServerState) -> String {
        match (state, self.patience) {
            (ServerState::Ready { tools: count }, _) => tool_count(*count),
            (ServerState::Cached { tools: count }, _) => {
                format!("{} (cached; starts on the first call)", tool_count(*count))
            }
            (ServerState::Connecting | ServerState::NotStarted, Some(patience)) => {
                format!("no response within {}", format_duration(patience))
            }
            (ServerState::Connecting, None) => "connecting".to_owned(),
            (ServerState::NeedsAuth, _) => "needs authentication".to_owned(),
            (ServerState::Down { .. }, _) => "down".to_owned(),
            (ServerState::Skipped { secrets }, _) => {
                let are = if secrets.len() == 1 { "is" } else { "are" };
                format!("skipped: `{}` {are} not set", secrets.join("`, `"))
            }
            (ServerState::Invalid { reason }, _) => format!("not started: {reason}"),
            (ServerState::FilteredToZero { of: 1 }, _) => "its only tool is filtered out".to_owned(),
            (ServerState::FilteredToZero { of }, _) => format!("all {} are filtered out", tool_count(*of)),
            (ServerState::Hidden { of }, _) => format!("{} hidden until accepted with `ropeway lock`", tool_count(*of)),
            (ServerState::Disabled, _) => "disabled".to_owned(),
            (other, _) => other.to_string(),
        }
    }

    /// Returns advice for a server that is not ready.
    pub(crate) fn for_status(&self, status: &ServerStatus) -> Option<String> {
        let server = &status.server;
        let file = match &self.source {
            ServerSource::File(path) => Some((path.as_path(), file_name(path))),
            ServerSource::Line | ServerSource::Clients | ServerSource::Demo => None,
        };
        match (&status.state, file) {
            (ServerState::Skipped { secrets }, Some((_, name))) => Some(secret_advice(secrets, &name)),
            (ServerState::NeedsAuth, file) if self.sends_token(server) => Some(match file {
                Some((_, name)) => format!("the token may be expired or lack a scope; replace it in {name}"),
                None => "the token may be expired or lack a scope; pass another one with --bearer".to_owned(),
            }),
            (ServerState::NeedsAuth, file) => Some(self.sign_in_advice(server, file)),
            (ServerState::Down { .. }, Some((path, _))) => {
                Some(format!("try {}", suggested_command(&format!("doctor {server}"), path)))
            }
            (ServerState::Down { .. }, None) if self.source == ServerSource::Line => {
                Some("try `ropeway doctor` with the same options".to_owned())
            }
            (ServerState::Connecting | ServerState::NotStarted, _) if self.patience.is_some() => {
                Some("try a longer --timeout".to_owned())
            }
            (ServerState::FilteredToZero { .. }, Some((_, name))) => {
                Some(format!("see `tools` and `tool_allowlist` of `{server}` in {name}"))
            }
            // The reason names the command that accepts the sandbox.
            (ServerState::Invalid { reason }, _) if reason.contains("`ropeway lock`") => None,
            (ServerState::Invalid { .. }, Some((_, name))) => {
                Some(format!("correct or remove the key in {name}, or define the server in a ropeway.yaml"))
            }
            (ServerState::Disabled, Some((_, name))) => {
                Some(format!("see `enabled` of `{server}` and `enabled_servers` in {name}"))
            }
            _ => None,
        }
    }

    /// Returns how to sign in to a server, or to set a token.
    fn sign_in_advice(&self, server: &Alias, file: Option<(&Path, String)>) -> String {
        let login = self.login_command(server);
        match (self.auth(server), file) {
            (Some(ServerAuth::OAuth(settings)), _) if settings.grant.is_interactive() => format!("run {login}"),
            (Some(_), Some((_, name))) => format!("its tokens are not accepted; check `auth` of `{server}` in {name}"),
            (Some(_), None) => "its tokens are not accepted".to_owned(),
            (None, Some((path, name))) if is_yaml(path) => {
                format!("run {login}, or set `auth.bearer` in {name}")
            }
            (None, Some((_, name))) => {
                format!("run {login}, or set the header `Authorization` in {name}")
            }
            (None, None) => format!("run {login}, or pass a token with --bearer or a header with --header"),
        }
    }

    /// Returns the command that signs in to a server.
    pub(crate) fn login_command(&self, server: &Alias) -> String {
        match (&self.source, self.settings(server).map(|config| &config.transport)) {
            (ServerSource::File(path), _) => suggested_command(&format!("login {server}"), path),
            (_, Some(Transport::Http(server) | Transport::Sse(server))) if is_plain(&server.url) => {
                format!("`ropeway login {}`", server.url)
            }
            _ => "`ropeway login URL`".to_owned(),
        }
    }

    fn auth(&self, server: &Alias) -> Option<&ServerAuth> {
        match &self.settings(server)?.transport {
            Transport::Http(server) | Transport::Sse(server) => server.auth.as_ref(),
            _ => None,
        }
    }

    /// Explains how to configure a server when none is.
    pub(crate) fn no_servers(&self) -> String {
        let place = match &self.source {
            ServerSource::File(path) => format!(" in {}", path.display()),
            ServerSource::Line | ServerSource::Clients | ServerSource::Demo => String::new(),
        };
        // `ropeway add` does not edit manifests.
        let is_manifest = match &self.source {
            ServerSource::File(path) => read_text(path).is_ok_and(|text| is_manifest(&text, path)),
            ServerSource::Line | ServerSource::Clients | ServerSource::Demo => false,
        };
        let way = if is_manifest {
            "Add one to the servers of this manifest, or use `ropeway add NAME --config FILE -- COMMAND` with another file."
        } else {
            "Add one with `ropeway add NAME -- COMMAND`, or import those of other clients with `ropeway import`."
        };
        format!("No servers configured{place}.\n{}", faint(&wrap(way, width(), 0)))
    }

    /// Returns the command that lists tool name collisions.
    pub(crate) fn collision_command(&self) -> String {
        match &self.source {
            ServerSource::File(path) if find_path().as_ref() != Some(path) => {
                format!("`ropeway config check --connect {}`", path.display())
            }
            _ => "`ropeway config check --connect`".to_owned(),
        }
    }

    /// Lists unavailable servers and the command that shows the causes.
    pub(crate) fn unavailable_names<'a>(&self, statuses: impl Iterator<Item = &'a ServerStatus>) -> String {
        let names: Vec<&str> = statuses.map(|status| status.server.as_str()).collect();
        let health = match &self.source {
            ServerSource::File(path) => suggested_command("health", path),
            ServerSource::Line | ServerSource::Clients | ServerSource::Demo => {
                "`ropeway health` with the same options".to_owned()
            }
        };
        format!("{} (see {health})", clean_line(&names.join(", ")))
    }

    /// Adds the unavailable servers to a failure about an unknown name. If no server is available, their status
    /// determines the exit code.
    pub(crate) fn add_unavailable(&self, failure: Failure, statuses: &[ServerStatus]) -> Failure {
        let absent: Vec<&ServerStatus> = statuses.iter().filter(|status| is_unavailable(&status.state)).collect();
        // A server that is not started has its own warning.
        let has_warning =
            |state: &ServerState| matches!(state, ServerState::Skipped { .. } | ServerState::Invalid { .. });
        let failure = match &absent[..] {
            [] => failure,
            [status] if has_warning(&status.state) => failure,
            [status] if is_pending(&status.state) => {
                failure.hint(format!("server `{}` is still connecting and may have it", status.server))
            }
            [status] => failure.hint(status.to_string()),
            many => failure.hint(format!("unavailable servers: {}", self.unavailable_names(many.iter().copied()))),
        };
        if statuses.iter().any(|status| is_available(&status.state)) || absent.is_empty() {
            failure
        } else {
            failure.with_exit(exit_code(statuses))
        }
    }

    /// Formats a server in one line: icon, name, status and `more`.
    pub(crate) fn heading(&self, status: &ServerStatus, more: &str) -> String {
        if self.is_starting(&status.server) {
            return status_line(StatusIcon::Half, &status.server, STARTING, more);
        }
        let words = match status.state {
            ServerState::NeedsAuth if self.sends_token(&status.server) => "token rejected".to_owned(),
            ref state => self.status_text(state),
        };
        status_line(StatusIcon::for_state(&status.state), &status.server, &words, more)
    }

    /// Formats a server that is not ready, with the cause and advice.
    pub(crate) fn problem_text(&self, status: &ServerStatus, width: usize) -> String {
        let mut text = self.heading(status, "");
        if self.is_starting(&status.server) {
            return text;
        }
        if let ServerState::Down { cause } = &status.state {
            text.push_str(&wrap(&clean_line(cause), width, 4));
            if let Some(remedy) = self.remedy(&status.server) {
                text.push_str(&faint(&wrap(&clean_line(&remedy), width, 4)));
            }
        }
        // A disabled server is not a problem.
        if let Some(advice) = self.for_status(status).filter(|_| status.state != ServerState::Disabled) {
            text.push_str(&faint(&wrap(&clean_line(&advice), width, 4)));
        }
        text
    }
}

/// Formats a server in one line.
pub(crate) fn status_line(mark: StatusIcon, server: &Alias, words: &str, more: &str) -> String {
    let (style, sign, alias) = (mark.style(), mark.symbol(), clean_line(server.as_str()));
    let more = if more.is_empty() { String::new() } else { format!(" · {}", clean_line(more)) };
    format!("{style}{sign}{style:#} {NAME}{alias}{NAME:#} {FAINT}· {}{more}{FAINT:#}\n", clean_line(words))
}

/// Returns `true` if an enabled server is not available.
pub(crate) fn is_unavailable(state: &ServerState) -> bool {
    !is_available(state) && *state != ServerState::Disabled
}

/// Returns `true` if a server is connected or cached, with or without tools.
pub(crate) fn is_available(state: &ServerState) -> bool {
    matches!(
        state,
        ServerState::Ready { .. }
            | ServerState::Cached { .. }
            | ServerState::FilteredToZero { .. }
            | ServerState::Hidden { .. }
    )
}

/// Returns `true` if a server is not connected yet.
pub(crate) fn is_pending(state: &ServerState) -> bool {
    matches!(state, ServerState::Connecting | ServerState::NotStarted)
}

/// Returns the exit code for a list: success if a server is available and none timed out.
pub(crate) fn exit_code(statuses: &[ServerStatus]) -> Exit {
    let states = || statuses.iter().map(|status| &status.state);
    if let [ServerStatus { state: ServerState::Disabled, .. }] = statuses {
        // A disabled server that is named explicitly is a usage error.
        return Exit::Usage;
    }
    if states().any(is_available) && !states().any(is_pending) { Exit::Done } else { worst(states()) }
}

/// Returns the exit code for the most severe state.
pub(crate) fn worst<'a>(states: impl Iterator<Item = &'a ServerState>) -> Exit {
    worst_exit(states.map(exit_of))
}

/// Returns the exit code for a server's state. [`Session::exit`] also considers the connection error.
///
/// [`Session::exit`]: crate::connect::session::Session::exit
pub(crate) fn exit_of(state: &ServerState) -> Exit {
    match state {
        state if is_pending(state) => Exit::Timeout,
        // A server that is ready but failed its health check does not respond.
        ServerState::Down { .. } | ServerState::Ready { .. } => Exit::Unreachable,
        ServerState::NeedsAuth => Exit::NeedsAuth,
        ServerState::Skipped { .. } | ServerState::Invalid { .. } | ServerState::FilteredToZero { .. } => Exit::Usage,
        _ => Exit::Done,
    }
}

/// Returns the last part of a path.
pub(crate) fn file_name(path: &Path) -> String {
    path.file_name().map_or_else(|| path.display().to_string(), |name| name.to_string_lossy().into_owned())
}

fn is_yaml(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "yaml" || extension == "yml")
}

/// Returns `true` for a URL without a query and user name, which may hold secrets, and without shell characters.
fn is_plain(url: &str) -> bool {
    url.chars().all(|c| c.is_ascii_alphanumeric() || "/:._-~%[]".contains(c))
}

/// Formats a command for a file's servers.
pub(crate) fn suggested_command(words: &str, file: &Path) -> String {
    // The file in use needs no `--config`.
    if find_path().as_deref() == Some(file) {
        format!("`ropeway {words}`")
    } else {
        format!("`ropeway {words} --config {}`", file.display())
    }
}

/// Returns how to set a configuration file's missing secrets.
pub(crate) fn secret_advice(secrets: &[String], file: &str) -> String {
    let secret = secrets.first().map_or("", String::as_str);
    let them = if secrets.len() == 1 { "it" } else { "them" };
    format!("set {them} in the environment, or in a .env next to {file}: {secret}=…")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(state: ServerState) -> ServerStatus {
        ServerStatus::new("web", state)
    }

    fn server_advice() -> ServerAdvice {
        ServerAdvice::new(ServerSource::File("/etc/ropeway.yaml".into()), Some(Duration::from_secs(2)))
    }

    fn plain(text: &str) -> String {
        anstream::adapter::strip_str(text).to_string()
    }

    #[test]
    fn every_problem_has_advice() {
        let trouble = |state| plain(&server_advice().problem_text(&status(state), 200));
        let secrets =
            |names: &[&str]| ServerState::Skipped { secrets: names.iter().map(ToString::to_string).collect() };
        assert_eq!(
            trouble(secrets(&["A"])),
            "○ web · skipped: `A` is not set\n    set it in the environment, or in a .env next to ropeway.yaml: A=…\n"
        );
        assert_eq!(
            trouble(secrets(&["A", "B"])),
            "○ web · skipped: `A`, `B` are not set\n    set them in the environment, or in a .env next to ropeway.yaml: A=…\n"
        );
        assert_eq!(
            trouble(ServerState::Down { cause: "no\n\u{1b}[1mway".into() }),
            "✗ web · down\n    no way\n    try `ropeway doctor web --config /etc/ropeway.yaml`\n"
        );
        assert_eq!(
            trouble(ServerState::NeedsAuth),
            "✗ web · needs authentication\n    run `ropeway login web --config /etc/ropeway.yaml`, or set `auth.bearer` in \
             ropeway.yaml\n"
        );
        assert_eq!(trouble(ServerState::Connecting), "◐ web · no response within 2 s\n    try a longer --timeout\n");
        assert_eq!(
            trouble(ServerState::FilteredToZero { of: 4 }),
            "◐ web · all 4 tools are filtered out\n    see `tools` and `tool_allowlist` of `web` in ropeway.yaml\n"
        );
        assert_eq!(trouble(ServerState::Disabled), "○ web · disabled\n");
    }

    #[test]
    fn suggested_commands_select_the_same_servers() {
        let down = status(ServerState::Down { cause: String::new() });
        let line = ServerAdvice::new(ServerSource::Line, None);
        let advice = "try `ropeway doctor` with the same options";
        assert_eq!(line.for_status(&down).as_deref(), Some(advice));
        assert_eq!(line.unavailable_names([&down].into_iter()), "web (see `ropeway health` with the same options)");
        assert_eq!(
            server_advice().unavailable_names([&down].into_iter()),
            "web (see `ropeway health --config /etc/ropeway.yaml`)"
        );
        assert_eq!(server_advice().collision_command(), "`ropeway config check --connect /etc/ropeway.yaml`");
    }

    #[test]
    fn advice_for_another_clients_file_uses_its_keys() {
        let advice = ServerAdvice::new(ServerSource::File("/etc/mcp.json".into()), None);
        let advice = advice.for_status(&status(ServerState::NeedsAuth));
        let login = "run `ropeway login web --config /etc/mcp.json`";
        let header = "set the header `Authorization` in mcp.json";
        assert_eq!(advice, Some(format!("{login}, or {header}")));
    }

    #[test]
    fn an_available_server_needs_no_advice() {
        for (state, words) in [
            (ServerState::Ready { tools: 0 }, "no tools"),
            (ServerState::Ready { tools: 1 }, "1 tool"),
            (ServerState::Cached { tools: 2 }, "2 tools (cached; starts on the first call)"),
        ] {
            assert_eq!(server_advice().status_text(&state), words);
            assert_eq!(server_advice().for_status(&status(state)), None);
        }
    }

    #[test]
    fn a_list_succeeds_if_a_server_is_available_and_none_is_pending() {
        let exit = |states: &[ServerState]| exit_code(&states.iter().cloned().map(status).collect::<Vec<_>>());
        let ready = ServerState::Ready { tools: 0 };
        let down = ServerState::Down { cause: String::new() };
        assert_eq!(exit(&[]), Exit::Done);
        assert_eq!(exit(&[ready.clone(), down.clone(), ServerState::NeedsAuth]), Exit::Done);
        assert_eq!(exit(&[ready, down.clone(), ServerState::Connecting]), Exit::Timeout);
        assert_eq!(exit(&[down, ServerState::NeedsAuth]), Exit::Unreachable);
        assert_eq!(exit(&[ServerState::Disabled, ServerState::NeedsAuth]), Exit::NeedsAuth);
        assert_eq!(exit(&[ServerState::Disabled, ServerState::Skipped { secrets: Vec::new() }]), Exit::Usage);
        assert_eq!(exit(&[ServerState::Disabled]), Exit::Usage);
        assert_eq!(exit(&[ServerState::Disabled, ServerState::Disabled]), Exit::Done);
    }
}
