//! A request's parameters, from the client's to those for the server.

use std::borrow::Cow;

use bytes::Bytes;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::observe::TraceForwarding;
use crate::request::errors::ErrorReply;
use crate::shared::GatewayShared;
use ropeway_core::tool::Alias;
use ropeway_mcp::protocol::{ClientParams, Era};

/// Parameter members that only concern the client and the gateway.
const INPUT_MEMBERS: [&str; 2] = ["inputResponses", "requestState"];

/// Returns the name, URI or task that a request is about.
pub(crate) fn target<'a>(params: &'a ClientParams<'_>, key: &str) -> Result<&'a str, ErrorReply> {
    let target = params.target.as_ref().map(|(_, target)| &**target);
    target.ok_or_else(|| ErrorReply::invalid_params(format!("`{key}` is missing")))
}

/// The parts of a request that are forwarded unchanged.
pub(crate) struct Forwarded {
    /// Parameter members, with their JSON text.
    pub(crate) members: Vec<(String, String)>,
    /// `_meta` entries: a JSON object's text without its braces.
    pub(crate) meta: String,
}

impl Forwarded {
    pub(crate) fn of(params: &ClientParams<'_>, trace: &TraceForwarding) -> Self {
        let member = |(key, value): &(Cow<'_, str>, &RawValue)| (key.to_string(), value.get().to_owned());
        let mut meta = String::new();
        for (key, value) in params.meta.others.iter().filter(|(key, _)| !trace.omits(key)) {
            if !meta.is_empty() {
                meta.push(',');
            }
            meta.push_str(&format!("{}:{}", Value::from(&**key), value.get()));
        }
        if !trace.added().is_empty() {
            meta.push_str(if meta.is_empty() { "" } else { "," });
            meta.push_str(trace.added());
        }
        Self { members: params.rest.iter().map(member).collect(), meta }
    }
}

/// Appends members to an object's text. The object is not empty.
pub(crate) fn push_members(text: &mut String, members: &[(String, String)]) {
    for (key, value) in members {
        text.push_str(&format!(",{}:{value}", Value::from(key.as_str())));
    }
}

/// Writes the parameters for a server: the target under its own name, the arguments, and all other members.
pub(crate) fn write_params(
    shared: &GatewayShared,
    server: &Alias,
    (key, own_name): (&str, &str),
    arguments: &[u8],
    rest: &[(String, String)],
) -> Result<Bytes, ErrorReply> {
    let is_legacy = !rest.is_empty() && shared.upstreams.era(server) == Some(Era::Legacy);
    if is_legacy && rest.iter().any(|(key, _)| key == "requestState") {
        // Legacy servers have no states, and the gateway did not create this one. The call must not be executed again.
        return Err(ErrorReply::invalid_state());
    }
    let mut text = Vec::with_capacity(arguments.len() + own_name.len() + 64);
    text.extend_from_slice(b"{\"");
    text.extend_from_slice(key.as_bytes());
    text.extend_from_slice(b"\":");
    // Writing to a vector cannot fail.
    let _ = serde_json::to_writer(&mut text, own_name);
    if !arguments.is_empty() {
        text.extend_from_slice(b",\"arguments\":");
        text.extend_from_slice(arguments);
    }
    // Legacy servers do not support input round members.
    for (key, value) in rest.iter().filter(|(key, _)| !(is_legacy && INPUT_MEMBERS.contains(&key.as_str()))) {
        text.push(b',');
        let _ = serde_json::to_writer(&mut text, key);
        text.push(b':');
        text.extend_from_slice(value.as_bytes());
    }
    text.push(b'}');
    Ok(text.into())
}
