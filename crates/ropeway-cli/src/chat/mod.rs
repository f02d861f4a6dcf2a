//! A chat: a conversation with a model that uses the tools of a session's servers.

pub(crate) mod approval;
pub(crate) mod attachment;
pub(crate) mod elicitation;
mod end;
pub(crate) mod line;
mod markdown;
mod order;
mod recipe;
pub(crate) mod record;
mod results;
mod screen;
mod show;
mod slash;
pub(crate) mod stdin;
pub(crate) mod store;

use std::collections::HashMap;
use std::path::PathBuf;
use std::time::Duration;

use ropeway::agent::{Agent, Approval, ApprovalRequest, Permission, Step, Turn, TurnEnd, TurnOutcome};
use ropeway::duration::format_duration;
use ropeway::mcp::{Elicitation, ElicitationAnswer};
use ropeway::message::{Conversation, Message};
use ropeway::tool::{Alias, CallError, Origin};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::signal::unix::Signal;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use self::approval::{ApprovalChoices, Reply};
use self::attachment::{Attachment, compose, mentioned};
use self::elicitation::MAX_QUESTIONS;
use self::end::{unanswered, unfinished};
use self::line::{Editor, Quiet, Typed};
pub(crate) use self::recipe::Recipe;
pub(crate) use self::screen::{Screen, failed};
use self::slash::Slash;
use self::store::{Saved, Saver, not_saved};
use crate::connect::lockfile;
use crate::connect::session::Session;
use crate::failure::{Exit, Failure};
use crate::model::SavedModel;
use crate::output::print::{say, write};
use crate::secrets::redaction;
use crate::terminal::style::faint;
use crate::terminal::text::width;

/// What stands before what a person types.
const PROMPT: &str = "› ";

/// How long a turn that was cancelled may take to end.
const LAST_STEPS: Duration = Duration::from_millis(500);

/// Something that a person has to answer while a turn goes on.
pub(crate) enum Question {
    /// May a call be made?
    Call(Box<ApprovalRequest>, oneshot::Sender<Approval>),
    /// A server wants to know something.
    Server(Box<Elicitation>, oneshot::Sender<ElicitationAnswer>),
}

/// A person at a terminal.
pub(crate) struct Person {
    pub(crate) editor: Editor,
    /// Ctrl-C while a turn goes on.
    pub(crate) interrupts: Signal,
}

/// A conversation with a model.
pub(crate) struct Chat<'a> {
    session: &'a Session,
    recipe: Recipe,
    agent: Agent,
    screen: Screen,
    questions: mpsc::Receiver<Question>,
    keeping: Keeping,
    /// Files that go with the next message.
    attachments: Vec<Attachment>,
    /// How often Ctrl-C was pressed since the last line was typed.
    presses: usize,
    /// How many questions each server has asked in this turn.
    asked: HashMap<Alias, usize>,
}

/// Where a conversation is kept.
#[derive(Debug, Default)]
pub(crate) struct Keeping {
    /// The file of `--save`.
    pub(crate) file: Option<PathBuf>,
    /// The conversation store, unless it is turned off.
    pub(crate) saver: Option<Saver>,
    /// The model, as it is saved.
    pub(crate) model: SavedModel,
    /// The user knows that the store does not work.
    pub(crate) warned: bool,
}

/// What a turn is waiting for has come.
enum Came {
    Step(Option<Step>),
    Question(Question),
    Interrupt,
    Late,
}

/// Whether `@FILE` in a message attaches a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mentions {
    /// The user typed the message.
    Read,
    /// The message came from elsewhere.
    Ignore,
}

/// Why a turn was cancelled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cut {
    /// Somebody wants to say something else.
    Interrupt,
    /// Somebody wants to leave.
    Impatience,
    /// The command's time is over.
    Late,
    /// Nobody reads what is said.
    Unread,
}

/// How a question ended, and what becomes of the turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum QuestionOutcome {
    /// The turn goes on.
    GoOn,
    /// Ctrl-C instead of an answer to a server: that question is declined, and the next Ctrl-C means the turn.
    Decline,
    /// Ctrl-C.
    Interrupt,
    /// The turn is to end.
    Quit,
}

/// What becomes of the chat after a turn.
enum Next {
    GoOn(Box<TurnOutcome>),
    Leave(Exit),
}

impl<'a> Chat<'a> {
    pub(crate) fn new(
        session: &'a Session,
        recipe: Recipe,
        history: Conversation,
        screen: Screen,
        questions: mpsc::Receiver<Question>,
        keeping: Keeping,
    ) -> Result<Self, Failure> {
        let agent = recipe.agent(history)?;
        let (attachments, asked) = (Vec::new(), HashMap::new());
        Ok(Self { session, recipe, agent, screen, questions, keeping, attachments, presses: 0, asked })
    }

    /// Sends these files with the next message.
    pub(crate) fn attach(&mut self, attachments: Vec<Attachment>) {
        self.attachments = attachments;
    }

    /// Sends a message with the files that wait for one and those that it mentions.
    ///
    /// On an error nothing is sent, and the files wait for the next message.
    fn send(&mut self, message: &str, mentions: Mentions) -> Result<Turn, Failure> {
        let mentioned = if mentions == Mentions::Read { mentioned(message)? } else { Vec::new() };
        if self.attachments.is_empty() && mentioned.is_empty() {
            return Ok(self.agent.send(message));
        }
        let attachments: Vec<Attachment> = self.attachments.iter().chain(&mentioned).cloned().collect();
        let parts = compose(message.to_owned(), &attachments, self.recipe.provider.dialect())?;
        if self.recipe.desk.is_some() {
            attachments.iter().for_each(|attachment| tell(&faint(&format!("{}\n", attachment.describe()))));
        }
        self.attachments.clear();
        Ok(self.agent.send(parts))
    }

    /// Saves what was said.
    fn keep_conversation(&mut self) -> Result<(), Failure> {
        let conversation = self.agent.history();
        if let Some(file) = &self.keeping.file {
            record::write(file, &conversation)?;
        }
        let Keeping { saver: Some(saver), model, .. } = &mut self.keeping else { return Ok(()) };
        // A question that was never answered is not worth a file.
        if !conversation.messages.iter().any(|message| matches!(message, Message::Assistant(_))) {
            return Ok(());
        }
        model.model.clone_from(&self.recipe.model);
        match saver.save(&conversation, model) {
            Ok(Saved::Forked { from, id }) => {
                let words = format!("conversation {from} was continued elsewhere; this one is saved as {id}");
                self.screen.warn(&words);
            }
            Ok(Saved::Nothing | Saved::Whole) => {}
            // The conversation goes on all the same.
            Err(failure) if !self.keeping.warned => {
                self.keeping.warned = true;
                self.screen.warn(&not_saved(&failure));
            }
            Err(_) => {}
        }
        Ok(())
    }

    /// Begins another conversation in the store.
    fn begin_another(&mut self) {
        if let Some(saver) = &mut self.keeping.saver {
            saver.begin_another();
        }
    }

    /// Tells how the conversation can be continued.
    fn farewell(&self) {
        if let Some(id) = self.keeping.saver.as_ref().and_then(Saver::id) {
            tell(&faint(&format!("`ropeway chat --resume {id}` continues this conversation\n")));
        }
    }

    /// One message, and the end.
    pub(crate) async fn once(mut self, message: String, mentions: Mentions) -> Result<Exit, Failure> {
        let turn = self.send(&message, mentions)?;
        match self.follow(turn, None).await? {
            Next::Leave(exit) => Ok(exit),
            Next::GoOn(outcome) => Ok(settled(&outcome)),
        }
    }

    /// One message for each line of standard input.
    pub(crate) async fn lines(mut self) -> Result<Exit, Failure> {
        let mut lines = BufReader::new(tokio::io::stdin()).lines();
        let unreadable = |error| Failure::usage("could not read standard input").caused_by(&error);
        while let Some(line) = lines.next_line().await.map_err(unreadable)? {
            match self.typed(&line, None).await? {
                Some(Next::Leave(exit)) => return Ok(exit),
                Some(Next::GoOn(outcome)) => match settled(&outcome) {
                    Exit::Done => {}
                    exit => return Ok(exit),
                },
                None => {}
            }
        }
        Ok(Exit::Done)
    }

    /// Talks with a person until that one leaves.
    pub(crate) async fn talk(mut self, mut person: Person) -> Result<Exit, Failure> {
        let done = self.talk_to_end(&mut person).await;
        self.farewell();
        done
    }

    async fn talk_to_end(&mut self, person: &mut Person) -> Result<Exit, Failure> {
        // Somebody has pressed Ctrl-C where there was nothing to take back.
        let mut wants_to_leave = false;
        loop {
            let typed = tokio::select! {
                biased;
                typed = person.editor.message(PROMPT) => typed,
                () = late(self.session) => return Err(self.overtime()),
            };
            let line = match typed {
                Typed::Line(line) => line,
                Typed::Interrupted { empty: true } if wants_to_leave => return Ok(Exit::Interrupted),
                Typed::Interrupted { empty } => {
                    wants_to_leave = empty;
                    if empty {
                        tell(&faint("Ctrl-C again or Ctrl-D leaves\n"));
                    }
                    continue;
                }
                Typed::End => return Ok(Exit::Done),
            };
            let began = Instant::now();
            let quiet = Quiet::begin();
            self.presses = 0;
            forget(&mut person.interrupts).await;
            let done = self.typed(&line, Some(person)).await;
            drop(quiet);
            // Twice in a turn that is over now: the third time means the program.
            wants_to_leave = self.presses > 1;
            match done {
                Ok(Some(Next::Leave(exit))) => return Ok(exit),
                Ok(Some(Next::GoOn(outcome))) => self.account(&outcome, began.elapsed()),
                Ok(None) => {}
                Err(failure) if self.is_late() => return Err(failure),
                Err(failure) => say(&failure.render()),
            }
        }
    }

    fn is_late(&self) -> bool {
        self.session.deadline.as_ref().is_some_and(|deadline| deadline.at() <= Instant::now())
    }

    /// What to say when the command's time is over, to whomever the terminal belongs again.
    fn overtime(&self) -> Failure {
        line::restore();
        let within =
            self.session.deadline.as_ref().map(|deadline| format!(" within {}", format_duration(deadline.after())));
        Failure::new(Exit::Timeout, format!("the chat did not end{}", within.unwrap_or_default()))
    }

    /// What a turn has come to and cost, in a faint line.
    fn account(&self, outcome: &TurnOutcome, took: Duration) {
        if let Some(failure) = unfinished(&outcome.end) {
            say(&failure.render());
        }
        let what = if outcome.end == TurnEnd::Cancelled { "cancelled · " } else { "" };
        let tokens = match outcome.usage.input + outcome.usage.output {
            0 => String::new(),
            _ => format!("{} tokens read, {} written · ", outcome.usage.input, outcome.usage.output),
        };
        let cost = outcome.usage.cost.map(|cost| format!("{cost} · ")).unwrap_or_default();
        say(&faint(&format!("{what}{tokens}{cost}{}\n", format_duration(took))));
    }

    /// Does what a line says: a command, or a message to the model.
    async fn typed(&mut self, line: &str, mut person: Option<&mut Person>) -> Result<Option<Next>, Failure> {
        if line.trim().is_empty() {
            return Ok(None);
        }
        let turn = match slash::parse(line) {
            // Lines may come from anywhere: what is in them must not choose files.
            None => self.send(line, if person.is_some() { Mentions::Read } else { Mentions::Ignore })?,
            Some(command) => match command? {
                Slash::Quit => return Ok(Some(Next::Leave(Exit::Done))),
                Slash::Retry => self.agent.resume(),
                Slash::Prompt { name, words } => tokio::select! {
                    biased;
                    () = interrupt(person.as_deref_mut()) => return Ok(cancelled()),
                    prompt = self.prompt(&name, &words) => self.agent.send(prompt?),
                },
                // Lines may come from anywhere: what is in them must not choose files.
                Slash::Save { .. } | Slash::Load { .. } if person.is_none() => {
                    let failure = Failure::usage("`/save` and `/load` are only for somebody at a terminal");
                    return Err(failure.hint("here, `--save FILE` and `--resume FILE` do the same"));
                }
                other => tokio::select! {
                    biased;
                    () = interrupt(person.as_deref_mut()) => return Ok(cancelled()),
                    done = self.order(other) => return done.map(|()| None),
                },
            },
        };
        self.follow(turn, person).await.map(Some)
    }

    /// Follows a turn to its end, and keeps what was said.
    async fn follow(&mut self, mut turn: Turn, person: Option<&mut Person>) -> Result<Next, Failure> {
        self.session.warn_differences();
        self.asked.clear();
        let cut = self.watch(&mut turn, person).await?;
        if cut.is_some() {
            // What servers wanted to know belongs to a turn that is no more.
            while self.questions.try_recv().is_ok() {}
        }
        let finished = match cut {
            None | Some(Cut::Interrupt) => Some(turn.finish().await),
            // It need not be waited for for long.
            Some(Cut::Impatience | Cut::Late | Cut::Unread) => {
                tokio::time::timeout(LAST_STEPS, turn.finish()).await.ok()
            }
        };
        self.screen.end()?;
        self.keep_conversation()?;
        let outcome = match (cut, finished) {
            (Some(Cut::Late), _) => return Err(self.overtime()),
            (Some(Cut::Unread), _) => return Ok(Next::Leave(Exit::Done)),
            (Some(Cut::Impatience), _) | (_, None) => return Ok(Next::Leave(Exit::Interrupted)),
            (_, Some(finished)) => finished.map_err(|error| unanswered(&error))?,
        };
        self.screen.outcome(&outcome)?;
        Ok(Next::GoOn(Box::new(outcome)))
    }

    /// Shows the steps of a turn and asks what has to be asked, until there are no more or nobody waits for them.
    async fn watch(&mut self, turn: &mut Turn, mut person: Option<&mut Person>) -> Result<Option<Cut>, Failure> {
        let mut is_cancelled = false;
        loop {
            let came = {
                let Self { session, screen, questions, .. } = self;
                tokio::select! {
                    biased;
                    // Before the steps: there may always be one more of those.
                    () = interrupt(person.as_deref_mut()) => Came::Interrupt,
                    () = late(session) => Came::Late,
                    step = screen.waiting(&session.status, turn.next()) => Came::Step(step),
                    Some(question) = questions.recv() => Came::Question(question),
                }
            };
            let outcome = match came {
                Came::Step(None) => return Ok(is_cancelled.then_some(Cut::Interrupt)),
                Came::Step(Some(step)) => {
                    self.screen.step(&step, &self.session.advice, &self.session.status)?;
                    self.advise(&step);
                    if self.screen.is_unread() {
                        turn.cancel();
                        return Ok(Some(Cut::Unread));
                    }
                    QuestionOutcome::GoOn
                }
                // Nobody waits for the answer.
                Came::Question(_) if is_cancelled => QuestionOutcome::GoOn,
                Came::Question(question) => {
                    self.screen.end()?;
                    let session = self.session;
                    match person.as_deref_mut() {
                        Some(Person { editor, interrupts }) => tokio::select! {
                            biased;
                            outcome = self.ask(question, editor) => outcome,
                            // While a line is read Ctrl-C is a key: this one came in between, or from elsewhere.
                            Some(()) = interrupts.recv() => QuestionOutcome::Decline,
                            () = late(session) => {
                                turn.cancel();
                                return Ok(Some(Cut::Late));
                            }
                        },
                        None => QuestionOutcome::GoOn,
                    }
                }
                Came::Interrupt => {
                    self.screen.wipe_echo();
                    QuestionOutcome::Interrupt
                }
                Came::Late => {
                    turn.cancel();
                    return Ok(Some(Cut::Late));
                }
            };
            self.presses += usize::from(matches!(outcome, QuestionOutcome::Decline | QuestionOutcome::Interrupt));
            match outcome {
                QuestionOutcome::GoOn => {}
                QuestionOutcome::Decline if self.presses < 2 => tell(&faint("declined; Ctrl-C again ends the turn\n")),
                QuestionOutcome::Decline | QuestionOutcome::Interrupt | QuestionOutcome::Quit => {
                    turn.cancel();
                    if std::mem::replace(&mut is_cancelled, true) {
                        return Ok(Some(Cut::Impatience));
                    }
                }
            }
        }
    }

    /// Asks a person.
    async fn ask(&mut self, question: Question, editor: &Editor) -> QuestionOutcome {
        match question {
            // What belongs to a turn that is over.
            Question::Server(_, answer) if answer.is_closed() => QuestionOutcome::GoOn,
            Question::Call(_, answer) if answer.is_closed() => QuestionOutcome::GoOn,
            Question::Server(elicitation, answer) => {
                let count = self.asked.entry(elicitation.server.clone()).or_default();
                *count += 1;
                if *count > MAX_QUESTIONS {
                    if *count == MAX_QUESTIONS + 1 {
                        let server = elicitation.server.as_str();
                        self.screen.warn(&format!("too many questions from server `{server}`; declining the rest"));
                    }
                    let _ = answer.send(ElicitationAnswer::Cancel);
                    return QuestionOutcome::GoOn;
                }
                let given = elicitation::ask(&elicitation, editor).await;
                let outcome = if given.is_some() { QuestionOutcome::GoOn } else { QuestionOutcome::Decline };
                // It may have gone away meanwhile.
                let _ = answer.send(given.unwrap_or(ElicitationAnswer::Decline));
                outcome
            }
            Question::Call(request, answer) => {
                let name = show::name(&request.tool, &request.origin);
                let offers = self.offers(&request);
                let changes: Vec<String> = request.changes.iter().map(ToString::to_string).collect();
                let summary = request.summary.as_deref();
                let wording = approval::question(&name, &request.arguments, summary, &changes, offers, width());
                tell(&wording.before);
                let mut typed = editor.question(&wording.prompt).await;
                let reply = loop {
                    let reply = match typed {
                        Typed::Line(line) => Reply::read(&line),
                        Typed::Interrupted { .. } => return QuestionOutcome::Interrupt,
                        Typed::End => Some(Reply::Quit),
                    };
                    match reply {
                        Some(Reply::Show) => tell(&wording.whole),
                        Some(reply) if offers.offer(&reply) => break reply,
                        _ => tell(&faint(&offers.help(&server_of(&request.origin)))),
                    }
                    typed = editor.again(&wording.prompt).await;
                };
                let approval = match reply {
                    Reply::Quit | Reply::Show => return QuestionOutcome::Quit,
                    Reply::Said(approval) => approval,
                    Reply::Keep => {
                        self.keep(&request);
                        Approval::Always
                    }
                };
                let _ = answer.send(approval);
                QuestionOutcome::GoOn
            }
        }
    }

    /// The answers that make sense for a call.
    fn offers(&self, request: &ApprovalRequest) -> ApprovalChoices {
        let is_server = matches!(request.origin, Origin::Server { .. });
        let read_only = is_server && request.annotations.read_only() && !request.definition.provenance.trust_hints;
        ApprovalChoices { keep: is_server && self.recipe.lock.is_some(), read_only }
    }

    /// Keeps an approval for later chats.
    fn keep(&self, request: &ApprovalRequest) {
        let Some(config) = &self.recipe.lock else { return };
        match lockfile::allow(config, &request.definition) {
            Ok(()) => tell(&faint("kept in ropeway.lock\n")),
            Err(failure) => tell(&failure.hint("the tool is allowed for this chat").render()),
        }
    }

    /// Says which option would have allowed a call that nobody could be asked about.
    fn advise(&self, step: &Step) {
        let Step::CallFinished { envelope, .. } = step else { return };
        let tools = self.agent.all_tools();
        if self.recipe.desk.is_none()
            && let Some(CallError::Denied { .. }) = envelope.error.as_deref()
            && let Some(tool) = tools.get(&envelope.tool)
            && self.recipe.rules.policy().permission(tool.definition()) == Permission::Ask
        {
            let glob = approval::pattern_of(tool.definition());
            let quoted = shlex::try_quote(&glob).map_or_else(|_| glob.clone(), |quoted| quoted.into_owned());
            say(&faint(&format!("    `--allow {quoted}` allows it, `--yes` all calls\n")));
        }
    }
}

/// The exit code of an outcome, which scripts have been told already.
fn settled(outcome: &TurnOutcome) -> Exit {
    unfinished(&outcome.end).map_or(Exit::Done, |failure| {
        say(&failure.render());
        failure.exit()
    })
}

fn server_of(origin: &Origin) -> String {
    match origin {
        Origin::Server { server, .. } => server.to_string(),
        Origin::Local => String::new(),
    }
}

/// Says something to a person at a terminal, wherever notes go: what is asked must be read.
pub(crate) fn tell(text: &str) {
    // A terminal that is gone has nobody before it.
    let _ = write(&redaction::redact(text));
}

/// A command that Ctrl-C has ended.
fn cancelled() -> Option<Next> {
    tell(&faint("cancelled\n"));
    None
}

/// Forgets Ctrl-C that was pressed before: it meant something else.
async fn forget(interrupts: &mut Signal) {
    loop {
        tokio::select! {
            biased;
            Some(()) = interrupts.recv() => {}
            () = std::future::ready(()) => return,
        }
    }
}

/// Waits for Ctrl-C of a person.
async fn interrupt(person: Option<&mut Person>) {
    if let Some(person) = person
        && person.interrupts.recv().await.is_some()
    {
        return;
    }
    std::future::pending().await
}

/// Waits until the command's time is over.
async fn late(session: &Session) {
    match &session.deadline {
        Some(deadline) => tokio::time::sleep_until(deadline.at()).await,
        None => std::future::pending().await,
    }
}
