//! From a tree to records: a serde deserializer that knows places.

use std::borrow::Cow;
use std::fmt::{self, Display};

use serde::de::value::StrDeserializer;
use serde::de::{self, DeserializeOwned, DeserializeSeed, Error as _, Expected, IntoDeserializer, Unexpected, Visitor};
use serde::forward_to_deserialize_any;
use serde_json::Number;

use super::node::{Entry, Kind, Node, Place, Plain, Step, is_private, name_only, path_text, plain};
use super::problem::{ConfigProblem, MAX_PROBLEMS, in_backticks, nearest, one_of};

/// More keys than a person reads in an aside.
const MANY: usize = 10;

/// How much [`decode_all`] reads to find more than one problem, in the weight of nodes.
const WORK: usize = 96 << 20;

/// The record that the tree stands for, or what is first wrong with it. `base` is the path of the tree in the file.
pub(super) fn decode<T: DeserializeOwned>(node: &Node, base: &str) -> Result<T, ConfigProblem> {
    T::deserialize(Decoder { node, hides: false, exact: false })
        .map_err(|mistake| mistake.into_problem(node.place, base))
}

/// The record without what is wrong with it, and all that is. There is none when too little is left.
///
/// Every problem takes another pass over the tree, so a large tree or one with more than [`MAX_PROBLEMS`] is not read to its end:
/// the problems so far are returned, without a record.
pub(super) fn decode_all<T: DeserializeOwned>(node: &Node, base: &str) -> (Option<T>, Vec<ConfigProblem>) {
    let mut problems = Vec::new();
    let mut left_out: Vec<String> = Vec::new();
    let mut rest = Cow::Borrowed(node);
    let mut passes = 0;
    let mut most = 1;
    loop {
        let mistake = match T::deserialize(Decoder { node: &rest, hides: false, exact: false }) {
            Ok(record) => return (Some(record), problems),
            Err(mistake) => mistake,
        };
        if passes == 0 {
            // One more than is shown, so that it is known that there are more.
            most = (WORK / node.weight()).clamp(1, MAX_PROBLEMS + 1);
        }
        passes += 1;
        let culprit = mistake.culprit();
        // What was left out, or misspelled, is told already.
        let is_told =
            matches!(mistake.key.as_deref(), Some(Key::Missing(key)) if left_out.iter().any(|known| known == key));
        left_out.extend(mistake.suggestion.as_deref().map(str::to_owned));
        left_out.extend(culprit.first().map(|step| path_text("", std::slice::from_ref(step))));
        if !is_told {
            problems.push(mistake.into_problem(node.place, base));
        }
        if passes >= most {
            return (None, problems);
        }
        let rest = rest.to_mut();
        let is_removed = rest.remove(&culprit) || culprit.get(..1).is_some_and(|first| rest.remove(first));
        if !is_removed {
            return (None, problems);
        }
    }
}

/// The same for a file in which every value is a secret.
pub(super) fn decode_secrets<T: DeserializeOwned>(node: &Node) -> Result<T, ConfigProblem> {
    T::deserialize(Decoder { node, hides: true, exact: false }).map_err(|mistake| mistake.into_problem(node.place, ""))
}

/// What is wrong, before it is known where.
#[derive(Debug)]
pub(super) struct Mistake {
    place: Option<Place>,
    /// The steps that led there, the last first.
    steps: Vec<Step>,
    found: Option<String>,
    expected: Box<str>,
    suggestion: Option<Box<str>>,
    /// The value may be a secret and is not shown.
    hides: bool,
    /// The key that it is about, if it is about one. Boxed, since mistakes are passed up a long way.
    key: Option<Box<Key>>,
}

#[derive(Debug)]
enum Key {
    Unknown(String),
    Missing(&'static str),
}

impl Mistake {
    fn new(expected: impl Into<Box<str>>) -> Self {
        let expected = expected.into();
        let (place, steps, found, suggestion) = (None, Vec::new(), None, None);
        Self { place, steps, found, expected, suggestion, hides: false, key: None }
    }

    fn found(mut self, found: impl Into<String>) -> Self {
        self.found = Some(found.into());
        self
    }

    fn suggest(mut self, suggestion: Option<&str>) -> Self {
        self.suggestion = suggestion.map(Into::into);
        self
    }

    /// The mistake is at this value, unless it is known to be deeper.
    fn within(mut self, node: &Node) -> Self {
        self.place.get_or_insert(node.place);
        let hides = self.hides;
        self.found.get_or_insert_with(|| if hides { node.describe_kind() } else { node.describe() });
        self
    }

    /// The mistake is at a value that is not shown.
    fn hide(mut self, hides: bool) -> Self {
        self.hides |= hides;
        self
    }

    fn after(mut self, step: Step) -> Self {
        self.steps.push(step);
        self
    }

    /// The steps to what has to go for the rest to be right: whole lists, so that the other items keep their numbers.
    fn culprit(&self) -> Vec<Step> {
        let key = match self.key.as_deref() {
            Some(Key::Unknown(key)) => Some(Step::Key(key.clone())),
            Some(Key::Missing(_)) | None => None,
        };
        let steps = self.steps.iter().rev().cloned().chain(key);
        steps.take_while(|step| matches!(step, Step::Key(_))).collect()
    }

    fn into_problem(self, place: Place, base: &str) -> ConfigProblem {
        let steps: Vec<Step> = self.steps.into_iter().rev().collect();
        let found = self.found.unwrap_or_else(|| "something else".to_owned());
        ConfigProblem::at(self.place.unwrap_or(place), path_text(base, &steps), found, self.expected)
            .suggest(self.suggestion)
    }
}

impl Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "expected {}", self.expected)
    }
}

impl std::error::Error for Mistake {}

impl de::Error for Mistake {
    /// The message says what was expected, and the value is not shown.
    fn custom<T: Display>(message: T) -> Self {
        Self { hides: true, ..Self::new(message.to_string()) }
    }

    fn invalid_type(_: Unexpected<'_>, expected: &dyn Expected) -> Self {
        Self::new(expected.to_string())
    }

    fn invalid_value(_: Unexpected<'_>, expected: &dyn Expected) -> Self {
        Self::new(expected.to_string())
    }

    fn invalid_length(_: usize, expected: &dyn Expected) -> Self {
        Self::new(expected.to_string())
    }

    fn unknown_variant(variant: &str, expected: &'static [&'static str]) -> Self {
        Self::new(one_of(expected.iter().copied()))
            .found(in_backticks(variant))
            .suggest(nearest(variant, expected.iter().copied()))
    }

    fn unknown_field(field: &str, expected: &'static [&'static str]) -> Self {
        let meant = nearest(field, expected.iter().copied());
        // A long list of keys would hide the one that was meant.
        let others = if meant.is_some() { String::new() } else { one_of(expected.iter().copied()) };
        Self::new(others).found(format!("the unknown key {}", in_backticks(field))).suggest(meant)
    }

    fn missing_field(field: &'static str) -> Self {
        Self { key: Some(Box::new(Key::Missing(field))), ..Self::new("one").found(format!("no `{field}`")) }
    }
}

struct Decoder<'a> {
    node: &'a Node,
    /// The values may be secrets and are not shown.
    hides: bool,
    /// Numbers are JSON that is passed on, and keep their digits.
    exact: bool,
}

/// The settings that hold JSON for servers and models.
const EXACT: [&str; 2] = ["preset", "provider_options"];

impl<'a> Decoder<'a> {
    fn wrong(&self, expected: &str) -> Mistake {
        Mistake::new(expected).hide(self.hides).within(self.node)
    }

    fn whole<T: TryFrom<u64>>(&self) -> Result<T, Mistake> {
        let number = match &self.node.kind {
            Kind::Scalar { text, plain: true } => match plain(text) {
                Plain::Whole(number) => u64::try_from(number).ok(),
                Plain::Large(number) => Some(number),
                _ => None,
            },
            _ => None,
        };
        number.and_then(|number| T::try_from(number).ok()).ok_or_else(|| self.wrong("a whole number"))
    }
}

macro_rules! whole_numbers {
    ($($method:ident $visit:ident),*) => {
        $(fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Mistake> {
            visitor.$visit(self.whole()?)
        })*
    };
}

impl<'de> de::Deserializer<'de> for Decoder<'_> {
    type Error = Mistake;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Mistake> {
        let Self { node, hides, exact } = self;
        let is_json = |text: &str| exact && serde_json::from_str::<Number>(text).is_ok();
        let value = match &node.kind {
            Kind::Scalar { text, plain: false } => visitor.visit_str(text),
            // The text, and not the number: that would not say `-0`.
            Kind::Scalar { text, plain: true } if is_json(text) => {
                let mut json = serde_json::Deserializer::from_reader(text.as_bytes());
                de::Deserializer::deserialize_any(&mut json, visitor).map_err(Mistake::custom)
            }
            Kind::Scalar { text, plain: true } => match plain(text) {
                Plain::Nothing => visitor.visit_unit(),
                Plain::Truth(truth) => visitor.visit_bool(truth),
                Plain::Whole(number) if number >= 0 => visitor.visit_u64(number.unsigned_abs()),
                Plain::Whole(number) => visitor.visit_i64(number),
                Plain::Large(number) => visitor.visit_u64(number),
                Plain::Fraction(number) => visitor.visit_f64(number),
                Plain::Text => visitor.visit_str(text),
            },
            Kind::List(items) => visitor.visit_seq(Items { items: items.iter().enumerate(), hides, exact }),
            Kind::Map(entries) => visitor.visit_map(Entries { entries: entries.iter(), value: None, hides, exact }),
        };
        value.map_err(|mistake| mistake.hide(hides).within(node))
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Mistake> {
        let Kind::Scalar { text, plain: is_plain } = &self.node.kind else {
            return Err(self.wrong("`true` or `false`"));
        };
        match plain(text) {
            Plain::Truth(truth) if *is_plain => visitor.visit_bool(truth),
            _ => {
                let meant = match text.to_lowercase().as_str() {
                    "yes" | "y" | "on" | "1" | "true" => Some("true"),
                    "no" | "n" | "off" | "0" | "false" => Some("false"),
                    _ => None,
                };
                Err(self.wrong("`true` or `false`").suggest(meant))
            }
        }
    }

    whole_numbers!(deserialize_u8 visit_u8, deserialize_u16 visit_u16, deserialize_u32 visit_u32, deserialize_u64 visit_u64);

    /// Any value but lists, maps and nothing has a text.
    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Mistake> {
        match self.node.as_text() {
            Some(text) => {
                visitor.visit_str(text).map_err(|mistake: Mistake| mistake.hide(self.hides).within(self.node))
            }
            None => Err(self.wrong("a text")),
        }
    }

    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Mistake> {
        self.deserialize_str(visitor)
    }

    fn deserialize_identifier<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Mistake> {
        self.deserialize_str(visitor)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Mistake> {
        if self.node.is_nothing() { visitor.visit_none() } else { visitor.visit_some(self) }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, _: &'static str, visitor: V) -> Result<V::Value, Mistake> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Mistake> {
        match self.node.kind {
            Kind::List(_) => self.deserialize_any(visitor),
            // A key with nothing behind it.
            _ if self.node.is_nothing() => {
                visitor.visit_seq(Items { items: [].iter().enumerate(), hides: false, exact: false })
            }
            _ => Err(self.wrong("a list")),
        }
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Mistake> {
        match self.node.kind {
            Kind::Map(_) => self.deserialize_any(visitor),
            _ if self.node.is_nothing() => {
                visitor.visit_map(Entries { entries: [].iter(), value: None, hides: false, exact: false })
            }
            _ => Err(self.wrong("a map")),
        }
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Mistake> {
        match self.node.kind {
            Kind::Map(_) => self.deserialize_any(visitor),
            // A long list of keys would hide what is wrong.
            _ if fields.len() > MANY => Err(self.wrong("a map")),
            _ => Err(self.wrong(&format!("a map with {}", one_of(fields.iter().copied())))),
        }
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Mistake> {
        let Some(text) = self.node.as_text() else { return Err(self.wrong(&one_of(variants.iter().copied()))) };
        let variant: StrDeserializer<'_, Mistake> = text.into_deserializer();
        visitor.visit_enum(variant).map_err(|mistake| mistake.within(self.node))
    }

    forward_to_deserialize_any! {
        i8 i16 i32 i64 i128 u128 f32 f64 char bytes byte_buf unit unit_struct tuple tuple_struct ignored_any
    }
}

struct Items<'a> {
    items: std::iter::Enumerate<std::slice::Iter<'a, Node>>,
    hides: bool,
    exact: bool,
}

impl<'de> de::SeqAccess<'de> for Items<'_> {
    type Error = Mistake;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, Mistake> {
        let Some((index, item)) = self.items.next() else { return Ok(None) };
        let value = seed.deserialize(Decoder { node: item, hides: self.hides, exact: self.exact });
        value.map(Some).map_err(|mistake| mistake.hide(self.hides).within(item).after(Step::Index(index)))
    }
}

struct Entries<'a> {
    entries: std::slice::Iter<'a, Entry>,
    value: Option<&'a Entry>,
    hides: bool,
    exact: bool,
}

impl<'de> de::MapAccess<'de> for Entries<'_> {
    type Error = Mistake;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, Mistake> {
        let Some(entry) = self.entries.next() else { return Ok(None) };
        self.value = Some(entry);
        let key = Node::text(entry.place, entry.key.as_str());
        let decoded = seed.deserialize(Decoder { node: &key, hides: self.hides, exact: false });
        let mistake = |mistake: Mistake| if self.hides { mistake.found("an unknown key") } else { mistake };
        decoded.map(Some).map_err(|found| Mistake {
            key: Some(Box::new(Key::Unknown(entry.key.clone()))),
            ..mistake(found).within(&key)
        })
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Mistake> {
        let Some(entry) = self.value.take() else { return Err(Mistake::new("a value")) };
        let hides = self.hides || is_private(&entry.key);
        let name = if self.hides { name_only(&entry.key) } else { entry.key.clone() };
        let exact = self.exact || EXACT.contains(&entry.key.as_str());
        let value = seed.deserialize(Decoder { node: &entry.value, hides, exact });
        value.map_err(|mistake| mistake.hide(hides).within(&entry.value).after(Step::Key(name)))
    }
}
