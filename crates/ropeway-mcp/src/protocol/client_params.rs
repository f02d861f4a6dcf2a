//! A client request's parameters, as far as routing needs them.

use std::borrow::Cow;

use serde_json::value::RawValue;

use super::inbound::{is_id, members, string, too_long};
use super::meta;

/// Maximum members in `params`, and in `_meta`.
const MAX_MEMBERS: usize = 128;

/// A request's parameters: the members that routing needs, and all others.
#[derive(Clone, Debug, Default)]
pub struct ClientParams<'a> {
    /// The key and the value that name the target, such as `name` and a tool.
    pub target: Option<(&'static str, Cow<'a, str>)>,
    /// The arguments, an object.
    pub arguments: Option<&'a RawValue>,
    /// The `_meta` members.
    pub meta: ClientMeta<'a>,
    /// All other members, in order.
    pub rest: Vec<(Cow<'a, str>, &'a RawValue)>,
}

/// The `_meta` members in a request's parameters.
#[derive(Clone, Debug, Default)]
pub struct ClientMeta<'a> {
    /// The progress token, a string or a number.
    pub progress_token: Option<&'a RawValue>,
    /// The protocol version (2026-07-28).
    pub protocol_version: Option<Cow<'a, str>>,
    /// The client's name and version, an object (2026-07-28).
    pub client_info: Option<&'a RawValue>,
    /// The client's capabilities, an object (2026-07-28).
    pub capabilities: Option<&'a RawValue>,
    /// The minimum log level (2026-07-28).
    pub log_level: Option<Cow<'a, str>>,
    /// All other members, in order, to be forwarded unchanged.
    pub others: Vec<(Cow<'a, str>, &'a RawValue)>,
}

impl<'a> ClientParams<'a> {
    /// Reads a request's parameters. `target` is the key that names the method's target: `name`, `uri` or `taskId`.
    ///
    /// # Errors
    ///
    /// Returns the problem if a member has an invalid type or is too long, if a key occurs twice, or if there are too many.
    pub fn read(params: Option<&'a RawValue>, target: Option<&'static str>) -> Result<Self, String> {
        let mut read = Self::default();
        let Some(params) = params else { return Ok(read) };
        let mut raw_meta = None;
        members(object("params", params)?, |key, value| match &*key {
            "arguments" => set(&mut read.arguments, "arguments", value),
            "_meta" => set(&mut raw_meta, "_meta", value),
            _ if target == Some(&*key) => {
                let target = target.unwrap_or_default();
                let text = text(target, value, max_length(target))?;
                set(&mut read.target, target, (target, text))
            }
            _ => add(&mut read.rest, key, value, "params"),
        })?;
        // Some clients write absent members as `null`.
        let present = |value: &&RawValue| value.get() != "null";
        read.arguments = read.arguments.filter(present).map(|value| object("arguments", value)).transpose()?;
        if let Some(meta) = raw_meta.filter(present) {
            read.meta = ClientMeta::read(meta)?;
        }
        Ok(read)
    }

    /// Returns the [`rest`](Self::rest) member with this key.
    pub fn get(&self, key: &str) -> Option<&'a RawValue> {
        self.rest.iter().find(|(own, _)| own == key).map(|(_, value)| *value)
    }
}

impl<'a> ClientMeta<'a> {
    fn read(raw: &'a RawValue) -> Result<Self, String> {
        let mut read = Self::default();
        members(object("_meta", raw)?, |key, value| match &*key {
            "progressToken" if value.get() == "null" => Ok(()),
            "progressToken" if !is_id(value) => Err("`progressToken` is not a string or a number".to_owned()),
            "progressToken" => set(&mut read.progress_token, "progressToken", value),
            meta::PROTOCOL_VERSION => {
                set(&mut read.protocol_version, meta::PROTOCOL_VERSION, text(meta::PROTOCOL_VERSION, value, 256)?)
            }
            meta::CLIENT_INFO => set(&mut read.client_info, meta::CLIENT_INFO, object(meta::CLIENT_INFO, value)?),
            meta::CLIENT_CAPABILITIES => {
                set(&mut read.capabilities, meta::CLIENT_CAPABILITIES, object(meta::CLIENT_CAPABILITIES, value)?)
            }
            meta::LOG_LEVEL => set(&mut read.log_level, meta::LOG_LEVEL, text(meta::LOG_LEVEL, value, 256)?),
            _ => add(&mut read.others, key, value, "_meta"),
        })?;
        Ok(read)
    }
}

/// Maximum target length.
fn max_length(key: &str) -> usize {
    match key {
        "uri" => 8 << 10,
        // A gateway's task ids contain the server's task id.
        "taskId" => 4 << 10,
        _ => 1 << 10,
    }
}

fn set<T>(slot: &mut Option<T>, key: &str, value: T) -> Result<(), String> {
    if slot.replace(value).is_some() { Err(duplicate(key)) } else { Ok(()) }
}

fn add<'a>(
    list: &mut Vec<(Cow<'a, str>, &'a RawValue)>,
    key: Cow<'a, str>,
    value: &'a RawValue,
    container: &str,
) -> Result<(), String> {
    if list.len() == MAX_MEMBERS {
        return Err(format!("`{container}` has more than {MAX_MEMBERS} members"));
    }
    if list.iter().any(|(other, _)| *other == key) {
        return Err(duplicate(&key));
    }
    list.push((key, value));
    Ok(())
}

fn duplicate(key: &str) -> String {
    let shown: String = key.chars().take(100).flat_map(char::escape_debug).collect();
    format!("duplicate key `{shown}`")
}

fn object<'a>(key: &str, value: &'a RawValue) -> Result<&'a RawValue, String> {
    if value.get().starts_with('{') { Ok(value) } else { Err(format!("`{key}` is not an object")) }
}

fn text<'a>(key: &str, value: &'a RawValue, limit: usize) -> Result<Cow<'a, str>, String> {
    let text = string(value).ok_or_else(|| format!("`{key}` is not a string"))?;
    if text.len() > limit { Err(too_long(key, limit)) } else { Ok(text) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raw(text: &str) -> &RawValue {
        serde_json::from_str(text).expect("JSON")
    }

    fn problem(params: &str) -> String {
        ClientParams::read(Some(raw(params)), Some("name")).expect_err(params)
    }

    #[test]
    fn a_request_keeps_every_byte_of_its_arguments() {
        let text = r#"{"name":"a\u002fb", "arguments":{ "n": 1.10, "s":"\u00e9" } ,"task":{"ttl":1},"_meta":{
            "progressToken":7,"traceparent": "00-1","io.modelcontextprotocol/protocolVersion":"2026-07-28",
            "io.modelcontextprotocol\/clientCapabilities":{"roots":{}},"io.modelcontextprotocol/clientInfo":{"name":"c"},
            "io.modelcontextprotocol/logLevel":"debug"}}"#;
        let params = ClientParams::read(Some(raw(text)), Some("name")).expect("params");
        assert_eq!(params.target, Some(("name", Cow::Borrowed("a/b"))));
        assert_eq!(params.arguments.map(RawValue::get), Some(r#"{ "n": 1.10, "s":"\u00e9" }"#));
        assert_eq!(params.get("task").map(RawValue::get), Some(r#"{"ttl":1}"#));
        assert_eq!((params.rest.len(), params.get("name").is_none()), (1, true));
        let meta = &params.meta;
        assert_eq!(meta.progress_token.map(RawValue::get), Some("7"));
        assert_eq!(meta.protocol_version.as_deref(), Some("2026-07-28"));
        assert_eq!(meta.capabilities.map(RawValue::get), Some(r#"{"roots":{}}"#));
        assert_eq!(meta.client_info.map(RawValue::get), Some(r#"{"name":"c"}"#));
        assert_eq!(meta.log_level.as_deref(), Some("debug"));
        let others: Vec<_> = meta.others.iter().map(|(key, value)| (&**key, value.get())).collect();
        assert_eq!(others, [("traceparent", "\"00-1\"")]);
    }

    #[test]
    fn members_may_be_absent_or_null() {
        for text in ["{}", r#"{"arguments":null,"_meta":null}"#, r#"{"_meta":{"progressToken":null}}"#] {
            let params = ClientParams::read(Some(raw(text)), Some("name")).expect("params");
            assert!(params.target.is_none() && params.arguments.is_none() && params.meta.progress_token.is_none());
            assert!(params.rest.is_empty() && params.meta.others.is_empty());
        }
        assert!(ClientParams::read(None, None).expect("params").rest.is_empty());
    }

    #[test]
    fn a_key_is_a_target_only_for_its_method() {
        let params = raw(r#"{"name":3,"uri":"file:///a"}"#);
        let read = ClientParams::read(Some(params), Some("uri")).expect("params");
        assert_eq!(read.target, Some(("uri", Cow::Borrowed("file:///a"))));
        assert_eq!(read.get("name").map(RawValue::get), Some("3"));
    }

    #[test]
    fn invalid_params_are_described() {
        for (params, message) in [
            ("[]", "`params` is not an object"),
            (r#"{"name":3}"#, "`name` is not a string"),
            (r#"{"arguments":[]}"#, "`arguments` is not an object"),
            (r#"{"_meta":"x"}"#, "`_meta` is not an object"),
            (r#"{"_meta":{"progressToken":{}}}"#, "`progressToken` is not a string or a number"),
            (
                r#"{"_meta":{"io.modelcontextprotocol/protocolVersion":1}}"#,
                "`io.modelcontextprotocol/protocolVersion` is not a string",
            ),
            (
                r#"{"_meta":{"io.modelcontextprotocol/clientCapabilities":[]}}"#,
                "`io.modelcontextprotocol/clientCapabilities` is not an object",
            ),
            (r#"{"name":"a","\u006eame":"b"}"#, "duplicate key `name`"),
            (r#"{"arguments":{},"arguments":{}}"#, "duplicate key `arguments`"),
            (r#"{"cursor":"a","cursor":"b"}"#, "duplicate key `cursor`"),
            (r#"{"_meta":{},"_meta":{}}"#, "duplicate key `_meta`"),
            (r#"{"_meta":{"a":1,"a":1}}"#, "duplicate key `a`"),
        ] {
            assert_eq!(problem(params), message);
        }
        assert_eq!(problem(&format!(r#"{{"name":"{}"}}"#, "x".repeat(1025))), "`name` is longer than 1024 bytes");
        let many: Vec<String> = (0..=MAX_MEMBERS).map(|number| format!("\"k{number}\":1")).collect();
        assert_eq!(problem(&format!("{{{}}}", many.join(","))), "`params` has more than 128 members");
    }
}
