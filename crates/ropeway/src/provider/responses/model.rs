//! What the name of a model says about it.

/// May a model reason? One that does not refuses to hear of reasoning at all.
pub(super) fn reasons(model: &str) -> bool {
    // A vendor stands before it with gateways, and a mark where it was tuned.
    let name = model.rsplit('/').next().unwrap_or(model).to_ascii_lowercase();
    let name = name.strip_prefix("ft:").unwrap_or(&name);
    !["gpt-4", "gpt-3.5", "chatgpt"].iter().any(|family| name.starts_with(family)) && !name.contains("-chat")
}
