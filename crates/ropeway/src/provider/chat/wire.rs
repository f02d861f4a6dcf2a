//! A chunk of an answer, read as loosely as servers write it.
//!
//! Nothing is copied that need not be, fields may be missing, null or there twice, and those that nobody knows are kept.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

use serde::de::value::{MapAccessDeserializer, SeqAccessDeserializer};
use serde::de::{Deserialize, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::Value;
use serde_json::value::RawValue;

/// Fields that nobody knows, as they came.
pub(super) type Others<'a> = Vec<(Cow<'a, str>, &'a RawValue)>;

/// One frame of the stream; or the whole answer, from a server that does not stream.
#[derive(Debug, Default)]
pub(super) struct Chunk<'a> {
    pub(super) id: Loose<'a>,
    pub(super) model: Loose<'a>,
    pub(super) object: Loose<'a>,
    pub(super) choices: Vec<Known<Choice<'a>>>,
    pub(super) usage: Option<&'a RawValue>,
    pub(super) error: Option<&'a RawValue>,
}

/// One of several answers; we ask for one only.
#[derive(Debug, Default)]
pub(super) struct Choice<'a> {
    pub(super) index: Loose<'a>,
    pub(super) delta: Delta<'a>,
    /// The whole message, in the place of the deltas.
    pub(super) message: Option<Box<Known<Delta<'a>>>>,
    pub(super) finish_reason: Loose<'a>,
    pub(super) usage: Option<&'a RawValue>,
    pub(super) error: Option<&'a RawValue>,
}

/// A piece of the message.
#[derive(Debug, Default)]
pub(super) struct Delta<'a> {
    pub(super) content: Loose<'a>,
    pub(super) refusal: Loose<'a>,
    pub(super) reasoning_content: Loose<'a>,
    pub(super) reasoning: Loose<'a>,
    pub(super) tool_calls: Vec<Known<CallDelta<'a>>>,
    pub(super) function_call: Option<Box<Known<Function<'a>>>>,
    pub(super) others: Others<'a>,
}

/// A piece of a call.
#[derive(Debug, Default)]
pub(super) struct CallDelta<'a> {
    pub(super) index: Loose<'a>,
    pub(super) id: Loose<'a>,
    pub(super) function: Function<'a>,
    pub(super) others: Others<'a>,
}

/// What is called, and with what.
#[derive(Debug, Default)]
pub(super) struct Function<'a> {
    pub(super) name: Loose<'a>,
    /// A text mostly; an object with some.
    pub(super) arguments: Option<&'a RawValue>,
    pub(super) others: Others<'a>,
}

impl Delta<'_> {
    /// Does it say nothing?
    pub(super) fn is_empty(&self) -> bool {
        let Self { content, refusal, reasoning_content, reasoning, tool_calls, function_call, others } = self;
        let texts = [content, refusal, reasoning_content, reasoning];
        texts.iter().all(|text| text.is_nothing())
            && tool_calls.is_empty()
            && function_call.is_none()
            && others.is_empty()
    }
}

/// An object that takes its fields one by one.
pub(super) trait Fields<'a>: Default {
    /// Takes the value of a field out of `object`.
    fn take<M: MapAccess<'a>>(&mut self, name: Cow<'a, str>, object: &mut M) -> Result<(), M::Error>;
}

impl<'a> Fields<'a> for Chunk<'a> {
    fn take<M: MapAccess<'a>>(&mut self, name: Cow<'a, str>, object: &mut M) -> Result<(), M::Error> {
        match &*name {
            "id" => self.id = object.next_value()?,
            "model" => self.model = object.next_value()?,
            "object" => self.object = object.next_value()?,
            "choices" => self.choices = list(object)?,
            "usage" => self.usage = object.next_value()?,
            "error" => self.error = object.next_value()?,
            _ => _ = object.next_value::<IgnoredAny>()?,
        }
        Ok(())
    }
}

impl<'a> Fields<'a> for Choice<'a> {
    fn take<M: MapAccess<'a>>(&mut self, name: Cow<'a, str>, object: &mut M) -> Result<(), M::Error> {
        match &*name {
            "index" => self.index = object.next_value()?,
            "delta" => self.delta = object.next_value::<Known<_>>()?.0,
            "message" => self.message = object.next_value()?,
            "finish_reason" => self.finish_reason = object.next_value()?,
            "usage" => self.usage = object.next_value()?,
            "error" => self.error = object.next_value()?,
            _ => _ = object.next_value::<IgnoredAny>()?,
        }
        Ok(())
    }
}

impl<'a> Fields<'a> for Delta<'a> {
    fn take<M: MapAccess<'a>>(&mut self, name: Cow<'a, str>, object: &mut M) -> Result<(), M::Error> {
        match &*name {
            "content" => self.content = object.next_value()?,
            "refusal" => self.refusal = object.next_value()?,
            "reasoning_content" => self.reasoning_content = object.next_value()?,
            "reasoning" => self.reasoning = object.next_value()?,
            "tool_calls" => self.tool_calls = list(object)?,
            "function_call" => self.function_call = object.next_value()?,
            "role" => _ = object.next_value::<IgnoredAny>()?,
            _ => other(&mut self.others, name, object)?,
        }
        Ok(())
    }
}

impl<'a> Fields<'a> for CallDelta<'a> {
    fn take<M: MapAccess<'a>>(&mut self, name: Cow<'a, str>, object: &mut M) -> Result<(), M::Error> {
        match &*name {
            "index" => self.index = object.next_value()?,
            "id" => self.id = object.next_value()?,
            "function" => self.function = object.next_value::<Known<_>>()?.0,
            // All that we offer are functions.
            "type" => _ = object.next_value::<IgnoredAny>()?,
            _ => other(&mut self.others, name, object)?,
        }
        Ok(())
    }
}

impl<'a> Fields<'a> for Function<'a> {
    fn take<M: MapAccess<'a>>(&mut self, name: Cow<'a, str>, object: &mut M) -> Result<(), M::Error> {
        match &*name {
            "name" => self.name = object.next_value()?,
            "arguments" => self.arguments = object.next_value()?,
            _ => other(&mut self.others, name, object)?,
        }
        Ok(())
    }
}

fn list<'a, T: Fields<'a>, M: MapAccess<'a>>(object: &mut M) -> Result<Vec<Known<T>>, M::Error> {
    Ok(object.next_value::<Option<_>>()?.unwrap_or_default())
}

fn other<'a, M: MapAccess<'a>>(others: &mut Others<'a>, name: Cow<'a, str>, object: &mut M) -> Result<(), M::Error> {
    // What is null says nothing, and is said by some servers in every chunk.
    if let Some(value) = object.next_value()? {
        others.push((name, value));
    }
    Ok(())
}

/// An object of which some fields are known. Null is one that has none.
#[derive(Debug)]
pub(super) struct Known<T>(pub(super) T);

impl<'de, T: Fields<'de>> Deserialize<'de> for Known<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(KnownVisitor(PhantomData))
    }
}

struct KnownVisitor<T>(PhantomData<T>);

impl<'de, T: Fields<'de>> Visitor<'de> for KnownVisitor<T> {
    type Value = Known<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_unit<E: Error>(self) -> Result<Known<T>, E> {
        Ok(Known(T::default()))
    }

    fn visit_map<M: MapAccess<'de>>(self, mut object: M) -> Result<Known<T>, M::Error> {
        let mut known = T::default();
        while let Some(Name(name)) = object.next_key()? {
            known.take(name, &mut object)?;
        }
        Ok(Known(known))
    }
}

#[derive(serde::Deserialize)]
struct Name<'a>(#[serde(borrow)] Cow<'a, str>);

/// A text as it should be, or whatever is in its place.
#[derive(Debug, Default)]
pub(super) enum Loose<'a> {
    /// Null, or not there.
    #[default]
    Nothing,
    /// A text.
    Text(Cow<'a, str>),
    /// Something else; rare, and so in a box that keeps the rest small.
    Other(Box<Value>),
}

impl Loose<'_> {
    /// The text; empty if it is none.
    pub(super) fn text(&self) -> &str {
        match self {
            Self::Text(text) => text,
            _ => "",
        }
    }

    /// A number, or a text of one.
    pub(super) fn number(&self) -> Option<u64> {
        match self {
            Self::Text(text) => text.parse().ok(),
            Self::Other(value) => value.as_u64(),
            Self::Nothing => None,
        }
    }

    /// Nothing, or a text without a letter.
    pub(super) fn is_nothing(&self) -> bool {
        match self {
            Self::Nothing => true,
            Self::Text(text) => text.is_empty(),
            Self::Other(_) => false,
        }
    }
}

impl<'de> Deserialize<'de> for Loose<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(LooseVisitor)
    }
}

struct LooseVisitor;

impl<'de> Visitor<'de> for LooseVisitor {
    type Value = Loose<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any value")
    }

    fn visit_unit<E: Error>(self) -> Result<Loose<'de>, E> {
        Ok(Loose::Nothing)
    }

    fn visit_borrowed_str<E: Error>(self, text: &'de str) -> Result<Loose<'de>, E> {
        Ok(Loose::Text(Cow::Borrowed(text)))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Loose<'de>, E> {
        Ok(Loose::Text(Cow::Owned(text.to_owned())))
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Loose<'de>, E> {
        Ok(Loose::Other(Box::new(value.into())))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Loose<'de>, E> {
        Ok(Loose::Other(Box::new(value.into())))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Loose<'de>, E> {
        Ok(Loose::Other(Box::new(value.into())))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Loose<'de>, E> {
        Ok(Loose::Other(Box::new(value.into())))
    }

    fn visit_seq<S: SeqAccess<'de>>(self, list: S) -> Result<Loose<'de>, S::Error> {
        Value::deserialize(SeqAccessDeserializer::new(list)).map(|value| Loose::Other(Box::new(value)))
    }

    fn visit_map<M: MapAccess<'de>>(self, object: M) -> Result<Loose<'de>, M::Error> {
        Value::deserialize(MapAccessDeserializer::new(object)).map(|value| Loose::Other(Box::new(value)))
    }
}

/// A JSON text as it stands, or what is in it if it is a string.
pub(super) fn unquoted(raw: &RawValue) -> Cow<'_, str> {
    match serde_json::from_str(raw.get()) {
        Ok(Name(text)) => text,
        Err(_) => Cow::Borrowed(raw.get()),
    }
}
