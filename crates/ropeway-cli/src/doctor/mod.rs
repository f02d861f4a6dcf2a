//! The doctor: looks for the usual reasons why a server does not work, and says what helps.

mod address;
mod connection;
mod finding;
mod node;
mod offer;
mod package;
mod program;
mod proxy;
mod remedy;
mod runtime;
mod surroundings;
mod wanted;
mod words;

use std::time::Duration;

use ropeway::config::{HttpServer, ServerConfig, ServerEntry, StdioServer, Transport};

pub(crate) use self::finding::{Finding, Report};
pub(crate) use self::remedy::remedy;
pub(crate) use self::surroundings::Surroundings;

/// Where the settings of a server come from, and so what there is to change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Given {
    /// The command line: options.
    Line,
    /// A file: keys.
    File,
}

impl Given {
    /// The words that fit.
    fn words<'a>(self, line: &'a str, file: &'a str) -> &'a str {
        match self {
            Self::Line => line,
            Self::File => file,
        }
    }
}

/// Examines a server of a file, with what the file wants of its tools.
pub(crate) async fn examine_entry(
    entry: &ServerEntry,
    config: &ServerConfig,
    around: &Surroundings,
    limit: Option<Duration>,
) -> Report {
    examine_with(config, Some(entry), around, Given::File, limit).await
}

/// Examines a server of the command line.
pub(crate) async fn examine(config: &ServerConfig, around: &Surroundings, limit: Option<Duration>) -> Report {
    examine_with(config, None, around, Given::Line, limit).await
}

/// Examines one server: what lies around it first, then the connection itself, within a time.
async fn examine_with(
    config: &ServerConfig,
    entry: Option<&ServerEntry>,
    around: &Surroundings,
    given: Given,
    limit: Option<Duration>,
) -> Report {
    let mut findings = match &config.transport {
        Transport::Stdio(server) => examine_process(server, around, given).await,
        Transport::Http(server) | Transport::Sse(server) => examine_address(server, around).await,
        _ => Vec::new(),
    };
    // What cannot work need not be tried.
    if !findings.iter().any(Finding::is_problem) {
        findings.extend(connection::check(config, entry, given, limit).await);
    }
    Report { server: config.alias.clone(), findings }
}

async fn examine_process(server: &StdioServer, around: &Surroundings, given: Given) -> Vec<Finding> {
    let mut findings: Vec<Finding> = server.cwd.as_deref().and_then(program::check_folder).into_iter().collect();
    let beside = around.of_server(server);
    let (path, finding) = program::check(server, &beside);
    findings.push(finding);
    findings.extend(program::check_script(server));
    if let Some(path) = path {
        findings.extend(runtime::check(server, &path, &beside).await);
    }
    if !server.inherit_env {
        let own: Vec<&str> = server.env.iter().map(|(name, _)| name.as_str()).collect();
        findings.extend(proxy::check_child(&own, around, given));
    }
    findings
}

async fn examine_address(server: &HttpServer, around: &Surroundings) -> Vec<Finding> {
    let (url, open) = match address::check_url(server) {
        Ok(checked) => checked,
        Err(finding) => return vec![finding],
    };
    let mut findings: Vec<Finding> = open.into_iter().chain(proxy::check_url(&url, around)).collect();
    findings.push(address::check_port(&url, around).await);
    findings
}
