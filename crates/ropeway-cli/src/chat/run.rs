//! Runs a chat: one prompt, lines from standard input, or an interactive terminal.

use std::time::Duration;

use ropeway_agent::{TurnEnd, TurnOutcome};
use ropeway_core::duration::format_duration;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::time::Instant;

use super::line_editor::{EchoGuard, LineInput};
use super::slash_parser::{self, SlashCommand};
use super::state::{Chat, Mentions, deadline_reached};
use super::store::ConversationSaver;
use super::terminal::{TerminalUser, drain_signals, print_to_user, wait_for_interrupt};
use super::turn::AfterTurn;
use super::turn_failure::end_failure;
use crate::failure::{Exit, Failure};
use crate::output::print::say;
use crate::terminal::style::faint;

const PROMPT: &str = "› ";

impl Chat<'_> {
    /// Sends one message and prints the answer.
    pub(crate) async fn run_prompt(mut self, message: String, mentions: Mentions) -> Result<Exit, Failure> {
        let turn = self.send(&message, mentions)?;
        match self.run_turn(turn, None).await? {
            AfterTurn::Exit(exit) => Ok(exit),
            AfterTurn::Continue(outcome) => Ok(exit_of(&outcome)),
        }
    }

    /// Handles each line from standard input as a message or a command.
    pub(crate) async fn run_lines(mut self) -> Result<Exit, Failure> {
        let mut lines = BufReader::new(tokio::io::stdin()).lines();
        let unreadable = |error| Failure::usage("could not read standard input").caused_by(&error);
        while let Some(line) = lines.next_line().await.map_err(unreadable)? {
            match self.handle_line(&line, None).await? {
                Some(AfterTurn::Exit(exit)) => return Ok(exit),
                Some(AfterTurn::Continue(outcome)) => match exit_of(&outcome) {
                    Exit::Done => {}
                    exit => return Ok(exit),
                },
                None => {}
            }
        }
        Ok(Exit::Done)
    }

    /// Reads messages from a terminal until the user leaves.
    pub(crate) async fn run_interactive(mut self, mut user: TerminalUser) -> Result<Exit, Failure> {
        let done = self.interactive_loop(&mut user).await;
        if let Some(id) = self.save_state.saver.as_ref().and_then(ConversationSaver::id) {
            print_to_user(&faint(&format!("continue this conversation with `ropeway chat --resume {id}`\n")));
        }
        done
    }

    async fn interactive_loop(&mut self, user: &mut TerminalUser) -> Result<Exit, Failure> {
        // Ctrl-C at an empty prompt was pressed once.
        let mut leaves_on_interrupt = false;
        let mut has_announced = false;
        loop {
            // Servers may connect later, so that the tools become too many.
            if !has_announced && let Some(tool) = self.search_tool() {
                has_announced = true;
                print_to_user(&faint(&format!("too many tools to send all; the model finds them with `{tool}`\n")));
            }
            let input = tokio::select! {
                biased;
                input = user.editor.message(PROMPT) => input,
                () = deadline_reached(self.session) => return Err(self.deadline_failure()),
            };
            let line = match input {
                LineInput::Line(line) => line,
                LineInput::Interrupted { empty: true } if leaves_on_interrupt => return Ok(Exit::Interrupted),
                LineInput::Interrupted { empty } => {
                    leaves_on_interrupt = empty;
                    if empty {
                        print_to_user(&faint("press Ctrl-C again or Ctrl-D to leave\n"));
                    }
                    continue;
                }
                LineInput::End => return Ok(Exit::Done),
            };
            let started = Instant::now();
            let echo_guard = EchoGuard::begin();
            self.interrupt_count = 0;
            drain_signals(&mut user.interrupts).await;
            let done = self.handle_line(&line, Some(user)).await;
            drop(echo_guard);
            // After two presses during the turn, a third one at the prompt leaves the chat.
            leaves_on_interrupt = self.interrupt_count > 1;
            match done {
                Ok(Some(AfterTurn::Exit(exit))) => return Ok(exit),
                Ok(Some(AfterTurn::Continue(outcome))) => print_usage(&outcome, started.elapsed()),
                Ok(None) => {}
                Err(failure) if self.is_past_deadline() => return Err(failure),
                Err(failure) => say(&failure.render()),
            }
        }
    }

    /// Runs a slash command, or sends the line to the model. Returns `None` if no turn was run.
    async fn handle_line(
        &mut self,
        line: &str,
        mut user: Option<&mut TerminalUser>,
    ) -> Result<Option<AfterTurn>, Failure> {
        if line.trim().is_empty() {
            return Ok(None);
        }
        let turn = match slash_parser::parse(line) {
            // Lines that no user typed are untrusted and must not choose files.
            None => self.send(line, if user.is_some() { Mentions::Read } else { Mentions::Ignore })?,
            Some(command) => match command? {
                SlashCommand::Quit => return Ok(Some(AfterTurn::Exit(Exit::Done))),
                SlashCommand::Retry => self.retry(),
                SlashCommand::Prompt { name, words } => tokio::select! {
                    biased;
                    () = wait_for_interrupt(user.as_deref_mut()) => return Ok(print_cancelled()),
                    prompt = self.prompt(&name, &words) => {
                        let messages = prompt?;
                        self.begin_turn(messages)
                    }
                },
                SlashCommand::Save { .. } | SlashCommand::Load { .. } if user.is_none() => {
                    let failure = Failure::usage("`/save` and `/load` need a terminal");
                    return Err(failure.hint("use `--save FILE` and `--resume FILE` instead"));
                }
                other => tokio::select! {
                    biased;
                    () = wait_for_interrupt(user.as_deref_mut()) => return Ok(print_cancelled()),
                    done = self.run_command(other) => return done.map(|()| None),
                },
            },
        };
        self.run_turn(turn, user).await.map(Some)
    }
}

/// Prints how a turn failed, if it did, and its tokens, cost and duration.
fn print_usage(outcome: &TurnOutcome, took: Duration) {
    if let Some(failure) = end_failure(&outcome.end) {
        say(&failure.render());
    }
    let cancelled = if outcome.end == TurnEnd::Cancelled { "cancelled · " } else { "" };
    let tokens = match outcome.usage.input + outcome.usage.output {
        0 => String::new(),
        _ => format!("{} input tokens, {} output tokens · ", outcome.usage.input, outcome.usage.output),
    };
    let cost = outcome.usage.cost.map(|cost| format!("{cost} · ")).unwrap_or_default();
    say(&faint(&format!("{cancelled}{tokens}{cost}{}\n", format_duration(took))));
}

/// Prints how a turn failed, if it did, and returns its exit code.
fn exit_of(outcome: &TurnOutcome) -> Exit {
    end_failure(&outcome.end).map_or(Exit::Done, |failure| {
        say(&failure.render());
        failure.exit()
    })
}

fn print_cancelled() -> Option<AfterTurn> {
    print_to_user(&faint("cancelled\n"));
    None
}
