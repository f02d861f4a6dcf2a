//! A conversation made regular: every call has its result right behind it, whatever became of it in between.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};

use serde_json::Map;

use crate::content::ContentPart;
use crate::lowering::Lowered;
use crate::message::{
    AssistantMessage, AssistantPart, AssistantText, CallArguments, Conversation, Message, Private, Reasoning, Speaker,
    ToolCall, ToolResult,
};
use crate::tool::Arguments;

/// How long the id of a call may be.
const MAX_ID: usize = 64;

/// What stands for a result that nobody wrote down.
const NO_RESULT: &str = "there is no result of this call: the turn was interrupted";

/// One turn of a conversation.
#[derive(Debug, PartialEq)]
pub(super) enum Turn<'a> {
    /// What the person said, messages that follow each other as one.
    User(Vec<Cow<'a, ContentPart>>),
    /// What the model said.
    Assistant(Answer<'a>),
    /// What the tools answered: one result for each call of the answer before, in the order of the calls.
    Results(Vec<Outcome<'a>>),
}

/// What the model said. What is private in it is there only if it goes back to where it came from.
#[derive(Debug, PartialEq)]
pub(super) struct Answer<'a> {
    /// The message, if it goes back to where it came from.
    pub(super) native: Option<&'a AssistantMessage>,
    /// Its parts, never none.
    pub(super) parts: Vec<Part<'a>>,
}

/// A part of an answer.
#[derive(Debug, PartialEq)]
pub(super) enum Part<'a> {
    /// Text; empty only if it goes back to where it came from.
    Text(&'a AssistantText),
    /// Reasoning that goes back to where it came from.
    Reasoning(&'a Reasoning),
    /// A call.
    Call(Call<'a>),
    /// A private part that goes back to where it came from.
    Private(&'a Private),
}

/// A call, as the dialect knows it.
#[derive(Debug, PartialEq)]
pub(super) struct Call<'a> {
    /// The id: different from all others, of letters, digits, `_` and `-`.
    pub(super) id: String,
    /// The dialect's name for the tool.
    pub(super) wire_name: String,
    /// The arguments; broken ones are an object that holds them as text.
    pub(super) arguments: Cow<'a, Arguments>,
    /// What goes back to where it came from.
    pub(super) extra: Option<&'a Map<String, serde_json::Value>>,
}

/// The result of a call, as the dialect knows it.
#[derive(Debug, PartialEq)]
pub(super) struct Outcome<'a> {
    /// The id of the call.
    pub(super) id: String,
    /// The dialect's name for the tool.
    pub(super) wire_name: String,
    /// The parts of the answer.
    pub(super) content: Cow<'a, [ContentPart]>,
    /// The call failed.
    pub(super) is_error: bool,
}

/// The turns of a conversation, for a model that `speaker` is.
pub(super) fn turns<'a>(conversation: &'a Conversation, speaker: &Speaker, lowered: &Lowered) -> Vec<Turn<'a>> {
    let mut turns = Turns { lowered, ids: HashSet::new(), turns: Vec::new() };
    let mut messages = conversation.messages.iter().peekable();
    while let Some(message) = messages.next() {
        match message {
            Message::User(message) => turns.user(message.content.iter().map(Cow::Borrowed)),
            // Results of calls that nobody made.
            Message::Tool(message) => message.results.iter().for_each(|result| turns.orphan(result)),
            Message::Assistant(answer) => {
                let mut results: Vec<&ToolResult> = Vec::new();
                let mut said: Vec<Cow<'a, ContentPart>> = Vec::new();
                while let Some(next) = messages.next_if(|next| !matches!(next, Message::Assistant(_))) {
                    match next {
                        Message::Tool(message) => results.extend(&message.results),
                        Message::User(message) => said.extend(message.content.iter().map(Cow::Borrowed)),
                        Message::Assistant(_) => {}
                    }
                }
                let native = answer.from.as_ref().is_some_and(|from| from.shares_secrets_with(speaker));
                turns.assistant(answer, native, results);
                turns.user(said);
            }
        }
    }
    turns.turns
}

struct Turns<'a, 'l> {
    lowered: &'l Lowered,
    /// The ids that calls have so far.
    ids: HashSet<String>,
    turns: Vec<Turn<'a>>,
}

impl<'a> Turns<'a, '_> {
    fn user(&mut self, parts: impl IntoIterator<Item = Cow<'a, ContentPart>>) {
        let mut parts = parts.into_iter().filter(|part| part.as_text().is_none_or(|text| !text.is_empty())).peekable();
        if parts.peek().is_none() {
            return;
        }
        match self.turns.last_mut() {
            Some(Turn::User(said)) => said.extend(parts),
            _ => self.turns.push(Turn::User(parts.collect())),
        }
    }

    fn assistant(&mut self, answer: &'a AssistantMessage, native: bool, results: Vec<&'a ToolResult>) {
        let mut parts = Vec::new();
        let mut outcomes = Vec::new();
        // Ids may come twice, in one answer even: the first result that is left belongs to the first call.
        let mut by_id: HashMap<&str, Vec<&'a ToolResult>> = HashMap::new();
        for result in results.iter().rev() {
            by_id.entry(&result.call).or_default().push(result);
        }
        for part in &answer.parts {
            parts.push(match part {
                AssistantPart::Text(text) if native || !text.text.is_empty() => Part::Text(text),
                AssistantPart::Reasoning(reasoning) if native => Part::Reasoning(reasoning),
                AssistantPart::Private(private) if native => Part::Private(private),
                AssistantPart::ToolCall(call) => {
                    let made = self.call(call, native);
                    let result = by_id.get_mut(call.id.as_str()).and_then(Vec::pop);
                    outcomes.push(outcome(&made, result));
                    Part::Call(made)
                }
                _ => continue,
            });
        }
        if !parts.is_empty() {
            let native = native.then_some(answer);
            // Two answers in a row are one, as far as every dialect is concerned.
            match self.turns.last_mut() {
                Some(Turn::Assistant(before)) if before.native.is_none() && native.is_none() => {
                    before.parts.extend(parts)
                }
                _ => self.turns.push(Turn::Assistant(Answer { native, parts })),
            }
        }
        if !outcomes.is_empty() {
            self.turns.push(Turn::Results(outcomes));
        }
        let mut left: HashSet<*const ToolResult> = by_id.into_values().flatten().map(std::ptr::from_ref).collect();
        for result in results {
            if left.remove(&std::ptr::from_ref(result)) {
                self.orphan(result);
            }
        }
    }

    /// A result of a call that nobody made: the model hears of it, but not as a result.
    fn orphan(&mut self, result: &'a ToolResult) {
        let line = format!("[a result of the tool `{}`]", result.tool);
        let content = result.content.iter().map(Cow::Borrowed);
        self.user(std::iter::once(Cow::Owned(ContentPart::text(line))).chain(content));
    }

    fn call(&mut self, call: &'a ToolCall, native: bool) -> Call<'a> {
        let tool = self.lowered.get(&call.name);
        let wire_name = tool.map_or_else(|| crate::lowering::wire_name(&call.name), |tool| tool.wire_name.clone());
        let arguments = match (&call.arguments, tool) {
            (CallArguments::Object(arguments), Some(tool)) => tool.to_wire(arguments),
            (CallArguments::Object(arguments), None) => Cow::Borrowed(arguments),
            (CallArguments::Broken(broken), _) => {
                let text = broken.text.clone().into();
                Cow::Owned(Arguments::from_iter([("invalid_arguments".to_owned(), text)]))
            }
        };
        Call { id: self.id(&call.id), wire_name, arguments, extra: native.then_some(&call.extra) }
    }

    /// An id that is legal everywhere and different from all others.
    fn id(&mut self, id: &str) -> String {
        let legal = |c: char| if c.is_ascii_alphanumeric() || matches!(c, '_' | '-') { c } else { '_' };
        let mut wanted: String = id.chars().map(legal).collect();
        if wanted.is_empty() {
            wanted.push_str("call");
        }
        if wanted.len() > MAX_ID {
            let end = format!("_{:08x}", crate::lowering::short_hash(id));
            wanted.truncate(MAX_ID - end.len());
            wanted.push_str(&end);
        }
        let mut unique = wanted.clone();
        for number in 2.. {
            if self.ids.insert(unique.clone()) {
                break;
            }
            let end = format!("_{number}");
            unique = format!("{}{end}", &wanted[..wanted.len().min(MAX_ID - end.len())]);
        }
        unique
    }
}

fn outcome<'a>(call: &Call<'a>, result: Option<&'a ToolResult>) -> Outcome<'a> {
    let (id, wire_name) = (call.id.clone(), call.wire_name.clone());
    match result {
        Some(result) => Outcome { id, wire_name, content: Cow::Borrowed(&result.content), is_error: result.is_error },
        None => {
            let content = Cow::Owned(vec![ContentPart::text(NO_RESULT)]);
            Outcome { id, wire_name, content, is_error: true }
        }
    }
}
