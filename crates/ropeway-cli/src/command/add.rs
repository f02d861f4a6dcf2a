//! `ropeway add`: adds a server to the configuration file.

use std::path::{Path, PathBuf};

use anstyle::Style;
use clap::ValueEnum;
use ropeway_config::raw::{RawAuth, RawMap, RawServer, RawText, RawTransport};
use ropeway_config::{
    Config, ConfigError, ConfigProblem, Secrets, ServerEntry, ServerSettings, StartMode, StdioServer, edit,
};
use serde_json::json;

use super::doctor::examine_settings;
use crate::config::config_target::{self, ConfigTarget};
use crate::connect::command_context::CommandContext;
use crate::connect::servers::{ServerSource, Servers};
use crate::doctor::{examine_entry, program_problem};
use crate::failure::{Exit, Failure};
use crate::files::file;
use crate::output::print::{print, print_json};
use crate::secrets::dotenv;
use crate::secrets::gitignore;
use crate::secrets::literal::{self, ExtractedSecret, SecretNames};
use crate::secrets::redaction;
use crate::terminal::text::{clean, terminal_width, wrap};
use crate::trust;

/// Appended to `--help`.
pub(super) const EXAMPLES: &str = "\
Examples:
  ropeway add time -- uvx mcp-server-time
  ropeway add memory --lazy -- npx -y @modelcontextprotocol/server-memory
  ropeway add github --url https://example.com/mcp --bearer '${GITHUB_TOKEN}'
  ropeway add search --check --env 'API_KEY=${API_KEY}' -- my-search-server";

const FAINT: Style = Style::new().dimmed();
const HEADING: Style = Style::new().bold();

/// Add a server to the configuration file
///
/// Edits the configuration file in use, or creates ./ropeway.yaml. Comments and order are preserved. ${NAME} in a value
/// refers to an environment variable. Literal secrets are replaced by such references unless --literal is given.
#[derive(Debug, clap::Args)]
pub(super) struct Add {
    /// Name for the server
    #[arg(value_name = "NAME")]
    name: String,
    /// Program of a stdio server and its arguments
    #[arg(last = true, value_name = "COMMAND", conflicts_with = "url")]
    command: Vec<String>,
    /// URL of the server
    #[arg(long, value_name = "URL", help_heading = "Server")]
    url: Option<String>,
    /// Transport for --url
    #[arg(long, value_name = "TRANSPORT", requires = "url", help_heading = "Server")]
    transport: Option<AddTransport>,
    /// HTTP header to send with every request (repeatable)
    #[arg(long = "header", value_name = "NAME: VALUE", requires = "url", help_heading = "Server")]
    headers: Vec<String>,
    /// Bearer token to send with every request; @FILE reads it from a file
    #[arg(long, value_name = "TOKEN", requires = "url", help_heading = "Server")]
    bearer: Option<String>,
    /// Environment variable for the program (repeatable)
    #[arg(long = "env", value_name = "NAME=VALUE", conflicts_with = "url", help_heading = "Server")]
    env: Vec<String>,
    /// Working directory of the program
    #[arg(long, value_name = "DIR", conflicts_with = "url", help_heading = "Server")]
    cwd: Option<PathBuf>,
    /// Pass the whole environment to the program
    #[arg(long, conflicts_with = "url", help_heading = "Server")]
    inherit_env: bool,
    /// Trust tool annotations such as readOnlyHint: `chat` calls read-only tools without asking
    #[arg(long, help_heading = "Server")]
    trust_hints: bool,
    /// Start the server on the first call of one of its tools
    #[arg(long, help_heading = "Server")]
    lazy: bool,
    /// Prefix for tool names; {alias} is replaced by the name of the server
    #[arg(long, value_name = "TEXT", help_heading = "Server")]
    prefix: Option<String>,
    /// File to change
    #[arg(short, long, value_name = "FILE", conflicts_with = "global", help_heading = "File")]
    config: Option<PathBuf>,
    /// Change the user configuration file
    #[arg(long, help_heading = "File")]
    global: bool,
    /// Write secrets to the file as literals
    #[arg(long, conflicts_with = "secrets", help_heading = "File")]
    literal: bool,
    /// Write secrets to the .env next to the file
    #[arg(long, help_heading = "File")]
    secrets: bool,
    /// Show the change without writing it
    #[arg(long, help_heading = "File")]
    dry_run: bool,
    /// Connect to the server and report problems
    #[arg(long, conflicts_with = "dry_run")]
    check: bool,
}

/// The transport for `--url`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum AddTransport {
    /// Streamable HTTP
    Http,
    /// Legacy HTTP+SSE
    Sse,
}

impl Add {
    pub(super) async fn run(self, context: CommandContext) -> Result<Exit, Failure> {
        let target = ConfigTarget::find(self.config.clone(), self.global)?.trusted(context.trust)?.validated()?;
        let mut server = self.server(&target.path)?;
        let secrets_file = dotenv::beside(&target.path);
        let secrets_before = if self.secrets { file::read(&secrets_file)? } else { None };
        let extracted = if self.literal { Vec::new() } else { take_out(&mut server, secrets_before.as_deref()) };
        let text = edit::add(target.text(), &server).map_err(|error| target.edit_failure(error))?;
        // The file was valid before, so problems are in the options.
        Config::parse(&text, &target.path, &Secrets::from_env()).map_err(|error| mistyped(&error))?;
        if !self.dry_run {
            if self.secrets && !extracted.is_empty() {
                let secrets = dotenv::with(secrets_before.as_deref(), &extracted);
                file::replace(&secrets_file, secrets_before.as_deref(), &secrets, file::PRIVATE)?;
            }
            target.write(&text)?;
            if let Some(words) =
                (self.secrets && !extracted.is_empty()).then(|| gitignore::warning(&secrets_file)).flatten()
            {
                trust::print_warning(&words);
            }
        }
        // Parses again with the secrets that were just written.
        let config = target.parse(&text)?;
        let entry = config.servers.iter().find(|entry| entry.alias.as_str() == server.alias);
        let settings = entry.map(|entry| &entry.settings);
        // A dry run does not store them.
        let is_kept = |name: &String| self.secrets && extracted.iter().any(|extracted| extracted.name == *name);
        let missing: Vec<String> = match settings {
            Some(ServerSettings::Missing { secrets }) => {
                secrets.iter().filter(|name| !is_kept(name)).cloned().collect()
            }
            _ => Vec::new(),
        };
        if let Some(problem) = entry.and_then(ServerEntry::stdio).filter(|_| !self.check).and_then(program_problem) {
            let fix = problem.fix.map(|fix| format!("; {fix}")).unwrap_or_default();
            trust::print_warning(&format!("{}{fix}", problem.message));
        }
        let is_left_out = entry.is_some_and(|entry| config.excludes(&entry.alias));
        let lines: Vec<String> =
            config_target::added_lines(target.text(), &text).into_iter().map(literal::redact_line).collect();
        let report = match (entry, settings) {
            (Some(entry), Some(ServerSettings::Known(own))) if self.check => {
                redaction::add_secrets(&own.secrets());
                let servers = Servers::new(config.clone(), ServerSource::File(target.path.clone()));
                let settings = examine_settings(&servers, None, &context);
                let examined = examine_entry(entry, own, &settings);
                Some(context.status.during(&format!("trying {}", server.alias), examined).await)
            }
            _ => None,
        };
        if context.json {
            print_json(&json!({
                "file": target.path, "server": server.alias, "written": !self.dry_run, "lines": lines,
                "missing": missing, "enabled": entry.is_some_and(|entry| entry.enabled), "report": report.as_ref().map(crate::doctor::Report::json),
            }))?;
        } else {
            let mut text = self.show(&target, &lines, &extracted, &missing);
            if is_left_out {
                let words = format!("`{}` is disabled until `enabled_servers` includes it.", self.name);
                text.push_str(&format!(
                    "\n{}",
                    wrap(&words, terminal_width(&std::io::stdout()).unwrap_or(usize::MAX), 0)
                ));
            }
            if !self.dry_run && !self.check {
                text.push_str(&format!("\n{FAINT}Next:{FAINT:#} ropeway tools {}\n", clean(&server.alias)));
            }
            if let Some(report) = &report {
                text.push_str(&format!("\n{}", report.render(terminal_width(&std::io::stdout()))));
                if report.exit() != Exit::Done {
                    text.push_str(&format!(
                        "\nThe entry was kept; `ropeway remove {}` deletes it.\n",
                        clean(&server.alias)
                    ));
                }
            }
            print(&text)?;
        }
        Ok(match (&report, self.check) {
            (Some(report), _) => report.exit(),
            // The server could not be checked.
            (None, true) => Exit::Usage,
            (None, false) => Exit::Done,
        })
    }

    /// Returns the entry to write.
    fn server(&self, file: &Path) -> Result<RawServer, Failure> {
        let mut server = RawServer::new(self.name.as_str());
        match (self.command.split_first(), &self.url) {
            (Some((url, _)), _) if url.starts_with("http://") || url.starts_with("https://") => {
                return Err(
                    Failure::usage("the command is a URL").hint(format!("try `ropeway add {} --url URL`", self.name))
                );
            }
            (Some((program, _)), _) if is_quoted_together(program) => {
                let words = self.command.join(" ");
                return Err(Failure::usage(format!("program `{program}` not found"))
                    .hint(format!("try without quotes: `ropeway add {} -- {words}`", self.name)));
            }
            (Some((program, arguments)), _) => {
                server.command = Some(program.clone());
                server.args = arguments.iter().map(RawText::from).collect();
                server.env = pairs(&self.env, '=', "--env must be NAME=VALUE")?;
                server.inherit_env = self.inherit_env.then_some(true);
                server.cwd = self.folder(file)?;
            }
            (None, Some(url)) => {
                server.url = Some(url.into());
                server.headers = pairs(&self.headers, ':', "--header must be \"Name: value\"")?;
                server.auth = self.bearer.as_deref().map(token).transpose()?.map(|token| RawAuth::Bearer(token.into()));
                server.transport = self.transport.map(|how| match how {
                    AddTransport::Http => RawTransport::StreamableHttp,
                    AddTransport::Sse => RawTransport::Sse,
                });
            }
            (None, None) => {
                return Err(Failure::usage(format!("server `{}` needs a command or a URL", self.name))
                    .hint(format!("try `ropeway add {} -- COMMAND ARGUMENTS`", self.name))
                    .hint(format!("or `ropeway add {} --url URL`", self.name)));
            }
        }
        server.start = self.lazy.then_some(StartMode::Lazy);
        server.trust_hints = self.trust_hints.then_some(true);
        server.prefix.clone_from(&self.prefix);
        Ok(server)
    }

    /// Returns the `cwd` to write, unless it is the file's directory. A server with an argument that exists below the current
    /// directory runs there, except a package runner outside the file's directory: it would execute packages from the current
    /// directory from then on.
    fn folder(&self, file: &Path) -> Result<Option<String>, Failure> {
        let here = std::env::current_dir()
            .map_err(|error| Failure::usage("could not determine the current directory").caused_by(&error))?;
        let is_here = |word: &String| {
            let path = Path::new(word.split_once('=').map_or(word.as_str(), |(_, value)| value));
            path.is_relative() && path.exists()
        };
        // A program without a slash is found on PATH.
        let program = self.command.first().filter(|program| program.contains('/'));
        let mut words = program.into_iter().chain(self.command.iter().skip(1));
        let folder = match &self.cwd {
            Some(folder) if !folder.is_dir() => {
                return Err(Failure::usage(format!("`{}` is not a directory", folder.display())));
            }
            Some(folder) => here.join(folder),
            None if words.any(is_here) => here,
            None => return Ok(None),
        };
        let beside = std::path::absolute(file).ok().and_then(|file| file.parent().map(Path::to_owned));
        // A relative path keeps working if the directory moves.
        let is_runner = || StdioServer::new(&self.command[0], &self.command[1..]).is_package_runner();
        let written = match beside.as_deref().and_then(|beside| folder.strip_prefix(beside).ok()) {
            None if self.cwd.is_none() && is_runner() => return Ok(None),
            Some(below) if below.as_os_str().is_empty() => return Ok(None),
            Some(below) => below.to_string_lossy().into_owned(),
            None => folder.to_string_lossy().into_owned(),
        };
        Ok(Some(written))
    }

    fn show(
        &self,
        target: &ConfigTarget,
        lines: &[String],
        extracted: &[ExtractedSecret],
        missing: &[String],
    ) -> String {
        let width = terminal_width(&std::io::stdout()).unwrap_or(usize::MAX);
        let file = target.shown();
        let heading = match (self.dry_run, target.is_new()) {
            (true, true) => format!("Would create {file}:"),
            (true, false) => format!("Would add to {file}:"),
            (false, true) => format!("Created {file}:"),
            (false, false) => format!("Added to {file}:"),
        };
        let mut text = format!("{HEADING}{heading}{HEADING:#}\n");
        lines.iter().for_each(|line| text.push_str(&format!("  {}\n", clean(line))));
        let mut say = |words: &str| text.push_str(&format!("\n{}", wrap(words, width, 0)));
        if !extracted.is_empty() {
            let keys = words(extracted.iter().map(|extracted| extracted.key.as_str()));
            let (secrets, them) = if extracted.len() == 1 { ("secret", "it") } else { ("secrets", "them") };
            let (was, is) = if extracted.len() == 1 { ("was", "is") } else { ("were", "are") };
            say(&if self.secrets {
                let names = words(extracted.iter().map(|extracted| extracted.name.as_str()));
                let verb = if self.dry_run { "would be" } else { is };
                let file = dotenv::beside(&target.path);
                format!("The {secrets} of {keys} {verb} stored as {names} in {}.", file.display())
            } else {
                let references: Vec<String> =
                    extracted.iter().map(|extracted| format!("${{{}}}", extracted.name)).collect();
                let references = words(references.iter().map(String::as_str));
                format!(
                    "The {secrets} of {keys} {was} replaced by {references}. --secrets stores {them} in a .env next \
                         to the file, --literal in the file itself."
                )
            });
        }
        if !missing.is_empty() {
            say(&format!("Set `{}` to use the server; it is skipped until then.", missing.join("`, `")));
        }
        text
    }
}

/// Joins words in backticks.
fn words<'a>(words: impl Iterator<Item = &'a str>) -> String {
    words.map(|word| format!("`{word}`")).collect::<Vec<_>>().join(", ")
}

/// Converts configuration problems to command-line option problems.
fn mistyped(error: &ConfigError) -> Failure {
    let option_problem = |problem: &ConfigProblem| {
        let ConfigProblem { path, suggestion, .. } = problem;
        let key = path.split_once("].").map_or("", |(_, key)| key);
        let option = match key.split(['.', '[']).next().unwrap_or(key) {
            "" => String::new(),
            "alias" => "NAME: ".to_owned(),
            "command" | "args" => "COMMAND: ".to_owned(),
            "headers" => "--header: ".to_owned(),
            "auth" => "--bearer: ".to_owned(),
            other => format!("--{other}: "),
        };
        let meant = suggestion.as_ref().map(|meant| format!(" (did you mean `{meant}`?)")).unwrap_or_default();
        format!("{option}{}{meant}", problem.message())
    };
    match &error.problems[..] {
        [] => Failure::config(error),
        [first, more @ ..] => {
            more.iter().map(option_problem).fold(Failure::usage(option_problem(first)), Failure::hint)
        }
    }
}

/// Returns `true` if a missing program looks like a quoted command line.
fn is_quoted_together(program: &str) -> bool {
    let folders = std::env::var_os("PATH").unwrap_or_default();
    let is_there = |folder: PathBuf| folder.join(program).exists();
    program.contains(char::is_whitespace)
        && !Path::new(program).exists()
        && (program.starts_with('/') || !std::env::split_paths(&folders).any(is_there))
}

/// Replaces secrets by references. A secret that a variable already holds gets its name.
fn take_out(server: &mut RawServer, secrets: Option<&str>) -> Vec<ExtractedSecret> {
    let known = secrets.map(dotenv::names).unwrap_or_default();
    let mut extracted = literal::extract(server, &mut SecretNames::in_use(known));
    for extracted in &mut extracted {
        let set = |(name, value): (std::ffi::OsString, std::ffi::OsString)| {
            let is_it = value.to_str() == Some(extracted.value.expose());
            name.into_string().ok().filter(|_| is_it)
        };
        if let Some(name) = std::env::vars_os().find_map(set) {
            rename(server, &extracted.name, &name);
            extracted.name = name;
        }
    }
    // A secret in the environment needs no storage.
    extracted.retain(|extracted| std::env::var_os(&extracted.name).is_none());
    extracted
}

/// Renames a reference.
fn rename(server: &mut RawServer, from: &str, to: &str) {
    let change = |text: &mut String| *text = text.replace(&format!("${{{from}}}"), &format!("${{{to}}}"));
    let values = server.env.0.iter_mut().chain(&mut server.headers.0).map(|(_, value)| value);
    for RawText(text) in server.args.iter_mut().chain(&mut server.url).chain(values) {
        change(text);
    }
    if let Some(RawAuth::Bearer(RawText(token))) = &mut server.auth {
        change(token);
    }
}

/// Returns a token. `@FILE` becomes a reference to the file.
fn token(given: &str) -> Result<String, Failure> {
    let Some(path) = given.strip_prefix('@') else { return Ok(given.to_owned()) };
    let path = std::fs::canonicalize(path)
        .map_err(|error| Failure::usage(format!("could not read `{path}`")).caused_by(&error))?;
    Ok(format!("${{file:{}}}", path.display()))
}

fn pairs(given: &[String], between: char, usage: &str) -> Result<RawMap<RawText>, Failure> {
    let pair = |text: &String| {
        let pair = text.split_once(between).map(|(name, value)| (name.trim(), value));
        // The value may be a secret and is not shown.
        let (name, value) = pair.filter(|(name, _)| !name.is_empty()).ok_or_else(|| Failure::usage(usage))?;
        let value = if between == ':' { value.trim() } else { value };
        Ok((name.to_owned(), RawText::from(value)))
    };
    given.iter().map(pair).collect::<Result<_, _>>().map(RawMap)
}
