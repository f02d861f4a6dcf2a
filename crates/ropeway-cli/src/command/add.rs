//! `ropeway add`: one more server in the configuration file.

use std::path::{Path, PathBuf};

use anstyle::Style;
use clap::ValueEnum;
use ropeway::config::raw::{Pairs, RawAuth, RawServer, RawStart, RawTransport, Text};
use ropeway::config::{Config, ConfigError, ConfigProblem, Secrets, ServerSettings, edit};
use serde_json::json;

use super::doctor::patience;
use crate::config::config_target::{self, Target};
use crate::connect::command_context::Setting;
use crate::doctor::{Surroundings, examine_entry};
use crate::failure::{Exit, Failure};
use crate::files::file;
use crate::output::print::{print, print_json};
use crate::secrets::dotenv;
use crate::secrets::gitignore;
use crate::secrets::literal::{self, Names, Taken};
use crate::secrets::redaction;
use crate::terminal::text::{clean, terminal_width, wrap};
use crate::trust;

/// Shown at the end of `--help`.
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
/// It goes to the file that is used, and to a new ./ropeway.yaml if there is none. Comments and order are kept. In every value ${NAME} stands
/// for a variable; a secret that is written out goes into the file only with --literal.
#[derive(Debug, clap::Args)]
pub(super) struct Add {
    /// Our name for the server
    #[arg(value_name = "NAME")]
    name: String,
    /// The program that is the server, and its arguments
    #[arg(last = true, value_name = "COMMAND", conflicts_with = "url")]
    command: Vec<String>,
    /// Where the server listens
    #[arg(long, value_name = "URL", help_heading = "Server")]
    url: Option<String>,
    /// How to talk to the URL
    #[arg(long, value_name = "HOW", requires = "url", help_heading = "Server")]
    transport: Option<How>,
    /// Send a header with every request (repeatable)
    #[arg(long = "header", value_name = "NAME: VALUE", requires = "url", help_heading = "Server")]
    headers: Vec<String>,
    /// Send a bearer token with every request; @FILE reads it from a file
    #[arg(long, value_name = "TOKEN", requires = "url", help_heading = "Server")]
    bearer: Option<String>,
    /// Set a variable for the program (repeatable)
    #[arg(long = "env", value_name = "NAME=VALUE", conflicts_with = "url", help_heading = "Server")]
    env: Vec<String>,
    /// Run the program in this folder
    #[arg(long, value_name = "DIR", conflicts_with = "url", help_heading = "Server")]
    cwd: Option<PathBuf>,
    /// Give the program our whole environment
    #[arg(long, conflicts_with = "url", help_heading = "Server")]
    inherit_env: bool,
    /// Believe what it says about its tools, such as readOnlyHint: `chat` calls read-only tools without asking
    #[arg(long, help_heading = "Server")]
    trust_hints: bool,
    /// Start it at the first call of one of its tools
    #[arg(long, help_heading = "Server")]
    lazy: bool,
    /// What goes before the names of its tools; {alias} stands for its name
    #[arg(long, value_name = "TEXT", help_heading = "Server")]
    prefix: Option<String>,
    /// Change this file
    #[arg(long, value_name = "FILE", conflicts_with = "global", help_heading = "File")]
    config: Option<PathBuf>,
    /// Change the user's own file, for every folder
    #[arg(long, help_heading = "File")]
    global: bool,
    /// Write secrets into the file as they are
    #[arg(long, conflicts_with = "secrets", help_heading = "File")]
    literal: bool,
    /// Write secrets into the .env beside the file
    #[arg(long, help_heading = "File")]
    secrets: bool,
    /// Only show what would be written
    #[arg(long, help_heading = "File")]
    dry_run: bool,
    /// Try the server at once
    #[arg(long, conflicts_with = "dry_run")]
    check: bool,
}

/// How to talk to a URL.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum How {
    /// Streamable HTTP
    Http,
    /// Legacy HTTP+SSE
    Sse,
}

impl Add {
    pub(super) async fn run(self, setting: Setting) -> Result<Exit, Failure> {
        let target = Target::find(self.config.clone(), self.global)?.admitted(setting.trust)?.sound()?;
        let mut server = self.server(&target.path)?;
        let secrets_file = dotenv::beside(&target.path);
        let secrets_before = if self.secrets { file::read(&secrets_file)? } else { None };
        let taken = match self.literal {
            true => Vec::new(),
            false => take_out(&mut server, secrets_before.as_deref()),
        };
        let text = edit::add(target.text(), &server).map_err(|error| target.refused(error))?;
        // The file was sound before: whatever is wrong now was typed.
        Config::parse(&text, &target.path, &Secrets::from_env()).map_err(|error| mistyped(&error))?;
        if !self.dry_run {
            if self.secrets && !taken.is_empty() {
                let secrets = dotenv::with(secrets_before.as_deref(), &taken);
                file::replace(&secrets_file, secrets_before.as_deref(), &secrets, file::PRIVATE)?;
            }
            target.write(&text)?;
            if let Some(words) =
                (self.secrets && !taken.is_empty()).then(|| gitignore::warning(&secrets_file)).flatten()
            {
                trust::warning(&words);
            }
        }
        // Secrets that were just written are found by now.
        let config = target.meaning(&text)?;
        let entry = config.servers.iter().find(|entry| entry.alias.as_str() == server.alias);
        let settings = entry.map(|entry| &entry.settings);
        // In a dry run they are not there yet.
        let is_kept = |name: &String| self.secrets && taken.iter().any(|taken| taken.name == *name);
        let missing: Vec<String> = match settings {
            Some(ServerSettings::Missing { secrets }) => {
                secrets.iter().filter(|name| !is_kept(name)).cloned().collect()
            }
            _ => Vec::new(),
        };
        let is_left_out = entry.is_some_and(|entry| config.leaves_out(&entry.alias));
        let lines: Vec<String> =
            config_target::difference(target.text(), &text).into_iter().map(literal::without).collect();
        let report = match (entry, settings) {
            (Some(entry), Some(ServerSettings::Known(config))) if self.check => {
                redaction::hide(&config.secrets());
                let around = Surroundings::of_process();
                let examined = examine_entry(entry, config, &around, patience(&setting));
                Some(setting.status.during(&format!("trying {}", server.alias), examined).await)
            }
            _ => None,
        };
        if setting.json {
            print_json(&json!({
                "file": target.path, "server": server.alias, "written": !self.dry_run, "lines": lines,
                "missing": missing, "enabled": entry.is_some_and(|entry| entry.enabled), "report": report.as_ref().map(crate::doctor::Report::json),
            }))?;
        } else {
            let mut text = self.show(&target, &lines, &taken, &missing);
            if is_left_out {
                let words =
                    format!("`enabled_servers` does not name `{}`: until it does, it is switched off.", self.name);
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
            }
            print(&text)?;
        }
        Ok(match (&report, self.check) {
            (Some(report), _) => report.exit(),
            // It was to be tried and cannot be.
            (None, true) => Exit::Usage,
            (None, false) => Exit::Done,
        })
    }

    /// The server as it will be written.
    fn server(&self, file: &Path) -> Result<RawServer, Failure> {
        let mut server = RawServer::new(self.name.as_str());
        match (self.command.split_first(), &self.url) {
            (Some((url, _)), _) if url.starts_with("http://") || url.starts_with("https://") => {
                return Err(Failure::usage("the command is a URL")
                    .hint(format!("a server behind a URL is added so: `ropeway add {} --url URL`", self.name)));
            }
            (Some((program, _)), _) if is_quoted_together(program) => {
                let words = self.command.join(" ");
                return Err(Failure::usage(format!("there is no program `{program}`"))
                    .hint(format!("its words are not quoted together: `ropeway add {} -- {words}`", self.name)));
            }
            (Some((program, arguments)), _) => {
                server.command = Some(program.clone());
                server.args = arguments.iter().map(Text::from).collect();
                server.env = pairs(&self.env, '=', "a variable is given as --env NAME=VALUE")?;
                server.inherit_env = self.inherit_env.then_some(true);
                server.cwd = self.folder(file)?;
            }
            (None, Some(url)) => {
                server.url = Some(url.into());
                server.headers = pairs(&self.headers, ':', "a header is given as --header \"Name: value\"")?;
                server.auth = self.bearer.as_deref().map(token).transpose()?.map(|token| RawAuth::Bearer(token.into()));
                server.transport = self.transport.map(|how| match how {
                    How::Http => RawTransport::StreamableHttp,
                    How::Sse => RawTransport::Sse,
                });
            }
            (None, None) => {
                return Err(Failure::usage(format!("how is server `{}` reached?", self.name))
                    .hint(format!("a program: `ropeway add {} -- COMMAND ARGUMENTS`", self.name))
                    .hint(format!("a URL: `ropeway add {} --url URL`", self.name)));
            }
        }
        server.start = self.lazy.then_some(RawStart::Lazy);
        server.trust_hints = self.trust_hints.then_some(true);
        server.prefix.clone_from(&self.prefix);
        Ok(server)
    }

    /// The folder of the program, as it is written in the file. A program that is given by a path from here runs here.
    fn folder(&self, file: &Path) -> Result<Option<String>, Failure> {
        let here = std::env::current_dir()
            .map_err(|error| Failure::usage("could not find out the current folder").caused_by(&error))?;
        let is_here = |word: &String| {
            let path = Path::new(word);
            path.is_relative() && (word == "." || (word.contains('/') && path.exists()) || path.is_file())
        };
        let folder = match &self.cwd {
            Some(folder) if !folder.is_dir() => {
                return Err(Failure::usage(format!("`{}` is not a folder", folder.display())));
            }
            Some(folder) => here.join(folder),
            None if self.command.iter().any(is_here) => here,
            None => return Ok(None),
        };
        let beside = std::path::absolute(file).ok().and_then(|file| file.parent().map(Path::to_owned));
        // A file that moves with its folder should go on to work.
        let written = match beside.as_deref().and_then(|beside| folder.strip_prefix(beside).ok()) {
            Some(below) if below.as_os_str().is_empty() => ".".to_owned(),
            Some(below) => below.to_string_lossy().into_owned(),
            None => folder.to_string_lossy().into_owned(),
        };
        Ok(Some(written))
    }

    fn show(&self, target: &Target, lines: &[String], taken: &[Taken], missing: &[String]) -> String {
        let width = terminal_width(&std::io::stdout()).unwrap_or(usize::MAX);
        let file = target.path.display();
        let heading = match (self.dry_run, target.is_new()) {
            (true, true) => format!("{file} would be made:"),
            (true, false) => format!("{file} would get:"),
            (false, true) => format!("{file} is new:"),
            (false, false) => format!("Added to {file}:"),
        };
        let mut text = format!("{HEADING}{heading}{HEADING:#}\n");
        lines.iter().for_each(|line| text.push_str(&format!("  {}\n", clean(line))));
        let mut say = |words: &str| text.push_str(&format!("\n{}", wrap(words, width, 0)));
        if !taken.is_empty() {
            let keys = words(taken.iter().map(|taken| taken.key.as_str()));
            let (secrets, them) = if taken.len() == 1 { ("secret", "it") } else { ("secrets", "them") };
            let (stand, was, is) = if taken.len() == 1 { ("stands", "was", "is") } else { ("stand", "were", "are") };
            say(&match self.secrets {
                true => {
                    let names = words(taken.iter().map(|taken| taken.name.as_str()));
                    let verb = if self.dry_run { "would be" } else { is };
                    let file = dotenv::beside(&target.path);
                    format!("The {secrets} of {keys} {verb} {names} in {}.", file.display())
                }
                false => {
                    let references: Vec<String> = taken.iter().map(|taken| format!("${{{}}}", taken.name)).collect();
                    let references = words(references.iter().map(String::as_str));
                    format!(
                        "The {secrets} of {keys} {was} not written: {references} {stand} for {them}. --secrets writes \
                         {them} to a .env beside the file, and --literal into the file itself."
                    )
                }
            });
        }
        if !missing.is_empty() {
            say(&format!("Set `{}` before the server is used: until then it is skipped.", missing.join("`, `")));
        }
        text
    }
}

/// The words in backticks, one after the other.
fn words<'a>(words: impl Iterator<Item = &'a str>) -> String {
    words.map(|word| format!("`{word}`")).collect::<Vec<_>>().join(", ")
}

/// What is wrong with what was typed, in the words of the command line: the file has no such lines.
fn mistyped(error: &ConfigError) -> Failure {
    let told = |problem: &ConfigProblem| {
        let ConfigProblem { path, found, expected, suggestion, .. } = problem;
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
        format!("{option}found {found}, expected {expected}{meant}")
    };
    match &error.problems[..] {
        [] => Failure::config(error),
        [first, more @ ..] => more.iter().map(told).fold(Failure::usage(told(first)), Failure::hint),
    }
}

/// Is this no program, but several words that were quoted together?
fn is_quoted_together(program: &str) -> bool {
    let folders = std::env::var_os("PATH").unwrap_or_default();
    let is_there = |folder: PathBuf| folder.join(program).exists();
    program.contains(char::is_whitespace)
        && !Path::new(program).exists()
        && (program.starts_with('/') || !std::env::split_paths(&folders).any(is_there))
}

/// Puts references in the place of secrets. One that a variable holds already is called so.
fn take_out(server: &mut RawServer, secrets: Option<&str>) -> Vec<Taken> {
    let known = secrets.map(dotenv::names).unwrap_or_default();
    let mut taken = literal::take_out(server, &mut Names::taken(known));
    for taken in &mut taken {
        let set = |(name, value): (std::ffi::OsString, std::ffi::OsString)| {
            let is_it = value.to_str() == Some(taken.value.expose());
            name.into_string().ok().filter(|_| is_it)
        };
        if let Some(name) = std::env::vars_os().find_map(set) {
            rename(server, &taken.name, &name);
            taken.name = name;
        }
    }
    // What is set already has to be kept nowhere.
    taken.retain(|taken| std::env::var_os(&taken.name).is_none());
    taken
}

/// Calls a reference by another name.
fn rename(server: &mut RawServer, from: &str, to: &str) {
    let change = |text: &mut String| *text = text.replace(&format!("${{{from}}}"), &format!("${{{to}}}"));
    let values = server.env.0.iter_mut().chain(&mut server.headers.0).map(|(_, value)| value);
    for Text(text) in server.args.iter_mut().chain(&mut server.url).chain(values) {
        change(text);
    }
    if let Some(RawAuth::Bearer(Text(token))) = &mut server.auth {
        change(token);
    }
}

/// A token; one that a file holds stays there.
fn token(given: &str) -> Result<String, Failure> {
    let Some(path) = given.strip_prefix('@') else { return Ok(given.to_owned()) };
    let path = std::fs::canonicalize(path)
        .map_err(|error| Failure::usage(format!("could not read `{path}`")).caused_by(&error))?;
    Ok(format!("${{file:{}}}", path.display()))
}

fn pairs(given: &[String], between: char, usage: &str) -> Result<Pairs<Text>, Failure> {
    let pair = |text: &String| {
        let pair = text.split_once(between).map(|(name, value)| (name.trim(), value));
        // Only what stands before the value may be shown.
        let (name, value) = pair.filter(|(name, _)| !name.is_empty()).ok_or_else(|| Failure::usage(usage))?;
        let value = if between == ':' { value.trim() } else { value };
        Ok((name.to_owned(), Text::from(value)))
    };
    given.iter().map(pair).collect::<Result<_, _>>().map(Pairs)
}
