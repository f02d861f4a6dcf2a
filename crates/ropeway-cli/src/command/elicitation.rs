//! Server requests during a call: prompts the user for input and for sign-ins.

use std::collections::HashMap;
use std::io::IsTerminal as _;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use ropeway_core::tool::Alias;
use ropeway_mcp::oauth::SignInAnswer;
use ropeway_mcp::{Elicitation, ElicitationAnswer, Handlers};
use tokio::sync::{mpsc, oneshot};

use crate::chat::elicitation::{self, MAX_QUESTIONS};
use crate::chat::line_editor::{self, LineEditor, LineInput};
use crate::chat::print_to_user;
use crate::connect::servers::token_handlers;
use crate::failure::Failure;
use crate::output::print::say;
use crate::sign_in::offer::{SignInQuestion, offer, on_sign_in};
use crate::terminal::status::Status;
use crate::terminal::style::{faint, warning};

/// Maximum pending requests.
const MAX_WAITING: usize = 64;

enum Question {
    /// A server requests input.
    Input(Box<Elicitation>, oneshot::Sender<ElicitationAnswer>),
    /// A server needs a sign-in.
    SignIn(SignInQuestion),
}

impl Question {
    /// Returns `true` if nothing waits for the answer.
    fn is_over(&self) -> bool {
        match self {
            Self::Input(_, answer) => answer.is_closed(),
            Self::SignIn((_, answer)) => answer.is_closed(),
        }
    }

    fn server(&self) -> &Alias {
        match self {
            Self::Input(elicitation, _) => &elicitation.server,
            Self::SignIn((request, _)) => &request.server,
        }
    }

    /// Asks the user. Returns `false` for Ctrl-C.
    async fn ask(self, editor: &LineEditor, status: &Status) -> bool {
        match self {
            Self::Input(elicitation, answer) => elicitation::answer(&elicitation, editor, answer).await,
            Self::SignIn((request, answer)) => {
                let is_interrupted = AtomicBool::new(false);
                let given = offer(&request, status, async |prompt: &str| match editor.question(prompt).await {
                    LineInput::Line(line) => Some(line),
                    LineInput::Interrupted { .. } => {
                        is_interrupted.store(true, Ordering::Relaxed);
                        None
                    }
                    LineInput::End => None,
                });
                // The call may be over.
                let _ = answer.send(given.await);
                !is_interrupted.into_inner()
            }
        }
    }

    /// Answers without asking.
    fn cancel(self) {
        match self {
            Self::Input(_, answer) => drop(answer.send(ElicitationAnswer::Cancel)),
            Self::SignIn((_, answer)) => drop(answer.send(SignInAnswer::Declined)),
        }
    }
}

/// Handles server requests during a call.
///
/// The command owns it and answers one request at a time in [`during`](Self::during). The handlers send
/// requests through a channel that holds at most [`MAX_WAITING`], and write `declined`, which has a std
/// mutex that is never held across `.await`. Dropping this closes the channel: later input requests are
/// cancelled, and later sign-ins declined.
pub(crate) struct CallQuestions {
    questions: mpsc::Receiver<Question>,
    /// Servers whose requests were declined because no terminal could ask.
    declined: Arc<Mutex<Vec<Alias>>>,
    /// Set while a sign-in may be offered.
    offers_sign_in: Arc<AtomicBool>,
    /// Ctrl-C presses at prompts.
    presses: usize,
    request_counts: HashMap<Alias, usize>,
}

impl CallQuestions {
    /// Creates the handlers for servers.
    ///
    /// Without a terminal or with `--json`, every request is declined.
    ///
    /// A sign-in is offered from the start if the call has only one server, and otherwise after
    /// [`offer_sign_in`](Self::offer_sign_in).
    pub(crate) fn new(json: bool, is_single: bool) -> (Self, Handlers) {
        let is_terminal = !json && std::io::stdin().is_terminal() && std::io::stdout().is_terminal();
        let (send, questions) = mpsc::channel::<Question>(MAX_WAITING);
        let declined: Arc<Mutex<Vec<Alias>>> = Arc::default();
        let servers = declined.clone();
        let (inputs, offers_sign_in) = (send.clone(), Arc::new(AtomicBool::new(is_single)));
        let mut handlers = token_handlers().on_elicitation(move |elicitation| {
            let (send, servers) = (inputs.clone(), servers.clone());
            async move {
                if !is_terminal {
                    let mut servers = servers.lock().unwrap_or_else(PoisonError::into_inner);
                    if !servers.contains(&elicitation.server) {
                        servers.push(elicitation.server);
                    }
                    return Ok(ElicitationAnswer::Decline);
                }
                let (answer, answered) = oneshot::channel();
                // A closed channel is a cancellation.
                let _ = send.send(Question::Input(Box::new(elicitation), answer)).await;
                Ok(answered.await.unwrap_or(ElicitationAnswer::Cancel))
            }
        });
        if is_terminal {
            let is_open = offers_sign_in.clone();
            handlers = on_sign_in(handlers, move |question| {
                let (send, is_open) = (send.clone(), is_open.clone());
                async move {
                    if is_open.load(Ordering::Relaxed) {
                        // A closed channel declines.
                        let _ = send.send(Question::SignIn(question)).await;
                    }
                }
            });
        }
        (Self { questions, declined, offers_sign_in, presses: 0, request_counts: HashMap::new() }, handlers)
    }

    /// Returns the switch that allows sign-ins to be offered.
    pub(crate) fn offer_sign_in(&self) -> Arc<AtomicBool> {
        self.offers_sign_in.clone()
    }

    /// Waits for a call and prompts for input. Returns `None` if the user ends the command with Ctrl-C.
    pub(crate) async fn during<T>(
        &mut self,
        status: &Status,
        call: impl Future<Output = Result<T, Failure>>,
    ) -> Result<Option<T>, Failure> {
        let mut call = pin!(call);
        let mut editor = None;
        let done = loop {
            let question = tokio::select! {
                biased;
                done = &mut call => break done,
                Some(question) = self.questions.recv() => question,
            };
            // The call behind this request is over.
            if question.is_over() || !self.may_ask(question.server()) {
                question.cancel();
                continue;
            }
            let editor: &LineEditor = match &mut editor {
                Some(editor) => editor,
                none => none.insert(LineEditor::start(false)?),
            };
            let paused = status.pause();
            let is_given = tokio::select! {
                biased;
                done = &mut call => {
                    // The prompt is still open, and the editor owns the terminal.
                    line_editor::restore();
                    break done;
                }
                is_given = question.ask(editor, status) => is_given,
            };
            drop(paused);
            if !is_given {
                self.presses += 1;
                if self.presses > 1 {
                    return Ok(None);
                }
                print_to_user(&faint("declined; Ctrl-C again ends the command\n"));
            }
        };
        self.explain(done).map(Some)
    }

    /// Counts a server's requests. Returns `false` above the maximum.
    fn may_ask(&mut self, server: &Alias) -> bool {
        let count = self.request_counts.entry(server.clone()).or_default();
        *count += 1;
        if *count == MAX_QUESTIONS + 1 {
            say(&warning(&format!("too many questions from server `{server}`; declining the rest")));
        }
        *count <= MAX_QUESTIONS
    }

    /// Reports declined requests.
    fn explain<T>(&self, done: Result<T, Failure>) -> Result<T, Failure> {
        let declined = self.declined.lock().unwrap_or_else(PoisonError::into_inner);
        let words: Vec<String> = declined
            .iter()
            .map(|server| {
                format!("declined a request for input from server `{server}`: input needs a terminal and no --json")
            })
            .collect();
        match done {
            Ok(done) => {
                words.iter().for_each(|words| say(&warning(words)));
                Ok(done)
            }
            Err(failure) => Err(words.into_iter().fold(failure, Failure::hint)),
        }
    }
}
