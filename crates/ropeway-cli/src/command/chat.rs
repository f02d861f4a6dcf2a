//! `ropeway chat`: chats with a model that uses the tools.

use std::cell::Cell;
use std::io::IsTerminal as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ropeway_agent::{Approvals, SamplingHandler};
use ropeway_bridge::registry::Registry;
use ropeway_core::message::Conversation;
use ropeway_core::tool::{Alias, Origin, ToolDefinition};
use ropeway_providers::Provider;
use tokio::sync::mpsc;

use super::chat_setup::{demo_note, handlers, interrupts, is_file, limits, message, options, patience};
use super::conversations;
use crate::arguments::names::expand_prefix;
use crate::chat::approval::{ApprovalArgs, unmatched_warnings};
use crate::chat::approval_store::ApprovalStore;
use crate::chat::attachment::Attachment;
use crate::chat::line_completion::ToolWord;
use crate::chat::line_editor::LineEditor;
use crate::chat::replaced_file::LocalFolders;
use crate::chat::stdin::read_beside_prompt;
use crate::chat::store::{
    self, ConversationHeader, ConversationSaver, ConversationStore, StoredConversation, not_saved_message,
    working_folder,
};
use crate::chat::{
    AgentConfig, Chat as Conversing, Mentions, SaveState, Screen, TerminalUser, print_failed, recap, save_file,
    wait_for_opening,
};
use crate::connect::advice::{is_pending, is_unavailable, tool_count};
use crate::connect::arrival;
use crate::connect::command_context::CommandContext;
use crate::connect::server_options::ServerOptions;
use crate::connect::servers::{ServerSource, Servers};
use crate::connect::session::Session;
use crate::failure::{Exit, Failure};
use crate::model::{ModelArgs, ModelChoice, ResumedChoice, SavedModel};
use crate::output::print::{print, print_json, say};
use crate::terminal::style::{faint, warning as warning_words};
use crate::terminal::text::{clean_line, cut_words, width};

/// How long an interactive chat waits for servers before it starts.
const OPENING: Duration = Duration::from_millis(400);

/// How long the first message waits for servers that are still connecting.
const TURN_PATIENCE: Duration = Duration::from_secs(5);

/// The same limit without a terminal, where the chat already waited for servers.
const PROMPT_PATIENCE: Duration = Duration::from_millis(500);

/// Maximum pending questions to the user.
const MOST_WAITING: usize = 64;

/// Chat with a model that uses the tools of the servers
#[derive(Debug, clap::Args)]
pub(super) struct Chat {
    /// Only use these servers
    #[arg(value_name = "SERVER")]
    servers: Vec<String>,
    /// Send one message, print the answer and exit; - reads it from standard input
    #[arg(short, long, value_name = "TEXT")]
    prompt: Option<String>,
    /// System prompt
    #[arg(long, value_name = "TEXT")]
    system: Option<String>,
    /// Maximum model requests per turn
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..))]
    max_steps: Option<u32>,
    /// Disable tools
    #[arg(long, conflicts_with_all = ["servers", "stdio", "url"])]
    no_tools: bool,
    /// Attach a text, image or PDF file to the first message (repeatable)
    #[arg(long, value_name = "FILE")]
    attach: Vec<PathBuf>,
    /// Continue the latest conversation in this directory
    #[arg(long = "continue", conflicts_with = "resume")]
    continues: bool,
    /// Continue a saved conversation, by an id prefix or by a --save file
    #[arg(long, value_name = "ID|FILE")]
    resume: Option<PathBuf>,
    /// List saved conversations
    #[arg(long, conflicts_with_all = ["prompt", "continues", "resume", "save", "attach", "models"])]
    list: bool,
    /// Do not save the conversation
    #[arg(long, conflicts_with = "save")]
    no_save: bool,
    /// Also save the conversation to FILE after each turn; continue it with --resume FILE
    #[arg(long, value_name = "FILE")]
    save: Option<PathBuf>,
    /// Save images, audio and other files of results to this directory
    #[arg(long, value_name = "DIR")]
    save_files: Option<PathBuf>,
    /// Allow servers to send sampling requests to the model
    #[arg(long, conflicts_with = "no_tools")]
    allow_sampling: bool,
    /// Show the reasoning of the model
    #[arg(long)]
    reasoning: bool,
    /// Print text without rendering Markdown
    #[arg(long)]
    plain: bool,
    #[command(flatten)]
    model: ModelArgs,
    #[command(flatten)]
    rules: ApprovalArgs,
    #[command(flatten)]
    server: ServerOptions,
}

impl Chat {
    /// Returns `true` for a chat on a terminal.
    pub(super) fn is_interactive(&self, json: bool) -> bool {
        self.prompt.is_none()
            && !self.list
            && !self.model.models
            && !json
            && std::io::stdin().is_terminal()
            && std::io::stdout().is_terminal()
    }

    pub(super) async fn run(self, context: CommandContext) -> Result<Exit, Failure> {
        if self.list {
            return conversations::list(&context);
        }
        if !self.is_interactive(context.json) {
            let json = context.json;
            let done = match self.server.servers(&context) {
                Ok(servers) => self.converse(context, servers, None, &Cell::new(false)).await,
                Err(failure) => Err(failure),
            };
            if let (true, Err(failure)) = (json, &done) {
                print_failed(failure)?;
            }
            return done;
        }
        // The trust question comes before anything else reads keys or handles Ctrl-C.
        let servers = self.server.servers(&context)?;
        // Ctrl-C cancels a turn; before the first turn it ends the command.
        let mut early = interrupts()?;
        let person = TerminalUser {
            editor: LineEditor::start(!self.no_save && store::is_enabled())?,
            interrupts: interrupts()?,
        };
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
            done = self.converse(context, servers, Some(person), &is_ready) => done,
        }
    }

    /// Returns the conversation to continue.
    fn resumed(&self) -> Result<Resumed, Failure> {
        let stored = |store: &ConversationStore, id: &str| {
            let StoredConversation { header, conversation } = store.load(id)?;
            Ok(Resumed { conversation, header: Some(header) })
        };
        match &self.resume {
            None if self.continues => {
                let store = ConversationStore::required()?;
                stored(&store, &store.latest(&working_folder())?)
            }
            None => Ok(Resumed::default()),
            Some(path) => match path.to_str().filter(|_| !is_file(path)) {
                Some(prefix) => {
                    let store = ConversationStore::required()?;
                    stored(&store, &store.find(prefix)?)
                }
                None => Ok(Resumed { conversation: save_file::read(path)?, header: None }),
            },
        }
    }

    async fn converse(
        self,
        context: CommandContext,
        servers: Servers,
        person: Option<TerminalUser>,
        is_ready: &Cell<bool>,
    ) -> Result<Exit, Failure> {
        let Resumed { conversation: history, header } = self.resumed()?;
        if let Some(file) = &self.save {
            save_file::check_target(file, self.resume.as_deref())?;
        }
        let mut attachments = Vec::new();
        for path in &self.attach {
            attachments.push(Attachment::read(path)?);
        }
        let is_text = self.prompt.as_deref() != Some("-");
        let message = self.prompt.as_deref().map(message).transpose()?;
        if message.is_some() && is_text && !self.model.models {
            let input = read_beside_prompt(context.deadline.as_ref()).await?;
            attachments.extend(input.map(Attachment::standard_input));
        }
        let chosen = match &header {
            Some(header) if self.servers.is_empty() => remembered_servers(&servers, &header.servers),
            _ => self.servers.clone(),
        };
        let named = servers.only_these(&chosen);
        // An unknown server name may be a message.
        let hint = |failure: Failure| match self.prompt {
            None => failure.hint("use `-p TEXT` to send a message to the model"),
            Some(_) => failure,
        };
        let mut servers = named.map_err(hint)?.reconnecting().lists_servers().uses_chat();
        let chat = servers.config.chat.clone().unwrap_or_default();
        let file = servers.file.as_ref();
        if self.model.models {
            let models = self.model.list(Some(&chat), file).await?;
            if context.json {
                print_json(&models)?
            } else {
                models.iter().try_for_each(|model| print(&format!("{}\n", clean_line(model))))?
            }
            return Ok(Exit::Done);
        }
        // Without a model no server starts, so nothing else shows the warnings.
        let warned = |failure: Failure| {
            servers.show_all_warnings();
            failure
        };
        let (choice, saved_model) = match &header {
            Some(header) => {
                let ResumedChoice { choice, saved, note } =
                    self.model.choose_resumed(&header.model, &chat, file).await.map_err(warned)?;
                if let Some(note) = note.filter(|_| !context.json) {
                    say(&faint(&format!("{note}\n")));
                }
                (choice, saved)
            }
            None => {
                let choice = self.model.choose(Some(&chat), file).await.map_err(warned)?;
                let saved = SavedModel::new(&self.model, &choice);
                (choice, saved)
            }
        };
        let ModelChoice { provider, model, place, why } = choice;
        let provider = Provider::new(provider).map_err(|error| Failure::provider(error.to_string(), &error))?;
        if self.no_tools {
            servers.config.servers.clear();
        }
        if self.rules.trust_hints {
            match servers.source {
                ServerSource::Line | ServerSource::Clients | ServerSource::Demo => {
                    servers.config.servers.iter_mut().for_each(|entry| entry.trust_hints = true)
                }
                ServerSource::File(_) => {
                    let failure = Failure::usage("--trust-hints requires --stdio or --url");
                    return Err(failure.hint("set `trust_hints: true` in the server's entry of the configuration file"));
                }
            }
        }
        let prefixes: Vec<(Alias, String)> = servers
            .config
            .servers
            .iter()
            .map(|entry| (entry.alias.clone(), expand_prefix(&entry.prefix, &entry.alias)))
            .collect();
        // Bounded, so a server cannot queue requests without limit.
        let (asks, mut questions) = mpsc::channel(MOST_WAITING);
        let desk = person.is_some().then_some(asks);
        let mut handlers = handlers(desk.clone());
        if self.allow_sampling {
            handlers = handlers.on_sampling(SamplingHandler::new(provider.clone(), &model).handler());
        }
        let servers = servers.with_handlers(handlers);
        let about = format!("{} · {} · {why}", clean_line(&model), clean_line(&place));
        let source = servers.source.clone();
        let mut screen = if context.json {
            Screen::for_scripts(self.save_files.clone())
        } else {
            Screen::for_people(self.reasoning || context.verbose, self.save_files.clone())
        };
        if self.plain {
            screen.set_plain(true);
        }
        let mut recipe = AgentConfig {
            provider,
            model,
            system: self.system.or(chat.system.clone()),
            limits: limits(self.max_steps.or(chat.max_steps)).with_connect_time(if person.is_some() {
                TURN_PATIENCE
            } else {
                PROMPT_PATIENCE
            }),
            options: options(&chat),
            rules: self.rules.with_configured(&chat.tools),
            approvals: Approvals::new(),
            bridge: None,
            question_sender: desk.clone(),
            approval_store: match &source {
                ServerSource::File(file) => ApprovalStore::of(file),
                _ => None,
            },
            local_folders: LocalFolders::of(&servers.config, file_folder(&source)),
            source: source.clone(),
        };
        let (no_tools, is_interactive) = (self.no_tools, person.is_some());
        let patience = patience(&servers);
        let resumed = header.as_ref().map(|header| {
            let turns = if header.turns == 1 { "1 turn".to_owned() } else { format!("{} turns", header.turns) };
            let servers = if chosen.is_empty() { String::new() } else { format!("only {} · ", chosen.join(", ")) };
            let title = clean_line(&header.title);
            let line = cut_words(&format!("continuing {} · {turns} · {servers}{title}", header.id), width());
            format!("{line}\n{}", recap(&history, width()))
        });
        let mut keeping = SaveState { file: self.save.clone(), model: saved_model, ..SaveState::default() };
        if !self.no_save {
            match ConversationStore::open() {
                Ok(store) => {
                    keeping.saver = store.map(|store| ConversationSaver::new(store, header).with_servers(chosen))
                }
                Err(failure) => say(&warning_words(&not_saved_message(&failure))),
            }
        }
        let work = async |session: &Session| {
            match &person {
                Some(person) => {
                    let mut questions_later =
                        wait_for_opening(session, &person.editor, &mut questions, OPENING).await?;
                    if let Some(desk) = &desk {
                        // More than the channel holds are declined.
                        questions_later.drain(..).for_each(|question| drop(desk.try_send(question)));
                    }
                }
                None => arrival::wait_for_most(session, patience).await?,
            }
            session.waiting.clear();
            if let Some(locked) = &session.locked {
                recipe.approvals = locked.approvals();
                if locked.has_foreign_approvals() && !no_tools {
                    say(&faint("ignoring approvals in ropeway.lock that were not given on this machine\n"));
                }
            }
            if let Some(Err(failure)) = recipe.approval_store.as_ref().map(|store| store.restore(&recipe.approvals)) {
                say(&warning_words(&format!("ignoring kept approvals: {}", failure.line())));
            }
            recipe.bridge = (!no_tools).then(|| session.bridge.clone());
            let mut screen = screen;
            screen.server_statuses(&session.bridge.statuses(), &session.advice);
            if !context.json && !no_tools && source == ServerSource::Demo {
                say(&demo_note());
            }
            let listing = session.listing();
            if !no_tools {
                let tools: Vec<_> = listing.registry.definitions().collect();
                // Tools hidden by the lock are unknown, too.
                let hides = |server: &Alias| listing.differences.iter().any(|difference| difference.server == *server);
                let absent =
                    listing.statuses.iter().filter(|status| is_unavailable(&status.state) || hides(&status.server));
                let unseen: Vec<_> = absent
                    .filter_map(|status| prefixes.iter().find(|(alias, _)| *alias == status.server))
                    .map(|(alias, prefix)| (alias.as_str(), prefix.clone()))
                    .collect();
                for warning in unmatched_warnings(&recipe.rules.policy(), &tools, &unseen) {
                    say(&warning_words(&warning));
                }
            }
            let is_loading = listing.statuses.iter().any(|status| is_pending(&status.state));
            let tools = known_tools(listing.registry.len(), is_loading);
            let mut chat = Conversing::new(session, recipe, history, screen, questions, keeping)?;
            chat.attach(attachments);
            is_ready.set(true);
            match (message, person) {
                (Some(message), _) => {
                    // Standard input must not select files to attach.
                    let mentions = if is_text { Mentions::Read } else { Mentions::Ignore };
                    chat.run_prompt(message, mentions).await
                }
                (None, None) => {
                    if std::io::stdin().is_terminal() {
                        say(&faint("each line is a message; calls that need approval are denied\n"));
                    }
                    chat.run_lines().await
                }
                (None, Some(person)) => {
                    say(&faint(&format!("{about} · {tools} · /help for commands\n")));
                    let bridge = session.bridge.clone();
                    person.editor.complete_tools(move || tool_words(&bridge.tools().registry));
                    if let Some(resumed) = resumed {
                        say(&faint(&resumed));
                    }
                    chat.run_interactive(person).await
                }
            }
        };
        if is_interactive {
            return Session::with_early(servers, &context, work).await;
        }
        Session::with(servers, &context, work).await
    }
}

/// Counts the tools when a chat starts and servers may still be connecting.
fn known_tools(count: usize, is_loading: bool) -> String {
    match count {
        0 if is_loading => "tools still loading".to_owned(),
        _ if is_loading => format!("{} so far", tool_count(count)),
        _ => tool_count(count),
    }
}

/// Returns the directory in which servers run by default, relative to the command's directory.
fn file_folder(source: &ServerSource) -> &Path {
    match source {
        ServerSource::File(file) => file.parent().unwrap_or(Path::new("")),
        ServerSource::Line | ServerSource::Clients | ServerSource::Demo => Path::new(""),
    }
}

/// Returns a continued conversation's servers that are still configured.
fn remembered_servers(servers: &Servers, names: &[String]) -> Vec<String> {
    if !matches!(servers.source, ServerSource::File(_) | ServerSource::Clients) {
        return Vec::new();
    }
    let is_known = |name: &&String| servers.config.servers.iter().any(|entry| entry.alias.as_str() == name.as_str());
    let (known, gone): (Vec<&String>, Vec<&String>) = names.iter().partition(is_known);
    for name in gone {
        say(&warning_words(&format!("server `{}` of this conversation is not configured", clean_line(name))));
    }
    known.into_iter().cloned().collect()
}

/// Returns all tool names, for completion.
fn tool_words(registry: &Registry) -> Vec<ToolWord> {
    let word = |definition: &ToolDefinition| match &definition.origin {
        Origin::Server { server, tool } => ToolWord { dotted: format!("{server}.{tool}"), own: tool.to_string() },
        Origin::Local => ToolWord { dotted: definition.name.clone(), own: definition.name.clone() },
    };
    registry.definitions().map(word).collect()
}

/// The conversation when a chat starts.
#[derive(Default)]
struct Resumed {
    conversation: Conversation,
    /// A stored conversation's header.
    header: Option<ConversationHeader>,
}
