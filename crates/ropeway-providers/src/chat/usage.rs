//! A reply's usage, in various servers' formats.

use serde_json::Value;

use crate::cost::Cost;
use crate::reply::Usage;

/// Reads a usage object. A missing or malformed count is zero.
pub(super) fn read_usage(usage: &Value) -> Usage {
    let number = |pointers: &[&str]| {
        let found = pointers.iter().find_map(|pointer| {
            let value = usage.pointer(pointer)?;
            value.as_u64().or_else(|| value.as_f64().map(|value| value as u64))
        });
        found.unwrap_or(0)
    };
    let (input, mut output) = (number(&["/prompt_tokens"]), number(&["/completion_tokens"]));
    let reasoning = number(&["/completion_tokens_details/reasoning_tokens"]);
    // xAI and Gemini count reasoning separately from the output.
    if reasoning > 0 && number(&["/total_tokens"]) == input.saturating_add(output).saturating_add(reasoning) {
        output = output.saturating_add(reasoning);
    }
    Usage {
        input,
        output,
        // In order: OpenAI, DeepSeek, Moonshot; OpenAI and gateways to Anthropic.
        cache_read: number(&["/prompt_tokens_details/cached_tokens", "/prompt_cache_hit_tokens", "/cached_tokens"]),
        cache_write: number(&["/prompt_tokens_details/cache_write_tokens", "/cache_creation_input_tokens"]),
        reasoning,
        cost: Cost::of_usage(usage),
    }
}
