//! The keywords that put schemas together: alternatives, negation, conditions.

use std::borrow::Cow;

use serde_json::{Map, Value};

use super::ChangeKind;
use super::arguments::Shape;
use super::keywords::Making;
use super::node::{self, GROUPS, Node};
use super::note::Notes;
use super::object::nothing;
use super::types::Types;
use super::walker::{Done, Failure, Walker};
use super::written::{Object, Written};

/// So many alternatives are compared with each other.
const MAX_COMPARED: usize = 64;

impl<'d> Walker<'d> {
    /// Lowers a node for a form that takes nothing beside alternatives: what is beside goes into each of them.
    pub(super) fn with_alternatives(
        &mut self,
        mut node: Node<'d>,
        mut notes: Notes,
    ) -> Result<Option<Done<'d>>, Failure> {
        let is_list = |keyword: &&str| node.get(keyword).and_then(Value::as_array).is_some_and(|list| !list.is_empty());
        let Some(keyword) = ["anyOf", "oneOf"].into_iter().find(is_list) else { return self.keywords(&node, notes) };
        let Some(list) = node.remove(keyword) else { return self.keywords(&node, notes) };
        if self.is_spent() {
            self.report(keyword, ChangeKind::Described);
            self.loosened += 1;
            notes.keyword(keyword, &list);
            return self.with_alternatives(node, notes);
        }
        if keyword == "oneOf" {
            self.report(keyword, ChangeKind::Rewritten("anyOf".to_owned()));
        }
        let (annotations, beside) = node.split_annotations();
        if !beside.is_empty() {
            self.report(keyword, ChangeKind::Rewritten("with all that is beside it inside".to_owned()));
        }
        let mut making = Making { notes, ..Making::default() };
        self.each(&annotations, None, &mut making)?;
        let mut branches: Vec<Written<'d>> = Vec::new();
        for (at, branch) in node::items(&list).into_iter().enumerate() {
            let length = self.path.len();
            self.path.push_str(&format!("/{keyword}/{at}"));
            let done = self.schema(branch, beside.clone())?;
            self.path.truncate(length);
            take(done, &mut branches, &mut making.shape);
        }
        match branches.len() {
            0 => return Ok(None),
            1 => {
                // What is said of the whole is said last, and wins.
                if let Some(Written::Object(mut only)) = branches.pop() {
                    only.extend(std::mem::take(&mut making.out));
                    making.out = only;
                }
            }
            _ => making.set("anyOf", Written::List(branches)),
        }
        Ok(Some(making.done()))
    }

    /// Lowers alternatives, or parts; false where nothing is allowed.
    pub(super) fn branches(
        &mut self,
        node: &Node<'d>,
        keyword: &Cow<'d, str>,
        value: &Cow<'d, Value>,
        making: &mut Making<'d>,
    ) -> Result<bool, Failure> {
        let list = node::items(value);
        if list.is_empty() {
            self.report(keyword, ChangeKind::Dropped);
            return Ok(true);
        }
        let (count, loosened) = (list.len(), self.loosened);
        let mut branches = Vec::with_capacity(count);
        for (at, branch) in list.into_iter().enumerate() {
            let at = at.to_string();
            let steps = [&**keyword, at.as_str()];
            let done = match keyword == "allOf" {
                true => self.measuring(|walker| walker.step(&steps, branch))?,
                false => self.step(&steps, branch)?,
            };
            if done.is_none() && keyword == "allOf" {
                return Ok(false);
            }
            take(done, &mut branches, &mut making.shape);
        }
        if branches.is_empty() {
            return Ok(false);
        }
        // What is there twice can never be the only one.
        let is_exact = self.loosened == loosened && branches.len() == count;
        let branches = Written::List(branches);
        if keyword != "oneOf" || is_exact {
            making.out.set(keyword.clone(), branches);
        } else if node.has("anyOf") {
            self.describe_written(keyword, &branches, making);
        } else {
            // Alternatives that allow more than they should may overlap.
            self.loosened += 1;
            self.report(keyword, ChangeKind::Rewritten("anyOf".to_owned()));
            making.set("anyOf", branches);
        }
        Ok(true)
    }

    pub(super) fn negation(&mut self, value: &Cow<'d, Value>, making: &mut Making<'d>) -> Result<(), Failure> {
        let (schema, is_exact) = self.measured("not", value, making)?;
        match self.form.is_lenient() && is_exact {
            true => making.set("not", schema),
            false => self.describe_written("not", &schema.into(), making),
        }
        Ok(())
    }

    pub(super) fn condition(
        &mut self,
        node: &Node<'d>,
        value: &Cow<'d, Value>,
        making: &mut Making<'d>,
    ) -> Result<(), Failure> {
        let (condition, is_exact) = self.measured("if", value, making)?;
        let mut said = Object::default();
        said.push("if", condition);
        for keyword in ["then", "else"] {
            if let Some(value) = node.source(keyword) {
                said.push(keyword, self.measured(keyword, value, making)?.0);
            }
        }
        match self.form.is_lenient() && is_exact {
            true => making.out.extend(said),
            false => said.iter().for_each(|(keyword, value)| self.describe_written(keyword, value, making)),
        }
        Ok(())
    }

    /// Lowers a schema that a value is only measured by; says whether it still allows just what it did.
    fn measured(
        &mut self,
        keyword: &str,
        value: &Cow<'d, Value>,
        making: &mut Making<'d>,
    ) -> Result<(Object<'d>, bool), Failure> {
        let loosened = self.loosened;
        let done = self.measuring(|walker| walker.step(&[keyword], value.clone()))?;
        let (schema, shape) = done.map_or_else(|| (nothing(), None), Done::described);
        making.shape.join(shape);
        Ok((schema, self.loosened == loosened))
    }

    /// Writes older forms of keywords as they are written today.
    pub(super) fn modernise(&mut self, node: &mut Node<'d>, notes: &mut Notes) {
        for (keyword, bound) in [("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum")] {
            let Some(is_exclusive) = node.get(keyword).and_then(Value::as_bool) else { continue };
            node.remove(keyword);
            self.report(keyword, ChangeKind::Rewritten("a number".to_owned()));
            if is_exclusive {
                node.rename(bound, keyword);
            }
        }
        if node.get("items").is_some_and(Value::is_array) {
            self.report("items", ChangeKind::Rewritten("prefixItems".to_owned()));
            node.rename("items", "prefixItems");
            if node.has("additionalItems") {
                self.report("additionalItems", ChangeKind::Rewritten("items".to_owned()));
                node.rename("additionalItems", "items");
            }
        }
        if node.get("items") == Some(&Value::Bool(false)) {
            self.report("items", ChangeKind::Rewritten("maxItems".to_owned()));
            node.remove("items");
            let prefix = node.get("prefixItems").and_then(Value::as_array).map_or(0, Vec::len) as u64;
            let most = node.get("maxItems").and_then(Value::as_u64).unwrap_or(u64::MAX);
            node.set("maxItems", Value::from(most.min(prefix)));
        }
        for [first, others @ ..] in GROUPS {
            if !node.has(first) {
                for keyword in others {
                    if node.remove(keyword).is_some() {
                        self.report(keyword, ChangeKind::Dropped);
                    }
                }
            }
        }
        if let Some(dependencies) = node.remove("dependencies") {
            self.report("dependencies", ChangeKind::Rewritten("dependentRequired, dependentSchemas".to_owned()));
            let entries = match dependencies.into_owned() {
                Value::Object(map) => map,
                _ => Map::new(),
            };
            let (required, schemas): (Map<_, _>, Map<_, _>) =
                entries.into_iter().partition(|(_, value)| value.is_array());
            for (keyword, map) in [("dependentRequired", required), ("dependentSchemas", schemas)] {
                if !map.is_empty() {
                    node.set(keyword, Value::Object(map));
                }
            }
        }
        if node.remove("nullable").is_some_and(|nullable| *nullable == Value::Bool(true))
            && let Some(types) = node.types()
        {
            self.report("nullable", ChangeKind::Rewritten("type".to_owned()));
            node.set("type", types.and(Types::NULL).to_value());
        }
        if self.form.is_strict() {
            self.untuple(node, notes);
        }
    }

    /// A tuple, for a form that has none, is a list of what may be in it.
    fn untuple(&mut self, node: &mut Node<'d>, notes: &mut Notes) {
        let Some(prefix) = node.remove("prefixItems") else { return };
        let Value::Array(mut kinds) = prefix.into_owned() else { return };
        self.report("prefixItems", ChangeKind::Rewritten("items".to_owned()));
        let most = kinds.len() as u64;
        notes.keyword("prefixItems", &Value::Array(kinds.clone()));
        match node.remove("items") {
            Some(rest) => kinds.push(rest.into_owned()),
            None if !node.has("maxItems") => node.set("maxItems", Value::from(most)),
            None => {}
        }
        kinds.dedup();
        node.set("items", [("anyOf", Value::Array(kinds))].into_iter().collect());
    }
}

/// Takes what a branch became, unless it allows nothing or was there before.
fn take<'d>(done: Option<Done<'d>>, branches: &mut Vec<Written<'d>>, shape: &mut Shape) {
    let Some(done) = done else { return };
    let (schema, branch_shape) = done.described();
    shape.join(branch_shape);
    let schema = Written::Object(schema);
    if branches.len() > MAX_COMPARED || !branches.contains(&schema) {
        branches.push(schema);
    }
}
