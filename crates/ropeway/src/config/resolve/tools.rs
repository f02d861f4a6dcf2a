//! What is written about the tools and resources of a server, and what it means.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::{Resolver, key};
use crate::config::node::{Node, Step};
use crate::config::problem::in_backticks;
use crate::config::raw::{RawResources, RawServer, RawTools, Short, Size};
use crate::config::{Glob, ResourceSettings, ToolOverride, ToolSettings};

impl Resolver<'_> {
    pub(super) fn tools(&mut self, raw: &RawServer) -> ToolSettings {
        let mut tools = ToolSettings::default();
        match &raw.tools {
            None => {}
            Some(Short::Short(allow)) => {
                self.check_globs(&[key("tools")], allow);
                tools.allow.clone_from(allow);
            }
            Some(Short::Full(raw)) => {
                self.check_globs(&[key("tools"), key("allow")], &raw.allow);
                self.check_globs(&[key("tools"), key("deny")], &raw.deny);
                tools.allow.clone_from(&raw.allow);
                tools.deny.clone_from(&raw.deny);
                tools.overrides = self.overrides(raw);
            }
        }
        if self.node.get("tool_allowlist").is_some_and(Node::is_nothing) {
            self.problem(&[key("tool_allowlist")], "nothing", "a list of globs");
        }
        if let Some(allowlist) = &raw.tool_allowlist {
            self.check_globs(&[key("tool_allowlist")], allowlist);
            tools.allowlists.push(allowlist.clone());
            if allowlist.is_empty() {
                self.warnings
                    .push(format!("`tool_allowlist` of server `{}` is empty: all of its tools are hidden", raw.alias));
            }
        }
        tools
    }

    fn overrides(&mut self, raw: &RawTools) -> Vec<(String, ToolOverride)> {
        let mut overrides = Vec::new();
        if let Some(prefix) = &raw.description_prefix {
            change(&mut overrides, "*").description_prefix = Some(prefix.clone());
        }
        for (glob, name) in &raw.rename.0 {
            self.check_glob(&[key("tools"), key("rename"), key(glob)], glob);
            if name.is_empty() {
                self.problem(&[key("tools"), key("rename"), key(glob)], "an empty name", "a name for the tool");
            }
            change(&mut overrides, glob).name = Some(name.clone());
        }
        for (glob, description) in &raw.describe.0 {
            self.check_glob(&[key("tools"), key("describe"), key(glob)], glob);
            change(&mut overrides, glob).description = Some(description.clone());
        }
        for (glob, arguments) in &raw.hide.0 {
            self.check_glob(&[key("tools"), key("hide"), key(glob)], glob);
            change(&mut overrides, glob).hide.clone_from(arguments);
        }
        for (glob, arguments) in &raw.preset.0 {
            self.check_glob(&[key("tools"), key("preset"), key(glob)], glob);
            change(&mut overrides, glob).preset.clone_from(&arguments.0);
        }
        for (glob, options) in &raw.provider_options.0 {
            self.check_glob(&[key("tools"), key("provider_options"), key(glob)], glob);
            change(&mut overrides, glob).provider_options = by_provider(options);
        }
        overrides
    }

    pub(super) fn resources(&mut self, raw: &RawServer) -> ResourceSettings {
        let mut settings = ResourceSettings::default();
        match &raw.resources {
            None => {}
            Some(Short::Short(tools)) => settings.tools = *tools,
            Some(Short::Full(RawResources { tools, context, context_bytes })) => {
                self.check_globs(&[key("resources"), key("context")], context);
                settings.tools = tools.unwrap_or(false);
                settings.context.clone_from(context);
                settings.context_bytes = context_bytes.map_or(settings.context_bytes, |Size(bytes)| bytes);
            }
        }
        settings
    }

    pub(super) fn check_globs(&mut self, at: &[Step], globs: &[String]) {
        for (index, glob) in globs.iter().enumerate() {
            let at: Vec<Step> = at.iter().cloned().chain([Step::Index(index)]).collect();
            self.check_glob(&at, glob);
        }
    }

    fn check_glob(&mut self, at: &[Step], glob: &str) {
        if let Err(error) = Glob::new(glob) {
            self.problem(at, in_backticks(glob), format!("a glob ({error})"));
        }
    }
}

fn change<'a>(overrides: &'a mut Vec<(String, ToolOverride)>, glob: &str) -> &'a mut ToolOverride {
    let index = overrides.iter().position(|(known, _)| known == glob).unwrap_or_else(|| {
        overrides.push((glob.to_owned(), ToolOverride::default()));
        overrides.len() - 1
    });
    &mut overrides[index].1
}

fn by_provider(options: &Map<String, Value>) -> BTreeMap<String, Value> {
    options.iter().map(|(provider, options)| (provider.clone(), options.clone())).collect()
}
