//! Turns a server's tools into the tools that models see.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use super::filter::{ToolFilter, ToolShapeError, glob};
use super::transform::{Transformer, prefix_description};
use super::{naming, schema_arguments};
use ropeway_config::{DEFAULT_PREFIX, Glob, ServerConfig, ServerEntry};
use ropeway_core::checked::{self, CheckedTool};
use ropeway_core::setters::setters;
use ropeway_core::tool::{
    Alias, ArgumentMapping, Arguments, BoxFuture, CallContext, CallError, Digest, Provenance, Tool, ToolDefinition,
    ToolOutput, is_same_definition,
};

/// Filters and transforms one server's tools.
///
/// The filter runs first, on the server's own definitions. Transformers run next, configured ones before those added in
/// code, in the order in which they were added. The prefix is added last, and invalid characters in the name are replaced.
#[derive(Clone)]
pub struct ToolShape {
    alias: Alias,
    filter: ToolFilter,
    /// Each with a glob over the server's own names; `None` matches all tools.
    transformers: Vec<(Option<Glob>, Arc<dyn Transformer>)>,
    prefix: String,
    description_prefix: Option<String>,
    trust_hints: bool,
    /// Digest of the server's command or URL.
    endpoint: Option<Digest>,
}

impl ToolShape {
    /// Creates a shape from a server's settings.
    ///
    /// # Errors
    ///
    /// Returns an error if a pattern is not a valid glob.
    pub fn new(entry: &ServerEntry) -> Result<Self, ToolShapeError> {
        let mut transformers = Vec::new();
        for (pattern, change) in &entry.tools.overrides {
            let glob = glob(pattern)?;
            let mut change = change.clone();
            change.description_prefix =
                change.description_prefix.map(|prefix| naming::insert_alias(&prefix, &entry.alias));
            transformers.push((Some(glob), Arc::new(change) as Arc<dyn Transformer>));
        }
        Ok(Self {
            alias: entry.alias.clone(),
            filter: entry
                .tools
                .allowlists
                .iter()
                .try_fold(ToolFilter::new(&entry.tools.allow, &entry.tools.deny)?, |filter, globs| {
                    filter.with_allowlist(globs)
                })?,
            transformers,
            prefix: entry.prefix.clone(),
            description_prefix: entry
                .description_prefix
                .as_ref()
                .map(|prefix| naming::insert_alias(prefix, &entry.alias)),
            trust_hints: entry.trust_hints,
            endpoint: entry.config().map(ServerConfig::endpoint),
        })
    }

    /// Creates a shape that exposes all of a server's tools with the default prefix.
    pub fn plain(server: impl Into<Alias>) -> Self {
        Self {
            alias: server.into(),
            filter: ToolFilter::default(),
            transformers: Vec::new(),
            prefix: DEFAULT_PREFIX.to_owned(),
            description_prefix: None,
            trust_hints: false,
            endpoint: None,
        }
    }

    /// Sets the digest for the server's command or URL.
    #[must_use]
    pub fn with_endpoint(mut self, endpoint: Digest) -> Self {
        self.endpoint = Some(endpoint);
        self
    }

    /// Also requires that `predicate` returns `true`. It sees the server's own definitions.
    #[must_use]
    pub fn with_filter(mut self, predicate: impl Fn(&ToolDefinition) -> bool + Send + Sync + 'static) -> Self {
        self.filter = self.filter.with(predicate);
        self
    }

    /// Returns a shape without allowlists, for tools that the bridge generates.
    pub(crate) fn allowing_all(&self) -> Self {
        Self { filter: self.filter.clone().allowing_all(), ..self.clone() }
    }

    /// Adds a transformer for all tools.
    #[must_use]
    pub fn with_transformer(mut self, transformer: Arc<dyn Transformer>) -> Self {
        self.transformers.push((None, transformer));
        self
    }

    /// Adds a transformer for tools whose own names match a glob.
    ///
    /// # Errors
    ///
    /// Returns an error if `pattern` is not a valid glob.
    pub fn with_transformer_for(
        mut self,
        pattern: &str,
        transformer: Arc<dyn Transformer>,
    ) -> Result<Self, ToolShapeError> {
        self.transformers.push((Some(glob(pattern)?), transformer));
        Ok(self)
    }

    /// Returns the tool as models see it, or `None` if it is filtered out.
    pub fn apply(&self, tool: Arc<dyn Tool>) -> Option<Arc<dyn Tool>> {
        // The host's predicates and transformers may panic. Only their tool is left out then.
        match catch_unwind(AssertUnwindSafe(|| self.shaped(tool.clone()))) {
            Ok(shaped) => Some(Arc::new(shaped?)),
            Err(panic) => {
                let (server, name) = (&self.alias, tool.definition().own_name());
                let words = checked::panic_message(&*panic);
                tracing::warn!(%server, tool = name, "tool omitted, its transformer panicked: {words}");
                None
            }
        }
    }

    /// Applies the shape to all tools, and returns those that are not filtered out.
    pub fn apply_all(&self, tools: impl IntoIterator<Item = Arc<dyn Tool>>) -> Vec<CheckedTool> {
        tools.into_iter().filter_map(|tool| self.apply(tool)).map(CheckedTool::new).collect()
    }

    /// Returns a tool's definition as models see it, or `None` if it is filtered out.
    pub fn definition(&self, original: &ToolDefinition) -> Option<ToolDefinition> {
        let shaped = catch_unwind(AssertUnwindSafe(|| self.shaped_definition(original)));
        shaped.ok().flatten().map(|(definition, _)| definition)
    }

    fn shaped(&self, tool: Arc<dyn Tool>) -> Option<ShapedTool> {
        let (definition, transformers) = self.shaped_definition(tool.definition())?;
        let mut hidden: Vec<String> =
            transformers.iter().flat_map(|transformer| transformer.hidden_arguments()).collect();
        if !hidden.is_empty() {
            // A later transformer may reuse a hidden argument's name.
            let seen = schema_arguments::arguments(&definition.input_schema);
            hidden.retain(|name| !seen.contains(&name.as_str()));
        }
        Some(ShapedTool { definition, transformers, hidden, tool })
    }

    /// Returns the transformed definition under its name for models, and the transformers that apply to the tool.
    fn shaped_definition(&self, original: &ToolDefinition) -> Option<(ToolDefinition, Vec<Arc<dyn Transformer>>)> {
        let (mut definition, transformers) = self.transformed(original)?;
        definition.name = naming::tool_name(&self.prefix, &self.alias, &definition.name);
        Some((definition, transformers))
    }

    /// Returns the transformed definition without its name prefix, and the transformers that apply to the tool.
    pub fn transformed(&self, original: &ToolDefinition) -> Option<(ToolDefinition, Vec<Arc<dyn Transformer>>)> {
        if !self.filter.allows(original) {
            return None;
        }
        let name = original.own_name();
        let is_for = |glob: &Option<Glob>| glob.as_ref().is_none_or(|glob| glob.matches(name));
        let transformers = self.transformers.iter().filter(|(glob, _)| is_for(glob));
        let transformers: Vec<Arc<dyn Transformer>> = transformers.map(|(_, step)| step.clone()).collect();
        let mut definition = original.clone();
        for transformer in &transformers {
            definition = transformer.transform(definition)?;
        }
        if let Some(prefix) = &self.description_prefix {
            prefix_description(&mut definition, prefix);
        }
        // Transformers cannot change the origin.
        definition.origin = original.origin.clone();
        let changed = !is_same_definition(original, &definition);
        definition.provenance = Provenance {
            // The bridge's generated tools have trusted annotations.
            trust_hints: self.trust_hints || original.provenance.trust_hints,
            prefix: naming::prefix(&self.prefix, &self.alias).into(),
            server: self.endpoint,
            original: changed.then(|| Arc::new(original.clone())),
        };
        Some((definition, transformers))
    }
}

setters!(ToolShape {
    /// Sets whether the server's annotations are trusted.
    with_trusted_hints(trust: bool) => trust_hints = trust;
    /// Sets the tool name prefix. `{alias}` is replaced by the server alias.
    with_prefix(prefix: impl Into<String>) => prefix = prefix.into();
});

impl fmt::Debug for ToolShape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("ToolShape");
        debug.field("alias", &self.alias).field("filter", &self.filter).field("prefix", &self.prefix);
        debug.field("transformers", &self.transformers.len()).finish_non_exhaustive()
    }
}

/// A tool with a transformed definition.
struct ShapedTool {
    definition: ToolDefinition,
    transformers: Vec<Arc<dyn Transformer>>,
    /// Arguments that are removed from calls.
    hidden: Vec<String>,
    tool: Arc<dyn Tool>,
}

impl ShapedTool {
    /// Maps arguments for the transformed definition to the tool's own arguments, running the transformers in reverse.
    fn undo_transformers(&self, arguments: &mut Arguments) {
        for transformer in self.transformers.iter().rev() {
            transformer.transform_arguments(arguments);
        }
    }
}

impl Tool for ShapedTool {
    fn definition(&self) -> &ToolDefinition {
        &self.definition
    }

    fn prepare(&self, arguments: &mut Arguments) {
        for name in &self.hidden {
            arguments.shift_remove(name);
        }
    }

    fn summarize(&self, arguments: &Arguments) -> Option<String> {
        let mut own = arguments.clone();
        self.prepare(&mut own);
        self.undo_transformers(&mut own);
        self.tool.summarize(&own)
    }

    fn argument_mapping(&self) -> ArgumentMapping {
        let maps = !self.hidden.is_empty() || self.transformers.iter().any(|transformer| transformer.maps_arguments());
        match self.tool.argument_mapping() {
            ArgumentMapping::Verbatim if maps => ArgumentMapping::Mapped,
            mapping => mapping,
        }
    }

    fn map_arguments(&self, arguments: &mut Arguments) {
        self.prepare(arguments);
        self.undo_transformers(arguments);
        self.tool.prepare(arguments);
        self.tool.map_arguments(arguments);
    }

    fn call<'a>(
        &'a self,
        mut arguments: Arguments,
        cx: &'a CallContext,
    ) -> BoxFuture<'a, Result<ToolOutput, CallError>> {
        self.undo_transformers(&mut arguments);
        self.tool.prepare(&mut arguments);
        self.tool.call(arguments, cx)
    }
}
