//! References in strings: `${NAME}`, `${NAME:-default}`, `${file:PATH}`, and `$$` for a dollar sign.

use std::path::Path;

/// A part of a string.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Part<'a> {
    Literal(&'a str),
    /// A variable's value, or the default. An input is a value that VS Code prompts for (`${input:NAME}`).
    Name {
        name: &'a str,
        default: Option<&'a str>,
        is_input: bool,
    },
    /// The file's workspace directory.
    Workspace,
    /// The workspace directory's name.
    WorkspaceName,
    /// The home directory.
    Home,
    /// The path separator.
    Separator,
    /// A file's contents.
    File(&'a str),
}

/// An invalid reference.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ReferenceError {
    /// The closing brace is missing.
    Unclosed,
    /// The text in braces is not a valid name.
    InvalidName(String),
}

/// Splits a string into literals and references.
pub(super) fn parts(text: &str) -> Result<Vec<Part<'_>>, ReferenceError> {
    let mut parts = Vec::new();
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        if at > 0 {
            parts.push(Part::Literal(&rest[..at]));
        }
        let after = &rest[at + 1..];
        rest = if let Some(after) = after.strip_prefix('$') {
            parts.push(Part::Literal("$"));
            after
        } else if let Some(inside) = after.strip_prefix('{') {
            let end = inside.find('}').ok_or(ReferenceError::Unclosed)?;
            parts.push(parse_reference(&inside[..end])?);
            &inside[end + 1..]
        } else {
            parts.push(Part::Literal("$"));
            after
        };
    }
    if !rest.is_empty() {
        parts.push(Part::Literal(rest));
    }
    Ok(parts)
}

fn parse_reference(inside: &str) -> Result<Part<'_>, ReferenceError> {
    match inside {
        "workspaceFolder" | "workspaceRoot" => return Ok(Part::Workspace),
        "workspaceFolderBasename" => return Ok(Part::WorkspaceName),
        "userHome" => return Ok(Part::Home),
        "pathSeparator" | "/" => return Ok(Part::Separator),
        _ => {}
    }
    if let Some(path) = inside.strip_prefix("file:").filter(|path| !path.is_empty()) {
        return Ok(Part::File(path));
    }
    let input = inside.strip_prefix("input:");
    let named = input.or_else(|| inside.strip_prefix("env:")).unwrap_or(inside);
    let (name, default) = match named.split_once(":-") {
        Some((name, default)) => (name, Some(default)),
        None => (named, None),
    };
    let is_name = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.'));
    if is_name {
        Ok(Part::Name { name, default, is_input: input.is_some() })
    } else {
        Err(ReferenceError::InvalidName(inside.to_owned()))
    }
}

/// Rewrites references to mean the same in any native file. `input` returns the variable name for an input.
pub(super) fn rewrite(text: &str, workspace: &Path, mut input: impl FnMut(&str) -> String) -> String {
    let Ok(parts) = parts(text) else { return text.to_owned() };
    let mut rewritten = String::new();
    for part in parts {
        match part {
            Part::Literal("$") => rewritten.push_str("$$"),
            Part::Literal(literal) => rewritten.push_str(literal),
            Part::Name { name, default, is_input } => {
                let name = if is_input { input(name) } else { name.to_owned() };
                let default = default.map(|default| format!(":-{default}")).unwrap_or_default();
                let inside = format!("{name}{default}");
                // A variable may be named `workspaceFolder`.
                let is_name = matches!(parse_reference(&inside), Ok(Part::Name { .. }));
                rewritten.push_str(&if is_name { format!("${{{inside}}}") } else { format!("${{env:{inside}}}") });
            }
            Part::Workspace => rewritten.push_str(&escape(&workspace.to_string_lossy())),
            Part::WorkspaceName => {
                rewritten.push_str(&escape(&workspace.file_name().unwrap_or_default().to_string_lossy()));
            }
            Part::Home => rewritten.push_str("${userHome}"),
            Part::Separator => rewritten.push(std::path::MAIN_SEPARATOR),
            Part::File(path) => rewritten.push_str(&format!("${{file:{path}}}")),
        }
    }
    rewritten
}

/// Returns `true` if a string refers to the workspace directory.
pub(super) fn has_workspace(text: &str) -> bool {
    parts(text).is_ok_and(|parts| parts.iter().any(|part| matches!(part, Part::Workspace | Part::WorkspaceName)))
}

/// Escapes a string so that it contains no references.
pub(super) fn escape(text: &str) -> String {
    let refers = text.contains("$$") || text.contains("${");
    if refers { text.replace('$', "$$") } else { text.to_owned() }
}

/// Returns a file's workspace directory: its directory, or the directory above a client's directory such as `.vscode`.
pub(super) fn workspace(origin: &Path) -> &Path {
    let folder = origin.parent().unwrap_or(Path::new(""));
    let is_client = folder
        .file_name()
        .is_some_and(|name| matches!(name.to_str(), Some(".vscode" | ".cursor" | ".zed" | ".codex" | ".gemini")));
    if is_client { folder.parent().unwrap_or(folder) } else { folder }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_variable_named_like_a_folder_stays_a_variable() {
        let rewritten = |text: &str| rewrite(text, Path::new("/w"), str::to_owned);
        assert_eq!(rewritten("${env:workspaceFolder}"), "${env:workspaceFolder}");
        assert_eq!(rewritten("${input:userHome}"), "${env:userHome}");
        assert_eq!(rewritten("${env:TOKEN} ${workspaceFolder}"), "${TOKEN} /w");
    }
}
