//! A server's resources ([resources](https://modelcontextprotocol.io/specification/2025-11-25/server/resources)).

use std::sync::Arc;

use serde::Serialize;
use serde_json::{Map, Value};

use super::call;
use super::connection::Connection;
use super::pages::{self, PagedList};
use crate::protocol::field::{brief, count, object, split_key, string, take};
use ropeway_core::content::{ContentPart, EmbeddedResource};
use ropeway_core::tool::{CallContext, CallError};

/// A `resources/list` entry.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct Resource {
    /// The resource's address.
    pub uri: String,
    /// The name; the URI if the server sent none.
    pub name: String,
    /// The name to display.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// What the resource contains.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// The media type, if known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mime_type: Option<String>,
    /// The size in bytes, if known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size: Option<u64>,
    /// The audience and the priority.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub annotations: Option<Map<String, Value>>,
    /// The `_meta` field.
    #[serde(rename = "_meta", skip_serializing_if = "Option::is_none")]
    pub meta: Option<Map<String, Value>>,
    /// All other fields.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

/// A `resources/templates/list` entry: a URI template for several resources.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct ResourceTemplate {
    /// The URI template ([RFC 6570](https://www.rfc-editor.org/rfc/rfc6570)).
    pub uri_template: String,
    /// The name; the template if the server sent none.
    pub name: String,
    /// The name to display.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// What the resources contain.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// The media type, if all resources have the same.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mime_type: Option<String>,
    /// The audience and the priority.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub annotations: Option<Map<String, Value>>,
    /// The `_meta` field.
    #[serde(rename = "_meta", skip_serializing_if = "Option::is_none")]
    pub meta: Option<Map<String, Value>>,
    /// All other fields.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

/// Lists a server's resources.
pub(crate) async fn list(connection: &Arc<Connection>) -> Result<Vec<Resource>, CallError> {
    let list = PagedList { method: "resources/list", key: "resources", noun: "resource" };
    pages::entries(connection, list, "resources", Resource::read).await
}

/// Lists a server's resource templates.
pub(crate) async fn list_templates(connection: &Arc<Connection>) -> Result<Vec<ResourceTemplate>, CallError> {
    let list = PagedList { method: "resources/templates/list", key: "resourceTemplates", noun: "resource template" };
    pages::entries(connection, list, "resources", ResourceTemplate::read).await
}

/// Reads a resource. Skips invalid parts with a warning.
pub(crate) async fn read(
    connection: &Arc<Connection>,
    uri: &str,
    cx: &CallContext,
) -> Result<Vec<EmbeddedResource>, CallError> {
    let params = Map::from_iter([("uri".to_owned(), uri.into())]);
    let mut result = call::request(connection, "resources/read", params, cx).await?;
    let contents = match result["contents"].take() {
        Value::Array(contents) => contents,
        // Some servers send a single object.
        one @ Value::Object(_) => vec![one],
        invalid => {
            connection.host.warn(&format!("`{uri}` has invalid contents: {}", brief(&invalid)));
            Vec::new()
        }
    };
    let mut resources = Vec::with_capacity(contents.len());
    for content in contents {
        let summary = brief(&content);
        let block = Map::from_iter([("type".to_owned(), "resource".into()), ("resource".to_owned(), content)]);
        match ContentPart::from_block(Value::Object(block)) {
            ContentPart::Resource(mut resource) => {
                if resource.uri.is_empty() {
                    uri.clone_into(&mut resource.uri);
                }
                resources.push(resource);
            }
            _ => {
                connection.host.warn(&format!("skipped content of `{uri}` that is neither text nor a blob: {summary}"))
            }
        }
    }
    Ok(resources)
}

impl Resource {
    fn read(entry: Value) -> Result<Self, String> {
        let (uri, mut entry) = split_key(entry, "uri", "resource")?;
        let name = name(&mut entry, &uri);
        Ok(Self {
            uri,
            name,
            title: take(&mut entry, "title", string),
            description: take(&mut entry, "description", string),
            mime_type: take(&mut entry, "mimeType", string),
            size: take(&mut entry, "size", count),
            annotations: take(&mut entry, "annotations", object),
            meta: take(&mut entry, "_meta", object),
            extra: entry,
        })
    }
}

impl ResourceTemplate {
    fn read(entry: Value) -> Result<Self, String> {
        let (uri_template, mut entry) = split_key(entry, "uriTemplate", "resource template")?;
        let name = name(&mut entry, &uri_template);
        Ok(Self {
            uri_template,
            name,
            title: take(&mut entry, "title", string),
            description: take(&mut entry, "description", string),
            mime_type: take(&mut entry, "mimeType", string),
            annotations: take(&mut entry, "annotations", object),
            meta: take(&mut entry, "_meta", object),
            extra: entry,
        })
    }
}

/// Takes an entry's name, or uses its address.
fn name(entry: &mut Map<String, Value>, address: &str) -> String {
    match entry.shift_remove("name") {
        Some(Value::String(name)) if !name.is_empty() => name,
        _ => address.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_resource_is_serialized_as_it_was_received() {
        let full = json!({"uri": "file:///a", "name": "a", "title": "A", "description": "d", "mimeType": "text/plain",
            "size": 5, "annotations": {"priority": 1}, "_meta": {"m": 1}, "icons": []});
        assert_eq!(json!(Resource::read(full.clone()).expect("a resource")), full);
        let template = json!({"uriTemplate": "file:///{a}", "name": "a", "x": null});
        assert_eq!(json!(ResourceTemplate::read(template.clone()).expect("a template")), template);
    }

    #[test]
    fn invalid_fields_of_a_resource_are_kept() {
        let invalid = json!({"uri": "a:b", "name": 7, "title": null, "description": ["d"], "size": "much"});
        let expected = json!({"uri": "a:b", "name": "a:b", "description": ["d"], "size": "much"});
        assert_eq!(json!(Resource::read(invalid).expect("a resource")), expected);
        assert_eq!(Resource::read(json!({"uri": "a:b", "size": 5.0})).expect("a resource").size, Some(5));
    }

    #[test]
    fn an_invalid_resource_is_described() {
        assert_eq!(Resource::read(json!({"name": "a"})), Err("a resource without a uri: null".into()));
        assert_eq!(Resource::read(json!(3)), Err("a resource that is not an object: 3".into()));
    }
}
