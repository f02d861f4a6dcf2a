//! Slash commands that need no model turn.

use std::time::Duration;

use ropeway_core::duration::format_duration;
use ropeway_core::message::{Conversation, Message};
use ropeway_core::suggest;

use super::save_file;
use super::slash_parser::{self, SlashCommand};
use super::state::Chat;
use crate::catalog::{fill_prompt, tools_text};
use crate::failure::{Exit, Failure};
use crate::terminal::style::faint;
use crate::terminal::text::{clean_line, columns, width};

/// Time limit for listing a provider's models.
const LISTING_TIMEOUT: Duration = Duration::from_secs(5);

/// Maximum number of models that `/model` lists.
const MAX_MODELS: usize = 200;

impl Chat<'_> {
    /// Runs a command. `/prompt`, `/retry` and `/quit` are handled by the caller.
    pub(super) async fn run_command(&mut self, command: SlashCommand) -> Result<(), Failure> {
        match command {
            SlashCommand::Help => self.note(&slash_parser::help_text()),
            SlashCommand::Tools { .. } if self.agent_config.bridge.is_none() => {
                self.note("no tools: the chat was started with --no-tools\n");
            }
            SlashCommand::Tools { words } => {
                let text = tools_text(self.session, &self.agent_config.source, &words, width());
                self.note(&text);
            }
            SlashCommand::Servers => {
                let statuses = self.session.bridge.statuses();
                let text = match &statuses[..] {
                    [] => "no servers configured\n".to_owned(),
                    statuses => {
                        statuses.iter().map(|status| self.session.advice.problem_text(status, width())).collect()
                    }
                };
                self.note(&text);
            }
            SlashCommand::Save { file } => {
                save_file::write(&file, &self.agent.history())?;
                self.note(&faint(&format!("saved to {}\n", file.display())));
            }
            SlashCommand::Load { file } => {
                let conversation = save_file::read(&file)?;
                let count = conversation.messages.len();
                self.replace_history(conversation).await;
                self.start_new_conversation();
                self.note(&faint(&format!("loaded {count} messages from {}\n", file.display())));
            }
            SlashCommand::Undo => self.undo().await?,
            SlashCommand::Clear => {
                self.replace_history(Conversation::new()).await;
                self.start_new_conversation();
                self.note(&faint("conversation cleared\n"));
            }
            SlashCommand::Models => {
                let models = self.models().await;
                self.note(&format!("{}\n", clean_line(self.agent.model())));
                self.note(&list_models(&models?, self.agent.model()));
            }
            SlashCommand::Model { name, force } => {
                let name = if force { name } else { self.check_model(name).await? };
                self.agent_config.model = name;
                self.agent = self.agent_config.build_agent(self.agent.history())?;
                self.note(&faint(&format!("switched to {}\n", clean_line(&self.agent_config.model))));
            }
            SlashCommand::Expand { number } => {
                let text = self.screen.results().expand(number)?;
                self.note(&text);
            }
            SlashCommand::Plain => {
                let is_plain = !self.screen.is_plain();
                self.screen.set_plain(is_plain);
                let text = match (is_plain, self.screen.is_plain()) {
                    (true, _) => "Markdown rendering is off; /plain turns it on again\n",
                    (false, false) => "Markdown rendering is on\n",
                    (false, true) => "this terminal cannot render Markdown\n",
                };
                self.note(&faint(text));
            }
            SlashCommand::Prompt { .. } | SlashCommand::Retry | SlashCommand::Quit => {}
        }
        Ok(())
    }

    /// Lists the provider's models.
    async fn models(&self) -> Result<Vec<String>, Failure> {
        let listing = tokio::time::timeout(LISTING_TIMEOUT, self.agent_config.provider.models());
        match self.session.status.during("listing models", listing).await {
            Ok(Ok(models)) => Ok(models),
            Ok(Err(error)) => Err(Failure::provider("could not list models".to_owned(), &error)),
            Err(_) => Err(Failure::new(
                Exit::Timeout,
                format!("listing models timed out after {}", format_duration(LISTING_TIMEOUT)),
            )),
        }
    }

    /// Returns the provider's name for a model. Warns and returns the name itself if the provider lists no models.
    async fn check_model(&mut self, name: String) -> Result<String, Failure> {
        let models = match self.models().await {
            Ok(models) if !models.is_empty() => models,
            Ok(_) => {
                self.screen.warn(&format!("the provider lists no models; using `{name}` unchecked"));
                return Ok(name);
            }
            Err(failure) => {
                self.screen.warn(&format!("using `{name}` unchecked: {}", failure.line()));
                return Ok(name);
            }
        };
        if let Some(found) = find_model(&name, &models) {
            return Ok(found.to_owned());
        }
        let failure = Failure::usage(format!("unknown model `{name}`"));
        let suggestion = suggest::did_you_mean(&name, models.iter().map(String::as_str));
        let failure = suggestion.into_iter().fold(failure, |failure, question| failure.hint(clean_line(&question)));
        Err(failure.hint(format!("`/model` lists the available models; `/model {name} --force` skips the check")))
    }

    /// Gets a server's prompt as messages for the model.
    pub(super) async fn prompt(&self, name: &str, words: &[String]) -> Result<Vec<Message>, Failure> {
        let filled = fill_prompt(self.session, name, words).await;
        if !self.is_past_deadline() {
            // The servers that this command waited for are done.
            self.session.waiting.clear();
        }
        let messages = filled?.to_messages();
        if messages.is_empty() {
            return Err(Failure::usage(format!("prompt `{name}` has no messages")));
        }
        Ok(messages)
    }
}

/// Finds a model by its name, without Ollama's `:latest` or Gemini's `models/`.
fn find_model<'a>(name: &str, models: &'a [String]) -> Option<&'a str> {
    let bare = name.strip_prefix("models/").unwrap_or(name);
    let matches = |model: &&String| **model == name || **model == bare || model.strip_suffix(":latest") == Some(name);
    models.iter().find(matches).map(String::as_str)
}

/// Lays models out in columns and marks the current one.
fn list_models(models: &[String], current: &str) -> String {
    let shown = &models[..models.len().min(MAX_MODELS)];
    let entries: Vec<String> = shown
        .iter()
        .map(|model| format!("{} {}", if model == current { '●' } else { ' ' }, clean_line(model)))
        .collect();
    let widest = entries.iter().map(|entry| columns(entry)).max().unwrap_or(0) + 2;
    let across = (width() / widest.max(1)).max(1);
    let mut text = String::new();
    for row in entries.chunks(across) {
        let row: String = row.iter().map(|entry| format!("{entry}{}", " ".repeat(widest - columns(entry)))).collect();
        text.push_str(row.trim_end());
        text.push('\n');
    }
    if models.len() > shown.len() {
        let more = models.len() - shown.len();
        text.push_str(&faint(&format!("{more} more; run `ropeway chat --models` to list all\n")));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_model_is_found_by_every_name_that_people_type() {
        let models = ["llama3:latest", "gemini-3", "a/b"].map(str::to_owned);
        let found =
            ["llama3", "llama3:latest", "models/gemini-3", "a/b", "b", ""].map(|name| find_model(name, &models));
        assert_eq!(found, [Some("llama3:latest"), Some("llama3:latest"), Some("gemini-3"), Some("a/b"), None, None]);
    }

    #[test]
    fn models_are_listed_in_columns_with_the_current_one_marked() {
        let models: Vec<String> = (0..250).map(|number| format!("model-{number:03}\u{1b}[2J")).collect();
        let text = anstream::adapter::strip_str(&list_models(&models, "model-003\u{1b}[2J")).to_string();
        assert!(text.contains("● model-003") && text.contains("  model-004"), "{text}");
        assert!(text.ends_with("50 more; run `ropeway chat --models` to list all\n"), "{text}");
        assert!(text.lines().all(|line| columns(line) <= width()), "{text}");
    }
}
