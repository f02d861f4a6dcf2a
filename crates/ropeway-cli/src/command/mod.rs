//! The commands: what can be typed, and how a command starts and ends.

mod add;
mod call;
mod chat;
mod completions;
mod config;
mod doctor;
mod events;
mod health;
mod import;
mod lock;
mod prompt;
mod prompts;
mod read;
mod remove;
mod resources;
mod tools;
mod trust;
mod welcome;

use std::ffi::OsString;
use std::fs::{File, OpenOptions, Permissions};
use std::io::{ErrorKind, Write as _};
use std::os::fd::AsFd as _;
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::{ArgAction, Args, Parser, Subcommand};
use ropeway::event::{EventLog, Events};
use ropeway::mcp::{
    become_subreaper, end_children, end_children_on_signals, end_children_on_termination, end_descendants,
    ignore_interrupts,
};
use tokio::io::Interest;
use tokio::net::unix::pipe;
use tokio::time::Instant;

pub(crate) use self::prompt::fill as fill_prompt;
pub(crate) use self::tools::text as tools_text;
use crate::chat::line;
use crate::deadline::Deadline;
use crate::failure::{EXIT_CODES, Exit, Failure};
use crate::setting::Setting;
use crate::text::clean_json;
use crate::trust::{Mode, VARIABLE};
use crate::veil::{Veiled, VeiledJson};
use crate::{demo, duration, pager, status, veil};

/// How long after its timeout a command is ended by force.
const FORCE: Duration = Duration::from_millis(700);

/// List and call the tools of MCP servers
///
/// Without a command, the configured servers are named, and what can be done with them. Where there are none, the tools
/// of a built-in demo server are shown.
#[derive(Debug, Parser)]
#[command(name = "ropeway", version, after_help = EXIT_CODES)]
pub(crate) struct CommandLine {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    options: Options,
}

/// What every command understands.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Output")]
struct Options {
    /// Print the result as JSON, for scripts
    #[arg(long, global = true)]
    json: bool,
    /// End the whole command after this time: 5s, 500ms, 2m
    #[arg(long, global = true, value_name = "TIME", value_parser = duration::parse)]
    timeout: Option<Duration>,
    /// Show what happens underneath; twice for every message
    #[arg(short, long, global = true, action = ArgAction::Count)]
    verbose: u8,
    /// Add what happens to this file, a line of JSON for each event
    #[arg(long, global = true, value_name = "FILE")]
    log_file: Option<PathBuf>,
    /// Log also what tools are called with, and what they answer
    #[arg(long, global = true, requires = "log_file")]
    log_payloads: bool,
    /// Trust the project's ropeway.yaml for this run only; nothing is remembered
    #[arg(long, global = true)]
    trust: bool,
}

#[derive(Debug, Subcommand)]
enum Command {
    #[command(after_help = EXIT_CODES)]
    Tools(tools::Tools),
    #[command(after_help = EXIT_CODES, after_long_help = format!("{}\n\n{EXIT_CODES}", call::EXAMPLES))]
    Call(call::Call),
    #[command(after_help = chat::EXIT_CODES, after_long_help = format!("{}\n\n{}", chat::EXAMPLES, chat::EXIT_CODES))]
    Chat(Box<chat::Chat>),
    #[command(after_help = EXIT_CODES)]
    Resources(resources::Resources),
    #[command(after_help = EXIT_CODES)]
    Read(read::Read),
    #[command(after_help = EXIT_CODES)]
    Prompts(prompts::Prompts),
    #[command(after_help = EXIT_CODES)]
    Prompt(prompt::GetPrompt),
    #[command(after_help = EXIT_CODES)]
    Health(health::Health),
    #[command(after_help = EXIT_CODES)]
    Doctor(doctor::Doctor),
    #[command(after_help = EXIT_CODES)]
    Events(events::Follow),
    #[command(after_help = EXIT_CODES, after_long_help = format!("{}\n\n{EXIT_CODES}", add::EXAMPLES))]
    Add(add::Add),
    #[command(after_help = EXIT_CODES)]
    Remove(remove::Remove),
    #[command(after_help = EXIT_CODES, after_long_help = format!("{}\n\n{EXIT_CODES}", import::EXAMPLES))]
    Import(import::Import),
    #[command(after_help = trust::EXIT_CODES, after_long_help = format!("{}\n\n{}", trust::EXAMPLES, trust::EXIT_CODES))]
    Trust(trust::Trust),
    #[command(after_help = lock::EXIT_CODES, after_long_help = format!("{}\n\n{}", lock::EXAMPLES, lock::EXIT_CODES))]
    Lock(lock::Lock),
    #[command(after_help = EXIT_CODES)]
    Config(config::Config),
    #[command(after_help = completions::EXAMPLES)]
    Completions(completions::Completions),
    /// Be the demo server: speak MCP on standard input and output
    DemoServer,
}

impl CommandLine {
    /// Reads what was typed. `ropeway call TOOL --help` describes the tool, as `ropeway tools` does.
    pub(crate) fn read() -> Self {
        let typed: Vec<OsString> = std::env::args_os().collect();
        describing(&typed).unwrap_or_else(|| Self::parse_from(typed))
    }

    /// Runs the command to its end.
    pub(crate) fn run(self) -> ExitCode {
        if let Some(Command::DemoServer) = self.command {
            return demo::serve(std::io::stdin().lock(), std::io::stdout());
        }
        let Options { json, timeout, verbose, log_file, log_payloads, trust } = self.options;
        let trust = match Mode::new(trust, std::env::var_os(VARIABLE)) {
            Ok(trust) => trust,
            Err(failure) => return finish(Err(failure)),
        };
        let mut setting = Setting::new(json, timeout, verbose > 0, trust);
        let pager = setting.pager.clone();
        if log_payloads {
            setting.events = setting.events.with_payloads();
        }
        let log = match log_file.map(|file| open_log(&file, &setting.events, log_payloads)).transpose() {
            Ok(log) => log,
            Err(failure) => return finish(Err(failure)),
        };
        if let Some(deadline) = &setting.deadline {
            watch(deadline.clone());
        }
        if verbose > 0 {
            show_logs(verbose);
        }
        // What a server has started and let go of comes to us, and goes with us. Where that cannot be, the servers still end.
        let _ = become_subreaper();
        // Without it there is still the ordinary end.
        let _ = match &self.command {
            Some(Command::Chat(chat)) if chat.is_interactive(json) => end_children_on_termination(leave),
            _ => end_children_on_signals(leave),
        };
        let done = runtime().map(|runtime| {
            let done = runtime.block_on(run(self.command, setting));
            // Whatever a server left behind goes with us, and a task that is stuck must not hold up the end.
            end_children();
            end_descendants();
            runtime.shutdown_background();
            done
        });
        // What was told last is written down before we end.
        drop(log);
        let done = done.and_then(|done| done);
        finish(page(&pager.take()).and(done))
    }
}

/// The command line of `ropeway call TOOL … --help`, if this is one.
fn describing(typed: &[OsString]) -> Option<CommandLine> {
    let end = typed.iter().position(|word| word == "--").unwrap_or(typed.len());
    let is_help = |word: &&OsString| *word == "--help" || *word == "-h";
    let call = typed[..end].iter().position(|word| word == "call")?;
    let help = typed[..end].iter().position(|word| is_help(&word))?;
    if help < call {
        return None;
    }
    let no_pager = |word: &&OsString| *word == "--no-pager";
    let rest = typed[..end].iter().filter(|word| !is_help(word) && !no_pager(word)).chain(&typed[end..]);
    let line = CommandLine::try_parse_from(rest).ok()?;
    match line.command {
        Some(Command::Call(call)) => {
            let tools = call.describing(typed[..end].iter().any(|word| no_pager(&word)));
            Some(CommandLine { command: Some(Command::Tools(tools)), ..line })
        }
        _ => None,
    }
}

/// Shows the output of a command: page by page where a person reads it and it is longer than the screen.
fn page(text: &str) -> Result<(), Failure> {
    let Some(words) = pager::wanted(text) else { return print_answer(text) };
    ignore_interrupts(true);
    let is_shown = pager::show(&words, text);
    ignore_interrupts(false);
    if is_shown { Ok(()) } else { print_answer(text) }
}

/// Writes down what happens, at the end of a file. A new file is for its owner only; one that was there keeps its mode, unless
/// what tools are called with and answer goes into it.
fn open_log(path: &Path, events: &Events, payloads: bool) -> Result<EventLog, Failure> {
    let file = OpenOptions::new().create(true).append(true).mode(0o600).open(path).and_then(|file| {
        if payloads && file.metadata()?.is_file() {
            file.set_permissions(Permissions::from_mode(0o600))?;
        }
        Ok(file)
    });
    file.and_then(|file| EventLog::start(events, VeiledJson(file)))
        .map_err(|error| Failure::usage(format!("could not write `{}`", path.display())).caused_by(&error))
}

fn runtime() -> Result<tokio::runtime::Runtime, Failure> {
    // The clock is looked at after every step, since the next one may be to read what a server floods us with.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().event_interval(1).build();
    runtime.map_err(|error| Failure::new(Exit::Unreachable, "could not start the runtime").caused_by(&error))
}

async fn run(command: Option<Command>, setting: Setting) -> Result<Exit, Failure> {
    match command {
        None => welcome::run(setting).await,
        Some(Command::Tools(command)) => command.run(setting).await,
        Some(Command::Call(command)) => command.run(setting).await,
        Some(Command::Chat(command)) => command.run(setting).await,
        Some(Command::Resources(command)) => command.run(setting).await,
        Some(Command::Read(command)) => command.run(setting).await,
        Some(Command::Prompts(command)) => command.run(setting).await,
        Some(Command::Prompt(command)) => command.run(setting).await,
        Some(Command::Health(command)) => command.run(setting).await,
        Some(Command::Events(command)) => command.run(setting).await,
        Some(Command::Doctor(command)) => command.run(setting).await,
        Some(Command::Add(command)) => command.run(setting).await,
        Some(Command::Remove(command)) => command.run(&setting),
        Some(Command::Import(command)) => command.run(&setting),
        Some(Command::Trust(command)) => command.run(&setting),
        Some(Command::Lock(command)) => command.run(setting).await,
        Some(Command::Config(command)) => command.run(setting).await,
        Some(Command::Completions(command)) => command.run(),
        // It needs no runtime and was answered before.
        Some(Command::DemoServer) => Ok(Exit::Done),
    }
}

fn finish(done: Result<Exit, Failure>) -> ExitCode {
    let exit = done.unwrap_or_else(|failure| {
        say(&failure.render());
        failure.exit()
    });
    ExitCode::from(exit as u8)
}

/// Ends the process when the command's time is well over, whatever else is stuck.
fn watch(deadline: Deadline) {
    let watchdog = std::thread::Builder::new().name("watchdog".to_owned()).spawn(move || {
        let end = deadline.at() + FORCE;
        std::thread::sleep(end.saturating_duration_since(Instant::now()));
        // Everything is done, and a person reads it.
        if pager::is_open() {
            return;
        }
        end_children();
        leave();
        say(&deadline.failure().render());
        std::process::exit(Exit::Timeout as i32);
    });
    // Without a thread there is still the ordinary clock.
    drop(watchdog);
}

/// Leaves nothing behind when the process ends in the midst of something.
fn leave() {
    pager::end();
    end_descendants();
    leave_terminal();
}

/// Leaves the terminal as it should be when the process ends in the midst of something.
fn leave_terminal() {
    status::wipe();
    line::restore();
    pager::restore();
}

fn show_logs(verbose: u8) {
    let level = if verbose > 1 { "trace" } else { "debug" };
    let filter = tracing_subscriber::EnvFilter::new(format!("warn,ropeway={level}"));
    // Somebody who reads logs through a pipe wants no colours, and who set `NO_COLOR` does not either.
    let colours = anstream::AutoStream::choice(&std::io::stderr()) != anstream::ColorChoice::Never;
    let subscriber = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(move || Veiled { to: std::io::stderr(), colours })
        .with_ansi(colours)
        .finish();
    // It is set once; a second time would change nothing.
    let _ = tracing::subscriber::set_global_default(subscriber);
}

/// Writes the result to standard output. A reader that left, as `head` does, has what it wanted.
fn print(text: &str) -> Result<(), Failure> {
    print_answer(&veil::over(text))
}

/// Writes the result to standard output once the servers have ended, page by page where it is longer than the screen.
fn print_paged(setting: &Setting, text: &str) -> Result<(), Failure> {
    let text = veil::over(text);
    match pager::wanted(&text) {
        Some(_) => setting.pager.push(&text),
        None => print_answer(&text)?,
    }
    Ok(())
}

/// The same for a tool's own answer, which may say whatever it was asked for.
fn print_answer(text: &str) -> Result<(), Failure> {
    write(text).map(drop)
}

/// Whoever reads what is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reader {
    /// May want more.
    Stays,
    /// Has what it wanted.
    Left,
}

/// Writes to standard output, and says whether anybody is left to read more.
pub(crate) fn write(text: &str) -> Result<Reader, Failure> {
    let mut stdout = anstream::stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Ok(()) => Ok(Reader::Stays),
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(Reader::Left),
        Err(error) => Err(Failure::usage("could not write the result").caused_by(&error)),
    }
}

/// Waits until nobody reads standard output any more; for ever where that cannot be seen.
async fn reader_left() {
    // What has no reader, as a file, cannot be watched. Nothing is written here: that it would block does not matter.
    let copy = std::io::stdout().as_fd().try_clone_to_owned().map(File::from);
    match copy.and_then(pipe::Sender::from_file_unchecked) {
        Ok(stdout) if stdout.ready(Interest::ERROR).await.is_ok() => {}
        _ => std::future::pending().await,
    }
}

/// Writes a result for scripts.
fn print_json(value: &impl serde::Serialize) -> Result<(), Failure> {
    let json = veil::json(value, true).map_err(|error| Failure::usage("the result is not JSON").caused_by(&error))?;
    print_answer(&(json + "\n"))
}

/// A tool's own answer for scripts, as one document.
fn json_text(value: &impl serde::Serialize) -> Result<String, Failure> {
    let json = serde_json::to_string_pretty(value)
        .map_err(|error| Failure::usage("the result is not JSON").caused_by(&error))?;
    Ok(clean_json(&json) + "\n")
}

/// Writes what is not the result to standard error.
pub(crate) fn say(text: &str) {
    // Nobody is left to be told that nobody listens.
    let _ = anstream::stderr().lock().write_all(veil::over(text).as_bytes());
}
