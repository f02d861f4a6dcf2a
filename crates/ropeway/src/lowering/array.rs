//! The keywords of arrays.

use serde_json::{Map, Value, json};

use super::How;
use super::keywords::Making;
use super::node::Node;
use super::object::nothing;
use super::walker::{Failure, Walker};

impl<'d> Walker<'d> {
    pub(super) fn items<'s>(&mut self, value: &'s Value, making: &mut Making) -> Result<(), Failure>
    where
        'd: 's,
    {
        let schema = match self.step(&["items"], value)? {
            Some(done) => {
                let (schema, shape) = done.described();
                making.shape.items(shape);
                schema
            }
            None => {
                self.report("items", How::Rewritten("maxItems".to_owned()));
                making.keep("maxItems", Value::from(0));
                json!({})
            }
        };
        making.keep("items", schema);
        Ok(())
    }

    pub(super) fn prefix_items<'s>(&mut self, value: &'s Value, making: &mut Making) -> Result<(), Failure>
    where
        'd: 's,
    {
        let Some(prefix) = value.as_array().filter(|prefix| !prefix.is_empty()) else {
            self.report("prefixItems", How::Dropped);
            return Ok(());
        };
        let mut lowered = Vec::with_capacity(prefix.len());
        for (at, schema) in prefix.iter().enumerate() {
            let done = self.step(&["prefixItems", &at.to_string()], schema)?;
            let (schema, shape) = done.map_or_else(|| (json!({}), None), |done| done.described());
            making.shape.items(shape);
            lowered.push(schema);
        }
        making.keep("prefixItems", Value::Array(lowered));
        Ok(())
    }

    pub(super) fn contains<'s>(
        &mut self,
        node: &'s Node<'s>,
        value: &'s Value,
        making: &mut Making,
    ) -> Result<(), Failure>
    where
        'd: 's,
    {
        let loosened = self.loosened;
        let done = self.measuring(|walker| walker.step(&["contains"], value))?;
        let is_exact = self.loosened == loosened;
        let mut said = Map::new();
        let (schema, shape) = done.map_or_else(|| (nothing(), None), |done| done.described());
        making.shape.items(shape);
        said.insert("contains".to_owned(), schema);
        for keyword in ["minContains", "maxContains"] {
            if let Some(count) = node.get(keyword).filter(|count| count.is_u64()) {
                said.insert(keyword.to_owned(), count.clone());
            }
        }
        // At most so many of what is now more than it was: that would forbid what is allowed.
        if self.form.is_lenient() && (is_exact || !said.contains_key("maxContains")) {
            making.out.extend(said);
        } else {
            for (keyword, value) in &said {
                self.describe(keyword, value, making);
            }
        }
        Ok(())
    }

    pub(super) fn content_schema<'s>(&mut self, value: &'s Value, making: &mut Making) -> Result<(), Failure>
    where
        'd: 's,
    {
        let done = self.measuring(|walker| walker.step(&["contentSchema"], value))?;
        let schema = done.map_or_else(nothing, |done| done.described().0);
        match self.form.is_lenient() {
            true => making.keep("contentSchema", schema),
            false => self.describe("contentSchema", &schema, making),
        }
        Ok(())
    }
}
