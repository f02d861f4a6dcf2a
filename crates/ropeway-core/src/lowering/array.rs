//! Array keywords.

use std::borrow::Cow;

use serde_json::Value;

use super::change::ChangeKind;
use super::cow_value::{CowObject, CowValue};
use super::keywords::SchemaBuilder;
use super::node::{self, Node};
use super::object::false_schema;
use super::walker::{LowerResult, LoweredSchema, Walker};

impl<'d> Walker<'d> {
    pub(super) fn items(&mut self, value: &Cow<'d, Value>, builder: &mut SchemaBuilder<'d>) -> LowerResult {
        if let Some(schema) = self.unchanged(value) {
            builder.out.set("items", CowValue::Value(Cow::Borrowed(schema)));
            return Ok(());
        }
        let schema = match self.step(&["items"], value.clone())? {
            Some(done) => {
                let (schema, mapping) = done.described();
                builder.mapping.items(mapping);
                schema
            }
            None => {
                self.report("items", ChangeKind::Rewritten("maxItems".to_owned()));
                builder.set("maxItems", Value::from(0));
                CowObject::default()
            }
        };
        builder.set("items", schema);
        Ok(())
    }

    pub(super) fn prefix_items(&mut self, value: &Cow<'d, Value>, builder: &mut SchemaBuilder<'d>) -> LowerResult {
        let prefix = node::items(value);
        if prefix.is_empty() {
            self.report("prefixItems", ChangeKind::Dropped);
            return Ok(());
        }
        let mut lowered = Vec::with_capacity(prefix.len());
        for (at, schema) in prefix.into_iter().enumerate() {
            let done = self.step(&["prefixItems", &at.to_string()], schema)?;
            self.loosened += usize::from(done.is_none());
            let (schema, mapping) = done.unwrap_or_default().described();
            builder.mapping.items(mapping);
            lowered.push(CowValue::Object(schema));
        }
        builder.set("prefixItems", CowValue::List(lowered));
        Ok(())
    }

    pub(super) fn contains(
        &mut self,
        node: &Node<'d>,
        value: &Cow<'d, Value>,
        builder: &mut SchemaBuilder<'d>,
    ) -> LowerResult {
        let loosened = self.loosened;
        let done = self.checking_only(|walker| walker.step(&["contains"], value.clone()))?;
        let is_exact = self.loosened == loosened;
        let (schema, mapping) = done.map_or_else(|| (false_schema(), None), LoweredSchema::described);
        builder.mapping.items(mapping);
        let mut lowered = CowObject::default();
        lowered.push("contains", schema);
        for keyword in ["minContains", "maxContains"] {
            if let Some(count) = node.source(keyword).filter(|count| count.is_u64()) {
                lowered.push(keyword, CowValue::Value(count.clone()));
            }
        }
        // `maxContains` with a widened schema would forbid valid values.
        if self.target.is_lenient() && (is_exact || !lowered.has("maxContains")) {
            builder.out.extend(lowered);
        } else {
            lowered.iter().for_each(|(keyword, value)| self.describe_lowered(keyword, value, builder));
        }
        Ok(())
    }

    pub(super) fn content_schema(&mut self, value: &Cow<'d, Value>, builder: &mut SchemaBuilder<'d>) -> LowerResult {
        let done = self.checking_only(|walker| walker.step(&["contentSchema"], value.clone()))?;
        let schema = done.map_or_else(false_schema, |done| done.described().0);
        self.keep_or_describe("contentSchema", schema, self.target.is_lenient(), builder);
        Ok(())
    }
}
