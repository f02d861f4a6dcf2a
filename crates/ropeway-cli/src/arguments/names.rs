//! Tool names on the command line: `SERVER.TOOL`, without the prefix used for models.

use std::collections::HashMap;

use ropeway_bridge::registry::naming::tool_name;
use ropeway_config::Config;
use ropeway_core::suggest;
use ropeway_core::tool::{Alias, CallError, Origin, ToolDefinition};

use crate::failure::Failure;
use crate::terminal::text::clean_line;

/// Maximum tools listed after an unknown tool name.
const FEW: usize = 12;

/// Maps tools to the names that people type.
#[derive(Clone, Debug)]
pub(crate) struct ToolNames {
    /// The `prefix` of each server, as configured.
    prefixes: HashMap<Alias, String>,
}

impl ToolNames {
    pub(crate) fn new(config: &Config) -> Self {
        Self { prefixes: config.servers.iter().map(|entry| (entry.alias.clone(), entry.prefix.clone())).collect() }
    }

    /// Returns a tool's name without server and prefix.
    pub(crate) fn short<'a>(&self, definition: &'a ToolDefinition) -> &'a str {
        let Origin::Server { server, tool } = &definition.origin else { return &definition.name };
        let prefix = self.prefixes.get(server).map_or("", String::as_str);
        // A name that was shortened or sanitized for models is shown as the server defines it.
        if tool_name(prefix, server, tool) == definition.name {
            return tool;
        }
        // A name set by `rename` is shown as is.
        definition
            .name
            .strip_prefix(&expand_prefix(prefix, server))
            .filter(|rest| !rest.is_empty())
            .unwrap_or(&definition.name)
    }

    /// Returns `SERVER.TOOL`.
    pub(crate) fn dotted(&self, definition: &ToolDefinition) -> String {
        match server_of(definition) {
            Some(server) => format!("{server}.{}", self.short(definition)),
            None => definition.name.clone(),
        }
    }

    /// Returns the definition under the displayed name: the plain name if models use it, otherwise `SERVER.TOOL`.
    pub(crate) fn shown(&self, definition: &ToolDefinition) -> ToolDefinition {
        let mut shown = definition.clone();
        if self.short(definition) != definition.name {
            shown.name = self.dotted(definition);
        }
        shown
    }

    /// Returns `true` if the tool has this name: for models, as displayed, or as defined by the server.
    pub(crate) fn is_called(&self, tool: &ToolDefinition, name: &str) -> bool {
        let own = match &tool.origin {
            Origin::Server { tool, .. } => Some(&**tool),
            Origin::Local => None,
        };
        tool.name == name || self.short(tool) == name || own == Some(name)
    }

    /// Returns the index of the tool with this name: its name for models, as displayed, as defined by the server, or any
    /// such name after `SERVER.`.
    pub(crate) fn choose(&self, tools: &[&ToolDefinition], name: &str) -> Result<usize, Failure> {
        let is_called = |tool: &ToolDefinition, name: &str| self.is_called(tool, name);
        let all = || tools.iter().enumerate();
        // A full name takes precedence over a short one.
        let full: Vec<usize> = all().filter(|(_, tool)| tool.name == name).map(|(at, _)| at).collect();
        let dotted = all().filter(|(_, tool)| behind(tool, name).is_some_and(|rest| is_called(tool, rest)));
        let dotted: Vec<usize> = dotted.map(|(at, _)| at).collect();
        let short: Vec<usize> = all().filter(|(_, tool)| is_called(tool, name)).map(|(at, _)| at).collect();
        let found = [full, dotted, short].into_iter().find(|found| !found.is_empty()).unwrap_or_default();
        match found[..] {
            [one] => Ok(one),
            [] => Err(self.unknown(tools, name)),
            _ => {
                let names: Vec<String> = found.iter().map(|at| format!("`{}`", self.dotted(tools[*at]))).collect();
                let failure = Failure::usage(format!("tool `{name}` is ambiguous"));
                Err(failure.hint(format!("name the server: {}", names.join(", "))))
            }
        }
    }

    /// Returns the displayed names for tools with a similar name.
    pub(crate) fn similar(&self, tools: &[&ToolDefinition], name: &str) -> Vec<String> {
        let short: Vec<String> = tools.iter().map(|tool| clean_line(self.short(tool))).collect();
        let near = suggest::closest(name, short.iter().map(String::as_str));
        let displayed = short.iter().zip(self.displayed(tools)).filter(|(short, _)| near.contains(&short.as_str()));
        displayed.map(|(_, name)| name).take(suggest::MAX_SUGGESTIONS).collect()
    }

    /// Returns each tool's displayed name. With several servers, a plain name would be ambiguous.
    fn displayed(&self, tools: &[&ToolDefinition]) -> Vec<String> {
        let is_alone = tools.windows(2).all(|pair| server_of(pair[0]) == server_of(pair[1]));
        let name = |tool: &&ToolDefinition| {
            if is_alone { clean_line(self.short(tool)) } else { clean_line(&self.dotted(tool)) }
        };
        tools.iter().map(name).collect()
    }

    fn unknown(&self, tools: &[&ToolDefinition], name: &str) -> Failure {
        let mut servers: Vec<&Alias> = tools.iter().filter_map(|tool| server_of(tool)).collect();
        servers.dedup();
        let wanted = tools.iter().find_map(|tool| behind(tool, name)).unwrap_or(name);
        let failure = Failure::from(&CallError::UnknownTool { tool: wanted.to_owned(), nearest: Vec::new() });
        let names = self.displayed(tools);
        let whose = match servers[..] {
            [server] => format!("tools of server `{server}`"),
            _ => "available tools".to_owned(),
        };
        let question = suggest::did_you_mean_one_of(&self.similar(tools, wanted))
            .or_else(|| suggest::did_you_mean(wanted, names.iter().map(String::as_str)));
        // Without a similar tool, the server may be misspelled.
        let server = wanted.split_once('.').map(|(server, _)| server);
        let server =
            server.and_then(|name| suggest::closest(name, servers.iter().map(|it| it.as_str())).into_iter().next());
        match question.or_else(|| server.map(|server| format!("did you mean server `{server}`?"))) {
            Some(question) => failure.hint(question),
            None if names.is_empty() => failure,
            None if names.len() <= FEW => failure.hint(format!("{whose}: {}", names.join(", "))),
            None => failure.hint(format!("try `ropeway tools --find QUERY` to search {} tools", names.len())),
        }
    }
}

/// Returns the prefix before a server's tool names, as models see it.
pub(crate) fn expand_prefix(prefix: &str, server: &Alias) -> String {
    let legal = |c: char| if c.is_ascii_alphanumeric() || matches!(c, '_' | '-') { c } else { '_' };
    prefix.replace("{alias}", server.as_str()).chars().map(legal).collect()
}

/// Returns the part after `SERVER.`, if the tool belongs to that server.
fn behind<'a>(tool: &ToolDefinition, name: &'a str) -> Option<&'a str> {
    name.strip_prefix(server_of(tool)?.as_str())?.strip_prefix('.')
}

/// Returns a tool's server.
pub(crate) fn server_of(definition: &ToolDefinition) -> Option<&Alias> {
    match &definition.origin {
        Origin::Server { server, .. } => Some(server),
        Origin::Local => None,
    }
}

#[cfg(test)]
mod tests {
    use ropeway_config::{ServerConfig, StdioServer};

    use super::*;

    /// Returns names for these servers, which have the default prefix, except for `demo`, which has none.
    fn names() -> ToolNames {
        let server = |name: &str| ServerConfig::new(name, StdioServer::new("x", [""; 0]));
        let mut config = Config::new(["demo", "web", "files", "v1.2"].map(server));
        config.servers[0].prefix = String::new();
        ToolNames::new(&config)
    }

    fn tool(server: &str, own: &str, name: &str) -> ToolDefinition {
        let mut tool = ToolDefinition::new(name);
        tool.origin = Origin::Server { server: server.into(), tool: own.into() };
        tool
    }

    fn chosen(tools: &[ToolDefinition], name: &str) -> Result<usize, String> {
        let tools: Vec<&ToolDefinition> = tools.iter().collect();
        names().choose(&tools, name).map_err(|failure| anstream::adapter::strip_str(&failure.render()).to_string())
    }

    #[test]
    fn a_tool_is_found_by_its_name_or_behind_the_name_of_its_server() {
        let tools =
            [tool("demo", "chart", "chart"), tool("demo", "demo.time", "demo.time"), tool("demo", "time", "time")];
        assert_eq!(chosen(&tools, "chart"), Ok(0));
        assert_eq!(chosen(&tools, "demo.chart"), Ok(0));
        // A full name takes precedence.
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
        assert_eq!(chosen(&tools, "files.fetch"), Ok(1));
        assert_eq!(chosen(&tools, "fetch"), Ok(1));
        assert_eq!(chosen(&tools, "put"), Ok(2));
        let several = chosen(&tools, "get").expect_err("which one?");
        assert_eq!(several, "error: tool `get` is ambiguous\n  name the server: `web.get`, `files.fetch`\n");
    }

    #[test]
    fn a_tool_is_shown_without_the_prefix_that_models_need() {
        let long = "a".repeat(80);
        for (tool, short) in [
            (tool("web", "get", "mcp_web_get"), "get"),
            (tool("files", "get", "mcp_files_fetch"), "fetch"),
            (tool("web", "get", "mcp_web_get_2"), "get_2"),
            (tool("v1.2", "a/b", "mcp_v1_2_a_b"), "a/b"),
            (tool("v1.2", "a/b", "mcp_v1_2_other"), "other"),
            (tool("demo", "time", "time"), "time"),
            (tool("web", &long, &tool_name("mcp_{alias}_", &"web".into(), &long)), &long),
            (ToolDefinition::new("local"), "local"),
        ] {
            assert_eq!(names().short(&tool), short);
        }
    }

    #[test]
    fn a_mistyped_tool_is_a_usage_error_with_a_suggestion() {
        let tools = [tool("demo", "chart", "chart"), tool("demo", "time", "time")];
        let text = chosen(&tools, "demo.chrat").expect_err("no such tool");
        assert_eq!(text, "error: unknown tool `chrat`\n  did you mean `chart`?\n");
    }

    #[test]
    fn with_many_servers_the_suggestion_names_the_server() {
        let tools = [tool("web", "fetch", "mcp_web_fetch"), tool("files", "read", "mcp_files_read")];
        for name in ["fecth", "wbe.fetch"] {
            let text = chosen(&tools, name).expect_err("no such tool");
            assert_eq!(text, format!("error: unknown tool `{name}`\n  did you mean `web.fetch`?\n"));
        }
        let text = chosen(&tools, "fils.xylophone").expect_err("no such tool");
        assert_eq!(text, "error: unknown tool `fils.xylophone`\n  did you mean server `files`?\n");
        let text = chosen(&tools, "xylophone").expect_err("no such tool");
        assert_eq!(text, "error: unknown tool `xylophone`\n  available tools: web.fetch, files.read\n");
    }
}
