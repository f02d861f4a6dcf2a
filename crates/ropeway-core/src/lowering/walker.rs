//! The traversal that rewrites a schema for its target.

use std::borrow::Cow;

use serde_json::Value;

use super::argument_mapping::ArgumentMapping;
use super::argument_names::ArgumentNames;
use super::change::{ChangeKind, SchemaChange};
use super::cow_value::CowObject;
use super::node::{self, Node};
use super::note::{self, Notes};
use super::reference::Document;
use super::target::SchemaTarget;
use super::types::Types;
use crate::schema::pointer;

/// Maximum schema nesting depth. Real schemas have up to thirteen levels.
const MAX_LEVELS: usize = 32;

/// Maximum depth in OpenAI's strict mode.
const MAX_STRICT_LEVELS: usize = 10;

/// Maximum length of a chain of references and parts.
const MAX_HOPS: usize = 48;

/// Maximum number of references that are merged into one schema.
const MAX_PARTS: usize = 500;

/// Maximum number of schemas in a tool. Beyond it, references are left open: a few of them can expand to billions.
const MAX_SCHEMAS: usize = 10_000;

/// Maximum text in a tool in bytes. Beyond it, references are left open.
const MAX_TEXT: usize = 512 * 1024;

/// Maximum number of reported changes.
const MAX_CHANGES: usize = 1_000;

/// Why a schema is not lowered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum SchemaError {
    /// The schema cannot describe a tool's arguments.
    Unusable(String),
    /// The provider cannot enforce the schema.
    NotStrict(String),
    /// The schema is too large with the current limits on references.
    TooLarge,
}

pub(super) type LowerResult<T = ()> = Result<T, SchemaError>;

/// A lowered schema.
#[derive(Debug, Default)]
pub(super) struct LoweredSchema<'d> {
    pub(super) schema: CowObject<'d>,
    pub(super) notes: Notes,
    pub(super) mapping: Option<ArgumentMapping>,
}

impl<'d> LoweredSchema<'d> {
    /// Returns the schema, with its notes in the description.
    pub(super) fn described(mut self) -> (CowObject<'d>, Option<ArgumentMapping>) {
        self.notes.append_to(&mut self.schema);
        (self.schema, self.mapping)
    }
}

/// Limits on following references.
#[derive(Clone, Copy, Debug)]
pub(super) struct RefLimits {
    /// Maximum schema recursion.
    pub(super) unroll: usize,
    /// Maximum number of nested references.
    pub(super) references: usize,
    /// Maximum number of schemas if one of them is recursive.
    pub(super) schemas: usize,
}

/// Counts that providers limit.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct SchemaStats {
    pub(super) properties: usize,
    pub(super) optional: usize,
    pub(super) unions: usize,
    pub(super) enum_values: usize,
    pub(super) characters: usize,
}

/// Traverses a schema once and rewrites it for its target.
pub(super) struct Walker<'d> {
    document: Document<'d>,
    pub(super) target: SchemaTarget,
    limits: RefLimits,
    /// JSON Pointer to the current schema.
    pub(super) path: String,
    pub(super) changes: Vec<SchemaChange>,
    pub(super) names: ArgumentNames<'d>,
    pub(super) stats: SchemaStats,
    /// How often the result allows more than the schema.
    pub(super) loosened: usize,
    /// Whether a schema contained itself.
    recursed: bool,
    /// Whether the current schema only checks a value, and does not describe how to generate one.
    pub(super) checks_only: bool,
    /// The reference targets that lead to the current schema, followed by those merged into it.
    stack: Vec<&'d Value>,
    levels: usize,
    hops: usize,
    schemas_left: usize,
    text_left: usize,
}

impl<'d> Walker<'d> {
    pub(super) fn new(document: &'d Value, target: SchemaTarget, limits: RefLimits) -> Self {
        Self {
            document: Document::new(document),
            target,
            limits,
            path: String::new(),
            changes: Vec::new(),
            names: ArgumentNames::new(document, target.name_rules()),
            stats: SchemaStats::default(),
            loosened: 0,
            recursed: false,
            checks_only: false,
            stack: vec![document],
            levels: 0,
            hops: 0,
            schemas_left: MAX_SCHEMAS,
            text_left: MAX_TEXT,
        }
    }

    /// Returns the schema count so far.
    fn schemas(&self) -> usize {
        MAX_SCHEMAS - self.schemas_left
    }

    /// Lowers a subschema. Returns `None` if it allows no value.
    pub(super) fn step(&mut self, steps: &[&str], schema: Cow<'d, Value>) -> LowerResult<Option<LoweredSchema<'d>>> {
        let length = self.path.len();
        for step in steps {
            pointer::push(&mut self.path, step);
        }
        let done = self.schema(schema, Node::default());
        self.path.truncate(length);
        done
    }

    /// Lowers a schema together with its siblings. Returns `None` if no value is allowed.
    pub(super) fn schema(
        &mut self,
        schema: Cow<'d, Value>,
        beside: Node<'d>,
    ) -> LowerResult<Option<LoweredSchema<'d>>> {
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
    ) -> LowerResult<Option<LoweredSchema<'d>>> {
        if self.target.is_strict() && !self.checks_only && self.levels > MAX_STRICT_LEVELS {
            return Err(self.not_strict("nests too deeply"));
        }
        if self.recursed && self.schemas() > self.limits.schemas {
            return Err(SchemaError::TooLarge);
        }
        let mut notes = Notes::default();
        if self.levels > MAX_LEVELS {
            self.report("type", ChangeKind::Rewritten("an open schema: nested too deeply".to_owned()));
            let node = self.open_schema(Some(&schema), &mut notes, "nested further")?;
            return self.keywords(&node, notes);
        }
        let Some(mut node) = self.expand(schema, mark, &mut notes)? else { return Ok(None) };
        if !beside.is_empty() && !self.merge(&mut node, beside, &mut notes) {
            return Ok(None);
        }
        if self.target.takes_beside_alternatives() {
            self.keywords(&node, notes)
        } else {
            self.with_alternatives(node, notes)
        }
    }

    /// Resolves a schema's references and merges its parts. Returns `None` if it allows no value.
    pub(super) fn expand(
        &mut self,
        schema: Cow<'d, Value>,
        mark: usize,
        notes: &mut Notes,
    ) -> LowerResult<Option<Node<'d>>> {
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
        if !node.needs_rewriting() {
            return Ok(Some(node));
        }
        self.modernise(&mut node, notes);
        for keyword in ["$ref", "$dynamicRef", "$recursiveRef"] {
            let Some(reference) = node.remove(keyword) else { continue };
            let followed = self.follow_reference(keyword, reference.as_str().unwrap_or_default(), mark, notes)?;
            let Some(followed) = followed else { return Ok(None) };
            if !self.merge(&mut node, followed, notes) {
                return Ok(None);
            }
        }
        if self.target.takes_all_of() && self.levels > 0 {
            return Ok(Some(node));
        }
        let Some(parts) = node.remove("allOf") else { return Ok(Some(node)) };
        self.report("allOf", ChangeKind::Rewritten("one schema".to_owned()));
        self.hops += 1;
        let is_possible = self.merge_parts(&mut node, &parts, mark, notes)?;
        self.hops -= 1;
        Ok(is_possible.then_some(node))
    }

    /// Like [`expand`](Self::expand), for a schema that is not merged into the current one.
    pub(super) fn expand_separately(&mut self, schema: Cow<'d, Value>) -> LowerResult<Option<Node<'d>>> {
        let mark = self.stack.len();
        let node = self.expand(schema, mark, &mut Notes::default());
        self.stack.truncate(mark);
        node
    }

    /// Merges the parts in `allOf`. Returns `false` if no value matches all of them.
    fn merge_parts(
        &mut self,
        node: &mut Node<'d>,
        parts: &Cow<'d, Value>,
        mark: usize,
        notes: &mut Notes,
    ) -> LowerResult<bool> {
        for part in node::items(parts) {
            let part = if self.hops > MAX_HOPS {
                Some(self.open_schema(Some(&part), notes, "nested further")?)
            } else {
                self.expand(part, mark, notes)?
            };
            let Some(part) = part else { return Ok(false) };
            if !self.merge(node, part, notes) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Follows a reference. Returns `None` if its target allows no value.
    fn follow_reference(
        &mut self,
        keyword: &str,
        reference: &str,
        mark: usize,
        notes: &mut Notes,
    ) -> LowerResult<Option<Node<'d>>> {
        let Some(target) = self.document.resolve(reference) else {
            self.report(keyword, ChangeKind::Rewritten("an open schema: unresolved reference".to_owned()));
            let is_remote = !reference.is_empty() && !reference.starts_with('#');
            let note = if is_remote { format!("as in {}", note::short(reference)) } else { String::new() };
            return self.open_schema(None, notes, &note).map(Some);
        };
        let is = |other: &&Value| std::ptr::eq(*other, target);
        let parts = self.stack.get(mark..).unwrap_or_default();
        if parts.iter().any(is) {
            // The target was merged already.
            return Ok(Some(Node::default()));
        }
        let name = reference.rsplit('/').next().filter(|name| !matches!(*name, "" | "#")).unwrap_or("the whole");
        let within_itself = self.stack.iter().take(mark).filter(|other| is(other)).count();
        if within_itself >= self.limits.unroll {
            self.recursed = true;
            self.report(keyword, ChangeKind::Rewritten("an open schema: recursive reference".to_owned()));
            let note = format!("{} again, in the same form", note::short(name));
            return self.open_schema(Some(target), notes, &note).map(Some);
        }
        self.recursed |= within_itself > 0;
        let is_far = self.stack.len() > self.limits.references;
        if is_far || parts.len() >= MAX_PARTS || self.hops >= MAX_HOPS || self.is_exhausted() {
            self.report(keyword, ChangeKind::Rewritten("an open schema: too large".to_owned()));
            return self.open_schema(Some(target), notes, note::short(name).as_ref()).map(Some);
        }
        self.report(keyword, ChangeKind::Inlined);
        self.stack.push(target);
        self.hops += 1;
        let node = self.expand(Cow::Borrowed(target), mark, notes);
        self.hops -= 1;
        node
    }

    /// Returns a schema that allows at least the target's values. Only the type is kept.
    fn open_schema(&mut self, target: Option<&Value>, notes: &mut Notes, note: &str) -> LowerResult<Node<'d>> {
        if self.target.is_strict() && !self.checks_only {
            return Err(self.not_strict("is recursive or unresolved"));
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
        notes.add_text(note);
        Ok(node)
    }

    /// Merges another node into a node. Returns `false` if no value matches both.
    pub(super) fn merge(&mut self, node: &mut Node<'d>, other: Node<'d>, notes: &mut Notes) -> bool {
        if node.is_empty() {
            *node = other;
            return true;
        }
        self.spend(1);
        self.loosened += usize::from(node.is_affected_by(&other) || other.is_affected_by(node));
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

    /// Counts schemas against a tool's limit.
    pub(super) fn spend(&mut self, schemas: usize) {
        self.schemas_left = self.schemas_left.saturating_sub(schemas);
    }

    pub(super) fn spend_text(&mut self, bytes: usize) {
        self.text_left = self.text_left.saturating_sub(bytes);
    }

    /// Returns `true` if a tool's limits are reached.
    pub(super) fn is_exhausted(&self) -> bool {
        self.schemas_left == 0 || self.text_left == 0
    }

    /// Returns `true` if the depth is close to the limit and has to be checked level by level.
    pub(super) fn is_deep(&self) -> bool {
        self.levels > MAX_LEVELS / 2
    }

    pub(super) fn is_root(&self) -> bool {
        self.levels == 0
    }

    /// Records a keyword change in the current schema.
    pub(super) fn report(&mut self, keyword: &str, kind: ChangeKind) {
        if self.changes.len() < MAX_CHANGES {
            self.changes.push(SchemaChange { path: self.path.clone(), keyword: keyword.to_owned(), kind });
        }
    }

    /// Returns the error for a schema that strict mode does not support.
    pub(super) fn not_strict(&self, why: &str) -> SchemaError {
        let place = if self.path.is_empty() { "the whole" } else { &self.path };
        SchemaError::NotStrict(format!("`{place}` {why}"))
    }
}
