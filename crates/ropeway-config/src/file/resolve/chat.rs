//! Resolves the chat settings.

use std::path::PathBuf;

use super::resolver::{ResolveContext, Resolver, key};
use crate::file::node::Node;
use crate::file::problem::ConfigProblem;
use crate::file::raw::{RawApproval, RawChat};
use crate::file::reference::{Part, parts};
use crate::settings::{ChatSettings, MissingChatSecrets, ToolApproval, describe_missing};
use ropeway_core::secret::Secret;

/// The chat settings' path in the file.
const BASE: &str = "chat";

/// Resolved chat settings.
pub(crate) struct ResolvedChat {
    pub(crate) chat: ChatSettings,
    /// The files that were read for them.
    pub(crate) files: Vec<PathBuf>,
}

/// Resolves the chat settings. `node` is their tree.
pub(crate) fn resolve_chat(
    raw: &RawChat,
    node: &Node,
    context: &ResolveContext<'_>,
) -> Result<ResolvedChat, Vec<ConfigProblem>> {
    let mut resolver = Resolver::new(context, node, BASE);
    let (base_url, no_url) = resolver.optional("base_url", raw.base_url.as_ref().map(|url| url.0.as_str()));
    if let (Some(url), Some(written), true) = (&base_url, &raw.base_url, resolver.problems.is_empty()) {
        resolver.check_url(&[key("base_url")], &written.0, url);
    }
    let written_key = raw.key.as_ref().map(|key| key.0.as_str());
    let (secret, mut no_key) = resolver.optional("key", written_key);
    // Keys in files and variables often end with a line break.
    let secret = secret.map(|secret| secret.trim().to_owned());
    if secret.as_ref().is_some_and(|secret| secret.contains(|c: char| c.is_control())) {
        resolver.problem(&[key("key")], "key contains a line break or a control character");
    }
    if raw.model.as_ref().is_some_and(|model| model.trim().is_empty()) {
        resolver.problem(&[key("model")], "model is empty");
    }
    for (name, number) in [("max_tokens", raw.max_tokens), ("max_steps", raw.max_steps)] {
        if number == Some(0) {
            resolver.mismatch(&[key(name)], "`0`", "at least 1", None::<String>);
        }
    }
    let tools = resolver.approval(raw.tools.as_ref());
    if !resolver.problems.is_empty() {
        return Err(resolver.problems);
    }
    // An empty key counts as missing.
    let secret = secret.filter(|secret| !secret.is_empty());
    if secret.is_none() && no_key.is_empty() {
        no_key = written_key.map(names).unwrap_or_default();
    }
    let mut warnings = resolver.warnings;
    if !no_url.is_empty() && !context.sources.unread {
        warnings.push(format!("ignored `chat.base_url`: {}", describe_missing(&no_url)));
    }
    if !no_key.is_empty() && !context.sources.unread {
        warnings.push(format!("ignored `chat.key`: {}", describe_missing(&no_key)));
    }
    if secret.is_some() && raw.provider.is_none() && raw.base_url.is_none() {
        warnings.push("ignored `chat.key`: set `provider` or `base_url` to use it".to_owned());
    }
    let chat = ChatSettings {
        provider: raw.provider.map(|provider| provider.0),
        model: raw.model.clone(),
        base_url,
        // Without its URL, the key would go to another provider.
        key: secret.filter(|_| no_url.is_empty()).map(Secret::new),
        missing: MissingChatSecrets { base_url: no_url, key: no_key },
        system: raw.system.clone(),
        max_tokens: raw.max_tokens,
        temperature: raw.temperature.map(|temperature| temperature.0),
        effort: raw.effort,
        max_steps: raw.max_steps,
        tools,
        warnings,
    };
    Ok(ResolvedChat { chat, files: resolver.files })
}

/// Returns the secret names that a string refers to.
fn names(written: &str) -> Vec<String> {
    let name = |part: &Part<'_>| match part {
        Part::Name { name, .. } => Some((*name).to_owned()),
        Part::File(path) => Some(format!("file:{path}")),
        _ => None,
    };
    parts(written).map(|parts| parts.iter().filter_map(name).collect()).unwrap_or_default()
}

impl Resolver<'_> {
    /// Resolves an optional string, or returns its missing secret names.
    fn optional(&mut self, name: &str, written: Option<&str>) -> (Option<String>, Vec<String>) {
        let text = written.map(|written| self.text(&[key(name)], written));
        let missing = std::mem::take(&mut self.missing).names;
        (text.filter(|_| missing.is_empty()), missing)
    }

    fn approval(&mut self, raw: Option<&RawApproval>) -> ToolApproval {
        let RawApproval { allow, ask, deny } = raw.cloned().unwrap_or_default();
        for (name, globs) in [("allow", &allow), ("ask", &ask), ("deny", &deny)] {
            self.check_globs(&[key("tools"), key(name)], globs);
        }
        ToolApproval { allow, ask, deny }
    }
}
