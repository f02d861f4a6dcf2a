//! Profiles with search: `find_tools` finds tools, and `call_tool` calls them.

use std::borrow::Cow;

use bytes::Bytes;
use serde::Deserialize;
use serde_json::json;
use serde_json::value::RawValue;

use crate::catalog::router::Router;
use crate::request::errors::ErrorReply;
pub(crate) use ropeway_bridge::registry::search_tools::{CALL_TOOL, FIND_TOOLS};
use ropeway_core::tool::Arguments;

/// Maximum bytes in a query.
const MAX_QUERY_BYTES: usize = 4 << 10;

/// Answers a `find_tools` call with its result as JSON.
pub(crate) fn find_tools(router: &Router, arguments: &[u8]) -> Result<String, ErrorReply> {
    let Some(find) = router.find_tools() else { return Err(ErrorReply::unknown_tool(FIND_TOOLS, &[])) };
    let arguments: Arguments = ropeway_core::json::from_slice(arguments)
        .map_err(|_| ErrorReply::invalid_params("`arguments` is not an object"))?;
    let query = arguments.get("query").and_then(|query| query.as_str());
    let query = query.ok_or_else(|| ErrorReply::invalid_params("`arguments.query` is missing or not a string"))?;
    if query.len() > MAX_QUERY_BYTES {
        return Err(ErrorReply::invalid_params(format!("`arguments.query` has more than {MAX_QUERY_BYTES} bytes")));
    }
    Ok(json!({"content": [{"type": "text", "text": find.find(&arguments)}]}).to_string())
}

/// Reads a `call_tool` call: the tool's name, and its arguments as a slice.
pub(crate) fn inner_call(arguments: &Bytes) -> Result<(String, Bytes), ErrorReply> {
    #[derive(Deserialize)]
    struct InnerCall<'a> {
        #[serde(borrow)]
        name: Cow<'a, str>,
        #[serde(borrow, default)]
        arguments: Option<&'a RawValue>,
    }
    let invalid =
        |error: serde_json::Error| ErrorReply::invalid_params(format!("invalid call of `{CALL_TOOL}`: {error}"));
    let InnerCall { name, arguments: inner } = serde_json::from_slice(arguments).map_err(invalid)?;
    let inner = inner.map(RawValue::get).filter(|text| *text != "null");
    if inner.is_some_and(|text| !text.starts_with('{')) {
        return Err(ErrorReply::invalid_params(format!("invalid call of `{CALL_TOOL}`: `arguments` is not an object")));
    }
    let inner = inner.map(|text| arguments.slice_ref(text.as_bytes()));
    Ok((name.into_owned(), inner.unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_inner_arguments_are_a_slice_of_the_call() {
        let call = Bytes::from_static(br#"{"name":"web\u005fsearch","arguments":{"a": [1.50] },"x":1}"#);
        assert_eq!(inner_call(&call), Ok(("web_search".to_owned(), Bytes::from_static(br#"{"a": [1.50] }"#))));
        for call in [r#"{"name":"a"}"#, r#"{"name":"a","arguments":null}"#] {
            assert_eq!(inner_call(&Bytes::from_static(call.as_bytes())), Ok(("a".to_owned(), Bytes::new())));
        }
        for invalid in ["", "[]", "{}", r#"{"name":3}"#, r#"{"name":"a","arguments":[]}"#] {
            let error = inner_call(&Bytes::from_static(invalid.as_bytes())).expect_err("no call");
            assert!(error.code == -32602 && error.message.starts_with("invalid call of `call_tool`:"), "{error:?}");
        }
    }
}
