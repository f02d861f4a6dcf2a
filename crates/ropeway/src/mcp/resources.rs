//! The resources of one server: what there is to read, and reading it.

use std::sync::Arc;

use serde::Serialize;
use serde_json::{Map, Value};

use super::call;
use super::connection::Connection;
use super::pages::{self, PagedList};
use crate::content::{ContentPart, EmbeddedResource};
use crate::protocol::field::{brief, count, object, split_key, string, take};
use crate::tool::{CallContext, CallError};

/// A resource that a server lists.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct Resource {
    /// Where it lives.
    pub uri: String,
    /// Its name; the URI where the server gave none.
    pub name: String,
    /// A name for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// What it holds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// The media type, when the server named one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mime_type: Option<String>,
    /// How many bytes it has, when the server knows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size: Option<u64>,
    /// For whom it is, and how much it matters.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub annotations: Option<Map<String, Value>>,
    /// The server's `_meta` for it.
    #[serde(rename = "_meta", skip_serializing_if = "Option::is_none")]
    pub meta: Option<Map<String, Value>>,
    /// Every other field that the server sent.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

/// A family of resources: a URI with gaps to be filled.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct ResourceTemplate {
    /// The URI, with its gaps in braces (RFC 6570).
    pub uri_template: String,
    /// Its name; the template itself where the server gave none.
    pub name: String,
    /// A name for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// What its resources hold.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// The media type of all of them, when they have one in common.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mime_type: Option<String>,
    /// For whom they are, and how much they matter.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub annotations: Option<Map<String, Value>>,
    /// The server's `_meta` for it.
    #[serde(rename = "_meta", skip_serializing_if = "Option::is_none")]
    pub meta: Option<Map<String, Value>>,
    /// Every other field that the server sent.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

/// All resources that the server lists.
pub(crate) async fn list(connection: &Arc<Connection>) -> Result<Vec<Resource>, CallError> {
    let list = PagedList { method: "resources/list", key: "resources", noun: "resource" };
    pages::entries(connection, list, "resources", Resource::read).await
}

/// All families of resources that the server lists.
pub(crate) async fn list_templates(connection: &Arc<Connection>) -> Result<Vec<ResourceTemplate>, CallError> {
    let list = PagedList { method: "resources/templates/list", key: "resourceTemplates", noun: "resource template" };
    pages::entries(connection, list, "resources", ResourceTemplate::read).await
}

/// Reads a resource. What cannot be read of it is a warning.
pub(crate) async fn read(
    connection: &Arc<Connection>,
    uri: &str,
    cx: &CallContext,
) -> Result<Vec<EmbeddedResource>, CallError> {
    let params = Map::from_iter([("uri".to_owned(), uri.into())]);
    let mut result = call::request(connection, "resources/read", params, cx).await?;
    let contents = match result["contents"].take() {
        Value::Array(contents) => contents,
        // One that is not in a list is one all the same.
        one @ Value::Object(_) => vec![one],
        odd => {
            connection.host.warn(&format!("`{uri}` has no contents but {}", brief(&odd)));
            Vec::new()
        }
    };
    let mut resources = Vec::with_capacity(contents.len());
    for content in contents {
        let words = brief(&content);
        let block = Map::from_iter([("type".to_owned(), "resource".into()), ("resource".to_owned(), content)]);
        match ContentPart::from_block(Value::Object(block)) {
            ContentPart::Resource(mut resource) => {
                if resource.uri.is_empty() {
                    uri.clone_into(&mut resource.uri);
                }
                resources.push(resource);
            }
            _ => connection.host.warn(&format!("`{uri}` holds something that is neither text nor a blob: {words}")),
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

/// The name of an entry; its address where it has none that is one.
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
    fn a_resource_goes_from_wire_to_wire_without_loss() {
        let full = json!({"uri": "file:///a", "name": "a", "title": "A", "description": "d", "mimeType": "text/plain",
            "size": 5, "annotations": {"priority": 1}, "_meta": {"m": 1}, "icons": []});
        assert_eq!(json!(Resource::read(full.clone()).expect("a resource")), full);
        let template = json!({"uriTemplate": "file:///{a}", "name": "a", "x": null});
        assert_eq!(json!(ResourceTemplate::read(template.clone()).expect("a template")), template);
    }

    #[test]
    fn odd_fields_are_kept_and_do_not_spoil_the_resource() {
        let odd = json!({"uri": "a:b", "name": 7, "title": null, "description": ["d"], "size": "much"});
        let expected = json!({"uri": "a:b", "name": "a:b", "description": ["d"], "size": "much"});
        assert_eq!(json!(Resource::read(odd).expect("a resource")), expected);
        assert_eq!(Resource::read(json!({"uri": "a:b", "size": 5.0})).expect("a resource").size, Some(5));
    }

    #[test]
    fn what_cannot_be_a_resource_says_why() {
        assert_eq!(Resource::read(json!({"name": "a"})), Err("a resource without a uri: null".into()));
        assert_eq!(Resource::read(json!(3)), Err("a resource that is not an object: 3".into()));
    }
}
