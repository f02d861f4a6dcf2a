//! Tools that the configuration's filters hide.

use ropeway_bridge::registry::ToolFilter;
use ropeway_config::ToolSettings;
use ropeway_core::tool::{Alias, ToolDefinition};

use crate::connect::servers::ServerSource;
use crate::connect::session::Session;
use crate::failure::Failure;
use crate::terminal::text::clean_line;

impl Session {
    /// Replaces the failure for an unknown tool if the server has it and a filter hides it.
    pub(crate) async fn explain_filtered(&self, name: &str, failure: Failure) -> Failure {
        if !failure.is_unknown_tool() {
            return failure;
        }
        for (alias, settings) in &self.filters {
            let own = name.strip_prefix(alias.as_str()).and_then(|rest| rest.strip_prefix('.')).unwrap_or(name);
            let Some(server) = self.server(alias).filter(ropeway_mcp::Mcp::is_connected) else { continue };
            let Ok(Ok(tools)) = self.step("listing the tools of", alias, server.list_tools()).await else { continue };
            let tool = tools.iter().map(|tool| tool.definition()).find(|tool| tool.own_name() == own);
            if let Some(key) = tool.and_then(|tool| hiding_key(settings, tool)) {
                return self.filtered(alias, own, key);
            }
        }
        failure
    }

    fn filtered(&self, alias: &Alias, tool: &str, key: &str) -> Failure {
        let failure = Failure::usage(format!("tool `{alias}.{}` is hidden by a filter", clean_line(tool)));
        match self.advice.source() {
            ServerSource::File(path) => failure.hint(format!("see `{key}` of server `{alias}` in {}", path.display())),
            ServerSource::Line | ServerSource::Clients | ServerSource::Demo => failure.hint(format!("see `{key}`")),
        }
    }
}

/// Returns the key for the filter that hides a tool.
fn hiding_key(settings: &ToolSettings, tool: &ToolDefinition) -> Option<&'static str> {
    let ToolSettings { allow, allowlists, deny, .. } = settings;
    let hides = |filter: Result<ToolFilter, _>| filter.is_ok_and(|filter: ToolFilter| !filter.allows(tool));
    if hides(ToolFilter::new(&[], deny)) {
        Some("tools.deny")
    } else if hides(ToolFilter::new(allow, &[])) {
        Some("tools.allow")
    } else if allowlists.iter().any(|list| hides(ToolFilter::default().with_allowlist(list))) {
        Some("tool_allowlist")
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_key_of_the_filter_that_hides_a_tool_is_named() {
        let tool = ToolDefinition::new("run");
        let strings = |texts: &[&str]| texts.iter().map(ToString::to_string).collect::<Vec<_>>();
        let key = |change: &dyn Fn(&mut ToolSettings)| {
            let mut settings = ToolSettings::default();
            change(&mut settings);
            hiding_key(&settings, &tool)
        };
        assert_eq!(key(&|_| {}), None);
        assert_eq!(key(&|it| it.allow = strings(&["r*"])), None);
        assert_eq!(key(&|it| it.allow = strings(&["read"])), Some("tools.allow"));
        assert_eq!(key(&|it| it.deny = strings(&["run"])), Some("tools.deny"));
        assert_eq!(key(&|it| it.allowlists = vec![strings(&["read"])]), Some("tool_allowlist"));
    }
}
