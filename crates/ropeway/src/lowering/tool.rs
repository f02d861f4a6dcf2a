//! One tool, lowered.

use serde_json::value::to_raw_value;
use serde_json::{Map, Value};

use super::declaration::{self, Declaration, OptionUse};
use super::form::Form;
use super::root::{self, Root};
use super::walker::{Failure, Tally};
use super::{ChangeKind, LoweredTool, SchemaChange};
use crate::message::Dialect;
use crate::tool::ToolDefinition;

/// How many tools of a request Anthropic holds a model to, and how many of their arguments may be optional or of several kinds.
const MOST_STRICT: Strictness = Strictness { tools: 20, optional: 24, unions: 16 };

/// How much of a request a model is held to.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Strictness {
    tools: usize,
    optional: usize,
    unions: usize,
}

impl Strictness {
    /// Takes a tool in, if there is room.
    fn take(&mut self, form: Form, tally: &Tally) -> bool {
        let sum = Self {
            tools: self.tools + 1,
            optional: self.optional + tally.optional,
            unions: self.unions + tally.unions,
        };
        let fits =
            sum.tools <= MOST_STRICT.tools && sum.optional <= MOST_STRICT.optional && sum.unions <= MOST_STRICT.unions;
        if form != Form::StrictAnthropic {
            return true;
        }
        if fits {
            *self = sum;
        }
        fits
    }
}

/// Lowers one tool; says why where that is not possible.
pub(super) fn lower(
    definition: &ToolDefinition,
    wire_name: &str,
    dialect: Dialect,
    strictness: &mut Strictness,
) -> Result<LoweredTool, String> {
    let schema = definition.input_schema.try_read().map_err(|error| format!("its schema cannot be read: {error}"))?;
    let mut alterations = Vec::new();
    let mut warnings = Vec::new();
    let options = options(definition, dialect, &mut alterations, &mut warnings);
    let asked = options.get("strict").and_then(Value::as_bool).filter(|_| dialect != Dialect::Gemini);
    let (root, strict) = match asked {
        Some(true) => match strictly(&schema, dialect, strictness) {
            Ok(root) => (root, Some(true)),
            Err(Failure::NotStrict(why)) => {
                warnings.push(format!("provider option `strict` is sent as false: {why}"));
                let how = ChangeKind::Rewritten(format!("false, because {why}"));
                alterations.push(SchemaChange { at: String::new(), keyword: "strict".to_owned(), how });
                (root::lower(&schema, Form::of(dialect, false)).map_err(words)?, Some(false))
            }
            Err(failure) => return Err(words(failure)),
        },
        other => (root::lower(&schema, Form::of(dialect, false)).map_err(words)?, other),
    };
    alterations.extend(root.alterations);
    let description = root.notes.after(definition.description.as_deref());
    let declaration = Declaration {
        dialect,
        name: wire_name,
        description: description.as_deref(),
        schema: &root.schema,
        strict,
        options: &options,
    };
    let json = to_raw_value(&declaration).map_err(|error| format!("it cannot be written as JSON: {error}"))?;
    Ok(LoweredTool {
        name: definition.name.clone(),
        wire_name: wire_name.to_owned(),
        json,
        alterations,
        warnings,
        shape: root.shape,
    })
}

fn strictly<'d>(schema: &'d Value, dialect: Dialect, strictness: &mut Strictness) -> Result<Root<'d>, Failure> {
    let form = Form::of(dialect, true);
    let root = root::lower(schema, form)?;
    match strictness.take(form, &root.tally) {
        true => Ok(root),
        false => Err(Failure::NotStrict("the tools before it use up what a request may have of that".to_owned())),
    }
}

pub(super) fn words(failure: Failure) -> String {
    match failure {
        Failure::Hopeless(why) | Failure::NotStrict(why) => why,
        Failure::TooMuch => "its schema leads too far".to_owned(),
    }
}

/// Providers whose options some dialect reads. OpenAI's and Google's apply to all of their dialects, and those of one dialect win.
const PROVIDERS: [&str; 6] = ["anthropic", "openai", "responses", "chat", "google", "gemini"];

/// Returns the options of a definition for this dialect, and warns about each that is not sent, or that the dialect may refuse.
fn options(
    definition: &ToolDefinition,
    dialect: Dialect,
    alterations: &mut Vec<SchemaChange>,
    warnings: &mut Vec<String>,
) -> Map<String, Value> {
    let providers: &[&str] = match dialect {
        Dialect::Anthropic => &["anthropic"],
        Dialect::Responses => &["openai", "responses"],
        Dialect::Chat => &["openai", "chat"],
        Dialect::Gemini => &["google", "gemini"],
    };
    let mut all = Map::new();
    for (provider, options) in &definition.provider_options {
        if !PROVIDERS.contains(&provider.as_str()) {
            warnings.push(format!("provider option `{provider}` is not sent: no such provider"));
        } else if providers.contains(&provider.as_str()) && !options.is_object() {
            alterations.push(dropped(provider));
            warnings.push(format!("provider option `{provider}` is not sent: it is not an object"));
        }
    }
    for provider in providers {
        let Some(Value::Object(options)) = definition.provider_options.get(*provider) else { continue };
        all.extend(flat(options, dialect));
    }
    for key in all.keys() {
        let name = format!("provider option `{}.{key}`", origin(definition, providers, key));
        match declaration::option(key, dialect) {
            OptionUse::Sent => {}
            OptionUse::Unknown => warnings.push(format!("{name} is sent although it is not a known option")),
            OptionUse::Refused(why) => {
                alterations.push(dropped(key));
                warnings.push(format!("{name} is not sent: {why}"));
            }
        }
    }
    all
}

/// Returns options as they stand in the declaration of a function. OpenAI's Chat Completions nest them in `function`
/// (<https://platform.openai.com/docs/api-reference/chat/create#chat-create-tools>), which is read for both of its dialects.
fn flat(options: &Map<String, Value>, dialect: Dialect) -> Map<String, Value> {
    let mut flat = options.clone();
    if matches!(dialect, Dialect::Chat | Dialect::Responses)
        && let Some(Value::Object(function)) = options.get("function")
    {
        flat.shift_remove("function");
        flat.extend(function.clone());
        // The discriminator beside `function`.
        if flat.get("type").is_some_and(|kind| kind == "function") {
            flat.shift_remove("type");
        }
    }
    flat
}

/// Returns the provider under which an option was written.
fn origin<'p>(definition: &ToolDefinition, providers: &[&'p str], option: &str) -> &'p str {
    let has = |options: &Value| {
        options.get(option).is_some() || options.pointer("/function").is_some_and(|it| it.get(option).is_some())
    };
    let written = |provider: &&&str| definition.provider_options.get(**provider).is_some_and(has);
    providers.iter().rev().find(written).or(providers.first()).copied().unwrap_or_default()
}

fn dropped(option: &str) -> SchemaChange {
    SchemaChange { at: String::new(), keyword: option.to_owned(), how: ChangeKind::Dropped }
}
