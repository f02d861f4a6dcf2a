//! From what is written about a server to what it means.

use std::path::{Path, PathBuf};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use globset::Glob;
use serde_json::{Map, Value};

use super::credential::Hidden;
use super::node::{Node, Step, path_text};
use super::problem::{ConfigProblem, in_backticks, nearest};
use super::raw::{
    RawAuth, RawEra, RawLimits, RawPrompts, RawReconnect, RawResources, RawServer, RawStart, RawTimeouts, RawTools,
    RawTransport, Short, Size, Wait,
};
use super::reference::{Broken, Part, parts};
use super::secrets::{Sources, is_ordinary, read_variables};
use super::{
    EraChoice, HttpServer, Limits, PromptSettings, Reconnect, ResourceSettings, ServerConfig, ServerEntry, Settings,
    Start, StdioServer, Timeouts, ToolOverride, ToolSettings, Transport,
};
use crate::secret::Secret;

/// How long an alias may be.
const ALIAS: usize = 64;

/// What the meaning of a server depends on, besides what is written.
pub(super) struct Surroundings<'a> {
    pub(super) sources: &'a Sources,
    /// The folder that relative paths start from.
    pub(super) folder: &'a Path,
    /// The folder that `${workspaceFolder}` stands for.
    pub(super) workspace: &'a Path,
    pub(super) home: Option<PathBuf>,
    /// The file belongs to another client, and follows its rules.
    pub(super) is_foreign: bool,
}

/// A server, and what is odd about it.
pub(super) struct Resolved {
    pub(super) entry: ServerEntry,
    pub(super) warnings: Vec<String>,
}

/// The meaning of one server. `base` is its path in the file, and `node` what is written there.
pub(super) fn resolve(
    raw: &RawServer,
    node: &Node,
    base: &str,
    around: &Surroundings<'_>,
) -> Result<Resolved, Vec<ConfigProblem>> {
    let mut resolver = Resolver {
        around,
        node,
        base,
        problems: Vec::new(),
        warnings: Vec::new(),
        missing: Vec::new(),
        hidden: Hidden::default(),
    };
    resolver.check_alias(&raw.alias);
    let transport = resolver.transport(raw);
    let tools = resolver.tools(raw);
    let resources = resolver.resources(raw);
    let (Some(transport), true) = (transport, resolver.problems.is_empty()) else { return Err(resolver.problems) };

    let enabled = raw.enabled.unwrap_or(true);
    let mut warnings = resolver.warnings;
    let settings = if resolver.missing.is_empty() {
        let mut config = ServerConfig::new(raw.alias.as_str(), transport);
        config.era = match raw.era {
            None | Some(RawEra::Auto) => EraChoice::Auto,
            Some(RawEra::Legacy) => EraChoice::Legacy,
            Some(RawEra::Modern) => EraChoice::Modern,
        };
        config.timeouts = timeouts(&raw.timeouts.unwrap_or_default());
        config.limits = limits(&raw.limits.unwrap_or_default());
        config.reconnect = reconnect(raw.reconnect.as_ref());
        config.mask = resolver.hidden.into_mask();
        Settings::Known(Box::new(config))
    } else {
        let secrets = resolver.missing;
        if enabled {
            let names: Vec<String> = secrets.iter().map(|name| format!("`{name}`")).collect();
            let (word, verb) = if names.len() == 1 { ("secret", "is") } else { ("secrets", "are") };
            warnings.push(format!("server `{}` is skipped: {word} {} {verb} not set", raw.alias, names.join(", ")));
        }
        Settings::Missing { secrets }
    };
    let mut entry = ServerEntry::with_settings(raw.alias.as_str(), settings);
    entry.enabled = enabled;
    entry.required = raw.required.unwrap_or(false);
    entry.start = match raw.start {
        None | Some(RawStart::Eager) => Start::Eager,
        Some(RawStart::Lazy) => Start::Lazy,
    };
    if let Some(prefix) = &raw.prefix {
        entry.prefix.clone_from(prefix);
    }
    entry.description_prefix.clone_from(&raw.description_prefix);
    entry.tools = tools;
    entry.resources = resources;
    entry.prompts = PromptSettings {
        tools: match raw.prompts {
            None => false,
            Some(Short::Short(tools)) => tools,
            Some(Short::Full(RawPrompts { tools })) => tools.unwrap_or(false),
        },
    };
    entry.instructions = raw.instructions.unwrap_or(false);
    Ok(Resolved { entry, warnings })
}

struct Resolver<'a> {
    around: &'a Surroundings<'a>,
    node: &'a Node,
    base: &'a str,
    problems: Vec<ConfigProblem>,
    warnings: Vec<String>,
    /// The names of secrets that no source has.
    missing: Vec<String>,
    hidden: Hidden,
}

impl Resolver<'_> {
    fn problem(&mut self, steps: &[Step], found: impl Into<String>, expected: impl Into<String>) {
        self.report(steps, found, expected, None::<String>);
    }

    fn report(
        &mut self,
        steps: &[Step],
        found: impl Into<String>,
        expected: impl Into<String>,
        suggestion: Option<impl Into<String>>,
    ) {
        let place = self.node.place_of(steps);
        let problem = ConfigProblem::at(place, path_text(self.base, steps), found, expected);
        self.problems.push(problem.suggest(suggestion));
    }

    fn check_alias(&mut self, alias: &str) {
        let at = [key("alias")];
        let legal = legal_alias(alias);
        if alias.is_empty() {
            self.problem(&at, "an empty alias", "a name for the server");
        } else if legal != alias {
            let expected = format!("letters, digits, `_`, `.` and `-`, at most {ALIAS} of them");
            self.report(&at, in_backticks(alias), expected, Some(legal));
        }
    }

    fn transport(&mut self, raw: &RawServer) -> Option<Transport> {
        match (&raw.command, &raw.url, raw.transport) {
            (Some(_), Some(_), _) => {
                self.problem(&[key("url")], "both `command` and `url`", "one of them");
                None
            }
            (Some(_), None, Some(transport @ (RawTransport::Sse | RawTransport::StreamableHttp))) => {
                let found = format!("transport `{}` with a `command`", name_of(transport));
                self.report(&[key("transport")], found, "`stdio`, or a `url`", Some("stdio"));
                None
            }
            (None, Some(_), Some(RawTransport::Stdio)) => {
                let found = "transport `stdio` with a `url`";
                self.report(&[key("transport")], found, "`streamable-http`, or a `command`", Some("streamable-http"));
                None
            }
            (None, None, Some(RawTransport::Stdio)) => {
                self.problem(&[], "no `command`", "the program that speaks `stdio`");
                None
            }
            (None, None, Some(transport)) => {
                self.problem(&[], "no `url`", format!("where the server listens, for `{}`", name_of(transport)));
                None
            }
            (None, None, None) => {
                self.problem(&[], "neither `command` nor `url`", "one of them");
                None
            }
            (Some(command), None, _) => Some(Transport::Stdio(self.stdio(raw, command))),
            (None, Some(url), transport) => {
                let server = self.http(raw, &url.0);
                let is_sse = transport == Some(RawTransport::Sse);
                Some(if is_sse { Transport::Sse(server) } else { Transport::Http(server) })
            }
        }
    }

    fn stdio(&mut self, raw: &RawServer, command: &str) -> StdioServer {
        let command = self.command(command);
        let args: Vec<String> =
            (0..).zip(&raw.args).map(|(index, arg)| self.text(&[key("args"), Step::Index(index)], &arg.0)).collect();
        let mut server = StdioServer::new(command, args);
        if let Some(path) = &raw.env_file {
            self.env_file(path, &mut server);
        }
        for (name, value) in &raw.env.0 {
            let at = [key("env"), key(name)];
            let value = self.text(&at, &value.0);
            if name.is_empty() || name.contains(['=', '\0']) {
                self.problem(&at, in_backticks(name), "the name of a variable");
            }
            if value.contains('\0') {
                self.problem(&at, "a text with a NUL in it", "one without");
            }
            self.hidden.add_named(name, &value);
            server.env.retain(|(known, _)| known != name);
            server.env.push((name.clone(), Secret::new(value)));
        }
        server.inherit_env = raw.inherit_env.unwrap_or(false);
        server.cwd = raw.cwd.as_ref().map(|cwd| {
            let cwd = self.text(&[key("cwd")], cwd);
            self.path(&cwd)
        });
        server
    }

    /// The command as it is: nothing from outside may choose what is run.
    fn command(&mut self, command: &str) -> String {
        let at = [key("command")];
        if command.trim().is_empty() {
            self.problem(&at, "an empty command", "a program");
            return String::new();
        }
        if !command.contains("${") {
            return command.to_owned();
        }
        // Other clients name their folders so, and a folder is no choice from outside.
        let fixed = |part: &Part<'_>| !matches!(part, Part::Name { .. } | Part::File(_));
        if self.around.is_foreign && parts(command).is_ok_and(|parts| parts.iter().all(fixed)) {
            return self.text(&at, command);
        }
        self.problem(&at, in_backticks(command), "a program without `${…}`: a command is run exactly as it is written");
        String::new()
    }

    fn env_file(&mut self, path: &str, server: &mut StdioServer) {
        let at = [key("env_file")];
        let text = self.text(&at, path);
        match read_variables(&self.path(&text)) {
            Ok(variables) => {
                for (name, value) in variables {
                    self.hidden.add_named(&name, &value);
                    server.env.push((name, Secret::new(value)));
                }
            }
            Err(error) if self.around.is_foreign => {
                self.warnings.push(format!(
                    "the variables in {} are left out: {}",
                    in_backticks(path),
                    error.describe()
                ));
            }
            Err(error) => {
                let found = format!("{}, which could not be read: {}", in_backticks(path), error.describe());
                self.problem(&at, found, "a file with lines of `NAME=value`");
            }
        }
    }

    fn http(&mut self, raw: &RawServer, written: &str) -> HttpServer {
        let at = [key("url")];
        let known = self.missing.len();
        let url = self.text(&at, written);
        self.hidden.add_url(&url);
        // A URL that lacks a part is not judged, and one with a secret in it not shown.
        if self.missing.len() == known && self.problems.is_empty() {
            self.check_url(written, &url);
        }
        let mut server = HttpServer::new(url);
        for (name, value) in &raw.headers.0 {
            let at = [key("headers"), key(name)];
            let value = self.text(&at, &value.0);
            if !is_header_name(name) {
                self.problem(&at, in_backticks(name), "the name of a header");
            }
            if value.contains(['\r', '\n', '\0']) {
                self.problem(&at, "a text of several lines", "a header on one line");
            }
            self.hidden.add_named(name, &value);
            server.headers.push((name.clone(), Secret::new(value)));
        }
        match &raw.auth {
            None => {}
            Some(RawAuth::Bearer(token)) => {
                let token = self.text(&[key("auth"), key("bearer")], &token.0);
                self.hidden.add_credential(&token);
                server.bearer = Some(Secret::new(token));
            }
            Some(RawAuth::Basic(basic)) => {
                let user = self.text(&[key("auth"), key("basic"), key("user")], &basic.user.0);
                let password = self.text(&[key("auth"), key("basic"), key("password")], &basic.password.0);
                let both = format!("{user}:{password}");
                self.hidden.add_credential(&password);
                self.hidden.add_credential(&both);
                server.headers.push(("Authorization".into(), Secret::new(format!("Basic {}", STANDARD.encode(both)))));
            }
        }
        let has_authorization = raw.headers.0.iter().any(|(name, _)| name.eq_ignore_ascii_case("authorization"));
        if raw.auth.is_some() && has_authorization {
            self.problem(&[key("auth")], "both `auth` and a header `Authorization`", "one of them");
        }
        server
    }

    fn check_url(&mut self, written: &str, url: &str) {
        let suggestion = match url.split_once("://") {
            Some(("ws", rest)) => Some(format!("http://{rest}")),
            Some(("wss", rest)) => Some(format!("https://{rest}")),
            None if !url.contains(':') || url.starts_with("localhost") => Some(format!("http://{url}")),
            _ => None,
        };
        let is_url = reqwest::Url::parse(url).is_ok_and(|url| {
            matches!(url.scheme(), "http" | "https") && url.host_str().is_some_and(|host| !host.is_empty())
        });
        if !is_url {
            let suggestion = suggestion.filter(|_| written == url && !written.is_empty());
            self.report(
                &[key("url")],
                in_backticks(written),
                "a URL that starts with `http://` or `https://`",
                suggestion,
            );
        }
    }

    fn tools(&mut self, raw: &RawServer) -> ToolSettings {
        let mut tools = ToolSettings::default();
        match &raw.tools {
            None => {}
            Some(Short::Short(allow)) => {
                self.check_globs(&[key("tools")], allow);
                tools.allow.clone_from(allow);
            }
            Some(Short::Full(raw)) => {
                self.check_globs(&[key("tools"), key("allow")], &raw.allow);
                self.check_globs(&[key("tools"), key("deny")], &raw.deny);
                tools.allow.clone_from(&raw.allow);
                tools.deny.clone_from(&raw.deny);
                tools.overrides = self.overrides(raw);
            }
        }
        tools
    }

    fn overrides(&mut self, raw: &RawTools) -> Vec<(String, ToolOverride)> {
        let mut overrides = Vec::new();
        if let Some(prefix) = &raw.description_prefix {
            change(&mut overrides, "*").description_prefix = Some(prefix.clone());
        }
        for (glob, name) in &raw.rename.0 {
            self.check_glob(&[key("tools"), key("rename"), key(glob)], glob);
            if name.is_empty() {
                self.problem(&[key("tools"), key("rename"), key(glob)], "an empty name", "a name for the tool");
            }
            change(&mut overrides, glob).name = Some(name.clone());
        }
        for (glob, description) in &raw.describe.0 {
            self.check_glob(&[key("tools"), key("describe"), key(glob)], glob);
            change(&mut overrides, glob).description = Some(description.clone());
        }
        for (glob, arguments) in &raw.hide.0 {
            self.check_glob(&[key("tools"), key("hide"), key(glob)], glob);
            change(&mut overrides, glob).hide.clone_from(arguments);
        }
        for (glob, arguments) in &raw.preset.0 {
            self.check_glob(&[key("tools"), key("preset"), key(glob)], glob);
            change(&mut overrides, glob).preset.clone_from(arguments);
        }
        for (glob, options) in &raw.provider_options.0 {
            self.check_glob(&[key("tools"), key("provider_options"), key(glob)], glob);
            change(&mut overrides, glob).provider_options = by_provider(options);
        }
        overrides
    }

    fn resources(&mut self, raw: &RawServer) -> ResourceSettings {
        let mut settings = ResourceSettings::default();
        match &raw.resources {
            None => {}
            Some(Short::Short(tools)) => settings.tools = *tools,
            Some(Short::Full(RawResources { tools, context, context_bytes })) => {
                self.check_globs(&[key("resources"), key("context")], context);
                settings.tools = tools.unwrap_or(false);
                settings.context.clone_from(context);
                settings.context_bytes = context_bytes.map_or(settings.context_bytes, |Size(bytes)| bytes);
            }
        }
        settings
    }

    fn check_globs(&mut self, at: &[Step], globs: &[String]) {
        for (index, glob) in globs.iter().enumerate() {
            let at: Vec<Step> = at.iter().cloned().chain([Step::Index(index)]).collect();
            self.check_glob(&at, glob);
        }
    }

    fn check_glob(&mut self, at: &[Step], glob: &str) {
        if let Err(error) = Glob::new(glob) {
            self.problem(at, in_backticks(glob), format!("a glob ({})", error.kind()));
        }
    }

    /// A text with its references followed.
    fn text(&mut self, at: &[Step], text: &str) -> String {
        let parts = match parts(text) {
            Ok(parts) => parts,
            Err(Broken::Unclosed) => {
                self.problem(at, "`${` without a `}`", "`${NAME}`, or `$$` for a dollar");
                return String::new();
            }
            // Other clients know more kinds of references than we do.
            Err(Broken::Name(name)) if self.around.is_foreign => {
                self.miss(&name);
                return String::new();
            }
            Err(Broken::Name(name)) => {
                let found = in_backticks(&format!("${{{name}}}"));
                let expected = "`${NAME}` or `${NAME:-default}`, or `$$` for a dollar";
                self.report(at, found, expected, suggest_name(&name));
                return String::new();
            }
        };
        let mut value = String::new();
        for part in parts {
            match part {
                Part::Literal(literal) => value.push_str(literal),
                Part::Name { name, default, .. } => self.name(name, default, &mut value),
                Part::Workspace => value.push_str(&self.around.workspace.to_string_lossy()),
                Part::WorkspaceName => {
                    value.push_str(&self.around.workspace.file_name().unwrap_or_default().to_string_lossy());
                }
                Part::Home => match &self.around.home {
                    Some(home) => value.push_str(&home.to_string_lossy()),
                    None => self.miss("HOME"),
                },
                Part::Separator => value.push(std::path::MAIN_SEPARATOR),
                Part::File(path) => match std::fs::read_to_string(self.path(path)) {
                    Ok(text) => {
                        self.hidden.add(text.trim_end());
                        value.push_str(text.trim_end());
                    }
                    Err(_) => self.miss(&format!("file:{path}")),
                },
            }
        }
        value
    }

    fn name(&mut self, name: &str, default: Option<&str>, value: &mut String) {
        let known = self.around.sources.get(name).filter(|known| default.is_none() || !known.is_empty());
        match (known, default) {
            (Some(known), _) => {
                if !is_ordinary(name) {
                    self.hidden.add(known);
                }
                value.push_str(known);
            }
            (None, Some(default)) => value.push_str(default),
            (None, None) => self.miss(name),
        }
    }

    fn miss(&mut self, name: &str) {
        if !self.missing.iter().any(|missing| missing == name) {
            self.missing.push(name.to_owned());
        }
    }

    fn path(&self, written: &str) -> PathBuf {
        path(written, self.around.folder, self.around.home.as_deref())
    }
}

/// A path as it is written in a file: relative to that file, with `~` for the home folder.
pub(super) fn path(written: &str, folder: &Path, home: Option<&Path>) -> PathBuf {
    match (written.strip_prefix('~'), home) {
        (Some(""), Some(home)) => home.to_owned(),
        (Some(rest), Some(home)) if rest.starts_with(['/', '\\']) => home.join(&rest[1..]),
        _ => folder.join(written),
    }
}

/// The alias with only the characters that it may have.
pub(super) fn legal_alias(alias: &str) -> String {
    let legal = |c: char| if c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-') { c } else { '-' };
    alias.chars().take(ALIAS).map(legal).collect()
}

fn key(name: &str) -> Step {
    Step::Key(name.to_owned())
}

fn name_of(transport: RawTransport) -> &'static str {
    match transport {
        RawTransport::Stdio => "stdio",
        RawTransport::Sse => "sse",
        RawTransport::StreamableHttp => "streamable-http",
    }
}

/// The reference that was probably meant.
fn suggest_name(written: &str) -> Option<String> {
    let (name, default) = written.split_once([':', '-']).unwrap_or((written, ""));
    let name: String = name.trim().chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
    let is_name = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    let default = default.trim_start_matches(['-', '=', ':']);
    is_name.then(|| if default.is_empty() { format!("${{{name}}}") } else { format!("${{{name}:-{default}}}") })
}

fn is_header_name(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte))
}

fn change<'a>(overrides: &'a mut Vec<(String, ToolOverride)>, glob: &str) -> &'a mut ToolOverride {
    let index = overrides.iter().position(|(known, _)| known == glob).unwrap_or_else(|| {
        overrides.push((glob.to_owned(), ToolOverride::default()));
        overrides.len() - 1
    });
    &mut overrides[index].1
}

fn by_provider(options: &Map<String, Value>) -> std::collections::BTreeMap<String, Value> {
    options.iter().map(|(provider, options)| (provider.clone(), options.clone())).collect()
}

fn timeouts(raw: &RawTimeouts) -> Timeouts {
    let usual = Timeouts::default();
    let or = |wait: Option<Wait>, usual| wait.map_or(usual, |Wait(wait)| wait);
    Timeouts {
        connect: or(raw.connect, usual.connect),
        probe: or(raw.probe, usual.probe),
        idle: or(raw.idle, usual.idle),
        total: or(raw.total, usual.total),
        close: or(raw.close, usual.close),
        grace: or(raw.grace, usual.grace),
    }
}

fn limits(raw: &RawLimits) -> Limits {
    let usual = Limits::default();
    let count = |count: Option<u32>, usual| count.map_or(usual, |count| count as usize);
    let size = |size: Option<Size>, usual| size.map_or(usual, |Size(bytes)| bytes);
    Limits {
        message_bytes: size(raw.message_bytes, usual.message_bytes),
        pages: count(raw.pages, usual.pages),
        input_rounds: count(raw.input_rounds, usual.input_rounds),
        stderr_bytes: size(raw.stderr_bytes, usual.stderr_bytes),
    }
}

fn reconnect(raw: Option<&Short<bool, RawReconnect>>) -> Reconnect {
    let usual = Reconnect::default();
    match raw {
        None => usual,
        Some(Short::Short(enabled)) => Reconnect { enabled: *enabled, ..usual },
        Some(Short::Full(RawReconnect { enabled, first, longest })) => Reconnect {
            enabled: enabled.unwrap_or(usual.enabled),
            first: first.map_or(usual.first, |Wait(wait)| wait),
            longest: longest.map_or(usual.longest, |Wait(wait)| wait),
        },
    }
}

/// The problem of a list that names a server that is not there.
pub(super) fn unknown_server(place: super::node::Place, path: String, name: &str, aliases: &[&str]) -> ConfigProblem {
    ConfigProblem::at(place, path, in_backticks(name), "the alias of a server in this file")
        .suggest(nearest(name, aliases.iter().copied()))
}
