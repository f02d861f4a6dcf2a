//! One tool, lowered.

use serde_json::value::to_raw_value;
use serde_json::{Map, Value};

use super::declaration::{self, Declaration};
use super::form::Form;
use super::root::{self, Root};
use super::walker::{Failure, Tally};
use super::{Alteration, How, LoweredTool};
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
    let options = options(definition, dialect, &mut alterations);
    let asked = options.get("strict").and_then(Value::as_bool).filter(|_| dialect != Dialect::Gemini);
    let (root, strict) = match asked {
        Some(true) => match strictly(&schema, dialect, strictness) {
            Ok(root) => (root, Some(true)),
            Err(Failure::NotStrict(why)) => {
                let how = How::Rewritten(format!("false, because {why}"));
                alterations.push(Alteration { at: String::new(), keyword: "strict".to_owned(), how });
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

/// What a definition says to this dialect: first what it says to all of the provider's, then to this one.
fn options(definition: &ToolDefinition, dialect: Dialect, alterations: &mut Vec<Alteration>) -> Map<String, Value> {
    let keys: &[&str] = match dialect {
        Dialect::Anthropic => &["anthropic"],
        Dialect::Responses => &["openai", "responses"],
        Dialect::Chat => &["openai", "chat"],
        Dialect::Gemini => &["google", "gemini"],
    };
    let mut all = Map::new();
    for key in keys {
        match definition.provider_options.get(*key) {
            Some(Value::Object(options)) => all.extend(options.clone()),
            Some(_) => alterations.push(dropped(key)),
            None => {}
        }
    }
    let is_heard = |key: &str| key == "strict" && dialect != Dialect::Gemini;
    let not_theirs = all.keys().filter(|key| declaration::is_ours(key, dialect) && !is_heard(key));
    alterations.extend(not_theirs.map(|key| dropped(key)));
    all
}

fn dropped(option: &str) -> Alteration {
    Alteration { at: String::new(), keyword: option.to_owned(), how: How::Dropped }
}
