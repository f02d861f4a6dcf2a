//! Resolves tool filters, overrides and resources.

use std::collections::{BTreeMap, HashMap};

use serde_json::{Map, Value};

use super::resolver::{Resolver, key};
use crate::file::node::{Node, PathStep};
use crate::file::problem::in_backticks;
use crate::file::raw::{RawByteSize, RawResources, RawServer, RawShorthand, RawTools};
use crate::settings::{ResourceSettings, ToolOverride, ToolSettings};

impl Resolver<'_> {
    pub(super) fn tools(&mut self, raw: &RawServer) -> ToolSettings {
        let mut tools = self.tool_settings(raw.tools.as_ref(), &format!("server `{}`", raw.alias));
        if self.node.get("tool_allowlist").is_some_and(Node::is_null) {
            self.mismatch(&[key("tool_allowlist")], "no value", "a list of globs", None::<String>);
        }
        if let Some(allowlist) = &raw.tool_allowlist {
            self.check_globs(&[key("tool_allowlist")], allowlist);
            tools.allowlists.push(allowlist.clone());
            if allowlist.is_empty() {
                self.warnings
                    .push(format!("`tool_allowlist` of server `{}` is empty: all its tools are hidden", raw.alias));
            }
        }
        tools
    }

    /// Resolves a server's or profile's `tools` key. `owner` names the server or profile in warnings.
    pub(super) fn tool_settings(
        &mut self,
        raw: Option<&RawShorthand<Vec<String>, RawTools>>,
        owner: &str,
    ) -> ToolSettings {
        let mut tools = ToolSettings::default();
        match raw {
            None => {}
            Some(RawShorthand::Short(allow)) => {
                self.check_globs(&[key("tools")], allow);
                tools.allow.clone_from(allow);
                if allow.is_empty() {
                    tools.allowlists.push(Vec::new());
                    self.warnings.push(format!("`tools` of {owner} is empty: all its tools are hidden"));
                }
            }
            Some(RawShorthand::Full(full)) => {
                if full.allow.is_empty() && self.node.get("tools").is_some_and(|tools| tools.get("allow").is_some()) {
                    self.warnings.push(format!("`tools.allow` of {owner} is empty: all its tools are allowed"));
                }
                self.check_globs(&[key("tools"), key("allow")], &full.allow);
                self.check_globs(&[key("tools"), key("deny")], &full.deny);
                tools.allow.clone_from(&full.allow);
                tools.deny.clone_from(&full.deny);
                tools.overrides = self.overrides(full);
            }
        }
        tools
    }

    fn overrides(&mut self, raw: &RawTools) -> Vec<(String, ToolOverride)> {
        let mut overrides = Overrides::default();
        if let Some(prefix) = &raw.description_prefix {
            overrides.of("*").description_prefix = Some(prefix.clone());
        }
        for (glob, name) in &raw.rename.0 {
            self.check_glob(&[key("tools"), key("rename"), key(glob)], glob);
            if name.is_empty() {
                self.problem(&[key("tools"), key("rename"), key(glob)], "new tool name is empty");
            }
            overrides.of(glob).name = Some(name.clone());
        }
        for (glob, description) in &raw.describe.0 {
            self.check_glob(&[key("tools"), key("describe"), key(glob)], glob);
            overrides.of(glob).description = Some(description.clone());
        }
        for (glob, arguments) in &raw.hide.0 {
            self.check_glob(&[key("tools"), key("hide"), key(glob)], glob);
            overrides.of(glob).hide.clone_from(arguments);
        }
        for (glob, arguments) in &raw.preset.0 {
            self.check_glob(&[key("tools"), key("preset"), key(glob)], glob);
            overrides.of(glob).preset.clone_from(&arguments.0);
        }
        for (glob, options) in &raw.provider_options.0 {
            self.check_glob(&[key("tools"), key("provider_options"), key(glob)], glob);
            overrides.of(glob).provider_options = by_provider(options);
        }
        overrides.list
    }

    pub(super) fn resources(&mut self, raw: &RawServer) -> ResourceSettings {
        let mut settings = ResourceSettings::default();
        match &raw.resources {
            None => {}
            Some(RawShorthand::Short(tools)) => settings.tools = *tools,
            Some(RawShorthand::Full(RawResources { tools, context, context_bytes })) => {
                self.check_globs(&[key("resources"), key("context")], context);
                settings.tools = tools.unwrap_or(false);
                settings.context.clone_from(context);
                settings.context_bytes = context_bytes.map_or(settings.context_bytes, |RawByteSize(bytes)| bytes);
            }
        }
        settings
    }

    pub(super) fn check_globs(&mut self, at: &[PathStep], globs: &[String]) {
        for (index, glob) in globs.iter().enumerate() {
            if self.is_full() {
                return;
            }
            let at: Vec<PathStep> = at.iter().cloned().chain([PathStep::Index(index)]).collect();
            self.check_glob(&at, glob);
        }
    }

    fn check_glob(&mut self, at: &[PathStep], glob: &str) {
        if let Err(expected) = self.context.globs.check(glob) {
            self.mismatch(at, in_backticks(glob), expected, None::<String>);
        }
    }
}

/// Tool overrides by glob, in file order.
#[derive(Default)]
struct Overrides {
    list: Vec<(String, ToolOverride)>,
    /// Each glob's index in the list.
    known: HashMap<String, usize>,
}

impl Overrides {
    fn of(&mut self, glob: &str) -> &mut ToolOverride {
        let index = *self.known.entry(glob.to_owned()).or_insert_with(|| {
            self.list.push((glob.to_owned(), ToolOverride::default()));
            self.list.len() - 1
        });
        &mut self.list[index].1
    }
}

fn by_provider(options: &Map<String, Value>) -> BTreeMap<String, Value> {
    options.iter().map(|(provider, options)| (provider.clone(), options.clone())).collect()
}
