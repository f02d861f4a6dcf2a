//! A walker: goes through a schema once and writes it down as a form wants it.

use std::borrow::Cow;

use serde_json::Value;

use super::arguments::Shape;
use super::form::Form;
use super::node::{self, Node};
use super::note::{self, Notes};
use super::reference::Document;
use super::rename::Names;
use super::types::Types;
use super::written::Object;
use super::{ChangeKind, SchemaChange};
use crate::schema::pointer;

/// How many schemas may stand inside each other. Real ones go down to thirteen.
const MAX_LEVELS: usize = 32;

/// How many levels OpenAI holds a model to.
const MAX_STRICT_LEVELS: usize = 10;

/// How many references may lead to each other before there is something to say.
const MAX_HOPS: usize = 48;

/// How many references one schema may be put together of.
const MAX_PARTS: usize = 500;

/// How many schemas a tool may consist of before references are left open: a few of them can stand for billions.
const MAX_SCHEMAS: usize = 10_000;

/// How much text a tool may consist of before references are left open.
const MAX_TEXT: usize = 512 * 1024;

/// How many alterations are told.
const MAX_ALTERATIONS: usize = 1_000;

/// Why a schema is not lowered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Failure {
    /// No tool can be called by it.
    Hopeless(String),
    /// A model cannot be held to it.
    NotStrict(String),
    /// It goes too far.
    TooMuch,
}

/// What a schema became.
#[derive(Debug, Default)]
pub(super) struct Done<'d> {
    pub(super) schema: Object<'d>,
    pub(super) notes: Notes,
    pub(super) shape: Option<Shape>,
}

impl<'d> Done<'d> {
    /// The schema, with what could not be said otherwise in its description.
    pub(super) fn described(mut self) -> (Object<'d>, Option<Shape>) {
        self.notes.append_to(&mut self.schema);
        (self.schema, self.shape)
    }
}

/// How far references are followed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reach {
    /// How often a schema may stand inside itself.
    pub(super) unroll: usize,
    /// How many references may lead into each other.
    pub(super) references: usize,
    /// How many schemas there may be if one of them stands inside itself.
    pub(super) schemas: usize,
}

/// What there is of things that providers count.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Tally {
    pub(super) properties: usize,
    pub(super) optional: usize,
    pub(super) unions: usize,
    pub(super) enum_values: usize,
    pub(super) characters: usize,
}

/// Goes through a schema once and writes it down as a form wants it.
pub(super) struct Walker<'d> {
    document: Document<'d>,
    pub(super) form: Form,
    reach: Reach,
    /// Where we are, as a JSON pointer.
    pub(super) path: String,
    pub(super) alterations: Vec<SchemaChange>,
    pub(super) names: Names<'d>,
    pub(super) tally: Tally,
    /// How often more was allowed than the schema allows.
    pub(super) loosened: usize,
    /// Did a schema stand inside itself?
    recursed: bool,
    /// Is this a schema that a value is only measured by, and not one that it is made by?
    pub(super) measures: bool,
    /// The targets of the references that lead here, and of those that this schema is put together of.
    stack: Vec<&'d Value>,
    levels: usize,
    hops: usize,
    schemas_left: usize,
    text_left: usize,
}

impl<'d> Walker<'d> {
    pub(super) fn new(document: &'d Value, form: Form, reach: Reach) -> Self {
        Self {
            document: Document::new(document),
            form,
            reach,
            path: String::new(),
            alterations: Vec::new(),
            names: Names::new(document, form.alphabet()),
            tally: Tally::default(),
            loosened: 0,
            recursed: false,
            measures: false,
            stack: vec![document],
            levels: 0,
            hops: 0,
            schemas_left: MAX_SCHEMAS,
            text_left: MAX_TEXT,
        }
    }

    /// How many schemas were written down.
    fn schemas(&self) -> usize {
        MAX_SCHEMAS - self.schemas_left
    }

    /// Lowers the schema that is one step away; `None` where it allows nothing.
    pub(super) fn step(&mut self, steps: &[&str], schema: Cow<'d, Value>) -> Result<Option<Done<'d>>, Failure> {
        let length = self.path.len();
        for step in steps {
            pointer::push(&mut self.path, step);
        }
        let done = self.schema(schema, Node::default());
        self.path.truncate(length);
        done
    }

    /// Lowers a schema, where `beside` is to hold as well; `None` where nothing is allowed.
    pub(super) fn schema(&mut self, schema: Cow<'d, Value>, beside: Node<'d>) -> Result<Option<Done<'d>>, Failure> {
        let mark = self.stack.len();
        self.levels += 1;
        let done = self.at_this_level(schema, beside, mark);
        self.levels -= 1;
        self.stack.truncate(mark);
        done
    }

    fn at_this_level(
        &mut self,
        schema: Cow<'d, Value>,
        beside: Node<'d>,
        mark: usize,
    ) -> Result<Option<Done<'d>>, Failure> {
        if self.form.is_strict() && !self.measures && self.levels > MAX_STRICT_LEVELS {
            return Err(self.not_strict("nests too deeply"));
        }
        if self.recursed && self.schemas() > self.reach.schemas {
            return Err(Failure::TooMuch);
        }
        let mut notes = Notes::default();
        if self.levels > MAX_LEVELS {
            self.report("type", ChangeKind::Rewritten("an open schema, because it nests too deeply".to_owned()));
            let node = self.open(Some(&schema), &mut notes, "nested further")?;
            return self.keywords(&node, notes);
        }
        let Some(mut node) = self.expand(schema, mark, &mut notes)? else { return Ok(None) };
        if !beside.is_empty() && !self.merge(&mut node, beside, &mut notes) {
            return Ok(None);
        }
        match self.form.takes_beside_alternatives() {
            true => self.keywords(&node, notes),
            false => self.with_alternatives(node, notes),
        }
    }

    /// One schema with its references followed and its parts put together; `None` where it allows nothing.
    pub(super) fn expand(
        &mut self,
        schema: Cow<'d, Value>,
        mark: usize,
        notes: &mut Notes,
    ) -> Result<Option<Node<'d>>, Failure> {
        match *schema {
            Value::Bool(true) => return Ok(Some(Node::default())),
            Value::Bool(false) => return Ok(None),
            _ => {}
        }
        let Some(mut node) = Node::of(schema) else {
            self.report("", ChangeKind::Dropped);
            return Ok(Some(Node::default()));
        };
        self.spend(node.len());
        if !node.is_laborious() {
            return Ok(Some(node));
        }
        self.modernise(&mut node, notes);
        for keyword in ["$ref", "$dynamicRef", "$recursiveRef"] {
            let Some(reference) = node.remove(keyword) else { continue };
            let followed = self.follow(keyword, reference.as_str().unwrap_or_default(), mark, notes)?;
            let Some(followed) = followed else { return Ok(None) };
            if !self.merge(&mut node, followed, notes) {
                return Ok(None);
            }
        }
        if self.form.takes_all_of() && self.levels > 0 {
            return Ok(Some(node));
        }
        let Some(parts) = node.remove("allOf") else { return Ok(Some(node)) };
        self.report("allOf", ChangeKind::Rewritten("one schema".to_owned()));
        self.hops += 1;
        let is_possible = self.put_together(&mut node, &parts, mark, notes)?;
        self.hops -= 1;
        Ok(is_possible.then_some(node))
    }

    /// The same for a schema that the one we are at is not put together of.
    pub(super) fn expand_apart(&mut self, schema: Cow<'d, Value>) -> Result<Option<Node<'d>>, Failure> {
        let mark = self.stack.len();
        let node = self.expand(schema, mark, &mut Notes::default());
        self.stack.truncate(mark);
        node
    }

    /// Makes a node want other schemas as well; false where nothing fits them all.
    fn put_together(
        &mut self,
        node: &mut Node<'d>,
        parts: &Cow<'d, Value>,
        mark: usize,
        notes: &mut Notes,
    ) -> Result<bool, Failure> {
        for part in node::items(parts) {
            let part = match self.hops > MAX_HOPS {
                true => Some(self.open(Some(&part), notes, "nested further")?),
                false => self.expand(part, mark, notes)?,
            };
            let Some(part) = part else { return Ok(false) };
            if !self.merge(node, part, notes) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// What a reference leads to; `None` where that allows nothing.
    fn follow(
        &mut self,
        keyword: &str,
        reference: &str,
        mark: usize,
        notes: &mut Notes,
    ) -> Result<Option<Node<'d>>, Failure> {
        let Some(target) = self.document.resolve(reference) else {
            self.report(keyword, ChangeKind::Rewritten("an open schema, because it leads nowhere".to_owned()));
            let is_remote = !reference.is_empty() && !reference.starts_with('#');
            let note = if is_remote { format!("as in {}", note::short(reference)) } else { String::new() };
            return self.open(None, notes, &note).map(Some);
        };
        let is = |other: &&Value| std::ptr::eq(*other, target);
        let parts = self.stack.get(mark..).unwrap_or_default();
        if parts.iter().any(is) {
            // It is part of this schema already, and twice says no more than once.
            return Ok(Some(Node::default()));
        }
        let name = reference.rsplit('/').next().filter(|name| !matches!(*name, "" | "#")).unwrap_or("the whole");
        let within_itself = self.stack.iter().take(mark).filter(|other| is(other)).count();
        if within_itself >= self.reach.unroll {
            self.recursed = true;
            self.report(keyword, ChangeKind::Rewritten("an open schema, because it leads back to itself".to_owned()));
            let note = format!("{} again, in the same form", note::short(name));
            return self.open(Some(target), notes, &note).map(Some);
        }
        self.recursed |= within_itself > 0;
        let is_far = self.stack.len() > self.reach.references;
        if is_far || parts.len() >= MAX_PARTS || self.hops >= MAX_HOPS || self.is_spent() {
            self.report(keyword, ChangeKind::Rewritten("an open schema, because there is too much of it".to_owned()));
            return self.open(Some(target), notes, note::short(name).as_ref()).map(Some);
        }
        self.report(keyword, ChangeKind::Inlined);
        self.stack.push(target);
        self.hops += 1;
        let node = self.expand(Cow::Borrowed(target), mark, notes);
        self.hops -= 1;
        node
    }

    /// A schema that allows all that another one may allow: of that, only the type is known.
    fn open(&mut self, target: Option<&Value>, notes: &mut Notes, note: &str) -> Result<Node<'d>, Failure> {
        if self.form.is_strict() && !self.measures {
            return Err(self.not_strict("leads back to itself, or nowhere"));
        }
        self.loosened += 1;
        let mut node = Node::default();
        if let Some(Value::Object(target)) = target {
            let types = target.get("type").map(Types::read).filter(|types| !types.is_empty());
            let is_object = || target.contains_key("properties").then_some(Types::OBJECT);
            if let Some(types) = types.or_else(is_object) {
                node.set("type", types.to_value());
            }
            if let Some(Value::String(text)) = target.get("description") {
                node.set("description", Value::from(note::short(text)));
            }
        }
        notes.say(note);
        Ok(node)
    }

    /// Makes a node want another one as well; false where nothing fits both.
    pub(super) fn merge(&mut self, node: &mut Node<'d>, other: Node<'d>, notes: &mut Notes) -> bool {
        if node.is_empty() {
            *node = other;
            return true;
        }
        self.spend(1);
        self.loosened += usize::from(node.minds(&other) || other.minds(node));
        let mut leftovers = Vec::new();
        let merged = node.merge(other, &mut |keyword, value| {
            notes.keyword(keyword, value);
            leftovers.push(keyword.to_owned());
        });
        self.loosened += leftovers.len();
        for keyword in leftovers {
            self.report(&keyword, ChangeKind::Described);
        }
        merged.is_ok()
    }

    /// Takes a part of what a tool may consist of.
    pub(super) fn spend(&mut self, schemas: usize) {
        self.schemas_left = self.schemas_left.saturating_sub(schemas);
    }

    pub(super) fn spend_text(&mut self, bytes: usize) {
        self.text_left = self.text_left.saturating_sub(bytes);
    }

    /// Is there nothing left of what a tool may consist of?
    pub(super) fn is_spent(&self) -> bool {
        self.schemas_left == 0 || self.text_left == 0
    }

    /// Are there so many levels that each has to be counted?
    pub(super) fn is_deep(&self) -> bool {
        self.levels > MAX_LEVELS / 2
    }

    pub(super) fn is_root(&self) -> bool {
        self.levels == 0
    }

    /// Tells what became of a keyword here.
    pub(super) fn report(&mut self, keyword: &str, how: ChangeKind) {
        if self.alterations.len() < MAX_ALTERATIONS {
            self.alterations.push(SchemaChange { at: self.path.clone(), keyword: keyword.to_owned(), how });
        }
    }

    /// Why a model cannot be held to the schema.
    pub(super) fn not_strict(&self, why: &str) -> Failure {
        let place = if self.path.is_empty() { "the whole" } else { &self.path };
        Failure::NotStrict(format!("`{place}` {why}"))
    }
}
