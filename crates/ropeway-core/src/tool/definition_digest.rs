//! Tool definition digests.

use super::definition::{Origin, ToolDefinition};
use super::digest::{Digest, Hasher};

impl Digest {
    /// Returns the server definition's digest: the server's alias, the server's own name for the tool, title, description,
    /// schemas and annotations.
    ///
    /// Key order in schemas and annotations is ignored, array order is not. The name that models use is not part of the digest.
    pub fn of_source(definition: &ToolDefinition) -> Self {
        let definition = definition.original();
        let mut hasher = Hasher::new("ropeway tool definition 1");
        match &definition.origin {
            Origin::Local => {
                hasher.field(b"local");
                hasher.field(definition.name.as_bytes());
            }
            Origin::Server { server, tool } => {
                hasher.field(b"server");
                hasher.field(server.as_str().as_bytes());
                hasher.field(tool.as_bytes());
            }
        }
        write_content(&mut hasher, definition);
        hasher.finish()
    }

    /// Returns a definition's digest for approvals: [the server definition's](Self::of_source), the server's command or URL, and
    /// the configuration's changes.
    pub fn of_approved(definition: &ToolDefinition) -> Self {
        let mut hasher = Hasher::new("ropeway approved tool 1");
        hasher.field(&Self::of_source(definition).0);
        match definition.provenance.server {
            Some(server) => hasher.field(&server.0),
            None => hasher.field(b""),
        }
        // The configuration changed the definition.
        if definition.provenance.original.is_some() {
            write_content(&mut hasher, definition);
        }
        hasher.finish()
    }
}

/// Writes the tool content that models see, except its name.
fn write_content(hasher: &mut Hasher, definition: &ToolDefinition) {
    let ToolDefinition { title, description, input_schema, output_schema, annotations, .. } = definition;
    hasher.optional(title.as_deref());
    hasher.optional(description.as_deref());
    hasher.json(&input_schema.read());
    hasher.optional_json(output_schema.as_ref().map(|schema| schema.read()).as_deref());
    hasher.object(&annotations.0);
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::{Map, json};

    use super::*;
    use crate::tool::Annotations;

    fn note() -> ToolDefinition {
        let mut definition = ToolDefinition::new("note")
            .with_description("Writes a note")
            .with_input_schema(json!({"type": "object", "properties": {"text": {"type": "string"}}}));
        definition.origin = Origin::Server { server: "files".into(), tool: "note".into() };
        definition
    }

    #[test]
    fn the_order_of_keys_is_ignored_and_that_of_arrays_is_not() {
        let with = |schema| Digest::of_source(&note().with_input_schema(schema));
        assert_eq!(with(json!({"a": 1, "b": {"c": 2, "d": 3}})), with(json!({"b": {"d": 3, "c": 2}, "a": 1})));
        assert_ne!(with(json!({"required": ["a", "b"]})), with(json!({"required": ["b", "a"]})));
        assert_ne!(with(json!({"a": 1})), with(json!({"a": "1"})));
        assert_ne!(with(json!({"a": [1], "b": 2})), with(json!({"a": [1, 2]})));
    }

    #[test]
    fn every_part_of_the_servers_definition_changes_the_digest() {
        let plain = Digest::of_source(&note());
        let mut titled = note();
        titled.title = Some(String::new());
        let mut hinted = note();
        hinted.annotations = Annotations(Map::from_iter([("readOnlyHint".to_owned(), json!(true))]));
        let mut elsewhere = note();
        elsewhere.origin = Origin::Server { server: "web".into(), tool: "note".into() };
        let mut other = note();
        other.origin = Origin::Server { server: "files".into(), tool: "note2".into() };
        let changed =
            [note().with_description("x"), note().with_output_schema(json!({})), titled, hinted, elsewhere, other];
        for definition in changed {
            assert_ne!(Digest::of_source(&definition), plain, "{definition:?}");
        }
        let mut renamed = note();
        renamed.name = "mcp_files_note".to_owned();
        assert_eq!(Digest::of_source(&renamed), plain);
    }

    #[test]
    fn an_approval_covers_the_changes_of_the_host() {
        let plain = Digest::of_approved(&note());
        let mut moved = note();
        moved.provenance.server = Some(Digest::of_bytes(b"another command"));
        assert_ne!(Digest::of_approved(&moved), plain);
        let mut described = note().with_description("by the host");
        described.provenance.original = Some(Arc::new(note()));
        assert_ne!(Digest::of_approved(&described), plain);
        assert_eq!(Digest::of_source(&described), Digest::of_source(&note()));
        let mut changed = described.clone();
        changed.provenance.original = Some(Arc::new(note().with_description("Runs a shell")));
        assert_ne!(Digest::of_approved(&changed), Digest::of_approved(&described));
    }

    #[test]
    fn the_digest_of_a_definition_is_stable() {
        // Digests are stored in lock files: a change would invalidate all of them.
        assert_eq!(
            Digest::of_source(&note()).to_string(),
            "sha256:88221320ffefbd33f1c2686afdb8d35dbbf6ef6bf7e5a47da30d8958e677460b"
        );
    }
}
