//! A project file's review before it is trusted.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use anstyle::{AnsiColor, Style};
use ropeway_config::{ChatReview, ConfigReview, ServerReview, TransportReview, ValueReference, review};

use super::ownership::ownership_problem;
use super::summary::{Fact, Section, TrustSummary};
use crate::failure::Failure;
use crate::sandbox::describe;
use crate::terminal::text::{columns, escape_invisible, fold};

const HEADING: Style = Style::new().bold();
const FAINT: Style = Style::new().dimmed();
const WARNING: Style = AnsiColor::Yellow.on_default().bold();

/// Minimum columns for the text next to a label; otherwise it starts on the next line.
const MIN_TEXT_WIDTH: usize = 20;

/// The section title for settings that belong to no server.
const FILE_SECTION: &str = "the file";

/// Everything that the user sees before trusting a file.
#[derive(Debug)]
pub(crate) struct TrustReview {
    path: PathBuf,
    /// The file's commands, URLs and settings.
    pub(crate) summary: TrustSummary,
    /// Problems with the file itself: owned or writable by other users, or a symbolic link.
    pub(crate) warnings: Vec<String>,
    counts: ReviewCounts,
}

/// The review's totals. They are printed right above the question, where a long review cannot scroll them away.
#[derive(Debug, Default)]
struct ReviewCounts {
    commands: usize,
    urls: usize,
    variables: usize,
    files: usize,
    allow_patterns: usize,
}

impl TrustReview {
    /// Reviews a file's text. `beside` are sections about related files, such as a lock file with approvals.
    pub(crate) fn new(path: &Path, text: &str, beside: Vec<Section>) -> Result<Self, Failure> {
        let review = review(text, path).map_err(|error| Failure::config(&error))?;
        Ok(Self::of(path, &review, beside))
    }

    /// Like [`new`](Self::new), for an existing [`ConfigReview`].
    pub(crate) fn of(path: &Path, review: &ConfigReview, beside: Vec<Section>) -> Self {
        let mut sections: Vec<Section> = review.servers.iter().map(server_section).collect();
        sections.extend(review.chat.as_ref().map(chat_section));
        sections.extend(file_section(review));
        sections.extend(beside);
        let user = rustix::process::geteuid().as_raw();
        Self {
            path: path.to_owned(),
            summary: TrustSummary(sections),
            warnings: file_warnings(path, user),
            counts: ReviewCounts::of(review),
        }
    }

    /// Renders the review. The file's text is shown completely, with invisible characters escaped, and always indented, so
    /// that it cannot imitate ropeway's own lines.
    pub(crate) fn render(&self, width: Option<usize>) -> String {
        let width = width.unwrap_or(usize::MAX);
        let mut text = String::new();
        for Section { title, facts } in &self.summary.0 {
            let title = fold(&escape_invisible(title), width, 2);
            text.push_str(&format!("{HEADING}{}{HEADING:#}\n", title[2..].trim_end_matches('\n')));
            let label = facts.iter().map(|fact| columns(&escape_invisible(&fact.label))).max().unwrap_or(0);
            for fact in facts {
                text.push_str(&fact_line(fact, label, width));
            }
        }
        for warning in &self.warnings {
            let words = fold(&format!("warning: {}", escape_invisible(warning)), width, 2);
            text.push_str(&words[2..].replacen("warning:", &format!("{WARNING}warning:{WARNING:#}"), 1));
        }
        text
    }

    /// Summarizes the file in one sentence.
    pub(crate) fn summary_line(&self) -> String {
        self.counts.sentence("It")
    }

    /// Summarizes several files in one line.
    pub(crate) fn total_line<'a>(reviews: impl Iterator<Item = &'a Self>) -> String {
        let mut total = ReviewCounts::default();
        reviews.for_each(|review| total.add(&review.counts));
        total.sentence("In total, it")
    }

    /// Returns the command that reviews and accepts the file.
    pub(crate) fn command(&self) -> String {
        trust_command(&self.path)
    }

    /// Returns the escaped path for messages.
    pub(crate) fn file(&self) -> String {
        escape_invisible(&self.path.display().to_string())
    }
}

impl ReviewCounts {
    fn add(&mut self, other: &Self) {
        self.commands += other.commands;
        self.urls += other.urls;
        self.variables += other.variables;
        self.files += other.files;
        self.allow_patterns += other.allow_patterns;
    }

    fn sentence(&self, subject: &str) -> String {
        let &Self { commands, urls, variables, files, allow_patterns } = self;
        let counted = |count: usize, one: &str, many: &str| match count {
            0 => None,
            1 => Some(format!("1 {one}")),
            _ => Some(format!("{count} {many}")),
        };
        let read =
            [counted(variables, "environment variable", "environment variables"), counted(files, "file", "files")];
        let read: Vec<String> = read.into_iter().flatten().collect();
        let parts = [
            counted(commands, "command with your permissions", "commands with your permissions")
                .map(|commands| format!("runs {commands}")),
            counted(urls, "URL", "URLs").map(|urls| format!("connects to {urls}")),
            (!read.is_empty()).then(|| format!("reads {}", read.join(" and "))),
            counted(allow_patterns, "tool pattern without approval", "tool patterns without approval")
                .map(|patterns| format!("allows {patterns}")),
        ];
        let parts: Vec<String> = parts.into_iter().flatten().collect();
        match &parts[..] {
            [] => format!("{subject} runs nothing and connects to nothing."),
            [first, second] => format!("{subject} {first} and {second}."),
            [all @ .., last] if !all.is_empty() => format!("{subject} {}, and {last}.", all.join(", ")),
            parts => format!("{subject} {}.", parts.join("")),
        }
    }
}

/// Returns the command that reviews and accepts a file. The path is relative if the file is below the current directory.
pub(crate) fn trust_command(path: &Path) -> String {
    if path.file_name().is_some_and(|name| name == "ropeway.yaml" || name == "ropeway.yml") {
        return "ropeway trust".to_owned();
    }
    let folder = std::env::current_dir().ok();
    let inside = folder.and_then(|folder| path.strip_prefix(folder).ok()).unwrap_or(path);
    format!("ropeway trust {}", escape_invisible(&quoted(&inside.display().to_string())))
}

impl ReviewCounts {
    fn of(review: &ConfigReview) -> Self {
        let mut counts = Self {
            variables: review.variables.len(),
            files: review.files.len(),
            allow_patterns: review.chat.as_ref().map_or(0, |chat| chat.allow.len()),
            ..Self::default()
        };
        for server in &review.servers {
            match &server.transport {
                TransportReview::Command { .. } => counts.commands += 1,
                _ => counts.urls += 1,
            }
            counts.commands += server.token_commands.len();
        }
        counts.urls += usize::from(review.chat.as_ref().is_some_and(|chat| chat.base_url.is_some()));
        counts
    }
}

fn fact_line(fact: &Fact, label: usize, width: usize) -> String {
    let (name, text) = (escape_invisible(&fact.label), escape_invisible(&fact.text));
    let indent = label + 4;
    if indent + MIN_TEXT_WIDTH > width {
        return fold(&format!("{name}  {text}"), width, 4)[2..].to_owned();
    }
    let space = " ".repeat(label.saturating_sub(columns(&name)));
    let folded = fold(&text, width, indent);
    format!("  {FAINT}{name}{FAINT:#}{space}  {}", &folded[indent..])
}

fn server_section(server: &ServerReview) -> Section {
    let mut section = Section::new(format!("server `{}`", server.alias));
    if !server.enabled {
        section.add("is", "disabled");
    }
    match &server.transport {
        TransportReview::Command { command, args, cwd, env, env_file, inherit_env, sandbox, .. } => {
            let words: Vec<String> = std::iter::once(command).chain(args).map(|word| quoted(word)).collect();
            section.add("runs", words.join(" "));
            cwd.iter().for_each(|cwd| section.add("in directory", cwd));
            env.iter().for_each(|(name, value)| section.add("sets", format!("{name}={value}")));
            env_file.iter().for_each(|file| section.add("reads env file", file));
            if *inherit_env {
                section.add("passes", "the whole environment");
            }
            if let Some(sandbox) = sandbox {
                section.add("sandbox", describe(sandbox, command));
            }
            if !server.receives.is_empty() {
                section.add("receives", list(&server.receives));
            }
        }
        TransportReview::Url { url, host, headers, .. } => {
            section.add("connects to", url);
            section.facts.extend(host_fact(url, host));
            headers.iter().for_each(|(name, value)| section.add("header", format!("{name}: {value}")));
            for command in &server.token_commands {
                let words: Vec<String> = command.command.iter().map(|word| quoted(word)).collect();
                section.add("runs for tokens", words.join(" "));
                command.cwd.iter().for_each(|cwd| section.add("in directory", cwd));
                command.env.iter().for_each(|(name, value)| section.add("sets", format!("{name}={value}")));
            }
            if !server.receives.is_empty() {
                section.add("sends", format!("{} to {host}", list(&server.receives)));
            }
        }
        _ => section.add("runs", "an unknown transport"),
    }
    server.settings.iter().for_each(|(key, value)| section.add(key, value));
    section
}

/// Names a URL's host, unless the URL plainly starts with it.
fn host_fact(url: &str, host: &str) -> Option<Fact> {
    let rest = url.split_once("://").and_then(|(_, rest)| rest.strip_prefix(host));
    let text = if host.contains("${") {
        format!("{host}, set by the environment or `.env`")
    } else if rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/')) {
        return None;
    } else {
        host.to_owned()
    };
    Some(Fact { label: "host".to_owned(), text })
}

fn chat_section(chat: &ChatReview) -> Section {
    let mut section = Section::new("chat");
    let provider = chat.provider.as_deref().unwrap_or("a provider");
    let has_model = chat.settings.iter().any(|(key, _)| key == "model");
    if chat.provider.is_some() || chat.base_url.is_some() || has_model {
        section.add(
            "connects to",
            match &chat.base_url {
                Some(url) => format!("{provider} at {url}"),
                None => provider.to_owned(),
            },
        );
    }
    if let (Some(url), Some(host)) = (&chat.base_url, &chat.host) {
        section.facts.extend(host_fact(url, host));
    }
    if let Some(key) = &chat.key {
        section.add("key", key);
    }
    if !chat.receives.is_empty() {
        section.add("sends", format!("{} to {}", list(&chat.receives), chat.host.as_deref().unwrap_or(provider)));
    }
    chat.allow.iter().for_each(|glob| section.add("allows without asking", glob));
    chat.ask.iter().for_each(|glob| section.add("asks about", glob));
    chat.deny.iter().for_each(|glob| section.add("denies", glob));
    chat.settings.iter().for_each(|(key, value)| section.add(key, value));
    section
}

fn file_section(review: &ConfigReview) -> Option<Section> {
    let mut section = Section::new(FILE_SECTION);
    review.variables.iter().for_each(|name| section.add("reads variable", name));
    for file in &review.files {
        let text =
            if file == ".env" { ".env next to it, for variables that are not set".to_owned() } else { file.clone() };
        section.add("reads file", text);
    }
    review.settings.iter().for_each(|(key, value)| section.add(key, value));
    (!section.facts.is_empty()).then_some(section)
}

fn list(references: &[ValueReference]) -> String {
    references.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

/// Quotes a word for a shell, so that the arguments are clearly separated.
fn quoted(word: &str) -> String {
    match shlex::try_quote(word) {
        Ok(quoted) if !word.contains(char::is_control) => quoted.into_owned(),
        _ => format!("{word:?}"),
    }
}

/// Returns warnings about other users who own or may change the file.
fn file_warnings(path: &Path, user: u32) -> Vec<String> {
    let mut warnings = Vec::new();
    let link = path.symlink_metadata().ok().filter(std::fs::Metadata::is_symlink);
    if let Some(link) = link {
        let target = std::fs::canonicalize(path).unwrap_or_default();
        warnings.push(format!("the file is a symbolic link to `{}`", target.display()));
        // A symbolic link's mode is meaningless.
        warnings
            .extend(ownership_problem(link.uid(), 0, user).map(|problem| format!("the symbolic link is {problem}")));
    }
    if let Ok(file) = path.metadata() {
        warnings
            .extend(ownership_problem(file.uid(), file.mode(), user).map(|problem| format!("the file is {problem}")));
    }
    let folders = [Some(path.to_owned()), std::fs::canonicalize(path).ok()];
    let mut folders: Vec<PathBuf> =
        folders.into_iter().flatten().filter_map(|path| path.parent().map(Path::to_owned)).collect();
    folders.dedup();
    for folder in folders {
        let folder = if folder.as_os_str().is_empty() { PathBuf::from(".") } else { folder };
        let Ok(metadata) = folder.metadata() else { continue };
        // In a sticky directory only a file's owner can replace it.
        let mode = if metadata.mode() & 0o1000 != 0 { 0 } else { metadata.mode() };
        warnings.extend(
            ownership_problem(metadata.uid(), mode, user)
                .map(|problem| format!("its directory `{}` is {problem}", folder.display())),
        );
    }
    warnings.dedup();
    warnings
}

#[cfg(test)]
mod tests;
