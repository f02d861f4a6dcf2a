//! Orders: what is typed behind a slash that needs no turn of the model.

use ropeway::message::{Conversation, Message};

use super::slash::{self, Slash};
use super::{Chat, record, tell};
use crate::command::{fill_prompt, say, tools_text};
use crate::failure::Failure;
use crate::help::faint;
use crate::text::{clean_line, width};

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
                    verdicts => verdicts.iter().map(|verdict| self.session.help.trouble(verdict, width())).collect(),
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
            Slash::Model { name: Some(name) } => {
                self.recipe.model = name;
                self.agent = self.recipe.agent(self.agent.history())?;
                self.note(&faint(&format!("{} is asked from now on\n", clean_line(&self.recipe.model))));
            }
            Slash::Model { name: None } => self.note(&format!("{}\n", clean_line(self.agent.model()))),
            Slash::Prompt { .. } | Slash::Retry | Slash::Quit => {}
        }
        Ok(())
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
