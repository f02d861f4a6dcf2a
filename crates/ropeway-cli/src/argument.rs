//! The arguments of a call as they are typed: `key=value`, `key:=json`, and whole objects.

use std::io::Read as _;

use ropeway::json;
use ropeway::tool::{Arguments, ToolDefinition};
use serde_json::{Value, json};

use crate::failure::Failure;
use crate::text::cut;
use crate::{schema, suggest};

/// How much of a broken object is shown again.
const LONGEST_QUOTE: usize = 60;

/// The arguments that a person typed, before anybody knows the tool's schema.
#[derive(Debug, Default)]
pub(crate) struct Typed {
    /// The object that holds all of them.
    pub(crate) object: Option<Arguments>,
    /// The pairs, in order.
    pub(crate) pairs: Vec<Pair>,
}

/// What a word behind the tool may be, for whoever typed something else.
const POSSIBLE: &str = "possible are `key=value`, `key:=json`, a JSON object '{…}', @FILE, or - for standard input";

/// One word behind the tool.
#[derive(Clone, Debug, PartialEq)]
enum Word {
    /// An object of arguments: JSON, `@file`, or `-`.
    Object(String),
    /// One argument.
    Pair(Pair),
}

impl Word {
    /// Reads one word. What begins like an object or a file is one, whatever follows.
    fn parse(text: &str) -> Result<Self, Failure> {
        match text.trim_start().starts_with(['{', '@']) || text == "-" {
            true => Ok(Self::Object(text.to_owned())),
            false => Pair::parse(text).map(Self::Pair),
        }
    }
}

/// One `key=value` or `key:=json`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Pair {
    name: String,
    value: PairValue,
}

#[derive(Clone, Debug, PartialEq)]
enum PairValue {
    /// Means what the tool's schema makes of it.
    Plain(String),
    /// Means what it says.
    Json(Value),
}

impl Pair {
    /// Reads one pair.
    fn parse(text: &str) -> Result<Self, Failure> {
        let Some((name, value)) = text.split_once('=') else {
            return Err(Failure::usage(format!("`{}` is no argument", cut(text, LONGEST_QUOTE))).hint(POSSIBLE));
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
            name => Ok(Self { name: name.to_owned(), value }),
        }
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
                Word::Pair(pair) => pairs.push(pair),
                Word::Object(_) if object.is_some() => {
                    let failure = Failure::usage("more than one object of arguments is given");
                    return Err(failure.hint("one object holds all arguments; `key=value` overrules its keys"));
                }
                Word::Object(text) => object = Some(text),
            }
        }
        let object = object.as_deref().map(str::trim).map(read_object).transpose()?;
        Ok(Self { object, pairs })
    }

    /// What the tool is sent: pairs are converted by its schema, and win over the object.
    pub(crate) fn for_tool(self, tool: &ToolDefinition) -> Result<Arguments, Failure> {
        let mut arguments = self.object.unwrap_or_default();
        let mut typed: Vec<String> = Vec::new();
        for Pair { name, value } in self.pairs {
            if typed.contains(&name) {
                return Err(Failure::usage(format!("argument `{name}` is given twice")));
            }
            let value = match value {
                PairValue::Json(value) => value,
                PairValue::Plain(text) => convert(tool, &name, text)?,
            };
            arguments.insert(name.clone(), value);
            typed.push(name);
        }
        Ok(arguments)
    }
}

/// A plain value as the tool's schema wants it.
fn convert(tool: &ToolDefinition, name: &str, text: String) -> Result<Value, Failure> {
    let root: &Value = &tool.input_schema;
    let Some(property) = schema::property(root, name) else {
        let fields = schema::fields(root);
        let question = suggest::question(name, fields.iter().map(|field| field.name.as_str()));
        let failure = Failure::usage(format!("tool `{}` has no argument `{name}`", tool.name));
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
    let fits = |value: &Value| {
        let integral = value.as_f64().is_some_and(|number| number.fract() == 0.0);
        kinds.iter().any(|kind| match kind.as_str() {
            "integer" => integral,
            kind => kind == schema::kind_of(value),
        })
    };
    match json::from_str::<Value>(text.trim()) {
        Ok(value) if fits(&value) => Ok(value),
        _ => {
            let wanted = schema::fields(root).into_iter().find(|field| field.name == name).map(|field| field.kind);
            let wanted = wanted.unwrap_or_else(|| kinds.join(" | "));
            let failure = Failure::usage(format!("argument `{name}` is `{wanted}`, and `{text}` is not"));
            // Whoever has one thing for a list is shown how a list of it is written.
            let alone = json!([text]).to_string();
            let list = shlex::try_quote(&alone).ok().filter(|_| wanted == "string[]");
            Err(list.map(|list| format!("write {name}={list}")).into_iter().fold(failure, Failure::hint).about(tool))
        }
    }
}

/// Of required arguments that are not there, which ones were given under another name.
pub(crate) fn mistyped(tool: &ToolDefinition, arguments: &Arguments) -> Vec<String> {
    let fields = schema::fields(&tool.input_schema);
    let is_known = |name: &str| fields.iter().any(|field| field.name == name);
    let odd: Vec<&str> = arguments.keys().map(String::as_str).filter(|name| !is_known(name)).collect();
    let missing = fields.iter().filter(|field| field.required && !arguments.contains_key(&field.name));
    let question = |missing: &str| {
        let typed = suggest::closest(missing, odd.iter().copied()).into_iter().next()?;
        Some(format!("`{typed}` is no argument of it, did you mean `{missing}`?"))
    };
    missing.filter_map(|field| question(&field.name)).collect()
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
        let arguments = Typed { object: None, pairs }.for_tool(&tool());
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
        assert_eq!(typed(&["values=3"]), Err("argument `values` is `number[]`, and `3` is not".to_owned()));
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
        let typed = Typed { object: None, pairs: vec![Pair::parse("x=1").expect("a pair")] };
        let arguments = typed.for_tool(&ToolDefinition::new("a")).expect("arguments");
        assert_eq!(Value::Object(arguments), json!({"x": "1"}));
    }

    #[test]
    fn one_thing_for_a_list_is_shown_as_a_list() {
        let tags = json!({"properties": {"tags": {"type": "array", "items": {"type": "string"}}}});
        let tool = ToolDefinition::new("tag").with_input_schema(tags);
        let failure = convert(&tool, "tags", "a".to_owned()).expect_err("no list");
        let text = anstream::adapter::strip_str(&failure.render()).to_string();
        assert!(text.contains("and `a` is not\n  write tags='[\"a\"]'\n"), "{text}");
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
            let typed = Typed { object: None, pairs: vec![Pair::parse(word).expect("a pair")] };
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
