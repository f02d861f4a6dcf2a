//! Reviews how a server's tokens are obtained: commands, files, and OAuth settings.

use serde_json::Value;

use super::redact::{redact_argument, redact_value};
use super::references::{collect_references, has_reference, loads_code};
use super::token::placeholder;
use super::types::{TokenCommandReview, ValueReference};
use crate::file::raw::{RawAuth, RawText, RawTokenCommand};

/// The part about `auth` in a review.
pub(super) struct TokenReview {
    pub(super) commands: Vec<TokenCommandReview>,
    pub(super) receives: Vec<ValueReference>,
    pub(super) warnings: Vec<String>,
    /// OAuth settings, as JSON without commands and secrets.
    pub(super) settings: Option<String>,
}

/// Reviews OAuth or a token command. `all` gets the files and variables that are only read here.
pub(super) fn review_tokens(auth: &RawAuth, salt: &str, all: &mut Vec<ValueReference>) -> TokenReview {
    let mut review = TokenReview { commands: Vec::new(), receives: Vec::new(), warnings: Vec::new(), settings: None };
    // The command receives these values, not the server.
    let mut of_commands = Vec::new();
    for (_, command) in auth.commands() {
        review.add_command(command, salt);
        command.cwd.iter().for_each(|cwd| collect_references(cwd, all));
        let values = command.env.0.iter().map(|(_, value)| value);
        command.command.iter().chain(values).for_each(|text| collect_references(&text.0, &mut of_commands));
    }
    for path in auth.token_files() {
        collect_references(path, all);
        review.receives.push(ValueReference::File(path.to_owned()));
    }
    let mut shown = auth.clone();
    for (path, text) in shown.secrets_mut() {
        if !has_reference(text) {
            *text = placeholder(text, &format!("{salt}.{path}"));
        }
    }
    shown.texts_mut().into_iter().for_each(|text| collect_references(text, &mut review.receives));
    // Once for each: a value that a command gets may also be sent to the server.
    for reference in &of_commands {
        if let Some(at) = review.receives.iter().position(|received| received == reference) {
            review.receives.remove(at);
        }
    }
    all.extend(of_commands);
    if let RawAuth::OAuth(_) = auth {
        let value = serde_json::to_value(&shown).unwrap_or_default();
        review.settings = Some(match value {
            Value::String(text) => text,
            value => value.to_string(),
        });
    }
    review
}

impl TokenReview {
    fn add_command(&mut self, raw: &RawTokenCommand, salt: &str) {
        let mut command = Vec::new();
        let mut before = "";
        for RawText(word) in &raw.command {
            command.push(if command.is_empty() { word.clone() } else { redact_argument(before, word, salt) });
            before = word;
        }
        let mut env = Vec::new();
        for (name, RawText(value)) in &raw.env.0 {
            env.push((name.clone(), redact_value(name, value, salt)));
            if loads_code(name) && has_reference(value) {
                let warning = format!("the environment or `.env` sets {name}, which can change the code that runs");
                self.warnings.push(warning);
            }
        }
        if raw.cwd.as_deref().is_some_and(has_reference) {
            self.warnings.push("the environment or `.env` sets the working directory of the token command".to_owned());
        }
        self.commands.push(TokenCommandReview { command, cwd: raw.cwd.clone(), env });
    }
}
