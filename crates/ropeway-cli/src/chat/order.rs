//! Orders: what is typed behind a slash that needs no turn of the model.

use std::time::Duration;

use ropeway::duration::format_duration;
use ropeway::message::{Conversation, Message};

use super::slash::{self, Slash};
use super::{Chat, record, tell};
use crate::arguments::suggest;
use crate::catalog::{fill_prompt, tools_text};
use crate::failure::{Exit, Failure};
use crate::output::print::say;
use crate::terminal::style::faint;
use crate::terminal::text::{clean_line, columns, width};

/// How long a provider may take to list its models.
const LONGEST_LISTING: Duration = Duration::from_secs(5);

/// How many models are listed.
const MOST_MODELS: usize = 200;

impl Chat<'_> {
    /// Does what needs no model.
    pub(super) async fn order(&mut self, command: Slash) -> Result<(), Failure> {
        match command {
            Slash::Help => self.note(&slash::manual()),
            Slash::Tools { .. } if self.recipe.bridge.is_none() => {
                self.note("The model has no tools: the chat was started with --no-tools.\n");
            }
            Slash::Tools { words } => {
                let text = tools_text(self.session, &self.recipe.source, &words, width());
                self.note(&text);
            }
            Slash::Servers => {
                let verdicts = self.session.bridge.verdicts();
                let text = match &verdicts[..] {
                    [] => "There are no servers.\n".to_owned(),
                    verdicts => {
                        verdicts.iter().map(|verdict| self.session.advice.problem_text(verdict, width())).collect()
                    }
                };
                self.note(&text);
            }
            Slash::Save { file } => {
                record::write(&file, &self.agent.history())?;
                self.note(&faint(&format!("saved in {}\n", file.display())));
            }
            Slash::Load { file } => {
                let conversation = record::read(&file)?;
                let count = conversation.messages.len();
                self.agent.replace_history(conversation).await;
                self.begin_another();
                self.note(&faint(&format!("{count} messages of {}\n", file.display())));
            }
            Slash::Clear => {
                self.agent.replace_history(Conversation::new()).await;
                self.begin_another();
                self.note(&faint("everything is forgotten\n"));
            }
            Slash::Models => {
                let models = self.models().await;
                self.note(&format!("{}\n", clean_line(self.agent.model())));
                self.note(&listed(&models?, self.agent.model()));
            }
            Slash::Model { name, force } => {
                let name = if force { name } else { self.checked(name).await? };
                self.recipe.model = name;
                self.agent = self.recipe.agent(self.agent.history())?;
                self.note(&faint(&format!("{} is asked from now on\n", clean_line(&self.recipe.model))));
            }
            Slash::Expand { number } => {
                let text = self.screen.results().expand(number)?;
                self.note(&text);
            }
            Slash::Plain => {
                let is_plain = !self.screen.is_plain();
                self.screen.set_plain(is_plain);
                let text = match (is_plain, self.screen.is_plain()) {
                    (true, _) => "text is shown as it comes; /plain renders Markdown again\n",
                    (false, false) => "Markdown is rendered\n",
                    (false, true) => "this terminal shows no Markdown\n",
                };
                self.note(&faint(text));
            }
            Slash::Prompt { .. } | Slash::Retry | Slash::Quit => {}
        }
        Ok(())
    }

    /// Asks the provider for its models, and does not wait for long.
    async fn models(&self) -> Result<Vec<String>, Failure> {
        let listing = tokio::time::timeout(LONGEST_LISTING, self.recipe.provider.models());
        match self.session.status.during("listing models", listing).await {
            Ok(Ok(models)) => Ok(models),
            Ok(Err(error)) => Err(Failure::provider("could not list the models".to_owned(), &error)),
            Err(_) => Err(Failure::new(
                Exit::Timeout,
                format!("the provider did not list its models within {}", format_duration(LONGEST_LISTING)),
            )),
        }
    }

    /// Returns the name of a model that the provider has. Where it does not list its models, any name will do.
    async fn checked(&mut self, name: String) -> Result<String, Failure> {
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
        let failure = Failure::usage(format!("the provider has no model `{name}`"));
        let suggestion = suggest::did_you_mean(&name, models.iter().map(String::as_str));
        let failure = suggestion.into_iter().fold(failure, |failure, question| failure.hint(clean_line(&question)));
        Err(failure.hint(format!("`/model` lists its models; `/model {name} --force` uses this one anyway")))
    }

    /// What a server has to say to a model, as messages.
    pub(super) async fn prompt(&self, name: &str, words: &[String]) -> Result<Vec<Message>, Failure> {
        let filled = fill_prompt(self.session, name, words).await;
        if !self.is_late() {
            // Nobody waits for the server any more.
            self.session.waiting.clear();
        }
        let messages = filled?.to_messages();
        match messages.is_empty() {
            true => Err(Failure::usage(format!("prompt `{name}` says nothing"))),
            false => Ok(messages),
        }
    }

    /// Says something that is not the model's. A person reads it where everything else is, a script does not.
    fn note(&self, text: &str) {
        match self.recipe.desk {
            Some(_) => tell(text),
            None => say(text),
        }
    }
}

/// Returns the model that a name means: as it is, or with the tag that Ollama gives it, or without the folder that Gemini does.
fn find_model<'a>(name: &str, models: &'a [String]) -> Option<&'a str> {
    let bare = name.strip_prefix("models/").unwrap_or(name);
    let is_meant = |model: &&String| **model == name || **model == bare || model.strip_suffix(":latest") == Some(name);
    models.iter().find(is_meant).map(String::as_str)
}

/// Lists models side by side, the current one marked.
fn listed(models: &[String], current: &str) -> String {
    let shown = &models[..models.len().min(MOST_MODELS)];
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
        text.push_str(&faint(&format!("{more} more; `ropeway chat --models` lists all\n")));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_model_is_found_by_the_names_that_people_type() {
        let models = ["llama3:latest", "gemini-3", "a/b"].map(str::to_owned);
        let found =
            ["llama3", "llama3:latest", "models/gemini-3", "a/b", "b", ""].map(|name| find_model(name, &models));
        assert_eq!(found, [Some("llama3:latest"), Some("llama3:latest"), Some("gemini-3"), Some("a/b"), None, None]);
    }

    #[test]
    fn models_stand_side_by_side_and_the_current_one_is_marked() {
        let models: Vec<String> = (0..250).map(|number| format!("model-{number:03}\u{1b}[2J")).collect();
        let text = anstream::adapter::strip_str(&listed(&models, "model-003\u{1b}[2J")).to_string();
        assert!(text.contains("● model-003") && text.contains("  model-004"), "{text}");
        assert!(text.ends_with("50 more; `ropeway chat --models` lists all\n"), "{text}");
        assert!(text.lines().all(|line| columns(line) <= width()), "{text}");
    }
}
