//! Rules of the APIs beyond their types: the order of roles, and the results of calls.

use std::collections::BTreeSet;

use ropeway::message::Dialect;
use serde_json::{Value, json};

/// Returns the rules that a request body breaks.
pub(super) fn broken(dialect: Dialect, url: &str, body: &Value) -> Vec<String> {
    let mut broken = Broken(Vec::new());
    let names = match dialect {
        Dialect::Anthropic => broken.anthropic(body),
        Dialect::Responses => broken.responses(body),
        Dialect::Gemini => broken.gemini(body, !url.contains("gemini-2")),
        Dialect::Chat => broken.chat(body),
    };
    broken.tools(dialect, &names);
    broken.0
}

struct Broken(Vec<String>);

fn list<'a>(value: &'a Value, key: &str) -> Vec<&'a Value> {
    value[key].as_array().into_iter().flatten().collect()
}

fn texts<'a>(values: &[&'a Value], pointer: &str) -> Vec<&'a str> {
    values.iter().map(|value| value.pointer(pointer).and_then(Value::as_str).unwrap_or_default()).collect()
}

fn of_type<'a>(values: &[&'a Value], kind: &str) -> Vec<&'a Value> {
    values.iter().copied().filter(|value| value["type"] == kind).collect()
}

/// Returns the contents of all parts of a kind.
fn within<'a>(parts: &[&'a Value], key: &str) -> Vec<&'a Value> {
    parts.iter().filter_map(|part| part.get(key)).collect()
}

impl Broken {
    fn must(&mut self, kept: bool, rule: impl Into<String>) {
        if !kept {
            self.0.push(rule.into());
        }
    }

    fn unique(&mut self, ids: &[&str]) {
        let different: BTreeSet<&&str> = ids.iter().collect();
        self.must(different.len() == ids.len() && !ids.contains(&""), format!("the ids {ids:?} are not all different"));
    }

    /// Checks that the body has no empty texts and lists, which most providers reject.
    fn nothing_empty(&mut self, blocks: &[&Value], text: &str) {
        for block in blocks {
            self.must(block.get(text).is_none_or(|text| *text != ""), format!("{block} is empty"));
        }
    }

    fn tools(&mut self, dialect: Dialect, names: &[&str]) {
        let longest = if matches!(dialect, Dialect::Anthropic | Dialect::Gemini) { 128 } else { 64 };
        let dots = if dialect == Dialect::Gemini { ".:" } else { "" };
        let legal = |name: &&&str| {
            let mut letters = name.chars();
            let starts_well = letters.next().is_some_and(|c| c.is_ascii_alphabetic() || c == '_');
            (starts_well || dialect != Dialect::Gemini)
                && (1..=longest).contains(&name.len())
                && name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-') || dots.contains(c))
        };
        for name in names.iter().filter(|name| !legal(name)) {
            self.must(false, format!("`{name}` is no name of a tool"));
        }
        let different: BTreeSet<&&str> = names.iter().collect();
        self.must(different.len() == names.len(), format!("the names {names:?} are not all different"));
    }

    fn anthropic<'a>(&mut self, body: &'a Value) -> Vec<&'a str> {
        let messages = list(body, "messages");
        let roles = texts(&messages, "/role");
        self.must(roles.first() == Some(&"user"), "the first message is not the user's");
        self.must(roles.windows(2).all(|pair| pair[0] != pair[1]), "two messages in a row have one role");
        let blocks: Vec<Vec<&Value>> = messages.iter().map(|message| list(message, "content")).collect();
        let mut ids = Vec::new();
        for (at, content) in blocks.iter().enumerate() {
            self.nothing_empty(content, "text");
            self.must(!content.is_empty() || messages[at]["content"].is_string(), "a message is empty");
            let calls = texts(&of_type(content, "tool_use"), "/id");
            let next = blocks.get(at + 1).map_or(&[][..], Vec::as_slice);
            let answered = texts(&of_type(next, "tool_result"), "/tool_use_id");
            self.must(answered == calls, format!("the calls {calls:?} are answered by {answered:?}"));
            let leading = next.iter().take_while(|block| block["type"] == "tool_result").count();
            self.must(leading == answered.len(), "something stands before a result");
            ids.extend(calls);
            for result in of_type(content, "tool_result") {
                let parts = list(result, "content");
                self.must(result["content"] != json!([]), "a result is an empty list");
                self.nothing_empty(&parts, "text");
                let only_text = parts.iter().all(|part| part["type"] == "text");
                self.must(result["is_error"] != true || only_text, "an error holds more than text");
            }
        }
        self.unique(&ids);
        let tools = list(body, "tools");
        self.must(!tools.is_empty() || body.get("tool_choice").is_none(), "there is a choice without tools");
        texts(&tools, "/name")
    }

    fn responses<'a>(&mut self, body: &'a Value) -> Vec<&'a str> {
        let items = list(body, "input");
        self.must(!items.is_empty(), "there is no input");
        let mut ids = Vec::new();
        let mut waiting: Vec<&str> = Vec::new();
        for item in &items {
            let id = item["call_id"].as_str().unwrap_or_default();
            match item["type"].as_str() {
                Some("function_call") => {
                    ids.push(id);
                    waiting.push(id);
                    let arguments = item["arguments"].as_str().and_then(|text| serde_json::from_str(text).ok());
                    self.must(arguments.is_some_and(|value: Value| value.is_object()), "arguments are no object");
                }
                Some("function_call_output") => {
                    let known = waiting.iter().position(|waiting| *waiting == id).map(|at| waiting.remove(at));
                    self.must(known.is_some(), format!("the result of `{id}` has no call before it"));
                    self.must(item["output"] != json!([]), "a result is an empty list");
                }
                _ => {
                    self.must(waiting.is_empty(), format!("something stands between {waiting:?} and their results"));
                    self.must(item["content"] != json!([]), "a message is empty");
                }
            }
        }
        self.must(waiting.is_empty(), format!("{waiting:?} have no results"));
        self.unique(&ids);
        let tools = list(body, "tools");
        self.must(!tools.is_empty() || body.get("tool_choice").is_none(), "there is a choice without tools");
        texts(&of_type(&tools, "function"), "/name")
    }

    fn gemini<'a>(&mut self, body: &'a Value, signed: bool) -> Vec<&'a str> {
        let contents = list(body, "contents");
        let roles = texts(&contents, "/role");
        self.must(roles.first() == Some(&"user"), "the first content is not the user's");
        let two_answers = roles.windows(2).any(|pair| pair == ["model", "model"]);
        self.must(!two_answers, "two answers stand in a row");
        let parts: Vec<Vec<&Value>> = contents.iter().map(|content| list(content, "parts")).collect();
        for (at, said) in parts.iter().enumerate() {
            self.must(!said.is_empty(), "a content is empty");
            let (calls, results) = (within(said, "functionCall"), within(said, "functionResponse"));
            let next = parts.get(at + 1).map(|next| within(next, "functionResponse")).unwrap_or_default();
            let key = |values: &[&Value]| -> Vec<Value> {
                values.iter().map(|value| json!([value["id"], value["name"]])).collect()
            };
            self.must(key(&calls) == key(&next), format!("{:?} are answered by {:?}", key(&calls), key(&next)));
            self.must(results.is_empty() || results.len() == said.len(), "something stands beside a result");
            for result in results {
                self.must(result["response"].is_object(), "a response is no object");
                self.must(result["parts"] != json!([]), "a result has an empty list of parts");
            }
            let first = said.iter().find(|part| part.get("functionCall").is_some());
            let is_signed = first.is_none_or(|part| part["thoughtSignature"].is_string());
            self.must(is_signed || !signed, "a call has no signature");
        }
        let tools = list(body, "tools");
        self.must(tools.len() <= 1, "the declarations are not in one tool");
        self.must(!tools.is_empty() || body.get("toolConfig").is_none(), "there is a choice without tools");
        let declared: Vec<&Value> = tools.iter().flat_map(|tool| list(tool, "functionDeclarations")).collect();
        texts(&declared, "/name")
    }

    fn chat<'a>(&mut self, body: &'a Value) -> Vec<&'a str> {
        let messages = list(body, "messages");
        self.must(messages.iter().any(|message| message["role"] != "system"), "nobody says anything");
        let mut ids = Vec::new();
        let mut waiting: Vec<&str> = Vec::new();
        for (at, message) in messages.iter().enumerate() {
            let role = message["role"].as_str().unwrap_or_default();
            if role == "tool" {
                let id = message["tool_call_id"].as_str().unwrap_or_default();
                self.must(waiting.first() == Some(&id), format!("the result of `{id}` stands where {waiting:?} wait"));
                waiting.retain(|waiting| *waiting != id);
                self.must(message["content"].is_string(), "a result is no string");
                continue;
            }
            self.must(waiting.is_empty(), format!("something stands between {waiting:?} and their results"));
            self.must(!matches!(role, "system" | "developer") || at == 0, "the system does not speak first");
            let calls = list(message, "tool_calls");
            waiting = texts(&calls, "/id");
            ids.extend(waiting.clone());
            for arguments in texts(&calls, "/function/arguments") {
                let object = serde_json::from_str(arguments).is_ok_and(|value: Value| value.is_object());
                self.must(object, format!("the arguments `{arguments}` are no object"));
            }
            let silent = message
                .get("content")
                .is_none_or(|content| content.is_null() || *content == "" || *content == json!([]));
            self.must(!silent || !calls.is_empty(), format!("{message} says nothing"));
        }
        self.must(waiting.is_empty(), format!("{waiting:?} have no results"));
        self.unique(&ids);
        let tools = list(body, "tools");
        self.must(!tools.is_empty() || body.get("tool_choice").is_none(), "there is a choice without tools");
        texts(&tools, "/function/name")
    }
}

#[test]
fn broken_rules_are_listed() {
    let anthropic = json!({"messages": [
        {"role": "user", "content": [{"type": "text", "text": ""}]},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "a", "name": "n", "input": {}}]},
        {"role": "user", "content": [{"type": "text", "text": "x"}]}
    ], "tool_choice": {"type": "auto"}});
    let told = [
        "{\"type\":\"text\",\"text\":\"\"} is empty",
        "the calls [\"a\"] are answered by []",
        "there is a choice without tools",
    ];
    assert_eq!(broken(Dialect::Anthropic, "", &anthropic), told);
    let responses = json!({"input": [
        {"type": "function_call", "call_id": "a", "name": "n", "arguments": "[]"},
        {"role": "user", "content": []},
        {"type": "function_call_output", "call_id": "b", "output": ""}
    ]});
    let told = [
        "arguments are no object",
        "something stands between [\"a\"] and their results",
        "a message is empty",
        "the result of `b` has no call before it",
        "[\"a\"] have no results",
    ];
    assert_eq!(broken(Dialect::Responses, "", &responses), told);
    let gemini = json!({"contents": [
        {"role": "model", "parts": [{"functionCall": {"name": "n"}}]},
        {"role": "user", "parts": [{"functionResponse": {"name": "m", "response": "x"}}, {"text": "x"}]}
    ]});
    let told = [
        "the first content is not the user's",
        "[Array [Null, String(\"n\")]] are answered by [Array [Null, String(\"m\")]]",
        "a call has no signature",
        "something stands beside a result",
        "a response is no object",
    ];
    assert_eq!(broken(Dialect::Gemini, "", &gemini), told);
    let chat = json!({"messages": [
        {"role": "assistant", "tool_calls": [{"id": "a", "function": {"name": "n", "arguments": "{"}}]},
        {"role": "user", "content": ""},
    ], "tools": [{"type": "function", "function": {"name": "a b"}}]});
    let told = [
        "the arguments `{` are no object",
        "something stands between [\"a\"] and their results",
        "{\"role\":\"user\",\"content\":\"\"} says nothing",
        "`a b` is no name of a tool",
    ];
    assert_eq!(broken(Dialect::Chat, "", &chat), told);
}
