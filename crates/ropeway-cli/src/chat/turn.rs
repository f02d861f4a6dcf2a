//! Runs one turn: shows its steps, asks the user, and handles Ctrl-C and the deadline.

use std::cell::Cell;
use std::time::Duration;

use ropeway_agent::{Approval, ApprovalRequest, Permission, Step, Turn, TurnOutcome};
use ropeway_core::message::CallArguments;
use ropeway_core::tool::{CallError, Origin};
use ropeway_mcp::ElicitationAnswer;

use super::approval;
use super::approval_question::{ApprovalChoices, ApprovalQuestion, REASON_PROMPT, Reply};
use super::call_display;
use super::elicitation::{self, MAX_QUESTIONS};
use super::line_editor::{LineEditor, LineInput};
use super::question::{Question, QuestionOutcome};
use super::state::{Chat, deadline_reached};
use super::terminal::{TerminalUser, print_to_user, wait_for_interrupt};
use crate::failure::{Exit, Failure};
use crate::output::print::say;
use crate::sign_in::offer::{SignInQuestion, offer};
use crate::terminal::status::Status;
use crate::terminal::style::faint;
use crate::terminal::text::width;

/// Time that a cancelled turn has to end.
const CANCEL_GRACE: Duration = Duration::from_millis(500);

enum TurnEvent {
    Step(Option<Step>),
    Question(Question),
    Interrupt,
    Deadline,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CancelReason {
    Interrupt,
    /// Ctrl-C was pressed again: the chat ends, too.
    SecondInterrupt,
    Deadline,
    /// Standard output was closed.
    OutputClosed,
}

/// How the chat continues after a turn.
pub(super) enum AfterTurn {
    Continue(Box<TurnOutcome>),
    Exit(Exit),
}

impl Chat<'_> {
    /// Runs a turn to its end and saves the conversation.
    pub(super) async fn run_turn(
        &mut self,
        mut turn: Turn,
        user: Option<&mut TerminalUser>,
    ) -> Result<AfterTurn, Failure> {
        self.session.warn_differences();
        self.question_counts.clear();
        let cancelled_by = self.follow_turn(&mut turn, user).await?;
        if cancelled_by.is_some() {
            // Pending questions belong to the cancelled turn.
            while self.questions.try_recv().is_ok() {}
        }
        let finished = match cancelled_by {
            None | Some(CancelReason::Interrupt) => Some(turn.finish().await),
            Some(CancelReason::SecondInterrupt | CancelReason::Deadline | CancelReason::OutputClosed) => {
                tokio::time::timeout(CANCEL_GRACE, turn.finish()).await.ok()
            }
        };
        self.screen.end()?;
        self.save_conversation()?;
        let outcome = match (cancelled_by, finished) {
            (Some(CancelReason::Deadline), _) => return Err(self.deadline_failure()),
            (Some(CancelReason::OutputClosed), _) => return Ok(AfterTurn::Exit(Exit::Done)),
            (Some(CancelReason::SecondInterrupt), _) | (_, None) => return Ok(AfterTurn::Exit(Exit::Interrupted)),
            (_, Some(Ok(outcome))) => outcome,
            (_, Some(Err(error))) => return Err(self.turn_failed(&error).await),
        };
        self.screen.outcome(&outcome)?;
        Ok(AfterTurn::Continue(Box::new(outcome)))
    }

    /// Shows a turn's steps and answers its questions until it ends or is cancelled.
    async fn follow_turn(
        &mut self,
        turn: &mut Turn,
        mut user: Option<&mut TerminalUser>,
    ) -> Result<Option<CancelReason>, Failure> {
        let mut is_cancelled = false;
        loop {
            let event = {
                let Self { session, screen, questions, .. } = self;
                tokio::select! {
                    biased;
                    // Polled first: a turn may always have another step ready.
                    () = wait_for_interrupt(user.as_deref_mut()) => TurnEvent::Interrupt,
                    () = deadline_reached(session) => TurnEvent::Deadline,
                    step = screen.waiting(&session.status, turn.next()) => TurnEvent::Step(step),
                    Some(question) = questions.recv() => TurnEvent::Question(question),
                }
            };
            let outcome = match event {
                TurnEvent::Step(None) => return Ok(is_cancelled.then_some(CancelReason::Interrupt)),
                TurnEvent::Step(Some(step)) => {
                    self.screen.step(&step, &self.session.advice, &self.session.status)?;
                    self.print_approval_hint(&step);
                    if self.screen.is_closed() {
                        turn.cancel();
                        return Ok(Some(CancelReason::OutputClosed));
                    }
                    QuestionOutcome::Continue
                }
                // A cancelled turn takes no answers.
                TurnEvent::Question(_) if is_cancelled => QuestionOutcome::Continue,
                TurnEvent::Question(question) => {
                    self.screen.end()?;
                    let session = self.session;
                    match user.as_deref_mut() {
                        Some(TerminalUser { editor, interrupts }) => tokio::select! {
                            biased;
                            outcome = self.answer_question(question, editor) => outcome,
                            // The line editor reads Ctrl-C as a key: this signal was sent from outside or between two prompts.
                            Some(()) = interrupts.recv() => QuestionOutcome::Decline,
                            () = deadline_reached(session) => {
                                turn.cancel();
                                return Ok(Some(CancelReason::Deadline));
                            }
                        },
                        None => QuestionOutcome::Continue,
                    }
                }
                TurnEvent::Interrupt => {
                    self.screen.clear_echo();
                    QuestionOutcome::Interrupt
                }
                TurnEvent::Deadline => {
                    turn.cancel();
                    return Ok(Some(CancelReason::Deadline));
                }
            };
            self.interrupt_count +=
                usize::from(matches!(outcome, QuestionOutcome::Decline | QuestionOutcome::Interrupt));
            match outcome {
                QuestionOutcome::Continue => {}
                QuestionOutcome::Decline if self.interrupt_count < 2 => {
                    print_to_user(&faint("declined; press Ctrl-C again to end the turn\n"));
                }
                QuestionOutcome::Decline | QuestionOutcome::Interrupt | QuestionOutcome::Quit => {
                    turn.cancel();
                    if std::mem::replace(&mut is_cancelled, true) {
                        return Ok(Some(CancelReason::SecondInterrupt));
                    }
                }
            }
        }
    }

    async fn answer_question(&mut self, question: Question, editor: &LineEditor) -> QuestionOutcome {
        match question {
            // The asking turn has ended.
            Question::Server(_, answer) if answer.is_closed() => QuestionOutcome::Continue,
            Question::Call(_, answer) if answer.is_closed() => QuestionOutcome::Continue,
            Question::SignIn((_, answer)) if answer.is_closed() => QuestionOutcome::Continue,
            Question::SignIn(question) => answer_sign_in(question, &self.session.status, editor).await,
            Question::Server(elicitation, answer) => {
                let count = self.question_counts.entry(elicitation.server.clone()).or_default();
                *count += 1;
                if *count > MAX_QUESTIONS {
                    if *count == MAX_QUESTIONS + 1 {
                        let server = elicitation.server.as_str();
                        self.screen.warn(&format!("too many questions from server `{server}`; declining the rest"));
                    }
                    let _ = answer.send(ElicitationAnswer::Cancel);
                    return QuestionOutcome::Continue;
                }
                let is_given = elicitation::answer(&elicitation, editor, answer).await;
                if is_given { QuestionOutcome::Continue } else { QuestionOutcome::Decline }
            }
            Question::Call(request, answer) => match self.ask_approval(&request, editor).await {
                Ok(approval) => {
                    let _ = answer.send(approval);
                    QuestionOutcome::Continue
                }
                Err(outcome) => outcome,
            },
        }
    }

    /// Asks the user whether a tool may be called. Returns an error if the user ends the turn instead.
    async fn ask_approval(
        &mut self,
        request: &ApprovalRequest,
        editor: &LineEditor,
    ) -> Result<Approval, QuestionOutcome> {
        let replaced = match &request.origin {
            Origin::Server { server, tool } => {
                self.agent_config.local_folders.replaced(server, tool, &request.arguments).await
            }
            Origin::Local => None,
        };
        let width = width();
        let question = ApprovalQuestion::new(request, self.approval_choices(request), replaced.as_ref(), width);
        if !self.screen.shows_call(&request.call) {
            let name = call_display::tool_name(&request.tool, &request.origin);
            let arguments = CallArguments::Object(request.arguments.clone());
            print_to_user(&call_display::started_line(&name, &arguments, request.summary.as_deref(), width));
        }
        print_to_user(&question.before);
        let (choices, prompt) = (question.choices, question.choices.prompt());
        let mut input = editor.key(&prompt, false).await;
        loop {
            let reply = match input {
                LineInput::Line(line) => Reply::read(&line).filter(|reply| choices.offers(reply)),
                LineInput::Interrupted { .. } => return Err(QuestionOutcome::Interrupt),
                LineInput::End => Some(Reply::Quit),
            };
            let is_typing = reply.is_none();
            match reply {
                Some(Reply::Show) => print_to_user(&question.whole),
                Some(Reply::Quit) => return Err(QuestionOutcome::Quit),
                Some(Reply::Answer(Approval::Deny { reason: None })) => return ask_reason(editor).await,
                Some(Reply::Answer(approval)) => return Ok(approval),
                Some(Reply::Keep) => {
                    self.keep_approval(request);
                    return Ok(Approval::Always);
                }
                Some(Reply::Help) | None => print_to_user(&faint(&choices.help(&request.origin, width))),
            }
            input = editor.key(&prompt, is_typing).await;
        }
    }

    /// Returns the optional answers that apply to a call.
    fn approval_choices(&self, request: &ApprovalRequest) -> ApprovalChoices {
        let is_server = matches!(request.origin, Origin::Server { .. });
        let read_only = is_server && request.annotations.read_only() && !request.definition.provenance.trust_hints;
        ApprovalChoices {
            keep: is_server && self.agent_config.approval_store.is_some(),
            read_only,
            ..ApprovalChoices::default()
        }
    }

    /// Keeps an approval for later chats.
    fn keep_approval(&self, request: &ApprovalRequest) {
        let Some(store) = &self.agent_config.approval_store else { return };
        match store.keep(&request.definition) {
            Ok(()) => print_to_user(&faint(&format!("kept in {}\n", store.path().display()))),
            Err(failure) => print_to_user(&failure.hint("the tool is allowed for this chat only").render()),
        }
    }

    /// Names the option that would have allowed a call that was denied because no terminal could ask.
    fn print_approval_hint(&self, step: &Step) {
        let Step::CallFinished { envelope, .. } = step else { return };
        let tools = self.agent.all_tools();
        if !self.is_interactive()
            && let Some(CallError::Denied { .. }) = envelope.error.as_deref()
            && let Some(tool) = tools.get(&envelope.tool)
            && self.agent_config.rules.policy().permission(tool.definition()) == Permission::Ask
        {
            let glob = approval::exact_pattern(tool.definition());
            let quoted = shlex::try_quote(&glob).map_or_else(|_| glob.clone(), |quoted| quoted.into_owned());
            say(&faint(&format!("    use `--allow {quoted}` to allow it, or `--yes` to allow all calls\n")));
        }
    }
}

/// Offers a sign-in. Ctrl-C declines it.
pub(super) async fn answer_sign_in(question: SignInQuestion, status: &Status, editor: &LineEditor) -> QuestionOutcome {
    let (request, answer) = question;
    let is_interrupted = Cell::new(false);
    let given = offer(&request, status, async |prompt: &str| match editor.question(prompt).await {
        LineInput::Line(line) => Some(line),
        LineInput::Interrupted { .. } => {
            is_interrupted.set(true);
            None
        }
        LineInput::End => None,
    });
    // The call may be over.
    let _ = answer.send(given.await);
    if is_interrupted.get() { QuestionOutcome::Decline } else { QuestionOutcome::Continue }
}

/// Asks why a call is denied.
async fn ask_reason(editor: &LineEditor) -> Result<Approval, QuestionOutcome> {
    match editor.again(REASON_PROMPT).await {
        LineInput::Line(line) => {
            let reason = Some(line.trim()).filter(|reason| !reason.is_empty());
            Ok(Approval::Deny { reason: reason.map(str::to_owned) })
        }
        LineInput::Interrupted { .. } => Err(QuestionOutcome::Interrupt),
        LineInput::End => Ok(Approval::deny()),
    }
}
