//! The keywords of arrays.

use std::borrow::Cow;

use serde_json::Value;

use super::ChangeKind;
use super::keywords::Making;
use super::node::{self, Node};
use super::object::nothing;
use super::walker::{Done, Failure, Walker};
use super::written::{Object, Written};

impl<'d> Walker<'d> {
    pub(super) fn items(&mut self, value: &Cow<'d, Value>, making: &mut Making<'d>) -> Result<(), Failure> {
        if let Some(schema) = self.untouched(value) {
            making.out.set("items", Written::Value(Cow::Borrowed(schema)));
            return Ok(());
        }
        let schema = match self.step(&["items"], value.clone())? {
            Some(done) => {
                let (schema, shape) = done.described();
                making.shape.items(shape);
                schema
            }
            None => {
                self.report("items", ChangeKind::Rewritten("maxItems".to_owned()));
                making.set("maxItems", Value::from(0));
                Object::default()
            }
        };
        making.set("items", schema);
        Ok(())
    }

    pub(super) fn prefix_items(&mut self, value: &Cow<'d, Value>, making: &mut Making<'d>) -> Result<(), Failure> {
        let prefix = node::items(value);
        if prefix.is_empty() {
            self.report("prefixItems", ChangeKind::Dropped);
            return Ok(());
        }
        let mut lowered = Vec::with_capacity(prefix.len());
        for (at, schema) in prefix.into_iter().enumerate() {
            let done = self.step(&["prefixItems", &at.to_string()], schema)?;
            self.loosened += usize::from(done.is_none());
            let (schema, shape) = done.unwrap_or_default().described();
            making.shape.items(shape);
            lowered.push(Written::Object(schema));
        }
        making.set("prefixItems", Written::List(lowered));
        Ok(())
    }

    pub(super) fn contains(
        &mut self,
        node: &Node<'d>,
        value: &Cow<'d, Value>,
        making: &mut Making<'d>,
    ) -> Result<(), Failure> {
        let loosened = self.loosened;
        let done = self.measuring(|walker| walker.step(&["contains"], value.clone()))?;
        let is_exact = self.loosened == loosened;
        let (schema, shape) = done.map_or_else(|| (nothing(), None), Done::described);
        making.shape.items(shape);
        let mut said = Object::default();
        said.push("contains", schema);
        for keyword in ["minContains", "maxContains"] {
            if let Some(count) = node.source(keyword).filter(|count| count.is_u64()) {
                said.push(keyword, Written::Value(count.clone()));
            }
        }
        // At most so many of what is now more than it was: that would forbid what is allowed.
        if self.form.is_lenient() && (is_exact || !said.has("maxContains")) {
            making.out.extend(said);
        } else {
            said.iter().for_each(|(keyword, value)| self.describe_written(keyword, value, making));
        }
        Ok(())
    }

    pub(super) fn content_schema(&mut self, value: &Cow<'d, Value>, making: &mut Making<'d>) -> Result<(), Failure> {
        let done = self.measuring(|walker| walker.step(&["contentSchema"], value.clone()))?;
        let schema = done.map_or_else(nothing, |done| done.described().0);
        match self.form.is_lenient() {
            true => making.set("contentSchema", schema),
            false => self.describe_written("contentSchema", &schema.into(), making),
        }
        Ok(())
    }
}
