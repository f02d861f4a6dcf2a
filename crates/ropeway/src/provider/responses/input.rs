//! The input: a conversation as items.

use std::borrow::Cow;

use serde::de::IgnoredAny;
use serde::ser::{Error, SerializeMap, SerializeSeq};
use serde::{Deserialize, Serialize, Serializer};
use serde_json::{Map, Value};

use super::item::{PART, is_whole, item_of, part_of, text_field};
use crate::json;
use crate::message::{AssistantMessage, AssistantText};
use crate::provider::history::{Answer, Call, Outcome, Part, Turn};
use crate::provider::piece::{DataUrl, Piece};

/// What stands for an answer without any content: an empty one looks to a model as if something had gone wrong.
const NO_OUTPUT: &str = "(no output)";

/// What an error begins with. The protocol has no mark for one, so the text itself must say what it is.
const ERROR: &str = "error: ";

/// An error that has no words of its own.
const FAILED: &str = "error: the tool failed";

/// A conversation as items.
#[derive(Debug)]
pub(super) struct Input<'a> {
    items: Vec<Item<'a>>,
    /// A text of another model goes as a string, as OpenAI itself takes it.
    as_string: bool,
}

#[derive(Debug)]
enum Item<'a> {
    User(Vec<InputPart<'a>>),
    /// A message that goes back as it came.
    Message(&'a Map<String, Value>, Vec<&'a AssistantText>),
    /// A text of another model.
    Said(&'a str),
    /// A call, with the rest of the item that it came in.
    Call(&'a Call<'a>, Option<&'a Map<String, Value>>),
    Output(&'a str, Output<'a>),
    AsItCame(&'a Map<String, Value>),
}

#[derive(Debug, Serialize)]
#[serde(tag = "type")]
enum InputPart<'a> {
    #[serde(rename = "input_text")]
    Text { text: Cow<'a, str> },
    #[serde(rename = "input_image")]
    Image { image_url: DataUrl<'a>, detail: &'static str },
    #[serde(rename = "input_file")]
    File { filename: String, file_data: DataUrl<'a> },
}

#[derive(Debug, Serialize)]
#[serde(untagged)]
enum Output<'a> {
    Text(Cow<'a, str>),
    Parts(Vec<InputPart<'a>>),
}

impl<'a> Input<'a> {
    /// The items of a conversation, for a model that reasons or one that does not.
    pub(super) fn new(turns: &'a [Turn<'a>], is_openai: bool, reasons: bool) -> Self {
        let mut items = Vec::with_capacity(turns.len());
        let takes = |thought: &Map<String, Value>| reasons && (!is_openai || holds_something(thought));
        for turn in turns {
            match turn {
                Turn::User(parts) => {
                    items.push(Item::User(parts.iter().map(|part| input_part(Piece::of(part))).collect()));
                }
                Turn::Assistant(answer) => push_answer(answer, takes, &mut items),
                Turn::Results(outcomes) => {
                    items.extend(outcomes.iter().map(|outcome| Item::Output(&outcome.id, output(outcome))));
                }
            }
        }
        // A message without any content is refused.
        items.retain(|item| !matches!(item, Item::Message(_, texts) if !texts.iter().any(|text| is_there(text))));
        Self { items, as_string: is_openai }
    }
}

/// Puts an answer in; one that holds thoughts that are not taken goes without them and without its ids.
fn push_answer<'a>(answer: &'a Answer<'a>, takes: impl Fn(&Map<String, Value>) -> bool, items: &mut Vec<Item<'a>>) {
    // Reasoning that led to nothing: the answer was too long before it began.
    let end = answer
        .parts
        .iter()
        .rposition(|part| match part {
            Part::Reasoning(_) => false,
            Part::Text(text) => is_there(text),
            _ => true,
        })
        .unwrap_or_default();
    let mut thoughts = answer.parts[..end].iter().filter_map(|part| match part {
        Part::Reasoning(reasoning) => item_of(&reasoning.extra),
        _ => None,
    });
    let whole =
        answer.native.is_some_and(|message: &AssistantMessage| is_whole(message, &answer.parts)) && thoughts.all(takes);
    for (at, part) in answer.parts.iter().enumerate() {
        match part {
            Part::Text(text) => match (item_of(&text.extra), items.last_mut()) {
                (Some(item), _) if whole => items.push(Item::Message(item, vec![text])),
                (None, Some(Item::Message(_, texts))) if whole && text.extra.contains_key(PART) => texts.push(text),
                _ if text.text.is_empty() => {}
                _ => items.push(Item::Said(&text.text)),
            },
            Part::Reasoning(reasoning) => {
                items.extend(item_of(&reasoning.extra).filter(|_| whole && at < end).map(Item::AsItCame));
            }
            Part::Call(call) => items.push(Item::Call(call, call.extra.filter(|_| whole).and_then(item_of))),
            Part::Private(private) => items.extend(whole.then_some(Item::AsItCame(&private.json))),
        }
    }
}

/// Does a thought hold more than its id? OpenAI keeps nothing for us, so it looks for one of which we have nothing in vain.
fn holds_something(thought: &Map<String, Value>) -> bool {
    let is_text = thought.get("encrypted_content").and_then(Value::as_str).is_some_and(|text| !text.is_empty());
    is_text || thought.get("content").and_then(Value::as_array).is_some_and(|parts| !parts.is_empty())
}

/// Is a text one that was said? A message without content has a text all the same, for its item to be kept in.
fn is_there(text: &AssistantText) -> bool {
    !text.text.is_empty() || text.extra.contains_key(PART)
}

fn input_part(piece: Piece<'_>) -> InputPart<'_> {
    match piece {
        Piece::Image(data) => InputPart::Image { image_url: DataUrl(data), detail: "auto" },
        Piece::Pdf(data) => InputPart::File { filename: data.file_name(), file_data: DataUrl(data) },
        piece => InputPart::Text { text: piece.into_text() },
    }
}

fn output<'a>(outcome: &'a Outcome<'a>) -> Output<'a> {
    let mut parts: Vec<InputPart<'a>> = outcome.content.iter().map(|part| input_part(Piece::of(part))).collect();
    if outcome.is_error {
        mark(&mut parts);
    }
    if !parts.iter().all(|part| matches!(part, InputPart::Text { .. })) {
        return Output::Parts(parts);
    }
    let mut texts = parts.into_iter().filter_map(|part| match part {
        InputPart::Text { text } => Some(text),
        _ => None,
    });
    let mut whole = texts.next().unwrap_or_default();
    for text in texts {
        let whole = whole.to_mut();
        whole.push('\n');
        whole.push_str(&text);
    }
    Output::Text(if whole.is_empty() { NO_OUTPUT.into() } else { whole })
}

/// Says that these parts are those of an error.
fn mark(parts: &mut Vec<InputPart<'_>>) {
    match parts.first_mut() {
        Some(InputPart::Text { text }) if says_error(text) => {}
        Some(InputPart::Text { text }) if !text.is_empty() => text.to_mut().insert_str(0, ERROR),
        Some(InputPart::Text { text }) => *text = FAILED.into(),
        _ => parts.insert(0, InputPart::Text { text: FAILED.into() }),
    }
}

/// Does a text call itself an error already?
fn says_error(text: &str) -> bool {
    #[derive(Deserialize)]
    struct SaysSo {
        #[serde(rename = "error")]
        _error: IgnoredAny,
    }
    text.get(..ERROR.len()).is_some_and(|start| start.eq_ignore_ascii_case(ERROR))
        || (text.trim_start().starts_with('{') && json::from_str::<SaysSo>(text).is_ok())
}

impl Serialize for Input<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut list = serializer.serialize_seq(Some(self.items.len()))?;
        for (at, item) in self.items.iter().enumerate() {
            match item {
                Item::Said(text) if !self.as_string => {
                    list.serialize_element(&Said { text, id: format!("msg_{at}") })?
                }
                item => list.serialize_element(item)?,
            }
        }
        list.end()
    }
}

/// A text of another model, as those take it who speak after OpenAI: llama.cpp takes no string, and others ask for an id and a
/// status as the SDKs' types do. OpenAI itself might look for an id that it has never given.
struct Said<'a> {
    text: &'a str,
    id: String,
}

impl Serialize for Said<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct OutputText<'a> {
            r#type: &'static str,
            text: &'a str,
            annotations: [(); 0],
        }
        let mut fields = serializer.serialize_map(None)?;
        fields.serialize_entry("type", "message")?;
        fields.serialize_entry("id", &self.id)?;
        fields.serialize_entry("role", "assistant")?;
        fields.serialize_entry("status", "completed")?;
        let text = OutputText { r#type: "output_text", text: self.text, annotations: [] };
        fields.serialize_entry("content", &[text])?;
        fields.end()
    }
}

impl Serialize for Item<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if let Self::AsItCame(item) = self {
            return item.serialize(serializer);
        }
        let mut fields = serializer.serialize_map(None)?;
        match self {
            Self::User(content) => {
                fields.serialize_entry("type", "message")?;
                fields.serialize_entry("role", "user")?;
                fields.serialize_entry("content", content)?;
            }
            Self::Said(text) => {
                fields.serialize_entry("type", "message")?;
                fields.serialize_entry("role", "assistant")?;
                fields.serialize_entry("content", text)?;
            }
            Self::Message(item, texts) => {
                for (name, value) in *item {
                    fields.serialize_entry(name, value)?;
                }
                fields.serialize_entry("content", &Content(texts))?;
            }
            Self::Call(call, item) => {
                match item {
                    Some(item) => {
                        for (name, value) in *item {
                            fields.serialize_entry(name, value)?;
                        }
                    }
                    None => fields.serialize_entry("type", "function_call")?,
                }
                fields.serialize_entry("call_id", &call.id)?;
                fields.serialize_entry("name", &call.wire_name)?;
                match call.written {
                    Some(written) => fields.serialize_entry("arguments", written)?,
                    None => fields.serialize_entry(
                        "arguments",
                        &serde_json::to_string(&call.arguments).map_err(Error::custom)?,
                    )?,
                }
            }
            Self::Output(call, output) => {
                fields.serialize_entry("type", "function_call_output")?;
                fields.serialize_entry("call_id", call)?;
                fields.serialize_entry("output", output)?;
            }
            Self::AsItCame(_) => {}
        }
        fields.end()
    }
}

/// The content of a message that goes back as it came.
struct Content<'a>(&'a [&'a AssistantText]);

impl Serialize for Content<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.iter().filter(|text| is_there(text)).map(|text| ContentPart(text)))
    }
}

struct ContentPart<'a>(&'a AssistantText);

impl Serialize for ContentPart<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut fields = serializer.serialize_map(None)?;
        match part_of(&self.0.extra) {
            Some(part) => {
                let text_field = text_field(part);
                for (name, value) in part {
                    match name == text_field {
                        true => fields.serialize_entry(name, &self.0.text)?,
                        false => fields.serialize_entry(name, value)?,
                    }
                }
            }
            None => {
                fields.serialize_entry("type", "output_text")?;
                fields.serialize_entry("text", &self.0.text)?;
                fields.serialize_entry("annotations", &[(); 0])?;
            }
        }
        fields.end()
    }
}
