//! `ropeway chat`: a conversation with a model that uses the tools.

use std::cell::Cell;
use std::fs::File;
use std::io::{IsTerminal as _, Read as _, Seek as _};
use std::os::fd::AsFd as _;
use std::os::unix::fs::FileTypeExt as _;
use std::path::PathBuf;

use ropeway::agent::{Approvals, Limits, RequestOptions, Sampling};
use ropeway::config::{ChatSettings, LockPolicy};
use ropeway::mcp::{ElicitationAnswer, Handlers};
use ropeway::message::Conversation;
use ropeway::provider::Provider;
use ropeway::tool::Alias;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{mpsc, oneshot};

use super::{Setting, print, print_json, say};
use crate::chat::approval::{Rules, unmatched};
use crate::chat::line::Editor;
use crate::chat::{Chat as Conversing, Person, Question, Recipe, Screen, failed, record};
use crate::failure::{Exit, Failure};
use crate::help::{faint, is_absent, tools, warning as warning_words};
use crate::model::{ModelArgs, ModelChoice};
use crate::names::filled;
use crate::server::ServerOptions;
use crate::servers::{Servers, Source};
use crate::session::Session;
use crate::text::{clean_line, terminal_width, wrap};

/// Shown at the end of `--help`.
pub(super) const EXAMPLES: &str = "\
Examples:
  ropeway chat
  ropeway chat -p 'What time is it in Tokyo?'
  ropeway chat files -p 'Which files are new?' --model MODEL
  git diff | ropeway chat -p - --system 'Review this change.' --no-tools
  ropeway chat -p 'Tidy up' --allow 'files.*' --deny 'files.delete*' --save talk.json
  ropeway chat --resume talk.json --save talk.json
  ropeway chat -p hello --base-url http://127.0.0.1:8080/v1 --json

Only what the model says goes to standard output. With --json every step is a line of JSON there, of
which the last one is {\"step\": \"final\", …} or {\"step\": \"failed\", \"error\": …, \"exit\": …}.

Without -p, and where standard input or output is not a terminal, each line of standard input is a
message, or a command such as /prompt; /save and /load are refused there. With -p TEXT standard input
is not read; -p - takes the message from it.

Each tool call needs approval. Without a terminal, and with -p, calls are refused unless --allow or
--yes permits them. Read-only tools need no approval if the server has `trust_hints: true` in its
entry, or --trust-hints is given. --deny wins over --ask, and --ask over --allow; options win over the
file, except over its `deny`. \"Always\" holds for the tool as it is: one that the server changes is
asked about again, with what changed.

A GLOB is SERVER.TOOL, such as files.read_* or *.list, or the name that the model uses: mcp_files_read, or
mcp_files_* for all tools of a server. A wildcard never reaches from the server into the tool: for some
tools of server my, write my.files_*, not mcp_my_files_*. --ask and --deny match those, too, to be safe.";

/// How many questions wait for a person; further ones wait where they come from.
const MOST_WAITING: usize = 64;

/// The exit codes, for `--help`.
pub(super) const EXIT_CODES: &str = "\
Exit codes:
  0    done
  1    the turn came to a limit, or the model did not finish its answer
  2    usage: what was typed makes no sense, or the provider does not take it
  3    server or provider unreachable, or the provider is overloaded or broken (429, 500)
  4    server or provider needs authentication
  5    timeout
  130  left with Ctrl-C";

/// Talk to a model that uses the tools of the servers
#[derive(Debug, clap::Args)]
pub(super) struct Chat {
    /// Only these servers
    #[arg(value_name = "SERVER")]
    servers: Vec<String>,
    /// Say this, print the answer, and end; - reads it from standard input
    #[arg(short, long, value_name = "TEXT")]
    prompt: Option<String>,
    /// What the model is told to be and to do
    #[arg(long, value_name = "TEXT")]
    system: Option<String>,
    /// How often the model is asked in one turn
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..))]
    max_steps: Option<u32>,
    /// Give the model no tools
    #[arg(long, conflicts_with_all = ["servers", "stdio", "url"])]
    no_tools: bool,
    /// Go on with the conversation of this file
    #[arg(long, value_name = "FILE")]
    resume: Option<PathBuf>,
    /// Write the conversation to this file after each turn; to go on with it, give --resume too
    #[arg(long, value_name = "FILE")]
    save: Option<PathBuf>,
    /// Keep images, sounds and other files of answers in this folder
    #[arg(long, value_name = "DIR")]
    save_files: Option<PathBuf>,
    /// Let servers ask the model, too
    #[arg(long, conflicts_with = "no_tools")]
    allow_sampling: bool,
    /// Show what the model thinks
    #[arg(long)]
    reasoning: bool,
    #[command(flatten)]
    model: ModelArgs,
    #[command(flatten)]
    rules: Rules,
    #[command(flatten)]
    server: ServerOptions,
}

impl Chat {
    /// Does somebody sit at a terminal and talk?
    pub(super) fn is_interactive(&self, json: bool) -> bool {
        self.prompt.is_none()
            && !self.model.models
            && !json
            && std::io::stdin().is_terminal()
            && std::io::stdout().is_terminal()
    }

    pub(super) async fn run(self, setting: Setting) -> Result<Exit, Failure> {
        if !self.is_interactive(setting.json) {
            let json = setting.json;
            let done = match self.server.servers(&setting) {
                Ok(servers) => self.converse(setting, servers, None, &Cell::new(false)).await,
                Err(failure) => Err(failure),
            };
            if let (true, Err(failure)) = (json, &done) {
                failed(failure)?;
            }
            return done;
        }
        // Whether a project file is trusted is asked before anything else reads keys or listens for Ctrl-C.
        let servers = self.server.servers(&setting)?;
        // Ctrl-C ends a turn, but before the first one the whole command.
        let mut early = interrupts()?;
        let person = Person { editor: Editor::start()?, interrupts: interrupts()? };
        let is_ready = Cell::new(false);
        let left = async {
            loop {
                if early.recv().await.is_none() {
                    std::future::pending::<()>().await;
                }
                if !is_ready.get() {
                    return;
                }
            }
        };
        tokio::select! {
            biased;
            () = left => Ok(Exit::Interrupted),
            done = self.converse(setting, servers, Some(person), &is_ready) => done,
        }
    }

    async fn converse(
        self,
        setting: Setting,
        servers: Servers,
        person: Option<Person>,
        is_ready: &Cell<bool>,
    ) -> Result<Exit, Failure> {
        let history = self.resume.as_deref().map_or_else(|| Ok(Conversation::new()), record::read)?;
        if let Some(file) = &self.save {
            record::free(file, self.resume.as_deref())?;
        }
        let message = self.prompt.as_deref().map(message).transpose()?;
        let named = servers.only_these(&self.servers);
        // Whoever names no server may have meant to say something.
        let hint = |failure: Failure| match self.prompt {
            None => failure.hint("`-p TEXT` says something to the model"),
            Some(_) => failure,
        };
        let mut servers = named.map_err(hint)?.lasting().lists_servers().uses_chat();
        let chat = servers.config.chat.clone().unwrap_or_default();
        let file = servers.file.as_ref();
        if self.model.models {
            let models = self.model.list(Some(&chat), file).await?;
            match setting.json {
                true => print_json(&models)?,
                false => models.iter().try_for_each(|model| print(&format!("{}\n", clean_line(model))))?,
            }
            return Ok(Exit::Done);
        }
        // Without a model no server is started, and nothing else shows what is odd about the file.
        let warned = |failure: Failure| {
            servers.show_all_warnings();
            failure
        };
        let ModelChoice { provider, model, place, why } = self.model.choose(Some(&chat), file).await.map_err(warned)?;
        let provider = Provider::new(provider).map_err(|error| Failure::provider(error.to_string(), &error))?;
        if self.no_tools {
            servers.config.servers.clear();
        }
        if self.rules.trust_hints {
            match servers.source {
                Source::Line | Source::Demo => {
                    servers.config.servers.iter_mut().for_each(|entry| entry.trust_hints = true)
                }
                Source::File(_) => {
                    let failure = Failure::usage("--trust-hints is for a server given with --stdio or --url");
                    return Err(failure.hint("set `trust_hints: true` in the server's entry of the configuration file"));
                }
            }
        }
        let prefixes: Vec<(Alias, String)> = servers
            .config
            .servers
            .iter()
            .map(|entry| (entry.alias.clone(), filled(&entry.prefix, &entry.alias)))
            .collect();
        // A server that asks, leaves and asks again finds no room here for more.
        let (asks, questions) = mpsc::channel(MOST_WAITING);
        let desk = person.is_some().then_some(asks);
        let mut handlers = handlers(desk.clone());
        if self.allow_sampling {
            handlers = handlers.on_sampling(Sampling::new(provider.clone(), &model).handler());
        }
        let servers = servers.answered_by(handlers);
        let about = format!("{} · {} · {why}", clean_line(&model), clean_line(&place));
        let source = servers.source.clone();
        let config_lock = servers.config.lock;
        let screen = match setting.json {
            true => Screen::for_scripts(self.save_files.clone()),
            false => Screen::for_people(self.reasoning || setting.verbose, self.save_files.clone()),
        };
        let mut recipe = Recipe {
            provider,
            model,
            system: self.system.or(chat.system.clone()),
            limits: limits(self.max_steps.or(chat.max_steps)),
            options: options(&chat),
            rules: self.rules.and(&chat.tools),
            approvals: Approvals::new(),
            bridge: None,
            desk,
            lock: match &source {
                Source::File(file) if config_lock != Some(LockPolicy::Off) => Some(file.clone()),
                _ => None,
            },
            source: source.clone(),
        };
        let no_tools = self.no_tools;
        let is_text = self.prompt.as_deref() != Some("-");
        let work = async |session: &Session| {
            session.arrive().await?;
            session.waiting.clear();
            if let Some(locked) = &session.locked {
                recipe.approvals = locked.approvals();
                if locked.has_foreign_approvals() && !no_tools {
                    say(&faint(
                        "ropeway.lock allows tools that were not allowed on this machine: you are asked about them\n",
                    ));
                }
            }
            recipe.bridge = (!no_tools).then(|| session.bridge.clone());
            let mut screen = screen;
            screen.verdicts(&session.bridge.verdicts(), &session.help);
            if !setting.json && !no_tools && source == Source::Demo {
                say(&demo_note());
            }
            let listing = session.listing();
            if !no_tools {
                let tools: Vec<_> = listing.registry.definitions().collect();
                // Of a server whose tools are hidden not all are known either.
                let hides = |server: &Alias| listing.differences.iter().any(|difference| difference.server == *server);
                let absent =
                    listing.verdicts.iter().filter(|verdict| is_absent(&verdict.outcome) || hides(&verdict.server));
                let unseen: Vec<_> = absent
                    .filter_map(|verdict| prefixes.iter().find(|(alias, _)| *alias == verdict.server))
                    .map(|(alias, prefix)| (alias.as_str(), prefix.clone()))
                    .collect();
                for warning in unmatched(&recipe.rules.policy(), &tools, &unseen) {
                    say(&warning_words(&warning));
                }
            }
            let count = listing.registry.len();
            let chat = Conversing::new(session, recipe, history, screen, questions, self.save.clone())?;
            is_ready.set(true);
            match (message, person) {
                (Some(message), _) => {
                    if is_text && has_input() {
                        say(&faint("standard input is not read: `-p -` takes the message from there\n"));
                    }
                    chat.once(message).await
                }
                (None, None) => {
                    if std::io::stdin().is_terminal() {
                        say(&faint("each line is a message; nobody is asked about calls\n"));
                    }
                    chat.lines().await
                }
                (None, Some(person)) => {
                    say(&faint(&format!("{about} · {} · /help shows what can be typed\n", tools(count))));
                    chat.talk(person).await
                }
            }
        };
        Session::with(servers, &setting, work).await
    }
}

/// Who answers what servers ask: a person, where there is one.
fn handlers(desk: Option<mpsc::Sender<Question>>) -> Handlers {
    Handlers::new().on_elicitation(move |elicitation| {
        let desk = desk.clone();
        async move {
            let Some(desk) = desk else { return Ok(ElicitationAnswer::Decline) };
            let (answer, answered) = oneshot::channel();
            // A closed channel counts as a cancellation.
            let _ = desk.send(Question::Server(Box::new(elicitation), answer)).await;
            Ok(answered.await.unwrap_or(ElicitationAnswer::Cancel))
        }
    })
}

fn interrupts() -> Result<Signal, Failure> {
    signal(SignalKind::interrupt()).map_err(|error| Failure::usage("could not listen for Ctrl-C").caused_by(&error))
}

/// What is to be said.
fn message(prompt: &str) -> Result<String, Failure> {
    let mut text = prompt.to_owned();
    if prompt == "-" {
        text.clear();
        std::io::stdin()
            .read_to_string(&mut text)
            .map_err(|error| Failure::usage("could not read standard input").caused_by(&error))?;
    }
    match text.trim() {
        "" => Err(Failure::usage("there is nothing to say").hint("give a text: -p 'What time is it?'")),
        _ => Ok(text),
    }
}

/// Has somebody put something on standard input? It is only looked at: a pipe that nobody writes to would never end.
fn has_input() -> bool {
    let input = std::io::stdin();
    let Ok(mut file) = input.as_fd().try_clone_to_owned().map(File::from) else { return false };
    match file.metadata() {
        Ok(metadata) if metadata.is_file() => file.stream_position().is_ok_and(|at| at < metadata.len()),
        Ok(metadata) if metadata.file_type().is_fifo() => {
            let mut waiting = [PollFd::new(&input, PollFlags::IN)];
            let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
            poll(&mut waiting, Some(&at_once)).is_ok() && waiting[0].revents().contains(PollFlags::IN)
        }
        _ => false,
    }
}

fn limits(steps: Option<u32>) -> Limits {
    let limits = Limits::default();
    match steps {
        Some(steps) => limits.with_steps(steps as usize),
        None => limits,
    }
}

fn options(chat: &ChatSettings) -> RequestOptions {
    let mut options = RequestOptions::default();
    options.max_tokens = chat.max_tokens;
    options.temperature = chat.temperature;
    options.effort = chat.effort;
    options
}

/// That the demo server stands in for real ones, and how there will be some.
fn demo_note() -> String {
    let width = terminal_width(&std::io::stderr()).unwrap_or(usize::MAX);
    let note = "No server was given, so there are the tools of the built-in demo server. `ropeway add NAME -- COMMAND` adds a \
        real one, `--stdio COMMAND` or `--url URL` takes one at once.";
    faint(&wrap(note, width, 0))
}
