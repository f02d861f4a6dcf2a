//! A profile's filters and overrides.

use std::sync::Arc;

use ropeway_bridge::ServerView;
use ropeway_bridge::registry::ToolShape;
use ropeway_config::{Glob, ServerEntry, ToolSettings};
use ropeway_core::checked::CheckedTool;
use ropeway_core::tool::{Alias, Tool, ToolDefinition};

/// Returns a tool's definition as the profile changes it, and the tool; `None` if the profile filters it out.
pub(super) fn shaped(
    view: &ServerView,
    tool: &CheckedTool,
    shape: Option<&ToolShape>,
) -> Option<(ToolDefinition, Arc<dyn Tool>)> {
    let definition = view.definition(tool)?;
    let Some(shape) = shape else { return Some((definition, tool.tool())) };
    let (changed, _) = shape.transformed(&definition)?;
    let changed = ToolDefinition { provenance: definition.provenance, ..changed };
    Some((changed, shape.apply(tool.tool())?))
}

/// Returns a profile's filters and overrides for one server's tools, if it has any.
pub(super) fn profile_shape(tools: &ToolSettings, entry: &ServerEntry) -> Option<ToolShape> {
    if *tools == ToolSettings::default() {
        return None;
    }
    let globs = |globs: &[String]| globs.iter().flat_map(|glob| server_globs(glob, &entry.alias)).collect::<Vec<_>>();
    let overrides = tools
        .overrides
        .iter()
        .flat_map(|(glob, change)| server_globs(glob, &entry.alias).into_iter().map(|glob| (glob, change.clone())));
    let mut settings = ToolSettings::default()
        .with_allow(globs(&tools.allow))
        .with_deny(globs(&tools.deny))
        .with_overrides(overrides.collect::<Vec<_>>());
    settings.allowlists = tools.allowlists.iter().map(|list| globs(list)).collect();
    let mut shaped = ServerEntry::with_settings(entry.alias.clone(), entry.settings.clone()).with_tools(settings);
    shaped.trust_hints = entry.trust_hints;
    match ToolShape::new(&shaped) {
        Ok(shape) => Some(shape),
        Err(error) => {
            // Only settings that were built in code can be invalid. Nothing is exposed that they might exclude.
            tracing::warn!(server = %entry.alias, "all tools are omitted: {error}");
            Some(ToolShape::plain(entry.alias.clone()).with_filter(|_| false))
        }
    }
}

/// Returns the globs over a server's own tool names for a profile's glob, which may be `SERVER.TOOL`.
fn server_globs(glob: &str, alias: &Alias) -> Vec<String> {
    let own = glob.split_once('.').filter(|(server, tool)| {
        Glob::new(server).is_ok_and(|server| server.matches(alias.as_str())) && Glob::new(tool).is_ok()
    });
    std::iter::once(glob.to_owned()).chain(own.map(|(_, tool)| tool.to_owned())).collect()
}
