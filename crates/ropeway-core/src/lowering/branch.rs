//! Keywords that combine schemas: alternatives, negation, conditions.

use std::borrow::Cow;

use serde_json::{Map, Value};

use super::argument_mapping::ArgumentMapping;
use super::change::ChangeKind;
use super::cow_value::{CowObject, CowValue};
use super::keywords::SchemaBuilder;
use super::node::{self, GROUPS, Node};
use super::note::Notes;
use super::object::false_schema;
use super::types::Types;
use super::walker::{LowerResult, LoweredSchema, Walker};

/// Maximum number of alternatives that are compared for duplicates.
const MAX_COMPARED: usize = 64;

impl<'d> Walker<'d> {
    /// Lowers a node for a target that accepts no siblings beside alternatives: siblings are moved into each
    /// alternative.
    pub(super) fn with_alternatives(
        &mut self,
        mut node: Node<'d>,
        mut notes: Notes,
    ) -> LowerResult<Option<LoweredSchema<'d>>> {
        let is_list = |keyword: &&str| node.get(keyword).and_then(Value::as_array).is_some_and(|list| !list.is_empty());
        let Some(keyword) = ["anyOf", "oneOf"].into_iter().find(is_list) else { return self.keywords(&node, notes) };
        let Some(list) = node.remove(keyword) else { return self.keywords(&node, notes) };
        if self.is_exhausted() {
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
            self.report(keyword, ChangeKind::Rewritten("with its sibling keywords inside".to_owned()));
        }
        let mut builder = SchemaBuilder { notes, ..SchemaBuilder::default() };
        self.lower_each(&annotations, None, &mut builder)?;
        let mut branches: Vec<CowValue<'d>> = Vec::new();
        for (at, branch) in node::items(&list).into_iter().enumerate() {
            let length = self.path.len();
            self.path.push_str(&format!("/{keyword}/{at}"));
            let done = self.schema(branch, beside.clone())?;
            self.path.truncate(length);
            push_branch(done, &mut branches, &mut builder.mapping);
        }
        match branches.len() {
            0 => return Ok(None),
            1 => {
                // The whole schema's annotations take precedence.
                if let Some(CowValue::Object(mut only)) = branches.pop() {
                    only.extend(std::mem::take(&mut builder.out));
                    builder.out = only;
                }
            }
            _ => builder.set("anyOf", CowValue::List(branches)),
        }
        Ok(Some(builder.done()))
    }

    /// Lowers alternatives or parts. Returns `false` if no value is allowed.
    pub(super) fn branches(
        &mut self,
        node: &Node<'d>,
        keyword: &Cow<'d, str>,
        value: &Cow<'d, Value>,
        builder: &mut SchemaBuilder<'d>,
    ) -> LowerResult<bool> {
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
            let done = if keyword == "allOf" {
                self.checking_only(|walker| walker.step(&steps, branch))?
            } else {
                self.step(&steps, branch)?
            };
            if done.is_none() && keyword == "allOf" {
                return Ok(false);
            }
            push_branch(done, &mut branches, &mut builder.mapping);
        }
        if branches.is_empty() {
            return Ok(false);
        }
        // With `oneOf`, a duplicate alternative never matches alone.
        let is_exact = self.loosened == loosened && branches.len() == count;
        let branches = CowValue::List(branches);
        if keyword != "oneOf" || is_exact {
            builder.out.set(keyword.clone(), branches);
        } else if node.has("anyOf") {
            self.describe_lowered(keyword, &branches, builder);
        } else {
            // Widened alternatives may overlap.
            self.loosened += 1;
            self.report(keyword, ChangeKind::Rewritten("anyOf".to_owned()));
            builder.set("anyOf", branches);
        }
        Ok(true)
    }

    pub(super) fn negation(&mut self, value: &Cow<'d, Value>, builder: &mut SchemaBuilder<'d>) -> LowerResult {
        let (schema, is_exact) = self.lower_check("not", value, builder)?;
        self.keep_or_describe("not", schema, self.target.is_lenient() && is_exact, builder);
        Ok(())
    }

    pub(super) fn condition(
        &mut self,
        node: &Node<'d>,
        value: &Cow<'d, Value>,
        builder: &mut SchemaBuilder<'d>,
    ) -> LowerResult {
        let (condition, is_exact) = self.lower_check("if", value, builder)?;
        let mut lowered = CowObject::default();
        lowered.push("if", condition);
        for keyword in ["then", "else"] {
            if let Some(value) = node.source(keyword) {
                lowered.push(keyword, self.lower_check(keyword, value, builder)?.0);
            }
        }
        if self.target.is_lenient() && is_exact {
            builder.out.extend(lowered)
        } else {
            lowered.iter().for_each(|(keyword, value)| self.describe_lowered(keyword, value, builder))
        }
        Ok(())
    }

    /// Lowers a schema that only checks a value. Returns whether it is still exact.
    fn lower_check(
        &mut self,
        keyword: &str,
        value: &Cow<'d, Value>,
        builder: &mut SchemaBuilder<'d>,
    ) -> LowerResult<(CowObject<'d>, bool)> {
        let loosened = self.loosened;
        let done = self.checking_only(|walker| walker.step(&[keyword], value.clone()))?;
        let (schema, mapping) = done.map_or_else(|| (false_schema(), None), LoweredSchema::described);
        builder.mapping.merge(mapping);
        Ok((schema, self.loosened == loosened))
    }

    /// Rewrites keywords from older drafts.
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
        if self.target.is_strict() {
            self.rewrite_tuple(node, notes);
        }
    }

    /// Rewrites a tuple as a list, for targets without tuples.
    fn rewrite_tuple(&mut self, node: &mut Node<'d>, notes: &mut Notes) {
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

/// Adds a lowered branch, unless it allows nothing or is a duplicate.
fn push_branch<'d>(done: Option<LoweredSchema<'d>>, branches: &mut Vec<CowValue<'d>>, mapping: &mut ArgumentMapping) {
    let Some(done) = done else { return };
    let (schema, branch_mapping) = done.described();
    mapping.merge(branch_mapping);
    let schema = CowValue::Object(schema);
    if branches.len() > MAX_COMPARED || !branches.contains(&schema) {
        branches.push(schema);
    }
}
