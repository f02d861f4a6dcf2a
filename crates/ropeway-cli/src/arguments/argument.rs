//! Tool arguments on the command line: `key=value`, `key=@file`, `key:=json` and whole JSON objects.

use std::collections::VecDeque;

use ropeway_core::json;
use ropeway_core::suggest;
use ropeway_core::tool::{Arguments, ToolDefinition};
use serde_json::{Value, json};

use crate::arguments::call_syntax::{CallExpression, CallValue};
use crate::arguments::file_value::{is_stdin, read_file, read_stdin, read_value};
use crate::arguments::nested::NestedArgument;
use crate::describe::schema;
use crate::describe::types;
use crate::failure::Failure;
use crate::terminal::text::cut;

/// Maximum quoted value width in an error, in columns.
const LONGEST_QUOTE: usize = 60;

/// Maximum refused value width in columns. The value may be a whole file's text.
const LONGEST_VALUE: usize = 500;

/// Arguments from the command line, not yet converted by the tool's schema.
#[derive(Clone, Debug, Default)]
pub(crate) struct RawArguments {
    pub(crate) object: Option<Arguments>,
    pub(crate) pairs: Vec<Pair>,
    /// A value without a name, for the only argument or the only required one.
    unnamed: Option<PairValue>,
    /// Values that start with `@` name files.
    reads_files: bool,
}

/// Starts an option's encoded word and separates its parts. Command-line words never contain it.
const OPTION: char = '\0';

/// Encodes an option that is a tool argument: `name=value` or `name`, the next word, which may be its value,
/// and the command's most similar option.
pub(crate) fn option_word(body: &str, next: Option<&str>, nearest: Option<&str>) -> String {
    let next = next.map(|next| format!("={next}")).unwrap_or_default();
    format!("{OPTION}{body}{OPTION}{next}{OPTION}{}", nearest.unwrap_or_default())
}

/// Error kind for invalid arguments in JSON output.
const INVALID: &str = "invalid_arguments";

/// Hint about the accepted forms of an argument.
const POSSIBLE: &str =
    "expected key=value, key=@FILE, key:=JSON, --key value, a JSON object '{…}', @FILE, or - for standard input";

/// One word after the tool name.
#[derive(Clone, Debug, PartialEq)]
enum Word {
    /// A JSON object with arguments: a literal, `@file` or `-`.
    Object(String),
    Pair(Pair),
    /// An option and the word after it.
    Option(Pair),
}

impl Word {
    /// Parses one word. A word that starts like an object or a file is one.
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
    /// Set for arguments in the form `--name`.
    option: Option<OptionSpelling>,
}

/// Suggestions for a misspelled `--name`.
#[derive(Clone, Debug, PartialEq)]
struct OptionSpelling {
    /// The command's most similar option.
    nearest: Option<String>,
}

#[derive(Clone, Debug, PartialEq)]
enum PairValue {
    /// Converted by the tool's schema.
    Plain(String),
    /// Sent as is.
    Json(Value),
    /// A JSON value's `@FILE`.
    JsonFile(String),
    /// The word after an option, which is its value unless the schema type is boolean.
    Next(Option<String>),
}

impl From<CallValue> for PairValue {
    fn from(written: CallValue) -> Self {
        match written {
            CallValue::Plain(text) => Self::Plain(text),
            CallValue::Json(value) => Self::Json(value),
        }
    }
}

impl Pair {
    fn parse(text: &str) -> Result<Self, Failure> {
        let Some((name, value)) = text.split_once('=') else {
            let failure = Failure::usage(format!("invalid argument `{}`", cut(text, LONGEST_QUOTE))).kind(INVALID);
            return Err(failure.hint(colon_hint(text).unwrap_or_else(|| POSSIBLE.to_owned())));
        };
        let (name, value) = match name.strip_suffix(':') {
            Some(name) if value.starts_with('@') => (name, PairValue::JsonFile(value.to_owned())),
            Some(name) => (name, PairValue::Json(parse_json(value, &format!("`{}`", cut(value, LONGEST_QUOTE)))?)),
            None => (name, PairValue::Plain(value.to_owned())),
        };
        match name {
            "" => Err(Failure::usage(format!("`{text}` has no key before `=`"))),
            name => Ok(Self { name: name.to_owned(), value, option: None }),
        }
    }

    /// Replaces a file name by the file's text.
    fn with_file(self) -> Result<Self, Failure> {
        let value = match self.value {
            PairValue::Plain(text) => PairValue::Plain(read_value(&self.name, text)?),
            PairValue::JsonFile(text) => {
                PairValue::Json(parse_json(&read_value(&self.name, text.clone())?, &format!("`{text}`"))?)
            }
            other => other,
        };
        Ok(Self { value, ..self })
    }

    fn is_stdin(&self) -> bool {
        match &self.value {
            PairValue::Plain(text) | PairValue::JsonFile(text) | PairValue::Next(Some(text)) => is_stdin(text),
            _ => false,
        }
    }

    /// Decodes an option encoded by [`option_word`].
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

/// Returns the hint for `id:3`, the form that other programs use.
fn colon_hint(text: &str) -> Option<String> {
    let (name, value) = text.split_once(':')?;
    let is_name = !name.is_empty() && name.chars().all(|c| c.is_alphanumeric() || matches!(c, '_' | '-' | '.'));
    let is_uri = value.starts_with("//");
    let value = shlex::try_quote(value.trim_start()).ok().filter(|_| is_name && !is_uri)?;
    Some(format!("use `{name}={value}`"))
}

/// Parses a JSON value; `from` is where it is from.
fn parse_json(text: &str, from: &str) -> Result<Value, Failure> {
    json::from_str(text).map_err(|error| Failure::usage(format!("{from} is not JSON")).caused_by(&error))
}

/// Reads a JSON object: a literal, `@file`, or `-` for standard input.
fn read_object(text: &str) -> Result<Arguments, Failure> {
    let (json, from) = match text.strip_prefix('@') {
        Some(path) => (read_file(path, "the arguments", |_| None)?, format!("`{path}`")),
        None if text == "-" => (read_stdin("the arguments")?, "standard input".to_owned()),
        None => (text.to_owned(), format!("`{}`", cut(text, LONGEST_QUOTE))),
    };
    match json::from_str(&json) {
        Ok(Value::Object(arguments)) => Ok(arguments),
        Ok(other) => Err(Failure::usage(format!("{from} is a JSON {}, expected an object", schema::json_type(&other)))),
        Err(error) => Err(Failure::usage(format!("{from} is not JSON")).caused_by(&error)),
    }
}

impl RawArguments {
    /// Parses the words after the tool name and the `--args` value.
    pub(crate) fn read(words: &[String], args: Option<String>) -> Result<Self, Failure> {
        let mut object = args;
        let mut pairs = Vec::new();
        for word in words {
            match Word::parse(word)? {
                Word::Pair(pair) | Word::Option(pair) => pairs.push(pair),
                Word::Object(_) if object.is_some() => {
                    let failure = Failure::usage("more than one JSON object of arguments");
                    return Err(failure.hint("merge them into one object, or override its keys with key=value"));
                }
                Word::Object(text) => object = Some(text),
            }
        }
        let object = object.as_deref().map(str::trim);
        let stdin = usize::from(object == Some("-")) + pairs.iter().filter(|pair| pair.is_stdin()).count();
        if stdin > 1 {
            return Err(Failure::usage("standard input is used for more than one argument").kind(INVALID));
        }
        let object = object.map(read_object).transpose()?;
        Ok(Self { object, pairs, ..Self::default() })
    }

    /// Reads the files that values name.
    pub(crate) fn with_files(mut self) -> Result<Self, Failure> {
        self.reads_files = true;
        self.pairs = self.pairs.into_iter().map(Pair::with_file).collect::<Result<_, _>>()?;
        Ok(self)
    }

    /// Adds a call expression's arguments.
    pub(crate) fn with_call(mut self, call: CallExpression) -> Self {
        for (name, value) in call.arguments {
            match name {
                Some(name) => self.pairs.push(Pair { name, value: value.into(), option: None }),
                None => self.unnamed = Some(value.into()),
            }
        }
        self
    }

    /// Returns the arguments for a tool. Pairs are converted by its schema and override the object.
    pub(crate) fn for_tool(self, tool: &ToolDefinition) -> Result<Arguments, Failure> {
        self.convert("tool", tool)
    }

    /// Returns a prompt's arguments, in the form that tools use.
    pub(crate) fn for_prompt(self, prompt: &ToolDefinition) -> Result<Arguments, Failure> {
        self.convert("prompt", prompt)
    }

    /// Converts the arguments; `noun` is what messages call the owner.
    fn convert(self, noun: &str, tool: &ToolDefinition) -> Result<Arguments, Failure> {
        let mut arguments = self.object.unwrap_or_default();
        // The names so far, and whether each is nested.
        let mut typed: Vec<(String, bool)> = Vec::new();
        let mut pairs: VecDeque<Pair> = self.pairs.into();
        if let Some(value) = self.unnamed {
            pairs.push_front(Pair { name: only_argument(noun, tool)?, value, option: None });
        }
        while let Some(Pair { name, value, option }) = pairs.pop_front() {
            let name = match &option {
                Some(spelling) => option_name(noun, tool, &name, spelling)?,
                None => name,
            };
            let nested = NestedArgument::find(&tool.input_schema, &name);
            let is_inside = |typed: &str| typed.strip_prefix(&name).is_some_and(|rest| rest.starts_with('.'));
            if typed.iter().any(|(typed, is_nested)| *typed == name || (*is_nested && is_inside(typed))) {
                return Err(Failure::usage(format!("duplicate argument `{name}`")).kind(INVALID));
            }
            let value = match value {
                PairValue::Json(value) => value,
                PairValue::JsonFile(text) => parse_json(&text, &format!("`{text}`"))?,
                PairValue::Plain(text) => convert(noun, tool, &name, text)?,
                PairValue::Next(next) if is_switch(tool, &name) => {
                    let said = next.as_deref().and_then(|next| next.parse().ok());
                    if let (None, Some(next)) = (said, next) {
                        pairs.push_front(behind_switch(&name, &next)?);
                    }
                    Value::Bool(said.unwrap_or(true))
                }
                PairValue::Next(Some(text)) if self.reads_files => {
                    convert(noun, tool, &name, read_value(&name, text)?)?
                }
                PairValue::Next(Some(text)) => convert(noun, tool, &name, text)?,
                PairValue::Next(None) => {
                    let failure = Failure::usage(format!("argument `--{name}` requires a value")).kind(INVALID);
                    return Err(failure.hint(format!("try --{name}=VALUE")).about(tool));
                }
            };
            let is_nested = nested.is_some();
            match nested {
                Some(nested) => nested.set(&mut arguments, value).map_err(|problem| {
                    Failure::usage(format!("could not set argument `{name}`: {problem}")).kind(INVALID)
                })?,
                None => drop(arguments.insert(name.clone(), value)),
            }
            typed.push((name, is_nested));
        }
        Ok(arguments)
    }
}

/// Returns `true` for a boolean argument, for which `--name` alone means `true`.
fn is_switch(tool: &ToolDefinition, name: &str) -> bool {
    let root: &Value = &tool.input_schema;
    let property = schema::property(root, name).or_else(|| NestedArgument::find(root, name)?.schema);
    let kinds = property.map(|property| schema::json_types(property, &tool.input_schema)).unwrap_or_default();
    kinds.iter().any(|kind| kind == "boolean") && kinds.iter().all(|kind| kind == "boolean" || kind == "null")
}

/// Parses the word after a boolean option as an argument.
fn behind_switch(name: &str, next: &str) -> Result<Pair, Failure> {
    match Word::parse(next)? {
        Word::Pair(pair) | Word::Option(pair) => Ok(pair),
        Word::Object(_) => {
            Err(Failure::usage(format!("`{}` is not a valid value for `--{name}`", cut(next, LONGEST_QUOTE)))
                .kind(INVALID)
                .hint(format!("to pass both, use `--{name}=true`")))
        }
    }
}

/// Returns the argument name that an unnamed value sets.
fn only_argument(noun: &str, tool: &ToolDefinition) -> Result<String, Failure> {
    let fields = types::fields(&tool.input_schema);
    let required: Vec<&types::Field> = fields.iter().filter(|field| field.required).collect();
    match (&fields[..], &required[..]) {
        ([only], _) => Ok(only.name.clone()),
        (_, [only]) => Ok(only.name.clone()),
        _ => Err(Failure::usage(format!("{noun} `{}` has several arguments; the value needs a name", tool.name))
            .kind(INVALID)
            .hint("try name: value")
            .about(tool)),
    }
}

/// Returns the argument that an option names, ignoring dashes, underscores and case.
fn option_name(noun: &str, tool: &ToolDefinition, name: &str, spelling: &OptionSpelling) -> Result<String, Failure> {
    let fields = types::fields(&tool.input_schema);
    if fields.iter().any(|field| field.name == name) || NestedArgument::find(&tool.input_schema, name).is_some() {
        return Ok(name.to_owned());
    }
    let letters = |name: &str| -> String {
        name.chars().filter(|c| !matches!(c, '-' | '_')).flat_map(char::to_lowercase).collect()
    };
    let same: Vec<&types::Field> = fields.iter().filter(|field| letters(&field.name) == letters(name)).collect();
    if let [field] = same[..] {
        return Ok(field.name.clone());
    }
    let failure = Failure::usage(format!("{noun} `{}` has no argument `{name}`", tool.name)).kind(INVALID);
    let near = suggest::closest(name, fields.iter().map(|field| field.name.as_str()));
    let near: Vec<String> = near.into_iter().map(str::to_owned).chain(spelling.nearest.clone()).collect();
    let near: Vec<String> = near.into_iter().map(|name| format!("--{name}")).collect();
    let question = suggest::did_you_mean_one_of(&near);
    Err(question.into_iter().fold(failure, Failure::hint).about(tool))
}

/// Converts a plain value to the type in the tool's schema.
fn convert(noun: &str, tool: &ToolDefinition, name: &str, text: String) -> Result<Value, Failure> {
    let root: &Value = &tool.input_schema;
    if let Some(nested) = NestedArgument::find(root, name) {
        return match nested.schema {
            Some(schema) => convert_to(schema, tool, name, text),
            None => Ok(Value::String(text)),
        };
    }
    let Some(property) = schema::property(root, name) else {
        let fields = types::fields(root);
        let question = suggest::did_you_mean(name, fields.iter().map(|field| field.name.as_str()));
        let failure = Failure::usage(format!("{noun} `{}` has no argument `{name}`", tool.name)).kind(INVALID);
        return match question {
            // Most schemas are open, but a name close to a known argument is most likely misspelled.
            Some(question) if schema::is_open(root) => {
                let way = format!("to send it anyway, use `{name}:=JSON`");
                Err(failure.hint(question).hint(way).about(tool))
            }
            None if schema::is_open(root) => Ok(Value::String(text)),
            Some(question) => Err(failure.hint(question).about(tool)),
            None => Err(failure.about(tool)),
        };
    };
    convert_to(property, tool, name, text)
}

/// Converts a plain value to its schema's type.
fn convert_to(property: &Value, tool: &ToolDefinition, name: &str, text: String) -> Result<Value, Failure> {
    let root: &Value = &tool.input_schema;
    let kinds = schema::json_types(property, root);
    if kinds.is_empty() || kinds.iter().any(|kind| kind == "string") {
        return Ok(Value::String(text));
    }
    if let Some(value) = scalar(&kinds, text.trim()) {
        return Ok(value);
    }
    if let Some(list) = list_of_scalars(property, root, &kinds, &text) {
        return Ok(list);
    }
    let wanted = types::fields(root).into_iter().find(|field| field.name == name).map(|field| field.kind);
    let wanted = wanted.unwrap_or_else(|| kinds.join(" | "));
    let shown = cut(&text, LONGEST_VALUE);
    let failure =
        Failure::usage(format!("invalid value `{shown}` for argument `{name}`: expected `{wanted}`")).kind(INVALID);
    // A list of strings needs JSON syntax if an item is empty or contains a comma.
    let alone = json!([text]).to_string();
    let list = shlex::try_quote(&alone).ok().filter(|_| wanted == "string[]" && shown == text);
    Err(list.map(|list| format!("try {name}={list}")).into_iter().fold(failure, Failure::hint).about(tool))
}

/// Parses a text as a JSON value of one of these types.
fn scalar(kinds: &[String], text: &str) -> Option<Value> {
    let value = json::from_str::<Value>(text).ok()?;
    let is_integral = value.as_f64().is_some_and(|number| number.fract() == 0.0);
    let fits = kinds.iter().any(|kind| match kind.as_str() {
        "integer" => is_integral,
        kind => kind == schema::json_type(&value),
    });
    fits.then_some(value)
}

/// Parses `1,2,3` as a list if the schema allows only lists of strings, numbers or booleans.
fn list_of_scalars(property: &Value, root: &Value, kinds: &[String], text: &str) -> Option<Value> {
    let is_list =
        kinds.iter().any(|kind| kind == "array") && kinds.iter().all(|kind| kind == "array" || kind == "null");
    if !is_list || text.trim_start().starts_with(['[', '{', '"']) {
        return None;
    }
    if text.is_empty() {
        return Some(json!([]));
    }
    let item_kinds = schema::item_types(property, root);
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

/// Returns hints for unknown argument names that resemble missing arguments.
pub(crate) fn mistyped(tool: &ToolDefinition, arguments: &Arguments) -> Vec<String> {
    let fields = types::fields(&tool.input_schema);
    let is_known = |name: &str| fields.iter().any(|field| field.name == name);
    let odd = arguments.keys().map(String::as_str).filter(|name| !is_known(name));
    let missing: Vec<&str> =
        fields.iter().filter(|field| !arguments.contains_key(&field.name)).map(|field| field.name.as_str()).collect();
    let question = |typed: &str| {
        let meant = suggest::closest(typed, missing.iter().copied()).into_iter().next()?;
        Some(format!("unknown argument `{typed}`; did you mean `{meant}`?"))
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
        let arguments = RawArguments { pairs, ..RawArguments::default() }.for_tool(&tool());
        arguments.map(Value::Object).map_err(|failure| failure.message().to_owned())
    }

    #[test]
    fn plain_values_are_converted_by_the_schema() {
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
        assert_eq!(
            typed(&["values=x"]),
            Err("invalid value `x` for argument `values`: expected `number[]`".to_owned())
        );
        assert_eq!(
            typed(&["values=1,,2"]),
            Err("invalid value `1,,2` for argument `values`: expected `number[]`".to_owned())
        );
        assert_eq!(
            typed(&["values=[1]", "width=1.5"]),
            Err("invalid value `1.5` for argument `width`: expected `integer`".to_owned())
        );
        assert_eq!(
            typed(&["values=[1]", "grid=yes"]),
            Err("invalid value `yes` for argument `grid`: expected `boolean`".to_owned())
        );
    }

    #[test]
    fn unknown_and_duplicate_arguments_are_refused() {
        assert_eq!(typed(&["valeus=[1]"]), Err("tool `chart` has no argument `valeus`".to_owned()));
        assert_eq!(typed(&["title=a", "title=b"]), Err("duplicate argument `title`".to_owned()));
    }

    #[test]
    fn an_open_schema_takes_unknown_keys_as_text() {
        let typed = RawArguments { pairs: vec![Pair::parse("x=1").expect("a pair")], ..RawArguments::default() };
        let arguments = typed.for_tool(&ToolDefinition::new("a")).expect("arguments");
        assert_eq!(Value::Object(arguments), json!({"x": "1"}));
    }

    #[test]
    fn commas_make_a_list_only_for_lists_of_scalars() {
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
            assert_eq!(convert("tool", &tool, name, text.to_owned()).ok(), expected, "{name}={text}");
        }
    }

    #[test]
    fn options_are_arguments_by_name_or_by_a_similar_spelling() {
        let tool = ToolDefinition::new("t").with_input_schema(json!({"properties": {
            "max_length": {"type": "integer"}, "startIndex": {"type": "integer"}, "raw": {"type": "boolean"},
            "url": {"type": "string"}}}));
        let sent = |words: &[String]| {
            let typed = RawArguments::read(words, None).and_then(|typed| typed.for_tool(&tool));
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
        assert!(failed(&[option("url", None)]).contains("argument `--url` requires a value\n  try --url=VALUE\n"));
        assert!(failed(&[option("urll=x", None)]).contains("has no argument `urll`\n  did you mean `--url`?\n"));
        let mistyped = option_word("jsno", None, Some("json"));
        assert!(failed(&[mistyped]).contains("has no argument `jsno`\n  did you mean `--json`?\n"));
        assert!(failed(&[option("raw", Some("{}"))]).contains("to pass both, use `--raw=true`"));
    }

    #[test]
    fn a_value_without_a_name_is_that_of_the_only_argument() {
        let call = |text: &str| {
            let call = crate::arguments::call_syntax::parse(text).expect("a call")?;
            RawArguments::default().with_call(call).for_tool(&tool())
        };
        assert_eq!(call("chart([1])").map(Value::Object).ok(), Some(json!({"values": [1]})));
        assert_eq!(call("chart(1)").map(Value::Object).ok(), Some(json!({"values": [1]})));
        let both = call("chart(values: [1], width: 3)").map(Value::Object);
        assert_eq!(both.ok(), Some(json!({"values": [1], "width": 3})));
    }

    #[test]
    fn a_single_item_is_suggested_as_a_list() {
        let tags = json!({"properties": {"tags": {"type": "array", "items": {"type": "string"}}}});
        let tool = ToolDefinition::new("tag").with_input_schema(tags);
        let failure = convert("tool", &tool, "tags", "a,".to_owned()).expect_err("no list");
        let text = anstream::adapter::strip_str(&failure.render()).to_string();
        assert!(text.contains("expected `string[]`\n  try tags='[\"a,\"]'\n"), "{text}");
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
            let typed = RawArguments { pairs: vec![Pair::parse(word).expect("a pair")], ..RawArguments::default() };
            typed.for_tool(&open()).map(Value::Object).map_err(|failure| failure.message().to_owned())
        };
        assert_eq!(sent("haed=1"), Err("tool `read` has no argument `haed`".to_owned()));
        assert_eq!(sent("haed:=1"), Ok(json!({"haed": 1})));
        assert_eq!(sent("colour=red"), Ok(json!({"colour": "red"})));
    }

    #[test]
    fn a_required_argument_is_recognised_under_another_name() {
        let arguments = |value: Value| value.as_object().expect("an object").clone();
        let expected = ["unknown argument `paht`; did you mean `path`?"];
        assert_eq!(mistyped(&open(), &arguments(json!({"paht": "x"}))), expected);
        for fine in [json!({}), json!({"colour": 1}), json!({"path": "x", "paht": "y"}), json!({"head": 1})] {
            assert_eq!(mistyped(&open(), &arguments(fine)), Vec::<String>::new());
        }
    }

    fn words(words: &[&str], args: Option<&str>) -> Result<Value, String> {
        let words: Vec<String> = words.iter().copied().map(str::to_owned).collect();
        let typed = RawArguments::read(&words, args.map(str::to_owned)).and_then(|typed| typed.for_tool(&tool()));
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
        let refused = Err("more than one JSON object of arguments".to_owned());
        assert_eq!(words(&["{}", "{}"], None), refused);
        assert_eq!(words(&["@/no/such/file"], Some("{}")), refused);
        assert_eq!(words(&["{}", "-"], None), refused);
    }

    #[test]
    fn an_invalid_word_lists_the_accepted_forms() {
        for word in ["values", "[1]", "--", "3", "http://a", ":3"] {
            let failure = Word::parse(word).expect_err("no word");
            let text = anstream::adapter::strip_str(&failure.render()).to_string();
            assert_eq!(text, format!("error: invalid argument `{word}`\n  {POSSIBLE}\n"));
        }
    }

    #[test]
    fn an_argument_with_a_colon_is_shown_with_an_equals_sign() {
        for (word, hint) in [("id:3", "use `id=3`"), ("title: two words", "use `title='two words'`")] {
            let failure = Word::parse(word).expect_err("no word");
            let text = anstream::adapter::strip_str(&failure.render()).to_string();
            assert_eq!(text, format!("error: invalid argument `{word}`\n  {hint}\n"));
        }
    }

    #[test]
    fn nested_names_set_fields_by_their_schema_and_override_the_object() {
        let tool = ToolDefinition::new("order").with_input_schema(json!({"properties": {
            "customer": {"type": "object", "properties": {"name": {"type": "string"}, "age": {"type": "integer"},
                "paid": {"type": "boolean"}}},
            "items": {"type": "array", "items": {"type": "object", "properties": {"id": {"type": "integer"}}}}}}));
        let sent = |words: &[&str]| {
            let words: Vec<String> = words.iter().copied().map(str::to_owned).collect();
            let typed = RawArguments::read(&words, None).and_then(|typed| typed.for_tool(&tool));
            typed.map(Value::Object).map_err(|failure| failure.message().to_owned())
        };
        let customer = json!({"customer": {"name": "7", "age": 7}});
        assert_eq!(sent(&["customer.name=7", "customer.age=7"]), Ok(customer.clone()));
        assert_eq!(sent(&[r#"{"customer": {"name": "x", "age": 7}}"#, "customer.name=7"]), Ok(customer));
        assert_eq!(sent(&["items.0.id=1", "items.1.id:=2"]), Ok(json!({"items": [{"id": 1}, {"id": 2}]})));
        let option = option_word("customer.paid", Some("customer.age=3"), None);
        assert_eq!(sent(&[&option]), Ok(json!({"customer": {"paid": true, "age": 3}})));
        assert_eq!(
            sent(&["customer.age=x"]),
            Err("invalid value `x` for argument `customer.age`: expected `integer`".to_owned())
        );
        assert_eq!(
            sent(&["customer.age=1", r#"customer:={"name": "x"}"#]),
            Err("duplicate argument `customer`".to_owned())
        );
        assert_eq!(sent(&["items.1.id=1"]), Err("could not set argument `items.1.id`: item 0 comes first".to_owned()));
        // An open schema still takes a name with a dot as it is.
        assert_eq!(sent(&["other.name=1"]), Ok(json!({"other.name": "1"})));
    }

    #[test]
    fn a_file_is_a_value_of_every_form_and_type() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("f");
        let sent = |text: &str, words: &[String]| {
            std::fs::write(&file, text).expect("a file");
            let typed = RawArguments::read(words, None).and_then(RawArguments::with_files);
            let typed = typed.and_then(|typed| typed.for_tool(&tool()));
            typed.map(Value::Object).map_err(|failure| failure.message().to_owned())
        };
        let at = format!("@{}", file.display());
        assert_eq!(sent("a\n", &[format!("title={at}")]), Ok(json!({"title": "a\n"})));
        assert_eq!(sent("1,2\n", &[format!("values={at}")]), Ok(json!({"values": [1, 2]})));
        assert_eq!(sent("[1]", &[format!("any:={at}")]), Ok(json!({"any": [1]})));
        assert_eq!(sent("a", &[option_word("title", Some(&at), None)]), Ok(json!({"title": "a"})));
        assert_eq!(sent("a", &[option_word(&format!("title={at}"), None, None)]), Ok(json!({"title": "a"})));
        assert_eq!(sent("", &["title=@@x".to_owned()]), Ok(json!({"title": "@x"})));
        assert_eq!(sent("{", &[format!("any:={at}")]), Err(format!("`{at}` is not JSON")));
        let twice = ["title=@-".to_owned(), "-".to_owned()];
        assert_eq!(sent("", &twice), Err("standard input is used for more than one argument".to_owned()));
    }

    #[test]
    fn a_broken_object_is_shown_again_but_not_all_of_it() {
        assert_eq!(words(&["{title: 1}"], None), Err("`{title: 1}` is not JSON".to_owned()));
        let long = format!("{{{}", "x".repeat(100));
        assert_eq!(words(&[&long], None), Err(format!("`{{{}…` is not JSON", "x".repeat(58))));
    }

    #[test]
    fn invalid_pairs_and_objects_are_refused() {
        for text in ["values", "=3", ":=3", "a:={"] {
            assert!(Pair::parse(text).is_err(), "{text}");
        }
        for text in ["[1]", "{", "@/no/such/file", "3"] {
            assert!(read_object(text).is_err(), "{text}");
        }
    }
}
