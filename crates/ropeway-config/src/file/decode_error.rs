//! The [decoder](super::decode) error, which collects a value's path on its way up.

use std::fmt::{self, Display};

use serde::de::{self, Expected, Unexpected};

use super::node::{Node, PathStep, format_path};
use super::position::Position;
use super::problem::{ConfigProblem, in_backticks, nearest, nearest_key, one_of};

/// A problem whose path in the file is not complete yet.
#[derive(Debug)]
pub(super) struct DecodeError {
    position: Option<Position>,
    /// The value's path, last step first.
    steps: Vec<PathStep>,
    found: Option<String>,
    expected: Box<str>,
    pub(super) suggestion: Option<Box<str>>,
    /// The value may be a secret, so messages do not contain it.
    redacts: bool,
    /// The unknown or missing key. Boxed to keep the error small.
    pub(super) key: Option<Box<Key>>,
}

#[derive(Debug)]
pub(super) enum Key {
    Unknown(String),
    Missing(&'static str),
}

impl DecodeError {
    pub(super) fn new(expected: impl Into<Box<str>>) -> Self {
        let expected = expected.into();
        let (position, steps, found, suggestion) = (None, Vec::new(), None, None);
        Self { position, steps, found, expected, suggestion, redacts: false, key: None }
    }

    pub(super) fn found(mut self, found: impl Into<String>) -> Self {
        self.found = Some(found.into());
        self
    }

    pub(super) fn suggest(mut self, suggestion: Option<&str>) -> Self {
        self.suggestion = suggestion.map(Into::into);
        self
    }

    /// Sets the position and the value, unless already set.
    pub(super) fn within(mut self, node: &Node) -> Self {
        self.position.get_or_insert(node.position);
        let redacts = self.redacts;
        self.found.get_or_insert_with(|| if redacts { node.describe_kind() } else { node.describe() });
        self
    }

    /// Marks the error as an unknown key.
    pub(super) fn of_unknown_key(mut self, key: &str) -> Self {
        self.key = Some(Box::new(Key::Unknown(key.to_owned())));
        self
    }

    pub(super) fn redact(mut self, redacts: bool) -> Self {
        self.redacts |= redacts;
        self
    }

    pub(super) fn after(mut self, step: PathStep) -> Self {
        self.steps.push(step);
        self
    }

    /// Returns the path to the entry to remove before decoding again. Removes whole lists, so that other items keep their index.
    pub(super) fn invalid_entry(&self) -> Vec<PathStep> {
        let key = match self.key.as_deref() {
            Some(Key::Unknown(key)) => Some(PathStep::Key(key.clone())),
            Some(Key::Missing(_)) | None => None,
        };
        let steps = self.steps.iter().rev().cloned().chain(key);
        steps.take_while(|step| matches!(step, PathStep::Key(_))).collect()
    }

    pub(super) fn into_problem(self, position: Position, base: &str) -> ConfigProblem {
        let steps: Vec<PathStep> = self.steps.into_iter().rev().collect();
        let (position, path) = (self.position.unwrap_or(position), format_path(base, &steps));
        let found = self.found.unwrap_or_else(|| "another value".to_owned());
        let problem = if self.key.is_some() {
            ConfigProblem::new(position, path, found).expecting(self.expected)
        } else {
            ConfigProblem::mismatch(position, path, found, self.expected)
        };
        problem.suggest(self.suggestion)
    }
}

impl Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "expected {}", self.expected)
    }
}

impl std::error::Error for DecodeError {}

impl de::Error for DecodeError {
    /// Uses the message as the expected value, and does not show the value.
    fn custom<T: Display>(message: T) -> Self {
        Self { redacts: true, ..Self::new(message.to_string()) }
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
        let suggestion = nearest_key(field, expected.iter().copied());
        let expected = if suggestion.is_some() { String::new() } else { one_of(expected.iter().copied()) };
        Self::new(expected).found(format!("unknown key {}", in_backticks(field))).suggest(suggestion)
    }

    fn missing_field(field: &'static str) -> Self {
        Self { key: Some(Box::new(Key::Missing(field))), ..Self::new("").found(format!("missing key `{field}`")) }
    }
}
