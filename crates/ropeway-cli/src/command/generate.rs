//! `ropeway generate`: writes a typed client or a script for a server's tools.

use std::path::{Path, PathBuf};

use ropeway_core::tool::{Alias, ToolDefinition};
use serde_json::json;

use crate::arguments::command_rewrite::bare_server;
use crate::config::config_paths::Origin;
use crate::connect::command_context::CommandContext;
use crate::connect::server_options::{ServerOptions, TransportChoice};
use crate::connect::servers::{ServerSource, Servers};
use crate::connect::session::Session;
use crate::failure::{Exit, Failure};
use crate::files::file;
use crate::generate::{Language, MARK, ServerInterface, ToolInterface};
use crate::output::print::{print, print_json, say};
use crate::secrets::redaction;
use crate::terminal::style::warning;
use crate::terminal::text::{clean_line, counted};

/// Appended to `--help`.
pub(super) const EXAMPLES: &str = "\
Examples:
  ropeway generate ts github --output src/github.ts
  ropeway generate rust github --output src/github.rs
  ropeway generate cli time --output time-cli
  ropeway generate ts files --only read_text_file
  ropeway generate cli --url https://example.com/mcp --output example-cli

The output depends on the tools of the server only, so it can be committed and compared. An existing file is replaced if \
this command has written it.";

/// File mode for scripts, subject to the umask.
const EXECUTABLE: u32 = 0o777;

/// Write a typed client or a script for a server's tools
///
/// A TypeScript module works with any client that has `callTool`, such as that of the official SDK. A Rust module uses the
/// `ropeway` library. A script has one command per tool, and needs Python 3.8 or later and `ropeway`.
#[derive(Debug, clap::Args)]
pub(super) struct Generate {
    /// Kind of code
    #[arg(value_name = "LANGUAGE")]
    language: Language,
    /// Server, unless only one is configured; or a URL or command
    #[arg(value_name = "SERVER")]
    name: Option<String>,
    /// File to write, instead of standard output
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Only this tool (repeatable)
    #[arg(long, value_name = "TOOL")]
    only: Vec<String>,
    /// Replace a file that this command has not written
    #[arg(long, requires = "output")]
    force: bool,
    #[command(flatten)]
    server: ServerOptions,
}

impl Generate {
    pub(super) async fn run(mut self, context: CommandContext) -> Result<Exit, Failure> {
        self.take_bare_server();
        if let Some(path) = &self.output {
            self.check_output(path)?;
        }
        let mut servers = self.server.own_servers(&context)?.maybe_only(self.name.as_deref())?.eager();
        // A gateway has its own name and version.
        servers.may_use_gateway = false;
        let alias = single(&servers)?;
        let options = self.script_options(&servers);
        let source = servers.source.clone();
        let code = Session::with(servers, &context, async |session| {
            session.wait_for_servers().await?;
            let interface = self.interface(session, &alias, &source, options).await?;
            Ok((redaction::redact(&self.language.generate(&interface)).into_owned(), interface.tools.len()))
        });
        let (code, tools) = code.await?;
        match &self.output {
            Some(path) => {
                file::put(path, &code, if self.language == Language::Cli { EXECUTABLE } else { file::SHARED })?;
                let record = json!({"file": path, "server": alias, "tools": tools});
                context.print(&record, || format!("wrote {} ({})\n", path.display(), counted(tools, "tool")))?;
            }
            None if context.json => print_json(&json!({"code": code, "server": alias, "tools": tools}))?,
            None => print(&code)?,
        }
        Ok(Exit::Done)
    }

    /// Accepts a URL, a command or a program's path in place of a server's name, as other commands do.
    fn take_bare_server(&mut self) {
        let options = &mut self.server;
        if options.stdio.is_some() || options.url.is_some() || options.config.is_some() {
            return;
        }
        match self.name.as_deref().and_then(|name| bare_server("generate", name, None)) {
            Some("url") => options.url = self.name.take(),
            Some(_) => options.stdio = self.name.take(),
            None => {}
        }
    }

    /// Refuses to replace a file that was not generated.
    fn check_output(&self, path: &Path) -> Result<(), Failure> {
        let is_generated = |text: &str| text.lines().take(3).any(|line| line.contains(MARK));
        match file::read(path)? {
            Some(text) if !self.force && !text.is_empty() && !is_generated(&text) => {
                let failure =
                    Failure::usage(format!("`{}` exists, and `ropeway generate` has not written it", path.display()));
                Err(failure.hint("try another file, or --force to replace it"))
            }
            _ => Ok(()),
        }
    }

    async fn interface(
        &self,
        session: &Session,
        alias: &Alias,
        source: &ServerSource,
        options: Vec<String>,
    ) -> Result<ServerInterface, Failure> {
        let tool = |definition: &ToolDefinition| {
            let name = session.names.short(definition);
            // A command-line server has no configured name.
            let call_name = match source {
                ServerSource::Line => name.to_owned(),
                ServerSource::File(_) | ServerSource::Clients | ServerSource::Demo => session.names.dotted(definition),
            };
            ToolInterface::new(alias.as_str(), name, call_name, definition)
        };
        let mut tools = Vec::new();
        for name in &self.only {
            let known = session.known_tool(name).await?;
            tools.push(tool(known.definition()));
        }
        if self.only.is_empty() {
            tools.extend(session.listing().registry.of_server(alias).map(|known| tool(known.definition())));
        }
        if tools.is_empty() {
            return Err(Failure::usage(format!("server `{alias}` has no tools")));
        }
        let info = session.server_info(alias);
        let title = info.map(|info| clean_line(&format!("{} {}", info.name, info.version))).unwrap_or_default();
        Ok(ServerInterface { alias: alias.to_string(), title: title.trim().to_owned(), options, tools })
    }

    /// Returns the `ropeway call` options that a script passes, without secrets.
    fn script_options(&self, servers: &Servers) -> Vec<String> {
        let options = &self.server;
        let mut words: Vec<String> = Vec::new();
        let absolute =
            |path: &Path| std::path::absolute(path).unwrap_or_else(|_| path.to_owned()).display().to_string();
        match (&servers.source, &servers.file) {
            // `--config` would skip the question whether a changed project file is trusted.
            (ServerSource::File(_), Some(file)) if file.origin == Origin::Project => {}
            (ServerSource::File(path), _) => words.extend(["--config".to_owned(), absolute(path)]),
            _ => {}
        }
        words.extend(options.stdio.iter().flat_map(|command| ["--stdio".to_owned(), command.clone()]));
        words.extend(options.cwd.iter().flat_map(|folder| ["--cwd".to_owned(), absolute(folder)]));
        words.extend(options.inherit_env.then(|| "--inherit-env".to_owned()));
        words.extend(options.url.iter().flat_map(|url| ["--url".to_owned(), url.clone()]));
        let transport = match options.transport {
            TransportChoice::Auto => None,
            TransportChoice::Http => Some("--transport=http".to_owned()),
            TransportChoice::Sse => Some("--transport=sse".to_owned()),
        };
        words.extend(transport);
        let has_secrets = !options.env.is_empty() || !options.headers.is_empty() || options.bearer.is_some();
        if has_secrets && self.language == Language::Cli {
            say(&warning(
                "--env, --header and --bearer are not written to the script; use a configuration file for them",
            ));
        }
        let redacted = [("--stdio", &options.stdio), ("--url", &options.url)]
            .into_iter()
            .find(|(_, value)| value.as_ref().is_some_and(|value| redaction::redact(value) != *value));
        if let Some((option, _)) = redacted.filter(|_| self.language == Language::Cli) {
            say(&warning(&format!(
                "the secret in {option} is not written to the script, which cannot connect without it; \
                 use a configuration file, with an environment variable such as ${{API_KEY}} instead of the secret"
            )));
        }
        words
    }
}

/// Returns the only server.
fn single(servers: &Servers) -> Result<Alias, Failure> {
    match servers.single() {
        Some(entry) => Ok(entry.alias.clone()),
        None => {
            let names: Vec<&str> = servers.names().into_iter().map(Alias::as_str).collect();
            Err(Failure::usage("name one server").hint(format!("configured servers: {}", names.join(", "))))
        }
    }
}
