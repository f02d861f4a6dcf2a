//! Lowering one tool.

use serde_json::value::to_raw_value;
use serde_json::{Map, Value};

use super::change::{ChangeKind, SchemaChange};
use super::declaration::{self, Declaration, OptionUse};
use super::lowered::LoweredTool;
use super::root::{self, LoweredRoot};
use super::target::SchemaTarget;
use super::walker::{LowerResult, SchemaError, SchemaStats};
use crate::message::Dialect;
use crate::tool::ToolDefinition;

/// Anthropic's limits on strict tools per request, and on their optional and union-typed arguments.
const MAX_STRICT: StrictBudget = StrictBudget { tools: 20, optional: 24, unions: 16 };

/// How much of a request uses strict mode.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct StrictBudget {
    tools: usize,
    optional: usize,
    unions: usize,
}

impl StrictBudget {
    /// Reserves room for a tool. Returns `false` if a limit is exceeded.
    fn reserve(&mut self, target: SchemaTarget, stats: &SchemaStats) -> bool {
        let sum = Self {
            tools: self.tools + 1,
            optional: self.optional + stats.optional,
            unions: self.unions + stats.unions,
        };
        let fits =
            sum.tools <= MAX_STRICT.tools && sum.optional <= MAX_STRICT.optional && sum.unions <= MAX_STRICT.unions;
        if target != SchemaTarget::StrictAnthropic {
            return true;
        }
        if fits {
            *self = sum;
        }
        fits
    }
}

/// Lowers one tool. The error is the reason why it is omitted.
pub(super) fn lower(
    definition: &ToolDefinition,
    wire_name: &str,
    dialect: Dialect,
    budget: &mut StrictBudget,
) -> Result<LoweredTool, String> {
    let schema = definition.input_schema.try_read().map_err(|error| format!("its schema cannot be read: {error}"))?;
    let mut changes = Vec::new();
    let mut warnings = Vec::new();
    let options = options(definition, dialect, &mut changes, &mut warnings);
    let asked = options.get("strict").and_then(Value::as_bool).filter(|_| dialect != Dialect::Gemini);
    let (root, strict) = match asked {
        Some(true) => match lower_strictly(&schema, dialect, budget) {
            Ok(root) => (root, Some(true)),
            Err(SchemaError::NotStrict(why)) => {
                warnings.push(format!("provider option `strict` is sent as false: {why}"));
                let kind = ChangeKind::Rewritten(format!("false, because {why}"));
                changes.push(SchemaChange { path: String::new(), keyword: "strict".to_owned(), kind });
                (root::lower(&schema, SchemaTarget::of(dialect, false)).map_err(reason_of)?, Some(false))
            }
            Err(error) => return Err(reason_of(error)),
        },
        other => (root::lower(&schema, SchemaTarget::of(dialect, false)).map_err(reason_of)?, other),
    };
    changes.extend(root.changes);
    let description = root.notes.appended_to(definition.description.as_deref());
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
        changes,
        warnings,
        mapping: root.mapping,
    })
}

fn lower_strictly<'d>(schema: &'d Value, dialect: Dialect, budget: &mut StrictBudget) -> LowerResult<LoweredRoot<'d>> {
    let target = SchemaTarget::of(dialect, true);
    let root = root::lower(schema, target)?;
    if budget.reserve(target, &root.stats) {
        Ok(root)
    } else {
        Err(SchemaError::NotStrict("the tools before it reach the limit of the request".to_owned()))
    }
}

pub(super) fn reason_of(error: SchemaError) -> String {
    match error {
        SchemaError::Unusable(why) | SchemaError::NotStrict(why) => why,
        SchemaError::TooLarge => "its schema is too deeply recursive".to_owned(),
    }
}

/// Providers whose options are supported. `openai` and `google` options apply to all their dialects; a dialect's own
/// options win.
const PROVIDERS: [&str; 6] = ["anthropic", "openai", "responses", "chat", "google", "gemini"];

/// Returns a definition's options for this dialect. Warns about each option that is not sent, or may be refused.
fn options(
    definition: &ToolDefinition,
    dialect: Dialect,
    changes: &mut Vec<SchemaChange>,
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
            warnings.push(format!("provider option `{provider}` is not sent: unknown provider"));
        } else if providers.contains(&provider.as_str()) && !options.is_object() {
            changes.push(dropped(provider));
            warnings.push(format!("provider option `{provider}` is not sent: it is not an object"));
        }
    }
    for provider in providers {
        let Some(Value::Object(options)) = definition.provider_options.get(*provider) else { continue };
        all.extend(flat(options, dialect));
    }
    for key in all.keys() {
        let name = format!("provider option `{}.{key}`", origin(definition, providers, key));
        match declaration::option_use(key, dialect) {
            OptionUse::Sent => {}
            OptionUse::Unknown => warnings.push(format!("{name} is sent although it is not a known option")),
            OptionUse::Refused(why) => {
                changes.push(dropped(key));
                warnings.push(format!("{name} is not sent: {why}"));
            }
        }
    }
    all
}

/// Flattens options into a function declaration's fields. OpenAI's Chat Completions nest them in `function`
/// (<https://platform.openai.com/docs/api-reference/chat/create#chat-create-tools>), which is accepted for both
/// dialects.
fn flat(options: &Map<String, Value>, dialect: Dialect) -> Map<String, Value> {
    let mut flat = options.clone();
    if matches!(dialect, Dialect::Chat | Dialect::Responses)
        && let Some(Value::Object(function)) = options.get("function")
    {
        flat.shift_remove("function");
        flat.extend(function.clone());
        // The discriminator next to `function`.
        if flat.get("type").is_some_and(|kind| kind == "function") {
            flat.shift_remove("type");
        }
    }
    flat
}

/// Returns the provider key that an option was written under.
fn origin<'p>(definition: &ToolDefinition, providers: &[&'p str], option: &str) -> &'p str {
    let has = |options: &Value| {
        options.get(option).is_some() || options.pointer("/function").is_some_and(|it| it.get(option).is_some())
    };
    let written = |provider: &&&str| definition.provider_options.get(**provider).is_some_and(has);
    providers.iter().rev().find(written).or(providers.first()).copied().unwrap_or_default()
}

fn dropped(option: &str) -> SchemaChange {
    SchemaChange { path: String::new(), keyword: option.to_owned(), kind: ChangeKind::Dropped }
}
