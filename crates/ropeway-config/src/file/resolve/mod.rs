//! Resolution: from decoded records to settings, with references replaced by their values.

mod chat;
mod gateway;
mod gateway_auth;
mod gateway_observe;
mod limits;
mod resolver;
mod sandbox;
mod server_auth;
mod tools;
mod transport;

use std::path::PathBuf;

pub(super) use self::chat::resolve_chat;
pub(super) use self::gateway::resolve_gateway;
use self::limits::{limits, reconnect, timeouts};
use self::resolver::Resolver;
pub(super) use self::resolver::{ResolveContext, expand_path};
use super::node::Node;
use super::problem::ConfigProblem;
use super::raw::{RawPrompts, RawServer, RawShorthand};
use crate::settings::{ServerConfig, ServerEntry, ServerSettings};

/// A resolved server.
pub(super) struct ResolvedServer {
    pub(super) entry: ServerEntry,
    pub(super) warnings: Vec<String>,
    /// The files that were read for it.
    pub(super) files: Vec<PathBuf>,
}

/// Resolves a server. `node` is its entry and `base` the entry's path in the file.
pub(super) fn resolve(
    raw: &RawServer,
    node: &Node,
    base: &str,
    context: &ResolveContext<'_>,
) -> Result<ResolvedServer, Vec<ConfigProblem>> {
    let mut resolver = Resolver::new(context, node, base);
    resolver.check_alias(&raw.alias);
    let transport = resolver.transport(raw);
    let tools = resolver.tools(raw);
    let resources = resolver.resources(raw);
    let (Some(transport), true) = (transport, resolver.problems.is_empty()) else { return Err(resolver.problems) };

    let enabled = raw.enabled.unwrap_or(true);
    let mut warnings = resolver.warnings;
    let settings = if resolver.missing.names.is_empty() {
        let mut config = ServerConfig::new(raw.alias.as_str(), transport);
        config.era = raw.era.unwrap_or_default();
        config.timeouts = timeouts(&raw.timeouts.unwrap_or_default());
        config.limits = limits(&raw.limits.unwrap_or_default());
        config.reconnect = reconnect(raw.reconnect.as_ref());
        config.redactor = resolver.secrets.into_redactor();
        ServerSettings::Known(Box::new(config))
    } else {
        ServerSettings::Missing { secrets: resolver.missing.names }
    };
    let mut entry = ServerEntry::with_settings(raw.alias.as_str(), settings);
    entry.enabled = enabled;
    if !context.sources.unread {
        warnings.extend(entry.warning());
    }
    entry.required = raw.required.unwrap_or(false);
    entry.start = raw.start.unwrap_or_default();
    if let Some(prefix) = &raw.prefix {
        entry.prefix.clone_from(prefix);
    }
    entry.description_prefix.clone_from(&raw.description_prefix);
    entry.tools = tools;
    entry.resources = resources;
    entry.prompt_tools = match raw.prompts {
        None => false,
        Some(RawShorthand::Short(tools)) => tools,
        Some(RawShorthand::Full(RawPrompts { tools })) => tools.unwrap_or(false),
    };
    entry.isolation = raw.isolation.unwrap_or_default();
    entry.instructions = raw.instructions.unwrap_or(false);
    entry.trust_hints = raw.trust_hints.unwrap_or(false);
    Ok(ResolvedServer { entry, warnings, files: resolver.files })
}
