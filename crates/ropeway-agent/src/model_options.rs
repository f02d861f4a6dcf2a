//! Model options: the parameters for every model request that an agent makes.

use serde_json::{Map, Value};

use ropeway_core::setters::setters;
use ropeway_providers::{OutputFormat, ReasoningEffort};

/// Parameters for every model request in a turn. Options that are not set are left to the provider.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct ModelOptions {
    /// Maximum tokens in one reply.
    pub max_tokens: Option<u32>,
    /// Sampling temperature.
    pub temperature: Option<f64>,
    /// Nucleus sampling (top-p).
    pub top_p: Option<f64>,
    /// Texts that end a reply.
    pub stop_sequences: Vec<String>,
    /// Reasoning effort.
    pub effort: Option<ReasoningEffort>,
    /// The final reply's JSON format.
    pub output: Option<OutputFormat>,
    /// Additional request body fields, in the provider's format. They override the fields that ropeway sets.
    pub extra: Map<String, Value>,
}

impl ModelOptions {
    /// Adds a field to the request body, in the provider's format.
    #[must_use]
    pub fn with_extra(mut self, field: impl Into<String>, value: Value) -> Self {
        self.extra.insert(field.into(), value);
        self
    }
}

setters!(ModelOptions {
    /// Sets the maximum tokens of one reply.
    with_max_tokens(tokens: u32) => max_tokens = Some(tokens);
    /// Sets the sampling temperature.
    with_temperature(temperature: f64) => temperature = Some(temperature);
    /// Sets the reasoning effort.
    with_effort(effort: ReasoningEffort) => effort = Some(effort);
    /// Requests replies as JSON that matches a schema.
    with_output(output: OutputFormat) => output = Some(output);
});
