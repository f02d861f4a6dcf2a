//! What is written about a chat, and what it means.

use std::path::PathBuf;

use super::{Resolver, Surroundings, key};
use crate::config::chat::raw::{RawApproval, RawChat};
use crate::config::entry::not_set;
use crate::config::node::Node;
use crate::config::problem::ConfigProblem;
use crate::config::reference::{Part, parts};
use crate::config::{ChatSettings, MissingSecretsError, ToolApproval};
use crate::secret::Secret;

/// The path of a chat in the file.
const BASE: &str = "chat";

/// A chat, and the files that it took.
pub(in crate::config) struct ResolvedChat {
    pub(in crate::config) chat: ChatSettings,
    pub(in crate::config) files: Vec<PathBuf>,
}

/// The meaning of a chat; `node` is what is written there.
pub(in crate::config) fn resolve_chat(
    raw: &RawChat,
    node: &Node,
    around: &Surroundings<'_>,
) -> Result<ResolvedChat, Vec<ConfigProblem>> {
    let mut resolver = Resolver::new(around, node, BASE);
    let (base_url, no_url) = resolver.optional("base_url", raw.base_url.as_ref().map(|url| url.0.as_str()));
    if let (Some(url), Some(written), true) = (&base_url, &raw.base_url, resolver.problems.is_empty()) {
        resolver.check_url(&[key("base_url")], &written.0, url);
    }
    let written_key = raw.key.as_ref().map(|key| key.0.as_str());
    let (secret, mut no_key) = resolver.optional("key", written_key);
    // Whoever writes a key into a file or a variable easily ends it with a line break.
    let secret = secret.map(|secret| secret.trim().to_owned());
    if secret.as_ref().is_some_and(|secret| secret.contains(|c: char| c.is_control())) {
        resolver.problem(&[key("key")], "a text of several lines", "a key on one line");
    }
    if raw.model.as_ref().is_some_and(|model| model.trim().is_empty()) {
        resolver.problem(&[key("model")], "an empty name", "a model");
    }
    for (name, number) in [("max_tokens", raw.max_tokens), ("max_steps", raw.max_steps)] {
        if number == Some(0) {
            resolver.problem(&[key(name)], "`0`", "at least 1");
        }
    }
    let tools = resolver.approval(raw.tools.as_ref());
    if !resolver.problems.is_empty() {
        return Err(resolver.problems);
    }
    // A key that is set to nothing is not set.
    let secret = secret.filter(|secret| !secret.is_empty());
    if secret.is_none() && no_key.is_empty() {
        no_key = written_key.map(names).unwrap_or_default();
    }
    let mut warnings = resolver.warnings;
    if !no_url.is_empty() && !around.sources.unread {
        warnings.push(format!("it is not known where `chat` goes: {}", not_set(&no_url)));
    }
    if !no_key.is_empty() && !around.sources.unread {
        warnings.push(format!("the key of `chat` is left out: {}", not_set(&no_key)));
    }
    if secret.is_some() && raw.provider.is_none() && raw.base_url.is_none() {
        warnings.push("the key of `chat` is not used: neither `provider` nor `base_url` says whose it is".to_owned());
    }
    let chat = ChatSettings {
        provider: raw.provider.map(|provider| provider.0),
        model: raw.model.clone(),
        base_url,
        // It must not go where it was not meant to go.
        key: secret.filter(|_| no_url.is_empty()).map(Secret::new),
        missing: MissingSecretsError { base_url: no_url, key: no_key },
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

/// The secrets that a text refers to.
fn names(written: &str) -> Vec<String> {
    let name = |part: &Part<'_>| match part {
        Part::Name { name, .. } => Some((*name).to_owned()),
        Part::File(path) => Some(format!("file:{path}")),
        _ => None,
    };
    parts(written).map(|parts| parts.iter().filter_map(name).collect()).unwrap_or_default()
}

impl Resolver<'_> {
    /// A text with its references followed, if all that takes is there, and else what is not.
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
