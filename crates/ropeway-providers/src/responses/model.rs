//! An OpenAI model's capabilities, derived from its name.

/// Returns `true` if a model may reason. Models without reasoning reject its parameters.
pub(super) fn supports_reasoning(model: &str) -> bool {
    // Gateways prefix the vendor, fine-tuned models have the prefix `ft:`.
    let name = model.rsplit('/').next().unwrap_or(model).to_ascii_lowercase();
    let name = name.strip_prefix("ft:").unwrap_or(&name);
    !["gpt-4", "gpt-3.5", "chatgpt"].iter().any(|family| name.starts_with(family)) && !name.contains("-chat")
}
