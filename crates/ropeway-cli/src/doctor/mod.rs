//! Diagnoses why a server does not work, and suggests fixes.

mod address;
mod connection;
mod environment;
mod finding;
mod node;
mod package;
mod program;
mod proxy;
mod remedy;
mod runtime;
mod sandbox;
mod sdk_advice;
mod source;
mod stderr_advice;
mod tool_filter;
mod tools;

use std::path::PathBuf;
use std::time::Duration;

use ropeway_config::lock::Lock;
use ropeway_config::{HttpServer, LockPolicy, ServerConfig, ServerEntry, StdioServer, Transport};
use ropeway_mcp::Handlers;

pub(crate) use self::environment::Environment;
pub(crate) use self::finding::{Finding, Report};
pub(crate) use self::remedy::remedy;
pub(crate) use self::source::ConfigSource;

/// Settings for an examination, the same as other commands use.
pub(crate) struct ExamineSettings<'a> {
    pub(crate) environment: Environment,
    /// Handlers for server requests. A server may offer other tools to a client without them.
    pub(crate) handlers: Handlers,
    /// The accepted tools, if any, and what happens to others.
    pub(crate) lock: Option<(&'a Lock, LockPolicy)>,
    /// The configuration file, if the servers come from one.
    pub(crate) config: Option<PathBuf>,
    /// The file that suggested commands name, unless they find it by themselves.
    pub(crate) named_config: Option<PathBuf>,
    /// The time limit, if `--timeout` sets one.
    pub(crate) limit: Option<Duration>,
}

/// Examines a server in a configuration file, including its tool filters.
pub(crate) async fn examine_entry(entry: &ServerEntry, config: &ServerConfig, with: &ExamineSettings<'_>) -> Report {
    examine_with(config, Some(entry), ConfigSource::File, with).await
}

/// Examines a server from the command line.
pub(crate) async fn examine(config: &ServerConfig, with: &ExamineSettings<'_>) -> Report {
    examine_with(config, None, ConfigSource::CommandLine, with).await
}

/// Returns why a server's program cannot be started, if it cannot.
pub(crate) fn program_problem(server: &StdioServer) -> Option<Finding> {
    let (_, finding) = program::check(server, &Environment::of_process().of_server(server));
    Some(finding).filter(Finding::is_problem)
}

/// Examines one server: its environment first, then the connection, within the time limit.
async fn examine_with(
    config: &ServerConfig,
    entry: Option<&ServerEntry>,
    source: ConfigSource,
    with: &ExamineSettings<'_>,
) -> Report {
    let environment = &with.environment;
    let mut findings = match &config.transport {
        Transport::Stdio(server) => {
            let mut findings = examine_process(server, environment, source).await;
            findings.extend(sandbox::check(server, with.config.as_deref()));
            findings
        }
        Transport::Http(server) | Transport::Sse(server) => examine_address(server, environment).await,
        _ => Vec::new(),
    };
    // Known problems would make the connection fail.
    if !findings.iter().any(Finding::is_problem) {
        findings.extend(connection::check(config, entry, source, with).await);
    }
    Report { server: config.alias.clone(), findings }
}

async fn examine_process(server: &StdioServer, environment: &Environment, source: ConfigSource) -> Vec<Finding> {
    let mut findings: Vec<Finding> = server.working_dir().map(program::check_folder).into_iter().collect();
    let beside = environment.of_server(server);
    let (path, finding) = program::check(server, &beside);
    findings.push(finding);
    findings.extend(program::check_script(server));
    if let Some(path) = path {
        findings.extend(runtime::check(server, &path, &beside).await);
    }
    if !server.inherit_env {
        let own: Vec<&str> = server.env.iter().map(|(name, _)| name.as_str()).collect();
        findings.extend(proxy::check_child(&own, environment, source));
    }
    findings
}

async fn examine_address(server: &HttpServer, environment: &Environment) -> Vec<Finding> {
    let (url, open) = match address::check_url(server) {
        Ok(checked) => checked,
        Err(finding) => return vec![finding],
    };
    let mut findings: Vec<Finding> = open.into_iter().chain(proxy::check_url(&url, environment)).collect();
    findings.push(address::check_port(&url, environment).await);
    findings
}
