//! The contents of a request: what was said, as Gemini takes it.

use std::borrow::Cow;

use serde::ser::{Serialize, SerializeMap, Serializer};
use serde_json::{Map, Value};

use super::model::Model;
use super::{CALL, SIGNATURE};
use crate::provider::draft::WRITTEN;
use crate::provider::history::{self, Answer, Outcome, Turn};
use crate::provider::piece::{Data, Piece};

/// The signature of a call that has none, because another model made it or a server lost it: it says that there is none to check.
const NO_SIGNATURE: &str = "c2tpcF90aG91Z2h0X3NpZ25hdHVyZV92YWxpZGF0b3I=";

/// What the person says in a conversation that the model has begun.
const BEGINNING: &str = "[the conversation begins]";

/// What is said of a call that failed without a word.
const FAILED: &str = "the call failed";

/// What a result may hold besides text.
const RESULT_TYPES: [&str; 5] = ["image/png", "image/jpeg", "image/webp", "application/pdf", "text/plain"];

/// What one of both said.
#[derive(Debug, serde::Serialize)]
pub(super) struct Content<'a> {
    role: &'static str,
    parts: Vec<Part<'a>>,
}

/// One part of a content.
#[derive(Debug)]
enum Part<'a> {
    Text(Cow<'a, str>),
    Media(Data<'a>),
    /// Text or thoughts of Gemini's own.
    Own {
        text: &'a str,
        thought: bool,
        extra: &'a Map<String, Value>,
    },
    Call {
        call: &'a history::Call<'a>,
        /// It goes without a signature, and Gemini would miss one.
        unsigned: bool,
    },
    Private(&'a Map<String, Value>),
    Response(Response<'a>),
}

/// The result of a call.
#[derive(Debug)]
struct Response<'a> {
    /// Gemini's own id of the call, if it gave one.
    id: Option<&'a str>,
    name: &'a str,
    is_error: bool,
    text: Cow<'a, str>,
    media: Vec<Data<'a>>,
}

/// The contents of a conversation. `result_parts`: results may hold pictures.
pub(super) fn contents<'a>(turns: &'a [Turn<'a>], model: &Model<'_>, result_parts: bool) -> Vec<Content<'a>> {
    let mut contents = Contents { result_parts, ids: Vec::new(), contents: Vec::with_capacity(turns.len() + 1) };
    if let Some(Turn::Assistant(_)) = turns.first() {
        contents.push("user", vec![Part::Text(BEGINNING.into())]);
    }
    for turn in turns {
        match turn {
            Turn::User(said) => {
                contents.push("user", said.iter().map(|part| Part::from(Piece::of(part))).collect());
            }
            Turn::Assistant(answer) => {
                contents.answer(answer, !model.is_older());
            }
            Turn::Results(outcomes) => contents.results(outcomes),
        }
    }
    contents.contents
}

/// Contents in the making.
struct Contents<'a> {
    result_parts: bool,
    /// Gemini's own ids of the calls that wait for their results.
    ids: Vec<Option<&'a str>>,
    contents: Vec<Content<'a>>,
}

impl<'a> Contents<'a> {
    fn push(&mut self, role: &'static str, parts: Vec<Part<'a>>) {
        self.contents.push(Content { role, parts });
    }

    /// `sign`: a first call without a signature would be refused.
    fn answer(&mut self, answer: &'a Answer<'a>, mut sign: bool) {
        let is_own = answer.native.is_some();
        self.ids.clear();
        let mut parts = Vec::with_capacity(answer.parts.len());
        for part in &answer.parts {
            parts.push(match part {
                history::Part::Text(part) if is_own => {
                    Part::Own { text: &part.text, thought: false, extra: &part.extra }
                }
                history::Part::Text(part) => Part::Text(Cow::Borrowed(&part.text)),
                history::Part::Reasoning(part) => Part::Own { text: &part.text, thought: true, extra: &part.extra },
                history::Part::Private(part) => Part::Private(&part.json),
                history::Part::Call(call) => {
                    self.ids.push(own_call(call).and_then(|fields| fields.get("id")?.as_str()));
                    // Only the first call of a step has a signature.
                    let is_signed = call.extra.is_some_and(|extra| extra.contains_key(SIGNATURE));
                    Part::Call { call, unsigned: std::mem::take(&mut sign) && !is_signed }
                }
            });
        }
        match self.contents.last_mut() {
            // A call is taken only right behind what the person said, or a result.
            Some(before) if before.role == "model" => before.parts.extend(parts),
            _ => self.push("model", parts),
        }
    }

    fn results(&mut self, outcomes: &'a [Outcome<'a>]) {
        let ids = std::mem::take(&mut self.ids);
        let mut responses = Vec::with_capacity(outcomes.len());
        // What stands beside results counts as said by the model, so it has a content of its own.
        let mut aside = Vec::new();
        for (at, outcome) in outcomes.iter().enumerate() {
            let (response, rest) = self.response(outcome, ids.get(at).copied().flatten());
            responses.push(Part::Response(response));
            if !rest.is_empty() {
                let which = match outcomes.len() {
                    1 => String::new(),
                    all => format!(", result {} of {all}", at + 1),
                };
                aside.push(Part::Text(format!("[returned by the tool `{}`{which}]", outcome.wire_name).into()));
                aside.extend(rest.into_iter().map(Part::Media));
            }
        }
        self.push("user", responses);
        if !aside.is_empty() {
            self.push("user", aside);
        }
    }

    /// A result, and what of it has to be shown elsewhere.
    fn response(&self, outcome: &'a Outcome<'a>, id: Option<&'a str>) -> (Response<'a>, Vec<Data<'a>>) {
        let (mut texts, mut media, mut aside) = (Vec::new(), Vec::new(), Vec::new());
        for piece in outcome.content.iter().map(Piece::of) {
            let (kind, data) = match piece {
                Piece::Image(data) => ("image", data),
                Piece::Audio(data) => ("sound", data),
                Piece::Pdf(data) => ("document", data),
                piece => {
                    texts.push(piece.into_text());
                    continue;
                }
            };
            if self.result_parts && RESULT_TYPES.contains(&&*data.mime_type) {
                media.push(data);
            } else {
                texts.push(format!("[{kind}, {}: it follows the results]", data.mime_type).into());
                aside.push(data);
            }
        }
        texts.retain(|text| !text.is_empty());
        let text = match texts.len() {
            0 if outcome.is_error => FAILED.into(),
            0 | 1 => texts.pop().unwrap_or_default(),
            _ => texts.join("\n").into(),
        };
        (Response { id, name: &outcome.wire_name, is_error: outcome.is_error, text, media }, aside)
    }
}

/// What a call of Gemini's own had besides its name and its arguments.
fn own_call<'a>(call: &history::Call<'a>) -> Option<&'a Map<String, Value>> {
    call.extra?.get(CALL)?.as_object()
}

impl<'a> From<Piece<'a>> for Part<'a> {
    fn from(piece: Piece<'a>) -> Self {
        match piece {
            Piece::Image(data) | Piece::Audio(data) | Piece::Pdf(data) => Self::Media(data),
            piece => Self::Text(piece.into_text()),
        }
    }
}

impl Serialize for Part<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        match self {
            Self::Text(text) => map.serialize_entry("text", text)?,
            Self::Media(data) => map.serialize_entry("inlineData", &Blob::from(data))?,
            Self::Own { text, thought, extra } => {
                map.serialize_entry("text", text)?;
                if *thought {
                    map.serialize_entry("thought", thought)?;
                }
                others(&mut map, extra, &["text", "thought"])?;
            }
            Self::Call { call, unsigned } => {
                map.serialize_entry(CALL, &CallBody(call))?;
                if *unsigned {
                    map.serialize_entry(SIGNATURE, NO_SIGNATURE)?;
                }
                if let Some(extra) = call.extra {
                    others(&mut map, extra, &[CALL, WRITTEN])?;
                }
            }
            Self::Private(json) => others(&mut map, json, &[])?,
            Self::Response(response) => map.serialize_entry("functionResponse", response)?,
        }
        map.end()
    }
}

/// Writes the fields that are not said otherwise.
fn others<M: SerializeMap>(map: &mut M, fields: &Map<String, Value>, said: &[&str]) -> Result<(), M::Error> {
    let mut fields = fields.iter().filter(|(name, _)| !said.contains(&name.as_str()));
    fields.try_for_each(|(name, value)| map.serialize_entry(name, value))
}

struct CallBody<'a>(&'a history::Call<'a>);

impl Serialize for CallBody<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("name", &self.0.wire_name)?;
        map.serialize_entry("args", &*self.0.arguments)?;
        if let Some(fields) = own_call(self.0) {
            others(&mut map, fields, &["name", "args"])?;
        }
        map.end()
    }
}

#[derive(serde::Serialize)]
#[serde(rename_all = "camelCase")]
struct Blob<'a> {
    mime_type: &'a str,
    data: &'a str,
}

impl<'a> From<&'a Data<'_>> for Blob<'a> {
    fn from(data: &'a Data<'_>) -> Self {
        Self { mime_type: &data.mime_type, data: &data.base64 }
    }
}

#[derive(serde::Serialize)]
#[serde(rename_all = "camelCase")]
struct BlobPart<'a> {
    inline_data: Blob<'a>,
}

impl Serialize for Response<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(serde::Serialize)]
        #[serde(rename_all = "lowercase")]
        enum Said<'a> {
            Output(&'a str),
            Error(&'a str),
        }
        let mut map = serializer.serialize_map(None)?;
        if let Some(id) = self.id {
            map.serialize_entry("id", id)?;
        }
        map.serialize_entry("name", self.name)?;
        let said = if self.is_error { Said::Error(&self.text) } else { Said::Output(&self.text) };
        map.serialize_entry("response", &said)?;
        if !self.media.is_empty() {
            let parts: Vec<BlobPart<'_>> =
                self.media.iter().map(|data| BlobPart { inline_data: data.into() }).collect();
            map.serialize_entry("parts", &parts)?;
        }
        map.end()
    }
}
