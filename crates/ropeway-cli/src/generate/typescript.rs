//! TypeScript modules: types, and a client over any object that can call tools.
//!
//! The module has no imports: `callTool` is the official SDK's client method, in all versions.

use serde_json::Value;

use super::identifiers::{Scope, camel_case, pascal_case};
use super::interface::{ServerInterface, ToolInterface};
use super::model::{Field, Object, Others, Type};
use super::reader;
use super::text::{MARK, ascii_json, comment_lines, comment_name, json_literal, typescript_comment_line};

/// Type names that the module uses itself.
const USED_TYPES: [&str; 6] = ["Array", "Error", "Promise", "Record", "String", "Object"];

/// Method names that JavaScript calls by itself: a client with a method `then` would call a tool when it is awaited.
const USED_METHODS: [&str; 9] = [
    "constructor",
    "prototype",
    "then",
    "toJSON",
    "toString",
    "toLocaleString",
    "valueOf",
    "hasOwnProperty",
    "isPrototypeOf",
];

/// The largest integer that JavaScript numbers represent exactly.
const MAX_INTEGER: u64 = (1 << 53) - 1;

const COMMON: &str = include_str!("typescript.ts");

/// Returns the module for a server.
pub(super) fn generate(server: &ServerInterface) -> String {
    let mut scope = Scope::with_reserved(&USED_TYPES);
    for name in ["ToolCaller", "ToolResult", "ToolError"] {
        scope.claim(name);
    }
    let class = scope.claim(&format!("{}Client", pascal_case(&server.alias, "Server")));
    let mut methods = Scope::with_reserved(&USED_METHODS);
    let (mut types, mut body) = (String::new(), String::new());
    for tool in &server.tools {
        let base = pascal_case(&tool.name, "Tool");
        let arguments = TypeWriter::write(&tool.input, &format!("{base}Arguments"), true, &mut scope, &mut types);
        let result = tool.output.as_ref();
        let result = result
            .map(|schema| TypeWriter::write(schema, &format!("{base}Result"), false, &mut scope, &mut types).name);
        body.push_str(&method(tool, &methods.claim(&camel_case(&tool.name, "tool")), &arguments, result.as_deref()));
    }
    let alias = comment_name(&server.alias);
    let title = comment_name(&server.title);
    let common = COMMON.replace("ServerClient", &class);
    let (head, tail) = common.split_once("  // methods\n").unwrap_or((&common, ""));
    format!(
        "// {MARK} ts`. Do not edit.\n// Server: {alias} ({title})\n\n/* eslint-disable */\n\n{types}{head}{body}{tail}"
    )
}

fn method(tool: &ToolInterface, name: &str, arguments: &ArgumentType, result: Option<&str>) -> String {
    let (kind, default) = (&arguments.name, if arguments.is_optional { " = {}" } else { "" });
    let result = result.unwrap_or("unknown");
    let literal = json_literal(&tool.name);
    format!(
        "\n{}  {name}(args: {kind}{default}): Promise<ToolResult<{result}>> {{\n    return this.#call<{result}>({literal}, args);\n  }}\n",
        comment(&tool.description, 2)
    )
}

/// The type for arguments.
struct ArgumentType {
    name: String,
    is_optional: bool,
}

/// Writes one schema's types.
struct TypeWriter {
    /// Each definition's name.
    names: Vec<String>,
}

impl TypeWriter {
    /// Appends a schema's types, the main one under the given name.
    fn write(schema: &Value, wanted: &str, is_input: bool, scope: &mut Scope, code: &mut String) -> ArgumentType {
        let types = reader::read(schema);
        let name = scope.claim(wanted);
        let base = name.trim_end_matches("Arguments");
        let definition = |name: &str| format!("{base}{}", pascal_case(name, "Type"));
        let names = types.definitions.iter().map(|known| scope.claim(&definition(&known.name))).collect();
        let writer = Self { names };
        let any_object = Type::Object(Object::default());
        let root = if is_input && !types.is_object(&types.root) { &any_object } else { &types.root };
        writer.declare(&name, None, root, code);
        for (known, name) in types.definitions.iter().zip(&writer.names) {
            writer.declare(name, known.description.as_deref(), &known.kind, code);
        }
        let object = types.argument_object();
        let is_optional = object.is_some_and(|object| !object.fields.iter().any(|field| field.is_required));
        ArgumentType { name, is_optional }
    }

    fn declare(&self, name: &str, description: Option<&str>, kind: &Type, code: &mut String) {
        code.push_str(&comment(description.unwrap_or_default(), 0));
        code.push_str(&match kind {
            Type::Object(object) => format!("export interface {name} {}\n\n", self.object(object, 0)),
            kind => format!("export type {name} = {};\n\n", self.kind(kind, 0)),
        });
    }

    fn kind(&self, kind: &Type, indent: usize) -> String {
        match kind {
            Type::Unknown => "unknown".to_owned(),
            Type::Never => "never".to_owned(),
            Type::Null => "null".to_owned(),
            Type::Boolean => "boolean".to_owned(),
            Type::Integer | Type::Number => "number".to_owned(),
            Type::String => "string".to_owned(),
            Type::Literal(value) => literal(value),
            Type::Array(item) => format!("{}[]", self.operand(item, indent)),
            Type::Tuple(items, rest) => {
                let items = items.iter().map(|item| self.kind(item, indent));
                let rest = rest.iter().map(|rest| format!("...{}[]", self.operand(rest, indent)));
                format!("[{}]", items.chain(rest).collect::<Vec<_>>().join(", "))
            }
            Type::Object(object) => self.object(object, indent),
            Type::Union(parts) => self.join(parts, " | ", indent),
            Type::Intersection(parts) => self.join(parts, " & ", indent),
            Type::Named(at) => self.names[*at].clone(),
        }
    }

    fn join(&self, parts: &[Type], separator: &str, indent: usize) -> String {
        let mut distinct: Vec<String> = Vec::new();
        for part in parts.iter().map(|part| self.operand(part, indent)) {
            // Different types may be written alike, such as integers and numbers.
            if !distinct.contains(&part) {
                distinct.push(part);
            }
        }
        distinct.join(separator)
    }

    /// Writes a type that an operator follows.
    fn operand(&self, kind: &Type, indent: usize) -> String {
        match kind {
            Type::Union(_) | Type::Intersection(_) => format!("({})", self.kind(kind, indent)),
            kind => self.kind(kind, indent),
        }
    }

    fn object(&self, object: &Object, indent: usize) -> String {
        let inner = indent + 2;
        let mut lines: String = object.fields.iter().map(|field| self.field(field, inner)).collect();
        let others = match &object.others {
            // The other fields' type must include the named fields' types.
            Others::Allowed(_) if !object.fields.is_empty() => Some("unknown".to_owned()),
            Others::Allowed(others) => Some(self.kind(others, inner)),
            Others::Forbidden if object.fields.is_empty() => Some("never".to_owned()),
            Others::Unmentioned if object.fields.is_empty() => Some("unknown".to_owned()),
            Others::Forbidden | Others::Unmentioned => None,
        };
        if let Some(others) = others {
            lines.push_str(&format!("{:inner$}[key: string]: {others};\n", ""));
        }
        format!("{{\n{lines}{:indent$}}}", "")
    }

    fn field(&self, field: &Field, indent: usize) -> String {
        let default = field.default.as_ref().map(|value| format!("Default: {}", ascii_json(value)));
        let text = field.description.iter().chain(&default).cloned().collect::<Vec<_>>().join("\n\n");
        let mark = if field.is_required { "" } else { "?" };
        let (name, kind) = (property_name(&field.name), self.kind(&field.kind, indent));
        format!("{}{:indent$}{name}{mark}: {kind};\n", comment(&text, indent), "")
    }
}

/// Returns a doc comment, or nothing for an empty text.
fn comment(text: &str, indent: usize) -> String {
    let lines: Vec<String> = comment_lines(text).iter().map(|line| typescript_comment_line(line)).collect();
    match &lines[..] {
        [] => String::new(),
        [line] => format!("{:indent$}/** {line} */\n", ""),
        lines => {
            let lines = lines.iter().map(|line| format!("{:indent$} * {line}", "").trim_end().to_owned() + "\n");
            format!("{:indent$}/**\n{}{:indent$} */\n", "", lines.collect::<String>(), "")
        }
    }
}

fn property_name(name: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '$');
    let is_identifier = name.chars().all(is_plain) && name.chars().next().is_some_and(|first| !first.is_ascii_digit());
    if is_identifier { name.to_owned() } else { json_literal(name) }
}

/// Returns the type for one value. Numbers that JavaScript does not represent exactly are any number.
fn literal(value: &Value) -> String {
    let is_exact = |number: &serde_json::Number| match (number.as_i64(), number.as_f64()) {
        (Some(integer), _) => integer.unsigned_abs() <= MAX_INTEGER,
        (None, Some(float)) => float.is_finite() && float.abs() < MAX_INTEGER as f64,
        (None, None) => false,
    };
    match value {
        Value::String(text) => json_literal(text),
        Value::Bool(value) => value.to_string(),
        Value::Number(number) if is_exact(number) => number
            .as_i64()
            .map_or_else(|| number.as_f64().unwrap_or_default().to_string(), |integer| integer.to_string()),
        _ => "number".to_owned(),
    }
}
