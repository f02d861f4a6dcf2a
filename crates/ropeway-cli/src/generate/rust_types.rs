//! Rust types for a schema: structs, enums and aliases.

use serde_json::Value;

use super::identifiers::{Scope, pascal_case, snake_case};
use super::model::{Field, Object, Others, Type, Types};
use super::reader;
use super::rust_layout::{block_start, serde_attribute, typed};
use super::text::{ascii_json, comment_lines, rust_doc_line, rust_literal};

const ANY: &str = "::serde_json::Value";
const ANY_OBJECT: &str = "::serde_json::Map<String, ::serde_json::Value>";
const DERIVES: &str = "Clone, Debug, PartialEq, ::serde::Serialize, ::serde::Deserialize";

/// Maximum items in a tuple; the standard library implements its traits for no more.
const MAX_ITEMS: usize = 12;
/// Maximum nesting for types that are merged into one struct.
const MAX_MERGED: usize = 16;

/// Words that cannot name fields and methods.
pub(super) const KEYWORDS: [&str; 53] = [
    "abstract", "as", "async", "await", "become", "box", "break", "const", "continue", "crate", "do", "dyn", "else",
    "enum", "extern", "false", "final", "fn", "for", "gen", "if", "impl", "in", "let", "loop", "macro", "match", "mod",
    "move", "mut", "override", "priv", "pub", "ref", "return", "self", "static", "struct", "super", "trait", "true",
    "try", "type", "typeof", "union", "unsafe", "unsized", "use", "virtual", "where", "while", "yield", "raw",
];

/// Type names that generated code uses itself.
pub(super) const USED_TYPES: [&str; 14] = [
    "Box",
    "Clone",
    "Debug",
    "Default",
    "Err",
    "None",
    "Ok",
    "Option",
    "PartialEq",
    "Result",
    "Self",
    "Some",
    "String",
    "Vec",
];

/// The type for arguments or results.
pub(super) struct RootType {
    pub(super) name: String,
    /// The object has no fields and accepts no others. As arguments, it is not declared.
    pub(super) is_empty: bool,
}

/// Appends a schema's types, the main one under the given name.
pub(super) fn write(schema: &Value, wanted: &str, is_input: bool, scope: &mut Scope, code: &mut String) -> RootType {
    let types = reader::read(schema);
    let is_empty = types
        .argument_object()
        .is_some_and(|object| object.fields.is_empty() && !matches!(object.others, Others::Allowed(_)));
    let name = scope.claim(wanted);
    if is_input && is_empty {
        return RootType { name, is_empty };
    }
    let base = name.trim_end_matches("Arguments");
    let definition = |name: &str| format!("{base}{}", pascal_case(name, "Type"));
    let names = types.definitions.iter().map(|known| scope.claim(&definition(&known.name))).collect();
    let recursive = types.recursive();
    let mut writer = TypeWriter { types: &types, names, recursive, scope, code };
    let any_object = Type::Object(Object::default());
    let root = if is_input && !types.is_object(&types.root) { &any_object } else { &types.root };
    writer.declare(&name, None, root, false);
    for (at, known) in types.definitions.iter().enumerate() {
        let name = writer.names[at].clone();
        writer.declare(&name, known.description.as_deref(), &known.kind, writer.recursive[at]);
    }
    RootType { name, is_empty }
}

/// Writes one schema's types.
struct TypeWriter<'a> {
    types: &'a Types,
    /// Each definition's name.
    names: Vec<String>,
    /// Whether each definition contains itself.
    recursive: Vec<bool>,
    scope: &'a mut Scope,
    code: &'a mut String,
}

impl TypeWriter<'_> {
    /// Declares a type under a name that is claimed already.
    fn declare(&mut self, name: &str, description: Option<&str>, kind: &Type, is_recursive: bool) {
        let comment = doc_comment(description.unwrap_or_default(), 0);
        match self.merged_object(kind) {
            Some(object) if !object.fields.is_empty() => self.declare_struct(name, &object, &comment),
            _ => {
                let value = self.kind(kind, &format!("{name}Value"), false);
                self.code.push_str(&comment);
                // An alias cannot contain itself.
                self.code.push_str(&if is_recursive {
                    format!("#[derive({DERIVES})]\n#[serde(transparent)]\npub struct {name}(pub {value});\n\n")
                } else {
                    typed(&format!("pub type {name} ="), &value, ";", 0) + "\n"
                });
            }
        }
    }

    /// Returns a type. Objects and alternatives are declared as `hint`. In a list or map, a recursive type needs no box.
    fn kind(&mut self, kind: &Type, hint: &str, is_boxed: bool) -> String {
        match kind {
            Type::Unknown | Type::Never => ANY.to_owned(),
            Type::Null => "()".to_owned(),
            Type::Boolean | Type::Literal(Value::Bool(_)) => "bool".to_owned(),
            Type::Integer => "i64".to_owned(),
            Type::Number => "f64".to_owned(),
            Type::String => "String".to_owned(),
            Type::Literal(Value::String(text)) => self.text_enum(&[text.as_str()], hint),
            Type::Literal(number) => if number.is_i64() { "i64" } else { "f64" }.to_owned(),
            Type::Array(item) => format!("Vec<{}>", self.kind(item, &format!("{hint}Item"), true)),
            Type::Tuple(items, None) if items.len() <= MAX_ITEMS => {
                let kinds = items.iter().map(|item| self.kind(item, &format!("{hint}Item"), false));
                let kinds: Vec<String> = kinds.collect();
                if kinds.len() == 1 { format!("({},)", kinds[0]) } else { format!("({})", kinds.join(", ")) }
            }
            Type::Tuple(..) => format!("Vec<{ANY}>"),
            Type::Object(_) | Type::Intersection(_) => match self.merged_object(kind) {
                Some(object) if !object.fields.is_empty() => {
                    let name = self.scope.claim(hint);
                    self.declare_struct(&name, &object, "");
                    name
                }
                Some(Object { others: Others::Allowed(others), .. }) if *others != Type::Unknown => {
                    let value = self.kind(&others, &format!("{hint}Value"), true);
                    format!("::std::collections::BTreeMap<String, {value}>")
                }
                Some(_) => ANY_OBJECT.to_owned(),
                None => match kind {
                    // Each part accepts all values in the intersection.
                    Type::Intersection(parts) if !parts.is_empty() => self.kind(&parts[0], hint, is_boxed),
                    _ => ANY.to_owned(),
                },
            },
            Type::Union(parts) => self.union(parts, hint, is_boxed),
            Type::Named(at) if self.recursive[*at] && !is_boxed => format!("Box<{}>", self.names[*at]),
            Type::Named(at) => self.names[*at].clone(),
        }
    }

    fn union(&mut self, parts: &[Type], hint: &str, is_boxed: bool) -> String {
        let has = |kind: &Type| parts.contains(kind);
        let is_text = |part: &&Type| matches!(part, Type::Literal(Value::String(_)));
        let texts: Vec<&str> = parts
            .iter()
            .filter_map(|part| match part {
                Type::Literal(Value::String(text)) if !has(&Type::String) => Some(text.as_str()),
                _ => None,
            })
            .collect();
        let mut kinds: Vec<Type> = Vec::new();
        for part in parts.iter().filter(|part| **part != Type::Null && !is_text(part)) {
            let kind = match part {
                Type::Literal(Value::Bool(_)) => Type::Boolean,
                Type::Literal(number) if number.is_i64() => Type::Integer,
                Type::Literal(_) => Type::Number,
                part => part.clone(),
            };
            if !kinds.contains(&kind) {
                kinds.push(kind);
            }
        }
        if kinds.contains(&Type::Number) {
            kinds.retain(|kind| *kind != Type::Integer);
        }
        let value = match (&texts[..], &kinds[..]) {
            ([], []) => return "()".to_owned(),
            ([], [kind]) => self.kind(kind, hint, is_boxed),
            (texts, []) => self.text_enum(texts, hint),
            (texts, _) => self.variants(texts, kinds, hint),
        };
        if has(&Type::Null) && value != ANY { format!("Option<{value}>") } else { value }
    }

    /// Declares an enum with string variants.
    fn text_enum(&mut self, texts: &[&str], hint: &str) -> String {
        let name = self.scope.claim(hint);
        let mut scope = Scope::with_reserved(&["Self"]);
        let variants = texts.iter().map(|text| {
            let variant = scope.claim(&pascal_case(text, "Value"));
            let rename = serde_attribute(&[format!("rename = {}", rust_literal(text))], 4);
            format!("{rename}    {variant},\n")
        });
        let variants: String = variants.collect();
        let start = block_start(&format!("pub enum {name}"));
        self.code.push_str(&format!("#[derive({DERIVES})]\n{start}{variants}}}\n\n"));
        name
    }

    /// Declares an enum with a variant per type. The first one that fits is used.
    fn variants(&mut self, texts: &[&str], mut kinds: Vec<Type>, hint: &str) -> String {
        let name = self.scope.claim(hint);
        kinds.sort_by_key(|kind| self.rank(kind));
        let mut scope = Scope::with_reserved(&["Self"]);
        let mut variants = String::new();
        if !texts.is_empty() {
            let kind = self.text_enum(texts, &format!("{name}Text"));
            variants.push_str(&format!("    {}({kind}),\n", scope.claim("Text")));
        }
        for kind in kinds {
            let wanted = match &kind {
                Type::Null | Type::Unknown | Type::Never => "Any".to_owned(),
                Type::Boolean => "Boolean".to_owned(),
                Type::Integer => "Integer".to_owned(),
                Type::Number => "Number".to_owned(),
                Type::String | Type::Literal(_) => "String".to_owned(),
                Type::Array(_) | Type::Tuple(..) => "Array".to_owned(),
                Type::Named(at) => pascal_case(&self.types.definitions[*at].name, "Type"),
                Type::Object(_) | Type::Union(_) | Type::Intersection(_) => "Object".to_owned(),
            };
            let variant = scope.claim(&wanted);
            let kind = self.kind(&kind, &format!("{name}{variant}"), false);
            variants.push_str(&format!("    {variant}({kind}),\n"));
        }
        let start = block_start(&format!("pub enum {name}"));
        let code = format!("#[derive({DERIVES})]\n#[serde(untagged)]\n{start}{variants}}}\n\n");
        self.code.push_str(&code);
        name
    }

    /// Orders alternatives: an object with many required fields first, types that accept much last.
    fn rank(&self, kind: &Type) -> (u8, usize) {
        let object = match kind {
            Type::Named(at) => self.merged_object(&self.types.definitions[*at].kind),
            kind => self.merged_object(kind),
        };
        match object {
            Some(object) if object.fields.is_empty() => (2, 0),
            Some(object) => (0, usize::MAX - object.fields.iter().filter(|field| field.is_required).count()),
            None if *kind == Type::String => (1, 0),
            None => (0, 0),
        }
    }

    /// Returns a type as an object; an intersection has the fields of all its parts.
    fn merged_object(&self, kind: &Type) -> Option<Object> {
        let mut object = Object::default();
        self.merge(kind, true, MAX_MERGED, &mut object).then_some(object)
    }

    /// Adds a type's fields to an object. Returns `false` if the type is not an object.
    fn merge(&self, kind: &Type, keeps_required: bool, depth: usize, object: &mut Object) -> bool {
        let Some(depth) = depth.checked_sub(1) else { return false };
        match kind {
            Type::Object(part) => {
                for field in &part.fields {
                    merge_field(field, keeps_required, object);
                }
                if object.others == Others::default() {
                    object.others = part.others.clone();
                }
                true
            }
            Type::Intersection(parts) => parts.iter().all(|part| match part {
                // Alternatives' fields are optional.
                Type::Union(parts) => parts.iter().all(|part| self.merge(part, false, depth, object)),
                Type::Named(at) => self.merge(&self.types.definitions[*at].kind, keeps_required, depth, object),
                part => self.merge(part, keeps_required, depth, object),
            }),
            Type::Named(at) if !keeps_required => self.merge(&self.types.definitions[*at].kind, false, depth, object),
            _ => false,
        }
    }

    /// Declares a struct, after its fields' types.
    fn declare_struct(&mut self, name: &str, object: &Object, comment: &str) {
        let mut scope = Scope::default();
        let mut fields = String::new();
        for field in &object.fields {
            fields.push_str(&self.field(field, name, &mut scope));
        }
        let is_closed = object.others == Others::Forbidden;
        if let Others::Allowed(others) = &object.others {
            let value = self.kind(others, &format!("{name}Others"), true);
            let map = format!("::std::collections::BTreeMap<String, {value}>");
            let field = typed(&format!("pub {}:", scope.claim("others")), &map, ",", 4);
            fields.push_str(&format!("    #[serde(flatten)]\n{field}"));
        }
        let has_default = !object.fields.iter().any(|field| field.is_required);
        let default = if has_default { ", Default" } else { "" };
        let closed = if is_closed { "#[serde(deny_unknown_fields)]\n" } else { "" };
        let attributes = format!("{comment}#[derive({DERIVES}{default})]\n{closed}");
        let start = block_start(&format!("pub struct {name}"));
        self.code.push_str(&format!("{attributes}{start}{fields}}}\n\n"));
    }

    fn field(&mut self, field: &Field, owner: &str, scope: &mut Scope) -> String {
        let identifier = scope.claim(&field_name(&field.name));
        let kind = self.kind(&field.kind, &format!("{owner}{}", pascal_case(&field.name, "Field")), false);
        let mut attributes = Vec::new();
        if identifier != field.name {
            attributes.push(format!("rename = {}", rust_literal(&field.name)));
        }
        let kind = if field.is_required || kind.starts_with("Option<") { kind } else { format!("Option<{kind}>") };
        if !field.is_required {
            attributes.extend(["default".to_owned(), "skip_serializing_if = \"Option::is_none\"".to_owned()]);
        }
        let attributes = if attributes.is_empty() { String::new() } else { serde_attribute(&attributes, 4) };
        let default = field.default.as_ref().map(|value| format!("Default: {}", ascii_json(value)));
        let text = field.description.iter().chain(&default).cloned().collect::<Vec<_>>().join("\n\n");
        let declaration = typed(&format!("pub {identifier}:"), &kind, ",", 4);
        format!("{}{attributes}{declaration}", doc_comment(&text, 4))
    }
}

fn merge_field(field: &Field, keeps_required: bool, object: &mut Object) {
    let is_required = field.is_required && keeps_required;
    match object.fields.iter_mut().find(|known| known.name == field.name) {
        Some(known) => {
            known.is_required |= is_required;
            if known.kind == Type::Unknown {
                known.kind = field.kind.clone();
            } else if !keeps_required && field.kind != Type::Unknown && known.kind != field.kind {
                known.kind = Type::union([known.kind.clone(), field.kind.clone()]);
            }
        }
        None => object.fields.push(Field { is_required, ..field.clone() }),
    }
}

/// Returns the identifier for a field or method.
pub(super) fn field_name(name: &str) -> String {
    let name = snake_case(name, "field");
    if KEYWORDS.contains(&name.as_str()) { name + "_" } else { name }
}

/// Returns a doc comment, or nothing for an empty text.
pub(super) fn doc_comment(text: &str, indent: usize) -> String {
    let line = |line: &String| format!("{:indent$}/// {}", "", rust_doc_line(line)).trim_end().to_owned() + "\n";
    comment_lines(text).iter().map(line).collect()
}
