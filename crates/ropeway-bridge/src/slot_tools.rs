//! Exposes a server's tools: filtered, transformed and compared with the lock.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::cache::CachedDefinitions;
use super::generated_tools;
use super::slot::{HiddenTool, ListingState, ServerSlot};
use ropeway_config::LockPolicy;
use ropeway_config::lock::{Difference, DifferenceKind};
use ropeway_core::checked::CheckedTool;
use ropeway_core::error_chain::chain;
use ropeway_core::event::Event;
use ropeway_core::sync::lock;
use ropeway_core::tool::{CallError, Tool};
use ropeway_mcp::{Mcp, Prompt};

/// Maximum tools per server that warnings are emitted about.
const MAX_TOOL_WARNINGS: usize = 20;

/// A server's features.
pub(super) struct ServerFeatures {
    pub(super) tools: Vec<Arc<dyn Tool>>,
    pub(super) has_resources: bool,
    pub(super) prompts: Vec<Prompt>,
    /// Why the prompts could not be listed.
    pub(super) prompts_error: Option<String>,
}

impl ServerFeatures {
    /// Requests a server's features. A server whose prompts cannot be listed keeps its tools.
    pub(super) async fn request(mcp: &Mcp, with_prompts: bool) -> Result<Self, CallError> {
        let tools = mcp.cached_tools().await?;
        let has_resources = mcp.server_info().is_some_and(|info| info.has_capability(&["resources"]));
        let prompts = if with_prompts { mcp.list_prompts().await } else { Ok(Vec::new()) };
        let prompts_error = prompts.as_ref().err().map(|error| chain(error));
        Ok(Self { tools, has_resources, prompts: prompts.unwrap_or_default(), prompts_error })
    }

    fn to_cached(&self) -> CachedDefinitions {
        CachedDefinitions {
            tools: self.tools.iter().map(|tool| tool.definition().clone()).collect(),
            has_resources: self.has_resources,
            prompts: self.prompts.clone(),
        }
    }
}

impl ServerSlot {
    /// Exposes the server's features, or records why they could not be requested.
    pub(super) fn update_features(self: &Arc<Self>, features: Result<ServerFeatures, CallError>) {
        match features {
            Ok(features) => {
                if let Some(problem) = &features.prompts_error {
                    self.warn(&format!("could not list prompts: {problem}"));
                }
                let cached = self.shared.cache.is_some().then(|| features.to_cached());
                self.is_listed_by_principal.store(false, Ordering::Relaxed);
                let is_new = self.expose(features);
                if is_new {
                    cached.iter().for_each(|cached| self.store_definitions(cached));
                    self.check_schemas();
                }
                let before = self.listing.send_replace(ListingState::Listed);
                // The first listing is reported by `Bridge::start`.
                if is_new && !matches!(before, ListingState::Pending) {
                    self.events().emit(Event::ToolsChanged { server: self.alias().clone() });
                }
            }
            Err(error) => {
                let cause = chain(&error);
                self.warn(&format!("could not list tools: {cause}"));
                self.set_last_error(cause.clone());
                self.listing.send_replace(ListingState::ListFailed(cause));
            }
        }
        self.shared.notify_changed();
    }

    /// Exposes the tools that another connection has listed, because this one has no tokens.
    pub(super) fn expose_definitions(self: &Arc<Self>, mut features: ServerFeatures) {
        let Some(mcp) = self.mcp() else { return };
        let detached = |tool: &Arc<dyn Tool>| mcp.detached_tool(tool.definition().clone());
        features.tools = features.tools.iter().map(detached).collect();
        self.is_listed_by_principal.store(true, Ordering::Relaxed);
        if self.expose(features) {
            self.events().emit(Event::ToolsChanged { server: self.alias().clone() });
            self.shared.notify_changed();
        }
    }

    fn store_definitions(&self, definitions: &CachedDefinitions) {
        if let (Some(cache), Some(config)) = (&self.shared.cache, self.config())
            && let Err(error) = cache.store(config, definitions, &self.shared.secrets())
        {
            tracing::debug!(server = %self.alias(), "could not cache tool definitions: {error}");
        }
    }

    /// Warns listeners, if any, about tools whose input schemas cannot be compiled. Compiling is slow, so it runs in the
    /// background and stops when the slot is dropped.
    fn check_schemas(self: &Arc<Self>) {
        if !self.events().has_listeners() {
            return;
        }
        let (slot, tools) = (Arc::downgrade(self), self.tools());
        tokio::task::spawn_blocking(move || {
            let mut warned = 0;
            for tool in tools {
                let Some(slot) = slot.upgrade().filter(|_| warned < MAX_TOOL_WARNINGS) else { return };
                if let Some(warning) = tool.schema_warning() {
                    slot.warn(&warning);
                    warned += 1;
                }
            }
        });
    }

    /// Filters and transforms tools and exposes the result. Returns `false` if the tools are unchanged.
    pub(super) fn expose(self: &Arc<Self>, features: ServerFeatures) -> bool {
        let ServerFeatures { tools: own, has_resources, prompts, .. } = features;
        let slot = Arc::downgrade(self);
        let connection: generated_tools::Connection = Arc::new(move || slot.upgrade()?.mcp());
        let generated = generated_tools::generate(&self.entry, &connection, has_resources, &prompts, &own);
        let mut tools = lock(&self.tools);
        let definitions = tools.sources.iter().map(|tool| tool.definition());
        if tools.version > 0 && definitions.eq(own.iter().chain(&generated).map(|tool| tool.definition())) {
            return false;
        }
        let wrap = |tool: &Arc<dyn Tool>| (self.wrap_tool)(tool.clone(), self);
        let mut exposed = self.shape.apply_all(own.iter().map(wrap));
        // Allowlists apply only to the server's own tools.
        exposed.extend(self.shape.allowing_all().apply_all(generated.iter().map(wrap)));
        let (differences, hidden) = self.apply_lock(&mut exposed);
        tools.exposed = exposed;
        tools.differences = differences;
        tools.hidden = hidden;
        tools.sources = own;
        tools.sources.extend(generated);
        tools.version += 1;
        true
    }

    /// Compares tools with the lock, and warns about differences. Under [`LockPolicy::Strict`], tools that differ are removed.
    fn apply_lock(&self, tools: &mut Vec<CheckedTool>) -> (Vec<Difference>, Vec<HiddenTool>) {
        let Some((lock, policy)) = &self.shared.lock else { return Default::default() };
        let differences = lock.compare(self.alias(), tools.iter().map(|tool| tool.definition()));
        let is_reported = |kind: &DifferenceKind| match kind {
            DifferenceKind::Changed(_) => true,
            DifferenceKind::New => *policy == LockPolicy::Strict,
            DifferenceKind::Gone => false,
        };
        for difference in differences.iter().filter(|it| is_reported(&it.kind)).take(MAX_TOOL_WARNINGS) {
            self.warn(&difference.to_string());
        }
        if *policy != LockPolicy::Strict {
            return (differences, Vec::new());
        }
        let reasons: HashMap<&str, String> =
            differences.iter().map(|difference| (difference.tool.as_str(), difference.reason())).collect();
        let mut hidden = Vec::new();
        tools.retain(|tool| {
            let definition = tool.definition();
            let Some(reason) = reasons.get(definition.own_name()) else { return true };
            let (name, own_name) = (definition.name.clone(), definition.own_name().to_owned());
            hidden.push(HiddenTool { name, own_name, reason: reason.clone() });
            false
        });
        (differences, hidden)
    }
}
