//! A conversation made regular: every call has its result right behind it, whatever became of it in between.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};

use serde_json::Map;

use super::MediaSupport;
use super::draft::WRITTEN;
use crate::content::ContentPart;
use crate::json;
use crate::lowering::LoweredTools;
use crate::message::{
    AssistantMessage, AssistantPart, AssistantText, CallArguments, Conversation, Message, ModelEndpoint, OpaquePart,
    Reasoning, ToolCall, ToolResult,
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
    Private(&'a OpaquePart),
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
    /// The arguments as the model wrote them, if they go back to where they came from and are still the same.
    pub(super) written: Option<&'a str>,
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

/// The turns of a conversation, for a model that `speaker` is and that is told some media in words.
pub(super) fn turns<'a>(
    conversation: &'a Conversation,
    speaker: &ModelEndpoint,
    lowered: &LoweredTools,
    in_words: MediaSupport,
) -> Vec<Turn<'a>> {
    let mut turns = Turns { lowered, in_words, ids: HashSet::new(), numbers: HashMap::new(), turns: Vec::new() };
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
    lowered: &'l LoweredTools,
    in_words: MediaSupport,
    /// The ids that calls have so far.
    ids: HashSet<String>,
    /// The next number of an id that came more than once.
    numbers: HashMap<String, usize>,
    turns: Vec<Turn<'a>>,
}

impl<'a> Turns<'a, '_> {
    fn user(&mut self, parts: impl IntoIterator<Item = Cow<'a, ContentPart>>) {
        let in_words = self.in_words;
        let parts = parts.into_iter().filter(|part| part.as_text().is_none_or(|text| !text.is_empty()));
        let mut parts = parts.map(|part| in_words.told(part)).peekable();
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
                    outcomes.push(outcome(&made, result, self.in_words));
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
        let extra = native.then_some(&call.extra);
        let written = extra.and_then(|extra| extra.get(WRITTEN)?.as_str());
        // A provider may not take what only we can read.
        let written = written.filter(|text| matches!(json::without_lone_surrogates(text), Cow::Borrowed(_)));
        let written = written.filter(|text| match (&call.arguments, json::from_str(text)) {
            (CallArguments::Object(now), Ok(then)) => match tool {
                Some(tool) => tool.from_wire(then) == *now,
                None => then == *now,
            },
            _ => false,
        });
        Call { id: self.id(&call.id), wire_name, arguments, written, extra }
    }

    /// An id that is legal everywhere and different from all others.
    fn id(&mut self, id: &str) -> String {
        let legal = |c: char| if c.is_ascii_alphanumeric() || matches!(c, '_' | '-') { c } else { '_' };
        let mut wanted: String = id.chars().map(legal).collect();
        if wanted.is_empty() {
            wanted.push_str("call");
        }
        if wanted.len() > MAX_ID {
            let end = format!("_{:08x}", crate::hash::short(id));
            wanted.truncate(MAX_ID - end.len());
            wanted.push_str(&end);
        }
        if self.ids.insert(wanted.clone()) {
            return wanted;
        }
        let next = self.numbers.entry(wanted.clone()).or_insert(2);
        loop {
            let end = format!("_{next}");
            *next += 1;
            let unique = format!("{}{end}", &wanted[..wanted.len().min(MAX_ID - end.len())]);
            if self.ids.insert(unique.clone()) {
                return unique;
            }
        }
    }
}

fn outcome<'a>(call: &Call<'a>, result: Option<&'a ToolResult>, in_words: MediaSupport) -> Outcome<'a> {
    let (id, wire_name) = (call.id.clone(), call.wire_name.clone());
    match result {
        Some(result) => {
            Outcome { id, wire_name, content: in_words.all_told(&result.content), is_error: result.is_error }
        }
        None => {
            let content = Cow::Owned(vec![ContentPart::text(NO_RESULT)]);
            Outcome { id, wire_name, content, is_error: true }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::message::{Dialect, UserMessage};

    fn speaker(endpoint: &str) -> ModelEndpoint {
        ModelEndpoint { dialect: Dialect::Chat, endpoint: endpoint.to_owned(), model: "m".to_owned() }
    }

    fn conversation(messages: serde_json::Value) -> Conversation {
        serde_json::from_value(json!({"messages": messages})).expect("a conversation")
    }

    /// The turns in short: `user: a b`, `assistant: text, call(id)`, `results: id=text`.
    fn short(conversation: &Conversation) -> Vec<String> {
        let shown = |parts: &[ContentPart]| {
            parts.iter().map(|part| part.as_text().unwrap_or("(no text)").to_owned()).collect::<Vec<_>>().join(" ")
        };
        let turns = turns(conversation, &speaker("here"), &LoweredTools::default(), MediaSupport::NONE);
        turns
            .iter()
            .map(|turn| match turn {
                Turn::User(parts) => {
                    let parts: Vec<ContentPart> = parts.iter().map(|part| part.clone().into_owned()).collect();
                    format!("user: {}", shown(&parts))
                }
                Turn::Assistant(answer) => {
                    let parts = answer.parts.iter().map(|part| match part {
                        Part::Text(text) => format!("`{}`", text.text),
                        Part::Reasoning(reasoning) => format!("({})", reasoning.text),
                        Part::Call(call) => format!("{}[{}]", call.wire_name, call.id),
                        Part::Private(_) => "private".to_owned(),
                    });
                    format!("assistant: {}", parts.collect::<Vec<_>>().join(" "))
                }
                Turn::Results(outcomes) => {
                    let outcome = |outcome: &Outcome<'_>| {
                        let mark = if outcome.is_error { "!" } else { "" };
                        format!("{}{mark}={}", outcome.id, shown(&outcome.content))
                    };
                    format!("results: {}", outcomes.iter().map(outcome).collect::<Vec<_>>().join(", "))
                }
            })
            .collect()
    }

    fn call(id: &str) -> serde_json::Value {
        json!({"type": "tool_call", "id": id, "name": "t", "arguments": {}})
    }

    fn result(id: &str, text: &str) -> serde_json::Value {
        json!({"call": id, "tool": "t", "content": [{"type": "text", "text": text}]})
    }

    fn user(text: &str) -> serde_json::Value {
        json!({"role": "user", "content": [{"type": "text", "text": text}]})
    }

    #[test]
    fn results_stand_behind_their_calls_in_the_order_of_the_calls_wherever_they_were() {
        let conversation = conversation(json!([
            user("a"),
            user("b"),
            {"role": "assistant", "parts": [{"type": "text", "text": "hm"}, call("x"), call("y")]},
            {"role": "tool", "results": [result("y", "2")]},
            user("meanwhile"),
            {"role": "tool", "results": [result("x", "1")]},
        ]));
        assert_eq!(
            short(&conversation),
            ["user: a b", "assistant: `hm` t[x] t[y]", "results: x=1, y=2", "user: meanwhile"]
        );
    }

    #[test]
    fn a_call_without_a_result_gets_one_that_says_so() {
        let conversation = conversation(json!([{"role": "assistant", "parts": [call("x")]}]));
        assert_eq!(short(&conversation), ["assistant: t[x]".to_owned(), format!("results: x!={NO_RESULT}")]);
    }

    #[test]
    fn a_result_of_a_call_that_nobody_made_is_told_by_the_person() {
        let conversation = conversation(json!([
            {"role": "tool", "results": [result("x", "1")]},
            {"role": "assistant", "parts": [call("a")]},
            {"role": "tool", "results": [result("a", "2"), result("a", "3"), result("z", "4")]},
        ]));
        assert_eq!(
            short(&conversation),
            [
                "user: [a result of the tool `t`] 1",
                "assistant: t[a]",
                "results: a=2",
                "user: [a result of the tool `t`] 3 [a result of the tool `t`] 4"
            ]
        );
    }

    #[test]
    fn ids_are_made_legal_and_different() {
        let long = "x".repeat(80);
        let conversation = conversation(json!([
            {"role": "assistant", "parts": [call("a"), call("a"), call(""), call("b/c"), call(&long)]},
            {"role": "tool", "results": [result("a", "1"), result("a", "2"), result("b/c", "3")]},
            {"role": "assistant", "parts": [call("a")]},
        ]));
        let turns = turns(&conversation, &speaker("here"), &LoweredTools::default(), MediaSupport::NONE);
        let ids: Vec<&str> = turns
            .iter()
            .filter_map(|turn| match turn {
                Turn::Results(outcomes) => Some(outcomes.iter().map(|outcome| outcome.id.as_str())),
                _ => None,
            })
            .flatten()
            .collect();
        assert_eq!([ids[0], ids[1], ids[2], ids[3], ids[5]], ["a", "a_2", "call", "b_c", "a_3"]);
        assert_eq!(ids[4].len(), MAX_ID);
        assert!(short(&conversation)[1].starts_with("results: a=1, a_2=2, call!="));
    }

    #[test]
    fn many_equal_ids_are_not_counted_from_the_first_on_each_time() {
        let conversation = conversation(json!([{"role": "assistant", "parts": vec![call("a"); 20_000]}]));
        let turns = turns(&conversation, &speaker("here"), &LoweredTools::default(), MediaSupport::NONE);
        let Turn::Results(outcomes) = &turns[1] else { panic!("results") };
        // Counted from the first on, this many would take minutes.
        let counted = std::iter::once("a".to_owned()).chain((2..=20_000).map(|number| format!("a_{number}")));
        assert!(outcomes.iter().map(|outcome| outcome.id.clone()).eq(counted));
    }

    #[test]
    fn what_is_private_goes_back_only_to_where_it_came_from() {
        let answer = |endpoint: &str| {
            json!({"role": "assistant", "from": {"dialect": "chat", "endpoint": endpoint, "model": "m"}, "parts": [
                {"type": "reasoning", "text": "secret"}, {"type": "private", "json": {}}, {"type": "text", "text": ""}, {"type": "text", "text": "open"}
            ], "extra": {"x": 1}})
        };
        assert_eq!(short(&conversation(json!([answer("here")]))), ["assistant: (secret) private `` `open`"]);
        assert_eq!(short(&conversation(json!([answer("there")]))), ["assistant: `open`"]);
    }

    #[test]
    fn broken_arguments_become_an_object_that_holds_them() {
        let conversation = conversation(json!([{"role": "assistant", "parts": [
            {"type": "tool_call", "id": "x", "name": "t", "broken_arguments": {"text": "{\"a", "problem": "cut"}}
        ]}]));
        let turns = turns(&conversation, &speaker("here"), &LoweredTools::default(), MediaSupport::NONE);
        let Turn::Assistant(Answer { parts, .. }) = &turns[0] else { panic!("an answer") };
        let Part::Call(call) = &parts[0] else { panic!("a call") };
        assert_eq!(serde_json::to_value(&*call.arguments).expect("JSON"), json!({"invalid_arguments": "{\"a"}));
    }

    #[test]
    fn arguments_go_back_as_they_were_written_unless_somebody_has_changed_them() {
        let written = |arguments: serde_json::Value| {
            let conversation = conversation(json!([{
                "role": "assistant",
                "from": {"dialect": "chat", "endpoint": "here", "model": "m"},
                "parts": [{"type": "tool_call", "id": "x", "name": "t", "arguments": arguments, "extra": {"arguments": "{ \"a\": 1.0 }"}}],
            }]));
            let turns = turns(&conversation, &speaker("here"), &LoweredTools::default(), MediaSupport::NONE);
            let Turn::Assistant(Answer { parts, .. }) = &turns[0] else { panic!("an answer") };
            let Part::Call(call) = &parts[0] else { panic!("a call") };
            call.written.map(str::to_owned)
        };
        assert_eq!(written(json!({"a": 1.0})), Some("{ \"a\": 1.0 }".to_owned()));
        assert_eq!(written(json!({"a": 2})), None);
    }

    #[test]
    fn messages_that_say_nothing_are_gone() {
        let conversation = Conversation::new()
            .with(UserMessage::default())
            .with(AssistantMessage::default())
            .with("")
            .with(AssistantMessage::text(""))
            .with("hi");
        assert_eq!(short(&conversation), ["user: hi"]);
    }
}
