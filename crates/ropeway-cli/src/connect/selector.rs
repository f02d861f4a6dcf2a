//! Command-line selectors: a server, or one tool on a server.

use crate::connect::servers::{ServerSource, Servers};
use crate::failure::Failure;

/// A selected server or tool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Selector {
    /// All tools on a server.
    Server(String),
    /// One tool, for [`ToolNames::choose`](crate::arguments::names::ToolNames::choose).
    Tool(String),
    /// The tools with this name, on any server.
    Name(String),
}

impl Servers {
    /// Keeps only the servers that the selectors need, or all if none are given.
    pub(crate) fn select(self, typed: &[String]) -> Result<(Self, Vec<Selector>), Failure> {
        let selectors = typed.iter().map(|typed| self.selector(typed)).collect::<Result<Vec<_>, _>>()?;
        let mut aliases: Vec<String> = Vec::new();
        for selector in &selectors {
            match selector {
                Selector::Server(alias) => aliases.push(alias.clone()),
                Selector::Tool(name) => match self.owner(name) {
                    Some(alias) => aliases.push(alias.to_owned()),
                    // A tool without a server may belong to any server.
                    None => return Ok((self, selectors)),
                },
                Selector::Name(_) => return Ok((self, selectors)),
            }
        }
        let is_awake = selectors.iter().any(|selector| matches!(selector, Selector::Server(_)));
        let eager = self.eager;
        let mut only = self.only_these(&aliases)?;
        // A tool may be described from its cached definition.
        only.eager = eager || is_awake;
        Ok((only, selectors))
    }

    fn selector(&self, typed: &str) -> Result<Selector, Failure> {
        if self.names().into_iter().any(|alias| alias.as_str() == typed) {
            return Ok(Selector::Server(typed.to_owned()));
        }
        self.check_path(typed)?;
        match (self.owner(typed), &self.source) {
            (Some(_), _) => Ok(Selector::Tool(typed.to_owned())),
            // A server that is given on the spot need not be named.
            (None, ServerSource::Line) => Ok(Selector::Tool(typed.to_owned())),
            (None, _) => match typed.split_once('.') {
                Some((server, _)) => Err(self.unknown(server)),
                None => Ok(Selector::Name(typed.to_owned())),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use ropeway_config::{Config, ServerConfig, StdioServer};

    use super::*;

    fn servers() -> Servers {
        let server = |name: &str| ServerConfig::new(name, StdioServer::new("x", [""; 0]));
        Servers::new(Config::new(["files", "v1", "v1.2"].map(server)), ServerSource::File("ropeway.yaml".into()))
    }

    fn select(typed: &[&str]) -> Result<(Vec<String>, Vec<Selector>, bool), String> {
        let typed: Vec<String> = typed.iter().map(ToString::to_string).collect();
        let selected = servers().select(&typed).map_err(|failure| failure.message().to_owned());
        let names = |servers: &Servers| servers.names().iter().map(ToString::to_string).collect();
        selected.map(|(servers, selectors)| (names(&servers), selectors, servers.eager))
    }

    #[test]
    fn a_selector_is_a_server_or_a_tool_behind_its_longest_name() {
        let (server, tool) = (|name: &str| Selector::Server(name.into()), |name: &str| Selector::Tool(name.into()));
        let strings = |names: &[&str]| names.iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(select(&[]), Ok((strings(&["files", "v1", "v1.2"]), vec![], false)));
        assert_eq!(select(&["v1.2"]), Ok((strings(&["v1.2"]), vec![server("v1.2")], true)));
        assert_eq!(select(&["v1.2.get"]), Ok((strings(&["v1.2"]), vec![tool("v1.2.get")], false)));
        assert_eq!(
            select(&["files.read", "v1"]),
            Ok((strings(&["files", "v1"]), vec![tool("files.read"), server("v1")], true))
        );
        let all = strings(&["files", "v1", "v1.2"]);
        assert_eq!(select(&["read"]), Ok((all, vec![Selector::Name("read".into())], false)));
        assert_eq!(select(&["flies.read"]), Err("unknown server `flies`".to_owned()));
    }
}
