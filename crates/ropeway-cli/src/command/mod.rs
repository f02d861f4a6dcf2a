//! The commands: parsing, running and ending them.

mod add;
mod auth;
mod call;
mod chat;
mod chat_setup;
mod completions;
mod config;
mod conversations;
mod doctor;
mod down;
mod elicitation;
mod events;
mod examples;
mod finish;
mod gateway_status;
mod generate;
mod health;
mod help;
mod import;
mod import_report;
mod install;
mod install_record;
mod key;
mod lock;
mod login;
mod logout;
mod man;
mod prompt;
mod prompts;
mod read;
mod remove;
mod resources;
mod serve;
mod tools;
mod top;
mod top_view;
mod trust;
mod up;
mod welcome;

use std::ffi::OsString;
use std::fs::{OpenOptions, Permissions};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::{ArgAction, Args, CommandFactory as _, FromArgMatches as _, Parser, Subcommand};
use ropeway_config::SandboxLauncher;
use ropeway_core::event::{EventLog, Events};
use ropeway_mcp::{
    become_subreaper, end_children, end_children_on_signals_with, end_children_on_termination, end_descendants,
};
use tokio::signal::unix::SignalKind;

use self::finish::{Report, finish, leave, leave_terminal, page, watch};
use crate::arguments::command_rewrite::{asks_for_json, rewrite};
use crate::completion;
use crate::connect::command_context::CommandContext;
use crate::demo;
use crate::failure::{EXIT_CODES, Exit, Failure};
use crate::output::print::print_json;
use crate::output::verbose_log;
use crate::sandbox;
use crate::secrets::redaction::RedactingJsonWriter;
use crate::terminal::charset;
use crate::terminal::color::ColorOption;
use crate::terminal::duration;
use crate::terminal::pager::{self, Pager};
use crate::terminal::status;
use crate::terminal::text::clean_line;
use crate::trust::{TrustMode, VARIABLE};

/// The hidden command that completion scripts call.
const COMPLETE: &str = "complete";

/// The command that starts the built-in demo server.
const DEMO_SERVER: &str = "demo-server";

/// List and call the tools of MCP servers
///
/// Without a command, lists the configured servers and common commands. Without a configuration, shows the tools of the
/// built-in demo server.
#[derive(Debug, Parser)]
#[command(name = "ropeway", version, after_help = EXIT_CODES, after_long_help = format!("{}\n\n{EXIT_CODES}", examples::ROPEWAY))]
pub(crate) struct CommandLine {
    #[command(subcommand)]
    command: Option<Command>,
    /// Configuration file: a ropeway.yaml, or the file of another client
    #[arg(short, long, value_name = "FILE")]
    config: Option<PathBuf>,
    #[command(flatten)]
    options: Options,
}

/// Options of every command.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Global options")]
struct Options {
    /// Print JSON
    #[arg(long, global = true)]
    json: bool,
    /// Time limit for the whole command, including server startup (500ms, 5s, 2m)
    #[arg(long, global = true, value_name = "TIME", value_parser = duration::parse)]
    timeout: Option<Duration>,
    /// Verbose output on standard error; -vv logs every message
    #[arg(short, long, global = true, action = ArgAction::Count)]
    verbose: u8,
    /// Use of colours: auto, always or never
    #[arg(
        long,
        global = true,
        value_name = "WHEN",
        default_value = "auto",
        hide_default_value = true,
        hide_possible_values = true,
        hide_short_help = true
    )]
    color: ColorOption,
    /// Append events to FILE as JSON Lines
    #[arg(long, global = true, value_name = "FILE", hide_short_help = true)]
    log_file: Option<PathBuf>,
    /// Include tool arguments and results in the log file
    #[arg(long, global = true, requires = "log_file", hide_short_help = true)]
    log_payloads: bool,
    /// Do not page long output (ROPEWAY_PAGER or PAGER selects the pager)
    #[arg(long, global = true, hide_short_help = true)]
    no_pager: bool,
    /// Trust the project's ropeway.yaml for this run only
    #[arg(long, global = true, hide_short_help = true)]
    trust: bool,
}

#[derive(Debug, Subcommand)]
enum Command {
    #[command(visible_aliases = ["list", "ls"], after_long_help = examples::TOOLS)]
    Tools(tools::Tools),
    #[command(after_long_help = call::EXAMPLES)]
    Call(call::Call),
    #[command(after_help = examples::CHAT_EXIT_CODES, after_long_help = format!("{}\n\n{}", examples::CHAT, examples::CHAT_EXIT_CODES))]
    Chat(Box<chat::Chat>),
    #[command(after_long_help = serve::EXAMPLES)]
    Serve(Box<serve::Serve>),
    #[command(after_long_help = up::EXAMPLES)]
    Up(up::Up),
    #[command(after_long_help = down::EXAMPLES)]
    Down(down::Down),
    #[command(after_long_help = gateway_status::EXAMPLES)]
    Status(gateway_status::GatewayStatus),
    #[command(after_long_help = top::EXAMPLES)]
    Top(top::Top),
    #[command(after_long_help = install::EXAMPLES)]
    Install(install::Install),
    #[command(after_long_help = generate::EXAMPLES)]
    Generate(Box<generate::Generate>),
    #[command(after_long_help = key::EXAMPLES)]
    Key(key::Key),
    #[command(after_long_help = login::EXAMPLES)]
    Login(login::Login),
    #[command(after_long_help = logout::EXAMPLES)]
    Logout(logout::Logout),
    #[command(after_long_help = auth::EXAMPLES)]
    Auth(auth::Auth),
    #[command(after_long_help = examples::RESOURCES)]
    Resources(resources::Resources),
    #[command(after_long_help = examples::READ)]
    Read(read::Read),
    #[command(after_long_help = examples::PROMPTS)]
    Prompts(prompts::Prompts),
    #[command(after_long_help = examples::PROMPT)]
    Prompt(prompt::GetPrompt),
    #[command(after_long_help = health::EXAMPLES)]
    Health(health::Health),
    #[command(after_long_help = examples::DOCTOR)]
    Doctor(doctor::Doctor),
    #[command(after_long_help = examples::EVENTS)]
    Events(events::Follow),
    #[command(after_long_help = add::EXAMPLES)]
    Add(add::Add),
    #[command(after_long_help = examples::REMOVE)]
    Remove(remove::Remove),
    #[command(after_long_help = import::EXAMPLES)]
    Import(import::Import),
    #[command(after_help = trust::EXIT_CODES, after_long_help = format!("{}\n\n{}", trust::EXAMPLES, trust::EXIT_CODES))]
    Trust(trust::Trust),
    #[command(after_help = lock::EXIT_CODES, after_long_help = format!("{}\n\n{}", lock::EXAMPLES, lock::EXIT_CODES))]
    Lock(lock::Lock),
    #[command(after_long_help = examples::CONFIG)]
    Config(config::Config),
    #[command(after_help = completions::EXAMPLES)]
    Completions(completions::Completions),
    #[command(after_help = man::EXAMPLES)]
    Man(man::Man),
    /// Run the built-in demo server on standard input and output
    #[command(after_help = examples::DEMO_SERVER)]
    DemoServer,
}

/// Parses a command line and runs the command.
pub(crate) fn run_words(words: Vec<OsString>) -> ExitCode {
    if words.len() == 2 && words[1] == DEMO_SERVER {
        // Clients start it on each command, so it does not pay for the parser.
        return demo::serve(std::io::stdin().lock(), std::io::stdout());
    }
    if words.get(1).is_some_and(|word| word == SandboxLauncher::ARGUMENT) {
        return sandbox::launch(&words[2..]);
    }
    charset::choose();
    // Also for the help and for invalid command lines.
    ColorOption::named(&words).unwrap_or_default().apply();
    let is_json = asks_for_json(&words);
    let mut root = help::in_groups(CommandLine::command());
    root.build();
    if words.get(1).is_some_and(|word| word == COMPLETE) {
        return completion::run(&root, &words[2..], conversations::titles);
    }
    let words = rewrite(&root, words);
    if let Some(line) = describing(&words) {
        return line.run();
    }
    let parsed =
        root.try_get_matches_from_mut(words).and_then(|mut matches| CommandLine::from_arg_matches_mut(&mut matches));
    match parsed.map_err(|error| error.format(&mut root)) {
        Ok(line) => line.run(),
        Err(error) => {
            if is_json && error.use_stderr() {
                let text = error.render().to_string();
                let message = clean_line(text.split("\n\n").next().unwrap_or_default());
                let failure = Failure::usage(message.strip_prefix("error: ").unwrap_or(&message));
                // Clap prints the same error for people.
                let _ = print_json(&serde_json::json!({"error": failure.record()}));
            }
            error.exit()
        }
    }
}

impl CommandLine {
    fn run(self) -> ExitCode {
        if let Some(Command::DemoServer) = self.command {
            return demo::serve(std::io::stdin().lock(), std::io::stdout());
        }
        let Options { json, timeout, verbose, color, log_file, log_payloads, no_pager, trust } = self.options;
        color.apply();
        // These commands print JSON Lines, not a document.
        let is_lines = match &self.command {
            Some(Command::Chat(_) | Command::Events(_)) => true,
            Some(Command::Top(top)) => !top.is_document(),
            _ => false,
        };
        let is_protocol = matches!(&self.command, Some(Command::Serve(serve)) if serve.is_stdio());
        let is_document = json && !is_lines && !is_protocol;
        let report = Report::default();
        let trust = match TrustMode::new(trust, std::env::var_os(VARIABLE)) {
            Ok(trust) => trust,
            Err(failure) => return finish(Err(failure), is_document, &report),
        };
        let pager = Pager::new(no_pager);
        let mut context = CommandContext::new(json, timeout, verbose > 0, trust, pager.clone());
        if log_payloads {
            context.events = context.events.with_payloads();
        }
        let log = match log_file.map(|file| open_log(&file, &context.events, log_payloads)).transpose() {
            Ok(log) => log,
            Err(failure) => return finish(Err(failure), is_document, &report),
        };
        let is_gateway = matches!(self.command, Some(Command::Serve(_)));
        // A gateway ends with its own time limit after the deadline.
        if let Some(deadline) = context.deadline.as_ref().filter(|_| !is_gateway) {
            watch(deadline.clone(), is_document, report.clone());
        }
        if verbose > 0 {
            verbose_log::start(verbose);
        }
        // The gateway that `up` starts outlives it.
        let is_detached = matches!(self.command, Some(Command::Up(_)));
        if !is_detached {
            // Orphaned server processes become children of this process and end with it.
            let _ = become_subreaper();
        }
        // Without signal handlers, the normal shutdown still ends the servers.
        let _ = match &self.command {
            Some(Command::Chat(chat)) if chat.is_interactive(json) => end_children_on_termination(leave),
            // A gateway handles signals itself: calls in progress are finished.
            Some(Command::Serve(_)) => Ok(()),
            _ => end_children_on_signals_with(|signal| {
                pager::end();
                end_descendants();
                if signal == SignalKind::interrupt().as_raw_value() {
                    status::end_interrupted_line();
                }
                leave_terminal();
            }),
        };
        let done = runtime(is_gateway).map(|runtime| {
            let done = runtime.block_on(run(self.command, self.config, context));
            // Ends the remaining processes and does not wait for stuck tasks.
            end_children();
            if !is_detached {
                end_descendants();
            }
            runtime.shutdown_background();
            done
        });
        // Writes the last events.
        drop(log);
        let done = done.and_then(|done| done);
        finish(page(&pager.take()).and(done), is_document, &report)
    }
}

/// Returns the command line for `ropeway call TOOL … --help`, if it is one.
fn describing(typed: &[OsString]) -> Option<CommandLine> {
    let end = typed.iter().position(|word| word == "--").unwrap_or(typed.len());
    let is_help = |word: &&OsString| *word == "--help" || *word == "-h";
    let call = typed[..end].iter().position(|word| word == "call")?;
    let help = typed[..end].iter().position(|word| is_help(&word))?;
    if help < call {
        return None;
    }
    let rest = typed[..end].iter().filter(|word| !is_help(word)).chain(&typed[end..]);
    let line = CommandLine::try_parse_from(rest).ok()?;
    match line.command {
        Some(Command::Call(call)) => Some(CommandLine { command: Some(Command::Tools(call.describing())), ..line }),
        _ => None,
    }
}

/// Appends events to a file. A new file gets mode 0600; an existing file keeps its mode, unless
/// the log includes tool arguments and results.
fn open_log(path: &Path, events: &Events, payloads: bool) -> Result<EventLog, Failure> {
    let file = OpenOptions::new().create(true).append(true).mode(0o600).open(path).and_then(|file| {
        if payloads && file.metadata()?.is_file() {
            file.set_permissions(Permissions::from_mode(0o600))?;
        }
        Ok(file)
    });
    file.and_then(|file| EventLog::start(events, RedactingJsonWriter(file)))
        .map_err(|error| Failure::usage(format!("could not write `{}`", path.display())).caused_by(&error))
}

fn runtime(is_gateway: bool) -> Result<tokio::runtime::Runtime, Failure> {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    if !is_gateway {
        // Checks timers after every task: a server that floods its output must not delay the deadline.
        builder.event_interval(1);
    }
    let runtime = builder.enable_all().build();
    runtime.map_err(|error| Failure::new(Exit::Unreachable, "could not start the runtime").caused_by(&error))
}

async fn run(command: Option<Command>, config: Option<PathBuf>, context: CommandContext) -> Result<Exit, Failure> {
    match command {
        None => welcome::run(config, context).await,
        Some(Command::Tools(command)) => command.run(context).await,
        Some(Command::Call(command)) => command.run(context).await,
        Some(Command::Chat(command)) => command.run(context).await,
        Some(Command::Serve(command)) => command.run(context).await,
        Some(Command::Up(command)) => command.run(context).await,
        Some(Command::Down(command)) => command.run(context).await,
        Some(Command::Status(command)) => command.run(context).await,
        Some(Command::Top(command)) => command.run(context).await,
        Some(Command::Install(command)) => command.run(&context),
        Some(Command::Generate(command)) => command.run(context).await,
        Some(Command::Key(command)) => command.run(&context),
        Some(Command::Login(command)) => command.run(context).await,
        Some(Command::Logout(command)) => command.run(context).await,
        Some(Command::Auth(command)) => command.run(context).await,
        Some(Command::Resources(command)) => command.run(context).await,
        Some(Command::Read(command)) => command.run(context).await,
        Some(Command::Prompts(command)) => command.run(context).await,
        Some(Command::Prompt(command)) => command.run(context).await,
        Some(Command::Health(command)) => command.run(context).await,
        Some(Command::Events(command)) => command.run(context).await,
        Some(Command::Doctor(command)) => command.run(context).await,
        Some(Command::Add(command)) => command.run(context).await,
        Some(Command::Remove(command)) => command.run(&context),
        Some(Command::Import(command)) => command.run(&context),
        Some(Command::Trust(command)) => command.run(&context),
        Some(Command::Lock(command)) => command.run(context).await,
        Some(Command::Config(command)) => command.run(context).await,
        Some(Command::Completions(command)) => command.run(),
        Some(Command::Man(command)) => command.run(),
        // Handled before the runtime starts.
        Some(Command::DemoServer) => Ok(Exit::Done),
    }
}
