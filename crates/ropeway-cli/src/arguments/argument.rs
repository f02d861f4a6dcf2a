//! The arguments of a call as they are typed: `key=value`, `key:=json`, and whole objects.

use std::collections::VecDeque;
use std::io::Read as _;

use ropeway::json;
use ropeway::tool::{Arguments, ToolDefinition};
use serde_json::{Value, json};

use crate::arguments::call_syntax::{Written, WrittenCall};
use crate::arguments::suggest;
use crate::describe::schema;
use crate::failure::Failure;
use crate::terminal::text::cut;

/// How much of a broken object is shown again.
const LONGEST_QUOTE: usize = 60;

/// The arguments that a person typed, before anybody knows the tool's schema.
#[derive(Clone, Debug, Default)]
pub(crate) struct Typed {
    /// The object that holds all of them.
    pub(crate) object: Option<Arguments>,
    /// The pairs, in order.
    pub(crate) pairs: Vec<Pair>,
    /// A value without a name: that of the only argument, or of the only required one.
    unnamed: Option<PairValue>,
}

/// What the word of an option begins with, and what separates its parts. No word of a command line can hold it.
const OPTION: char = '\0';

/// Returns the word for an option that is an argument of the tool: `name=value` or `name`, the word behind it that may be its value,
/// and the option of the command that is spelled like it.
pub(crate) fn option_word(body: &str, next: Option<&str>, nearest: Option<&str>) -> String {
    let next = next.map(|next| format!("={next}")).unwrap_or_default();
    format!("{OPTION}{body}{OPTION}{next}{OPTION}{}", nearest.unwrap_or_default())
}

/// What scripts see of arguments that make no sense.
const INVALID: &str = "invalid_arguments";

/// What a word behind the tool may be, for whoever typed something else.
const POSSIBLE: &str =
    "possible are `key=value`, `key:=json`, `--key value`, a JSON object '{…}', @FILE, or - for standard input";

/// One word behind the tool.
#[derive(Clone, Debug, PartialEq)]
enum Word {
    /// An object of arguments: JSON, `@file`, or `-`.
    Object(String),
    /// One argument.
    Pair(Pair),
    /// The name of an option, and the word behind it.
    Option(Pair),
}

impl Word {
    /// Reads one word. What begins like an object or a file is one, whatever follows.
    fn parse(text: &str) -> Result<Self, Failure> {
        if let Some(option) = text.strip_prefix(OPTION) {
            return Pair::parse_option(option).map(Self::Option);
        }
        if text.trim_start().starts_with(['{', '@']) || text == "-" {
            return Ok(Self::Object(text.to_owned()));
        }
        Pair::parse(text).map(Self::Pair)
    }
}

/// One `key=value` or `key:=json`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Pair {
    name: String,
    value: PairValue,
    /// It was written as `--name`.
    option: Option<OptionSpelling>,
}

/// How an argument that is written as an option may be mistyped.
#[derive(Clone, Debug, PartialEq)]
struct OptionSpelling {
    /// The option of the command that is spelled like it.
    nearest: Option<String>,
}

#[derive(Clone, Debug, PartialEq)]
enum PairValue {
    /// Means what the tool's schema makes of it.
    Plain(String),
    /// Means what it says.
    Json(Value),
    /// The word behind an option, which is its value unless the schema says that the option needs none.
    Next(Option<String>),
}

impl From<Written> for PairValue {
    fn from(written: Written) -> Self {
        match written {
            Written::Plain(text) => Self::Plain(text),
            Written::Json(value) => Self::Json(value),
        }
    }
}

impl Pair {
    /// Reads one pair.
    fn parse(text: &str) -> Result<Self, Failure> {
        let Some((name, value)) = text.split_once('=') else {
            let failure = Failure::usage(format!("`{}` is no argument", cut(text, LONGEST_QUOTE)));
            return Err(failure.kind(INVALID).hint(POSSIBLE));
        };
        let (name, value) = match name.strip_suffix(':') {
            Some(name) => {
                let json = json::from_str(value).map_err(|error| {
                    Failure::usage(format!("`{}` is not JSON", cut(value, LONGEST_QUOTE))).caused_by(&error)
                })?;
                (name, PairValue::Json(json))
            }
            None => (name, PairValue::Plain(value.to_owned())),
        };
        match name {
            "" => Err(Failure::usage(format!("`{text}` has no key before `=`"))),
            name => Ok(Self { name: name.to_owned(), value, option: None }),
        }
    }

    /// Reads the parts of an option, as [`option_word`] puts them together.
    fn parse_option(text: &str) -> Result<Self, Failure> {
        let mut parts = text.split(OPTION);
        let (body, next, nearest) =
            (parts.next().unwrap_or_default(), parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
        let option = Some(OptionSpelling { nearest: Some(nearest.to_owned()).filter(|nearest| !nearest.is_empty()) });
        if body.contains('=') {
            return Ok(Self { option, ..Self::parse(body)? });
        }
        let next = next.strip_prefix('=').map(str::to_owned);
        Ok(Self { name: body.to_owned(), value: PairValue::Next(next), option })
    }
}

/// Reads an object of arguments: JSON, `@file`, or `-` for standard input.
fn read_object(text: &str) -> Result<Arguments, Failure> {
    let (json, from) = match text.strip_prefix('@') {
        Some(path) => {
            let json = std::fs::read_to_string(path)
                .map_err(|error| Failure::usage(format!("could not read `{path}`")).caused_by(&error))?;
            (json, format!("`{path}`"))
        }
        None if text == "-" => {
            let mut json = String::new();
            std::io::stdin()
                .read_to_string(&mut json)
                .map_err(|error| Failure::usage("could not read standard input").caused_by(&error))?;
            (json, "standard input".to_owned())
        }
        None => (text.to_owned(), format!("`{}`", cut(text, LONGEST_QUOTE))),
    };
    match json::from_str(&json) {
        Ok(Value::Object(arguments)) => Ok(arguments),
        Ok(other) => {
            Err(Failure::usage(format!("{from} is a JSON {}, and arguments are an object", schema::kind_of(&other))))
        }
        Err(error) => Err(Failure::usage(format!("{from} is not JSON")).caused_by(&error)),
    }
}

impl Typed {
    /// Puts together what was typed: the words behind the tool, and the value of `--args`.
    pub(crate) fn read(words: &[String], args: Option<String>) -> Result<Self, Failure> {
        let mut object = args;
        let mut pairs = Vec::new();
        for word in words {
            match Word::parse(word)? {
                Word::Pair(pair) | Word::Option(pair) => pairs.push(pair),
                Word::Object(_) if object.is_some() => {
                    let failure = Failure::usage("more than one object of arguments is given");
                    return Err(failure.hint("one object holds all arguments; `key=value` overrules its keys"));
                }
                Word::Object(text) => object = Some(text),
            }
        }
        let object = object.as_deref().map(str::trim).map(read_object).transpose()?;
        Ok(Self { object, pairs, unnamed: None })
    }

    /// Adds the arguments of a call that is written as code.
    pub(crate) fn with_call(mut self, call: WrittenCall) -> Self {
        for (name, value) in call.arguments {
            match name {
                Some(name) => self.pairs.push(Pair { name, value: value.into(), option: None }),
                None => self.unnamed = Some(value.into()),
            }
        }
        self
    }

    /// What the tool is sent: pairs are converted by its schema, and win over the object.
    pub(crate) fn for_tool(self, tool: &ToolDefinition) -> Result<Arguments, Failure> {
        let mut arguments = self.object.unwrap_or_default();
        let mut typed: Vec<String> = Vec::new();
        let mut pairs: VecDeque<Pair> = self.pairs.into();
        if let Some(value) = self.unnamed {
            pairs.push_front(Pair { name: only_argument(tool)?, value, option: None });
        }
        while let Some(Pair { name, value, option }) = pairs.pop_front() {
            let name = match &option {
                Some(spelling) => option_name(tool, &name, spelling)?,
                None => name,
            };
            if typed.contains(&name) {
                return Err(Failure::usage(format!("argument `{name}` is given twice")).kind(INVALID));
            }
            let value = match value {
                PairValue::Json(value) => value,
                PairValue::Plain(text) => convert(tool, &name, text)?,
                PairValue::Next(next) if is_switch(tool, &name) => {
                    let said = next.as_deref().and_then(|next| next.parse().ok());
                    if let (None, Some(next)) = (said, next) {
                        pairs.push_front(behind_switch(&name, &next)?);
                    }
                    Value::Bool(said.unwrap_or(true))
                }
                PairValue::Next(Some(text)) => convert(tool, &name, text)?,
                PairValue::Next(None) => {
                    let failure = Failure::usage(format!("argument `--{name}` needs a value")).kind(INVALID);
                    return Err(failure.hint(format!("write --{name}=VALUE")).about(tool));
                }
            };
            arguments.insert(name.clone(), value);
            typed.push(name);
        }
        Ok(arguments)
    }
}

/// Returns true if an argument is a boolean: `--name` alone means that it is true.
fn is_switch(tool: &ToolDefinition, name: &str) -> bool {
    let property = schema::property(&tool.input_schema, name);
    let kinds = property.map(|property| schema::kinds(property, &tool.input_schema)).unwrap_or_default();
    kinds.iter().any(|kind| kind == "boolean") && kinds.iter().all(|kind| kind == "boolean" || kind == "null")
}

/// Returns the argument behind a switch, which has taken no value.
fn behind_switch(name: &str, next: &str) -> Result<Pair, Failure> {
    match Word::parse(next)? {
        Word::Pair(pair) | Word::Option(pair) => Ok(pair),
        Word::Object(_) => Err(Failure::usage(format!("`{}` is no value of `--{name}`", cut(next, LONGEST_QUOTE)))
            .kind(INVALID)
            .hint(format!("write --{name}=true before it"))),
    }
}

/// Returns the argument that a value without a name is for.
fn only_argument(tool: &ToolDefinition) -> Result<String, Failure> {
    let fields = schema::fields(&tool.input_schema);
    let required: Vec<&schema::Field> = fields.iter().filter(|field| field.required).collect();
    match (&fields[..], &required[..]) {
        ([only], _) => Ok(only.name.clone()),
        (_, [only]) => Ok(only.name.clone()),
        _ => Err(Failure::usage(format!("tool `{}` has several arguments, and the value has no name", tool.name))
            .kind(INVALID)
            .hint("write name: value")
            .about(tool)),
    }
}

/// Returns the argument that an option names: exactly, or but for dashes, underscores and capitals.
fn option_name(tool: &ToolDefinition, name: &str, spelling: &OptionSpelling) -> Result<String, Failure> {
    let fields = schema::fields(&tool.input_schema);
    if fields.iter().any(|field| field.name == name) {
        return Ok(name.to_owned());
    }
    let letters = |name: &str| -> String {
        name.chars().filter(|c| !matches!(c, '-' | '_')).flat_map(char::to_lowercase).collect()
    };
    let same: Vec<&schema::Field> = fields.iter().filter(|field| letters(&field.name) == letters(name)).collect();
    if let [field] = same[..] {
        return Ok(field.name.clone());
    }
    let failure = Failure::usage(format!("tool `{}` has no argument `{name}`", tool.name)).kind(INVALID);
    let near = suggest::closest(name, fields.iter().map(|field| field.name.as_str()));
    let near: Vec<String> = near.into_iter().map(str::to_owned).chain(spelling.nearest.clone()).collect();
    let near: Vec<String> = near.into_iter().map(|name| format!("--{name}")).collect();
    let question = suggest::ask(&near.iter().map(String::as_str).collect::<Vec<_>>());
    Err(question.into_iter().fold(failure, Failure::hint).about(tool))
}

/// A plain value as the tool's schema wants it.
fn convert(tool: &ToolDefinition, name: &str, text: String) -> Result<Value, Failure> {
    let root: &Value = &tool.input_schema;
    let Some(property) = schema::property(root, name) else {
        let fields = schema::fields(root);
        let question = suggest::question(name, fields.iter().map(|field| field.name.as_str()));
        let failure = Failure::usage(format!("tool `{}` has no argument `{name}`", tool.name)).kind(INVALID);
        return match question {
            // Few schemas are closed, and what looks mistyped most likely is.
            Some(question) if schema::is_open(root) => {
                let way = format!("`{name}:=…` with a JSON value sends it all the same");
                Err(failure.hint(question).hint(way).about(tool))
            }
            None if schema::is_open(root) => Ok(Value::String(text)),
            Some(question) => Err(failure.hint(question).about(tool)),
            None => Err(failure.about(tool)),
        };
    };
    let kinds = schema::kinds(property, root);
    if kinds.is_empty() || kinds.iter().any(|kind| kind == "string") {
        return Ok(Value::String(text));
    }
    if let Some(value) = scalar(&kinds, text.trim()) {
        return Ok(value);
    }
    if let Some(list) = list_of_scalars(property, root, &kinds, &text) {
        return Ok(list);
    }
    let wanted = schema::fields(root).into_iter().find(|field| field.name == name).map(|field| field.kind);
    let wanted = wanted.unwrap_or_else(|| kinds.join(" | "));
    let failure = Failure::usage(format!("argument `{name}` is `{wanted}`, and `{text}` is not")).kind(INVALID);
    // A list of texts is written as JSON where an item is empty or holds a comma.
    let alone = json!([text]).to_string();
    let list = shlex::try_quote(&alone).ok().filter(|_| wanted == "string[]");
    Err(list.map(|list| format!("write {name}={list}")).into_iter().fold(failure, Failure::hint).about(tool))
}

/// Returns a text as JSON of one of these kinds.
fn scalar(kinds: &[String], text: &str) -> Option<Value> {
    let value = json::from_str::<Value>(text).ok()?;
    let is_integral = value.as_f64().is_some_and(|number| number.fract() == 0.0);
    let fits = kinds.iter().any(|kind| match kind.as_str() {
        "integer" => is_integral,
        kind => kind == schema::kind_of(&value),
    });
    fits.then_some(value)
}

/// Returns `1,2,3` as a list, where the schema wants a list and nothing else, and all its items are texts, numbers or booleans.
fn list_of_scalars(property: &Value, root: &Value, kinds: &[String], text: &str) -> Option<Value> {
    let is_list =
        kinds.iter().any(|kind| kind == "array") && kinds.iter().all(|kind| kind == "array" || kind == "null");
    // What begins like JSON was meant as JSON.
    if !is_list || text.trim_start().starts_with(['[', '{', '"']) {
        return None;
    }
    if text.is_empty() {
        return Some(json!([]));
    }
    let item_kinds = schema::item_kinds(property, root);
    let is_scalar = |kind: &String| matches!(kind.as_str(), "string" | "number" | "integer" | "boolean");
    if item_kinds.is_empty() || !item_kinds.iter().all(is_scalar) {
        return None;
    }
    let is_text = item_kinds.iter().any(|kind| kind == "string");
    let item = |item: &str| match item.trim() {
        "" => None,
        item if is_text => Some(json!(item)),
        item => scalar(&item_kinds, item),
    };
    text.split(',').map(item).collect::<Option<Vec<_>>>().map(Value::Array)
}

/// Of arguments that are not given, which ones were given under another name: required ones first.
pub(crate) fn mistyped(tool: &ToolDefinition, arguments: &Arguments) -> Vec<String> {
    let fields = schema::fields(&tool.input_schema);
    let is_known = |name: &str| fields.iter().any(|field| field.name == name);
    let odd = arguments.keys().map(String::as_str).filter(|name| !is_known(name));
    let missing: Vec<&str> =
        fields.iter().filter(|field| !arguments.contains_key(&field.name)).map(|field| field.name.as_str()).collect();
    let question = |typed: &str| {
        let meant = suggest::closest(typed, missing.iter().copied()).into_iter().next()?;
        Some(format!("`{typed}` is no argument of it, did you mean `{meant}`?"))
    };
    odd.filter_map(question).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tool() -> ToolDefinition {
        ToolDefinition::new("chart").with_input_schema(json!({
            "type": "object", "additionalProperties": false, "required": ["values"],
            "properties": {
                "values": {"type": "array", "items": {"type": "number"}},
                "title": {"type": "string"},
                "width": {"type": "integer"},
                "scale": {"anyOf": [{"type": "number"}, {"type": "null"}]},
                "grid": {"type": "boolean"},
                "style": {"type": "object"},
                "label": {"type": ["string", "number"]},
                "any": {},
            }
        }))
    }

    fn typed(pairs: &[&str]) -> Result<Value, String> {
        let pairs = pairs.iter().map(|pair| Pair::parse(pair).expect("a pair")).collect();
        let arguments = Typed { pairs, ..Typed::default() }.for_tool(&tool());
        arguments.map(Value::Object).map_err(|failure| failure.message().to_owned())
    }

    #[test]
    fn plain_values_become_what_the_schema_says() {
        let arguments = typed(&[
            "values=[3, 1, 2]",
            "title=2024",
            "width=3",
            "scale=null",
            "grid=true",
            "style={\"a\": 1}",
            "label=5",
            "any=[1]",
        ]);
        let expected = json!({"values": [3, 1, 2], "title": "2024", "width": 3, "scale": null, "grid": true,
            "style": {"a": 1}, "label": "5", "any": "[1]"});
        assert_eq!(arguments, Ok(expected));
    }

    #[test]
    fn json_values_are_taken_as_they_are() {
        assert_eq!(typed(&["values:=\"x\"", "title:=3"]), Ok(json!({"values": "x", "title": 3})));
    }

    #[test]
    fn a_value_keeps_its_own_equals_signs() {
        assert_eq!(typed(&["values=[]", "title=a=b:=c"]), Ok(json!({"values": [], "title": "a=b:=c"})));
    }

    #[test]
    fn a_value_of_the_wrong_type_is_refused_before_the_call() {
        assert_eq!(typed(&["values=x"]), Err("argument `values` is `number[]`, and `x` is not".to_owned()));
        assert_eq!(typed(&["values=1,,2"]), Err("argument `values` is `number[]`, and `1,,2` is not".to_owned()));
        assert_eq!(
            typed(&["values=[1]", "width=1.5"]),
            Err("argument `width` is `integer`, and `1.5` is not".to_owned())
        );
        assert_eq!(
            typed(&["values=[1]", "grid=yes"]),
            Err("argument `grid` is `boolean`, and `yes` is not".to_owned())
        );
    }

    #[test]
    fn unknown_and_doubled_arguments_are_told() {
        assert_eq!(typed(&["valeus=[1]"]), Err("tool `chart` has no argument `valeus`".to_owned()));
        assert_eq!(typed(&["title=a", "title=b"]), Err("argument `title` is given twice".to_owned()));
    }

    #[test]
    fn an_open_schema_takes_unknown_keys_as_text() {
        let typed = Typed { pairs: vec![Pair::parse("x=1").expect("a pair")], ..Typed::default() };
        let arguments = typed.for_tool(&ToolDefinition::new("a")).expect("arguments");
        assert_eq!(Value::Object(arguments), json!({"x": "1"}));
    }

    #[test]
    fn commas_make_a_list_only_where_the_schema_wants_one_of_scalars() {
        let list = |items: Value| json!({"type": "array", "items": items});
        let tool = ToolDefinition::new("t").with_input_schema(json!({"$defs": {"n": {"type": "integer"}}, "properties": {
            "numbers": list(json!({"type": "number"})), "tags": list(json!({"type": "string"})),
            "flags": list(json!({"type": "boolean"})), "choices": list(json!({"enum": ["a", "b"]})),
            "maybe": {"anyOf": [list(json!({"$ref": "#/$defs/n"})), {"type": "null"}]},
            "text": {"type": "string"}, "either": {"type": ["string", "array"]},
            "any": {"type": "array"}, "deep": list(list(json!({"type": "number"}))), "objects": list(json!({"type": "object"})),
        }}));
        for (name, text, expected) in [
            ("numbers", "1,2,3", Some(json!([1, 2, 3]))),
            ("numbers", " 1.5 , -2", Some(json!([1.5, -2]))),
            ("numbers", "7", Some(json!([7]))),
            ("numbers", "", Some(json!([]))),
            ("numbers", "1,x", None),
            ("numbers", "[1", None),
            ("tags", "a, b c,3", Some(json!(["a", "b c", "3"]))),
            ("tags", "[\"a,b\"]", Some(json!(["a,b"]))),
            ("tags", "[a,b]", None),
            ("flags", "true,false", Some(json!([true, false]))),
            ("choices", "a,b", Some(json!(["a", "b"]))),
            ("maybe", "1,2", Some(json!([1, 2]))),
            ("maybe", "1.5", None),
            ("text", "1,2", Some(json!("1,2"))),
            ("either", "1,2", Some(json!("1,2"))),
            ("any", "1,2", None),
            ("deep", "1,2", None),
            ("objects", "1,2", None),
        ] {
            assert_eq!(convert(&tool, name, text.to_owned()).ok(), expected, "{name}={text}");
        }
    }

    #[test]
    fn options_are_arguments_by_name_or_by_a_name_that_is_spelled_alike() {
        let tool = ToolDefinition::new("t").with_input_schema(json!({"properties": {
            "max_length": {"type": "integer"}, "startIndex": {"type": "integer"}, "raw": {"type": "boolean"},
            "url": {"type": "string"}}}));
        let sent = |words: &[String]| {
            let typed = Typed::read(words, None).and_then(|typed| typed.for_tool(&tool));
            typed.map(Value::Object).map_err(|failure| anstream::adapter::strip_str(&failure.render()).to_string())
        };
        let option = |body: &str, next: Option<&str>| option_word(body, next, None);
        assert_eq!(
            sent(&[option("max_length=3", None), option("start-index", Some("4"))]),
            Ok(json!({"max_length": 3, "startIndex": 4}))
        );
        assert_eq!(sent(&[option("max-length:=[5]", None)]), Ok(json!({"max_length": [5]})));
        assert_eq!(sent(&[option("raw", Some("url=x"))]), Ok(json!({"raw": true, "url": "x"})));
        assert_eq!(sent(&[option("raw", Some("false"))]), Ok(json!({"raw": false})));
        assert_eq!(sent(&[option("raw", None)]), Ok(json!({"raw": true})));
        let failed = |words: &[String]| sent(words).expect_err("no argument");
        assert!(failed(&[option("url", None)]).contains("argument `--url` needs a value\n  write --url=VALUE\n"));
        assert!(failed(&[option("urll=x", None)]).contains("has no argument `urll`\n  did you mean `--url`?\n"));
        let mistyped = option_word("jsno", None, Some("json"));
        assert!(failed(&[mistyped]).contains("has no argument `jsno`\n  did you mean `--json`?\n"));
        assert!(failed(&[option("raw", Some("{}"))]).contains("write --raw=true before it"));
    }

    #[test]
    fn a_value_without_a_name_is_that_of_the_only_argument() {
        let call = |text: &str| {
            let call = crate::arguments::call_syntax::parse(text).expect("a call")?;
            Typed::default().with_call(call).for_tool(&tool())
        };
        assert_eq!(call("chart([1])").map(Value::Object).ok(), Some(json!({"values": [1]})));
        assert_eq!(call("chart(1)").map(Value::Object).ok(), Some(json!({"values": [1]})));
        let both = call("chart(values: [1], width: 3)").map(Value::Object);
        assert_eq!(both.ok(), Some(json!({"values": [1], "width": 3})));
    }

    #[test]
    fn one_thing_that_is_no_list_is_shown_as_a_list() {
        let tags = json!({"properties": {"tags": {"type": "array", "items": {"type": "string"}}}});
        let tool = ToolDefinition::new("tag").with_input_schema(tags);
        let failure = convert(&tool, "tags", "a,".to_owned()).expect_err("no list");
        let text = anstream::adapter::strip_str(&failure.render()).to_string();
        assert!(text.contains("and `a,` is not\n  write tags='[\"a,\"]'\n"), "{text}");
    }

    fn open() -> ToolDefinition {
        ToolDefinition::new("read").with_input_schema(json!({
            "type": "object", "required": ["path"],
            "properties": {"path": {"type": "string"}, "head": {"type": "integer"}}
        }))
    }

    #[test]
    fn an_open_schema_takes_no_key_that_looks_mistyped_unless_it_is_json() {
        let sent = |word: &str| {
            let typed = Typed { pairs: vec![Pair::parse(word).expect("a pair")], ..Typed::default() };
            typed.for_tool(&open()).map(Value::Object).map_err(|failure| failure.message().to_owned())
        };
        assert_eq!(sent("haed=1"), Err("tool `read` has no argument `haed`".to_owned()));
        assert_eq!(sent("haed:=1"), Ok(json!({"haed": 1})));
        assert_eq!(sent("colour=red"), Ok(json!({"colour": "red"})));
    }

    #[test]
    fn a_required_argument_is_recognised_under_another_name() {
        let arguments = |value: Value| value.as_object().expect("an object").clone();
        let expected = ["`paht` is no argument of it, did you mean `path`?"];
        assert_eq!(mistyped(&open(), &arguments(json!({"paht": "x"}))), expected);
        for fine in [json!({}), json!({"colour": 1}), json!({"path": "x", "paht": "y"}), json!({"head": 1})] {
            assert_eq!(mistyped(&open(), &arguments(fine)), Vec::<String>::new());
        }
    }

    fn words(words: &[&str], args: Option<&str>) -> Result<Value, String> {
        let words: Vec<String> = words.iter().copied().map(str::to_owned).collect();
        let typed = Typed::read(&words, args.map(str::to_owned)).and_then(|typed| typed.for_tool(&tool()));
        typed.map(Value::Object).map_err(|failure| failure.message().to_owned())
    }

    #[test]
    fn pairs_overrule_the_object_wherever_it_stands() {
        let object = r#"{"title": "a", "odd": 1}"#;
        let expected = Ok(json!({"title": "b", "odd": 1}));
        assert_eq!(words(&["title=b", object], None), expected);
        assert_eq!(words(&[object, "title=b"], None), expected);
        assert_eq!(words(&["title=b"], Some(object)), expected);
    }

    #[test]
    fn a_second_object_is_refused() {
        let refused = Err("more than one object of arguments is given".to_owned());
        assert_eq!(words(&["{}", "{}"], None), refused);
        assert_eq!(words(&["@/no/such/file"], Some("{}")), refused);
        assert_eq!(words(&["{}", "-"], None), refused);
    }

    #[test]
    fn a_word_that_is_neither_pair_nor_object_says_what_is_possible() {
        for word in ["values", "[1]", "--", "3"] {
            let failure = Word::parse(word).expect_err("no word");
            let text = anstream::adapter::strip_str(&failure.render()).to_string();
            assert_eq!(text, format!("error: `{word}` is no argument\n  {POSSIBLE}\n"));
        }
    }

    #[test]
    fn a_broken_object_is_shown_again_but_not_all_of_it() {
        assert_eq!(words(&["{title: 1}"], None), Err("`{title: 1}` is not JSON".to_owned()));
        let long = format!("{{{}", "x".repeat(100));
        assert_eq!(words(&[&long], None), Err(format!("`{{{}…` is not JSON", "x".repeat(58))));
    }

    #[test]
    fn what_is_no_pair_or_no_object_is_refused() {
        for text in ["values", "=3", ":=3", "a:={"] {
            assert!(Pair::parse(text).is_err(), "{text}");
        }
        for text in ["[1]", "{", "@/no/such/file", "3"] {
            assert!(read_object(text).is_err(), "{text}");
        }
    }
}
