//! A shape: which tools of one server are wanted, and how a model knows them.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use super::filter::{glob, own_name};
use super::transform::{Describe, HideArguments, PresetArguments, ProviderOptions, Rename};
use super::{ToolFilter, Transformer, naming, visible};
use crate::checked::{self, CheckedTool};
use crate::config::{DEFAULT_PREFIX, Glob, ServerEntry, ServerSettings, ToolOverride};
use crate::tool::{
    Alias, Arguments, BoxError, BoxFuture, CallContext, CallError, Digest, Provenance, Tool, ToolDefinition,
    ToolOutput, is_same,
};

/// Why the settings of a server's tools cannot be followed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ToolShapeError {
    /// A pattern is not one.
    #[error("`{pattern}` is not a glob")]
    Glob {
        /// The pattern.
        pattern: String,
        /// What is wrong with it.
        #[source]
        source: BoxError,
    },
}

/// Which tools of one server are wanted, and how a model knows them.
///
/// The filter is asked first. Then the transformers change the tool, those of the settings before those of the code,
/// each in the order in which they were given; last come the server's prefixes, and the name is made legal.
#[derive(Clone)]
pub struct ToolShape {
    alias: Alias,
    filter: ToolFilter,
    /// Each with the pattern of the names that it is for; all when there is none.
    transformers: Vec<(Option<Glob>, Arc<dyn Transformer>)>,
    prefix: String,
    description_prefix: Option<Describe>,
    trust_hints: bool,
    /// The command or URL of the server.
    endpoint: Option<Digest>,
}

impl ToolShape {
    /// What the settings of a server say.
    pub fn new(entry: &ServerEntry) -> Result<Self, ToolShapeError> {
        let mut transformers = Vec::new();
        for (pattern, change) in &entry.tools.overrides {
            let glob = glob(pattern)?;
            let steps = steps(change, &entry.alias);
            transformers.extend(steps.into_iter().map(|step| (Some(glob.clone()), step)));
        }
        let describe = |prefix: &String| Describe::Before(naming::fill(prefix, &entry.alias));
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
            description_prefix: entry.description_prefix.as_ref().map(describe),
            trust_hints: entry.trust_hints,
            endpoint: match &entry.settings {
                ServerSettings::Known(config) => Some(config.endpoint()),
                ServerSettings::Missing { .. } | ServerSettings::Invalid { .. } => None,
            },
        })
    }

    /// All tools of a server, under names with the usual prefix.
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

    /// Believes what the server says about the behaviour of its tools, or does not.
    #[must_use]
    pub fn with_trusted_hints(mut self, trust: bool) -> Self {
        self.trust_hints = trust;
        self
    }

    /// Sets the digest of the command or URL that the server is reached by.
    #[cfg(feature = "agent")]
    #[must_use]
    pub(crate) fn with_endpoint(mut self, endpoint: Digest) -> Self {
        self.endpoint = Some(endpoint);
        self
    }

    /// Puts something else before the names; `{alias}` stands for the server's alias.
    #[must_use]
    pub fn with_prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = prefix.into();
        self
    }

    /// Wants only tools that also this predicate wants. It sees them as the server describes them.
    #[must_use]
    pub fn with_filter(mut self, predicate: impl Fn(&ToolDefinition) -> bool + Send + Sync + 'static) -> Self {
        self.filter = self.filter.with(predicate);
        self
    }

    /// The same for tools that nobody thought of when some were allowed.
    pub(crate) fn allowing_all(&self) -> Self {
        Self { filter: self.filter.clone().allowing_all(), ..self.clone() }
    }

    /// Changes every tool.
    #[must_use]
    pub fn with_transformer(mut self, transformer: Arc<dyn Transformer>) -> Self {
        self.transformers.push((None, transformer));
        self
    }

    /// Changes the tools whose own names match a glob.
    pub fn with_transformer_for(
        mut self,
        pattern: &str,
        transformer: Arc<dyn Transformer>,
    ) -> Result<Self, ToolShapeError> {
        self.transformers.push((Some(glob(pattern)?), transformer));
        Ok(self)
    }

    /// A tool as a model is to know it; `None` when it is not wanted.
    pub fn apply(&self, tool: Arc<dyn Tool>) -> Option<Arc<dyn Tool>> {
        // Predicates and transformers may be anybody's: what they do to one tool must not take the others along.
        match catch_unwind(AssertUnwindSafe(|| self.shaped(tool.clone()))) {
            Ok(shaped) => Some(Arc::new(shaped?)),
            Err(panic) => {
                let (server, name) = (&self.alias, own_name(tool.definition()));
                let words = checked::message(&*panic);
                tracing::warn!(%server, tool = name, "the tool is left out, because its transformer panicked: {words}");
                None
            }
        }
    }

    /// All wanted tools of these, ready to be called.
    pub fn apply_all(&self, tools: impl IntoIterator<Item = Arc<dyn Tool>>) -> Vec<CheckedTool> {
        tools.into_iter().filter_map(|tool| self.apply(tool)).map(CheckedTool::new).collect()
    }

    /// Returns the definition that a tool has when it is handed out; `None` if it is not wanted.
    pub fn definition(&self, original: &ToolDefinition) -> Option<ToolDefinition> {
        let shaped = catch_unwind(AssertUnwindSafe(|| self.shaped_definition(original)));
        shaped.ok().flatten().map(|(definition, _)| definition)
    }

    fn shaped(&self, tool: Arc<dyn Tool>) -> Option<Shaped> {
        let (definition, transformers) = self.shaped_definition(tool.definition())?;
        let mut hidden: Vec<String> = transformers.iter().flat_map(|transformer| transformer.hidden()).collect();
        if !hidden.is_empty() {
            // A later transformer may have used a hidden name for an argument of its own.
            let seen = visible::arguments(&definition.input_schema);
            hidden.retain(|name| !seen.contains(&name.as_str()));
        }
        Some(Shaped { definition, transformers, hidden, tool })
    }

    /// Returns the definition of a wanted tool as it is handed out, and what has changed it.
    fn shaped_definition(&self, original: &ToolDefinition) -> Option<(ToolDefinition, Vec<Arc<dyn Transformer>>)> {
        if !self.filter.wants(original) {
            return None;
        }
        let name = own_name(original);
        let is_for = |glob: &Option<Glob>| glob.as_ref().is_none_or(|glob| glob.matches(name));
        let transformers = self.transformers.iter().filter(|(glob, _)| is_for(glob));
        let transformers: Vec<Arc<dyn Transformer>> = transformers.map(|(_, step)| step.clone()).collect();
        let mut definition = original.clone();
        for transformer in &transformers {
            definition = transformer.transform(definition)?;
        }
        if let Some(describe) = &self.description_prefix {
            definition = describe.transform(definition)?;
        }
        definition.name = naming::tool_name(&self.prefix, &self.alias, &definition.name);
        // Whose tool it is, is not a matter of taste.
        definition.origin = original.origin.clone();
        let changed = !is_same(original, &definition);
        definition.provenance = Provenance {
            // Tools that the host made of resources and prompts say of themselves what they do.
            trust_hints: self.trust_hints || original.provenance.trust_hints,
            prefix: naming::prefix(&self.prefix, &self.alias).into(),
            server: self.endpoint,
            original: changed.then(|| Arc::new(original.clone())),
        };
        Some((definition, transformers))
    }
}

impl fmt::Debug for ToolShape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("Shape");
        debug.field("alias", &self.alias).field("filter", &self.filter).field("prefix", &self.prefix);
        debug.field("transformers", &self.transformers.len()).finish_non_exhaustive()
    }
}

/// The transformers that an override stands for.
fn steps(change: &ToolOverride, alias: &Alias) -> Vec<Arc<dyn Transformer>> {
    let ToolOverride { name, description, description_prefix, hide, preset, provider_options } = change;
    let mut steps: Vec<Arc<dyn Transformer>> = Vec::new();
    if let Some(name) = name {
        steps.push(Arc::new(Rename::to(name)));
    }
    if let Some(description) = description {
        steps.push(Arc::new(Describe::Instead(description.clone())));
    }
    if let Some(prefix) = description_prefix {
        steps.push(Arc::new(Describe::Before(naming::fill(prefix, alias))));
    }
    if !hide.is_empty() {
        steps.push(Arc::new(HideArguments::new(hide)));
    }
    if !preset.is_empty() {
        steps.push(Arc::new(PresetArguments::new(preset.clone())));
    }
    for (provider, options) in provider_options {
        steps.push(Arc::new(ProviderOptions::new(provider, options.clone())));
    }
    steps
}

/// A tool as a model is to know it.
struct Shaped {
    definition: ToolDefinition,
    transformers: Vec<Arc<dyn Transformer>>,
    /// Arguments that the model must not send.
    hidden: Vec<String>,
    tool: Arc<dyn Tool>,
}

impl Tool for Shaped {
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
        for transformer in self.transformers.iter().rev() {
            transformer.arguments(&mut own);
        }
        self.tool.summarize(&own)
    }

    fn call<'a>(
        &'a self,
        mut arguments: Arguments,
        cx: &'a CallContext,
    ) -> BoxFuture<'a, Result<ToolOutput, CallError>> {
        // The way back: what was changed last is undone first.
        for transformer in self.transformers.iter().rev() {
            transformer.arguments(&mut arguments);
        }
        self.tool.prepare(&mut arguments);
        self.tool.call(arguments, cx)
    }
}
