//! Elicitation during a call: prompts the user for input to servers.

use std::collections::HashMap;
use std::io::IsTerminal as _;
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};

use ropeway::mcp::{Elicitation, ElicitationAnswer, Handlers};
use ropeway::tool::Alias;
use tokio::sync::{mpsc, oneshot};

use crate::chat::elicitation::{MAX_QUESTIONS, ask};
use crate::chat::line_editor::{self, LineEditor};
use crate::chat::print_to_user;
use crate::failure::Failure;
use crate::output::print::say;
use crate::terminal::status::Status;
use crate::terminal::style::{faint, warning};

/// Maximum pending requests.
const MAX_WAITING: usize = 64;

type Question = (Elicitation, oneshot::Sender<ElicitationAnswer>);

/// Handles elicitation requests during a call.
pub(crate) struct CallQuestions {
    questions: mpsc::Receiver<Question>,
    /// Servers whose requests were declined for lack of a terminal.
    declined: Arc<Mutex<Vec<Alias>>>,
    /// Number of Ctrl-C presses at prompts.
    presses: usize,
    request_counts: HashMap<Alias, usize>,
}

impl CallQuestions {
    /// Creates the handlers for servers.
    ///
    /// Without a terminal or with `--json`, every request is declined.
    pub(crate) fn new(json: bool) -> (Self, Handlers) {
        let is_terminal = !json && std::io::stdin().is_terminal() && std::io::stdout().is_terminal();
        let (send, questions) = mpsc::channel::<Question>(MAX_WAITING);
        let declined: Arc<Mutex<Vec<Alias>>> = Arc::default();
        let servers = declined.clone();
        let handlers = Handlers::new().on_elicitation(move |elicitation| {
            let (send, servers) = (send.clone(), servers.clone());
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
                let _ = send.send((elicitation, answer)).await;
                Ok(answered.await.unwrap_or(ElicitationAnswer::Cancel))
            }
        });
        (Self { questions, declined, presses: 0, request_counts: HashMap::new() }, handlers)
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
            let (elicitation, answer) = tokio::select! {
                biased;
                done = &mut call => break done,
                Some(question) = self.questions.recv() => question,
            };
            // The call of this request is over.
            if answer.is_closed() || !self.may_ask(&elicitation.server) {
                let _ = answer.send(ElicitationAnswer::Cancel);
                continue;
            }
            let editor: &LineEditor = match &mut editor {
                Some(editor) => editor,
                none => none.insert(LineEditor::start(false)?),
            };
            let paused = status.pause();
            let given = tokio::select! {
                biased;
                done = &mut call => {
                    // The prompt is still open, and the editor owns the terminal.
                    line_editor::restore();
                    break done;
                }
                given = ask(&elicitation, editor) => given,
            };
            drop(paused);
            if given.is_none() {
                self.presses += 1;
                if self.presses > 1 {
                    return Ok(None);
                }
                print_to_user(&faint("declined; Ctrl-C again ends the command\n"));
            }
            // The server may be gone.
            let _ = answer.send(given.unwrap_or(ElicitationAnswer::Decline));
        };
        self.explain(done).map(Some)
    }

    /// Counts the requests of a server. Returns `false` above the maximum.
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
