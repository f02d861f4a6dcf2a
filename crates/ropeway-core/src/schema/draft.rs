//! The JSON Schema draft that a schema is written in.

use jsonschema::Draft;
use serde_json::Value;

/// Returns a schema's draft, or its `$schema` if that is unknown.
pub(super) fn draft_of(schema: &Value) -> Result<Draft, String> {
    let Some(written) = schema.get("$schema") else { return Ok(Draft::Draft202012) };
    let address = written.as_str().map(|uri| uri.trim().trim_end_matches('#'));
    let name = address.and_then(|uri| uri.strip_prefix("https://").or_else(|| uri.strip_prefix("http://")));
    match name {
        Some("json-schema.org/draft-04/schema") => Ok(Draft::Draft4),
        Some("json-schema.org/draft-06/schema") => Ok(Draft::Draft6),
        Some("json-schema.org/draft-07/schema") => Ok(Draft::Draft7),
        Some("json-schema.org/draft/2019-09/schema") => Ok(Draft::Draft201909),
        Some("json-schema.org/draft/2020-12/schema") => Ok(Draft::Draft202012),
        _ => Err(written.to_string()),
    }
}

/// Returns `true` for drafts that ignore a `$ref`'s siblings.
pub(super) fn ignores_reference_siblings(draft: Draft) -> bool {
    matches!(draft, Draft::Draft4 | Draft::Draft6 | Draft::Draft7)
}
