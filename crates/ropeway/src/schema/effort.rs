//! Effort: what one piece of schema work may cost before it is given up.
//!
//! A schema of a few lines can ask for more work than the age of the universe allows, by references
//! that branch. `jsonschema` has no brake, so a keyword of our own is put before every reference: it
//! asks for nothing and counts the visits. Past the limit it unwinds out of the validator. Where there
//! are no references, the sizes of schema and value say beforehand what the work may come to.

use std::cell::Cell;
use std::collections::HashSet;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::{Duration, Instant};

use jsonschema::paths::Location;
use jsonschema::{Keyword, ValidationError, ValidationOptions};
use serde_json::{Map, Value, json};

use super::pointer;

/// The name of the keyword that counts visits.
const KEYWORD: &str = "x-ropeway-visit";

/// How often a piece of work may follow a reference.
const MAX_VISITS: u32 = 100_000;

/// How long a piece of work may take.
const MAX_TIME: Duration = Duration::from_millis(250);

/// How much of the stack a piece of work may use. Threads of tokio have 2 MiB.
const MAX_STACK: usize = 512 * 1024;

/// What a piece of work has left.
#[derive(Clone, Copy)]
struct Left {
    visits: u32,
    until: Instant,
    stack_base: usize,
}

thread_local! {
    // Validation is one synchronous call and keywords are given no context, so it waits here.
    static LEFT: Cell<Option<Left>> = const { Cell::new(None) };
}

/// Why a piece of work has no outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unfinished {
    /// It would have cost too much.
    GivenUp,
    /// The code that did it panicked.
    Panicked,
}

/// What is thrown to get out of the validator.
struct GivenUp;

/// Does a piece of schema work, and gives it up when it costs too much.
pub(super) fn bounded<T>(work: impl FnOnce() -> T) -> Result<T, Unfinished> {
    LEFT.set(Some(Left { visits: MAX_VISITS, until: Instant::now() + MAX_TIME, stack_base: stack_position() }));
    // What is shared with the work is only read by it, so nothing can be left half written.
    let outcome = catch_unwind(AssertUnwindSafe(work));
    LEFT.set(None);
    outcome.map_err(|thrown| if thrown.is::<GivenUp>() { Unfinished::GivenUp } else { Unfinished::Panicked })
}

/// Teaches the compiler the keyword that counts.
pub(super) fn counting(options: ValidationOptions<'_>) -> ValidationOptions<'_> {
    options.with_keyword(KEYWORD, keyword)
}

/// Counts one visit. True while the work may go on.
fn visit() -> bool {
    let Some(left) = LEFT.get() else { return true };
    let visits = left.visits.saturating_sub(1);
    LEFT.set(Some(Left { visits, ..left }));
    visits > 0 && stack_position().abs_diff(left.stack_base) < MAX_STACK && Instant::now() < left.until
}

/// Roughly where the stack stands: recursion through a schema shows here and nowhere else.
#[inline(never)]
fn stack_position() -> usize {
    let here = 0_u8;
    std::ptr::from_ref(std::hint::black_box(&here)).addr()
}

/// The keyword that counts visits and accepts everything.
struct Visit;

impl<'i> Keyword<'i> for Visit {
    fn validate(&self, _: &'i Value) -> Result<(), ValidationError<'i>> {
        if !visit() {
            // Not a panic: no hook hears of it and nothing is printed.
            resume_unwind(Box::new(GivenUp));
        }
        Ok(())
    }

    fn is_valid(&self, instance: &'i Value) -> bool {
        self.validate(instance).is_ok()
    }
}

/// Makes the keyword where a schema is compiled, which is also work that can explode.
fn keyword<'a>(
    _: &'a Map<String, Value>,
    _: &'a Value,
    _: Location,
) -> Result<Box<dyn for<'i> Keyword<'i>>, ValidationError<'a>> {
    match visit() {
        true => Ok(Box::new(Visit)),
        false => Err(ValidationError::schema("it takes too much work to compile")),
    }
}

/// Keywords whose value is plain data: nothing in there is a schema.
const DATA: [&str; 5] = ["const", "default", "enum", "example", "examples"];

/// Keywords whose value is a map from names to schemas, so that its keys are not keywords.
const MAPS: [&str; 6] = ["$defs", "definitions", "dependencies", "dependentSchemas", "patternProperties", "properties"];

/// Keywords that lead to another schema.
const REFERENCES: [&str; 3] = ["$ref", "$dynamicRef", "$recursiveRef"];

/// What may be a schema, or a list of them, inside a schema.
///
/// An unknown keyword may hold anything, also something that a reference points at, so what is in there
/// counts as schemas: where it is none, nobody looks.
fn subschemas(map: &Map<String, Value>) -> impl Iterator<Item = &Value> {
    map.iter().filter(|(keyword, _)| !DATA.contains(&keyword.as_str())).flat_map(|(keyword, value)| {
        match MAPS.contains(&keyword.as_str()) && value.is_object() {
            true => value.as_object().into_iter().flat_map(Map::values).collect(),
            false => vec![value],
        }
    })
}

/// The same, to be changed.
fn subschemas_mut(map: &mut Map<String, Value>) -> impl Iterator<Item = &mut Value> {
    map.iter_mut().filter(|(keyword, _)| !DATA.contains(&keyword.as_str())).flat_map(|(keyword, value)| {
        match MAPS.contains(&keyword.as_str()) && value.is_object() {
            true => value.as_object_mut().into_iter().flat_map(Map::values_mut).collect(),
            false => vec![value],
        }
    })
}

/// Puts the counting keyword before every reference of a schema, so that `{"$ref": x}` becomes
/// `{"allOf": [{"allOf": [count, {"$ref": x}]}]}`.
///
/// It has to be `allOf`, which goes in order: beside a reference our keyword would come after it.
pub(super) fn count_references(schema: &mut Value, lone_references: bool) {
    let map = match schema {
        Value::Object(map) => map,
        Value::Array(items) => return items.iter_mut().for_each(|schema| count_references(schema, lone_references)),
        _ => return,
    };
    subschemas_mut(map).for_each(|schema| count_references(schema, lone_references));
    let mut counted = Vec::new();
    for keyword in REFERENCES {
        if let Some(reference) = map.shift_remove(keyword) {
            counted.push(json!({"allOf": [{KEYWORD: true}, {keyword: reference}]}));
            if lone_references {
                // Up to draft 7 a reference stands alone: what is beside it must not begin to count now.
                map.retain(|keyword, _| matches!(keyword.as_str(), "$defs" | "definitions"));
                break;
            }
        }
    }
    if counted.is_empty() {
        return;
    }
    // Where it is no list, this is no schema, and the compiler will say so.
    if let Value::Array(all) = map.entry("allOf").or_insert_with(|| json!([])) {
        all.extend(counted);
    }
}

/// How many characters a text may have for a pattern that needs backtracking to be tried on it.
const MAX_BACKTRACKED_TEXT: usize = 1024;

/// Puts the counting keyword before every pattern that needs backtracking, and keeps these from long
/// texts: a single such match may take time that grows with the square of the text.
pub(super) fn count_backtracking(schema: &mut Value, has_if: bool) {
    let map = match schema {
        Value::Object(map) => map,
        Value::Array(items) => return items.iter_mut().for_each(|schema| count_backtracking(schema, has_if)),
        _ => return,
    };
    subschemas_mut(map).for_each(|schema| count_backtracking(schema, has_if));
    if !map.get("pattern").and_then(Value::as_str).is_some_and(backtracks) {
        return;
    }
    let pattern = map.shift_remove("pattern");
    // Drafts 4 and 6 have no way to say "if"; what they cannot say is not checked.
    if let (true, Value::Array(all)) = (has_if, map.entry("allOf").or_insert_with(|| json!([]))) {
        let short = json!({"if": {"maxLength": MAX_BACKTRACKED_TEXT}, "then": {"pattern": pattern}});
        all.push(json!({"allOf": [{KEYWORD: true}, short]}));
    }
}

/// Does a regular expression have look-around, a back-reference or an atomic group? All others run in linear time.
fn backtracks(pattern: &str) -> bool {
    let groups = ["(?=", "(?!", "(?<=", "(?<!", "(?>"].map(str::as_bytes);
    let mut rest = pattern.as_bytes();
    loop {
        rest = match rest {
            [b'\\', b'1'..=b'9' | b'k', ..] => return true,
            // An escaped backslash or parenthesis has no meaning of its own.
            [b'\\', _, after @ ..] => after,
            [_, ..] if groups.iter().any(|group| rest.starts_with(group)) => return true,
            [_, after @ ..] => after,
            [] => return false,
        }
    }
}

/// A pattern for names that needs backtracking: there is no place before it to count.
pub(super) fn backtracking_name(schema: &Value) -> Option<&str> {
    match schema {
        Value::Object(map) => {
            let named = map.get("patternProperties").and_then(Value::as_object);
            let own = named.and_then(|named| named.keys().find(|pattern| backtracks(pattern)));
            own.map(String::as_str).or_else(|| subschemas(map).find_map(backtracking_name))
        }
        Value::Array(items) => items.iter().find_map(backtracking_name),
        _ => None,
    }
}

/// A `$ref` to something that is no schema, where references are not counted: a `default`, say.
pub(super) fn stray_reference(schema: &Value) -> Option<&str> {
    let mut positions = HashSet::new();
    let mut references = Vec::new();
    collect(schema, &mut positions, &mut references);
    references.into_iter().find(|reference| {
        // Other references are looked up among the subschemas only.
        reference.starts_with("#/")
            && pointer::resolve(schema, reference).is_some_and(|target| !positions.contains(&address(target)))
    })
}

/// Collects where the schemas in a schema are, and what they refer to.
fn collect<'a>(schema: &'a Value, positions: &mut HashSet<usize>, references: &mut Vec<&'a str>) {
    positions.insert(address(schema));
    match schema {
        Value::Object(map) => {
            references.extend(map.get("$ref").and_then(Value::as_str));
            subschemas(map).for_each(|schema| collect(schema, positions, references));
        }
        Value::Array(items) => items.iter().for_each(|schema| collect(schema, positions, references)),
        _ => {}
    }
}

fn address(value: &Value) -> usize {
    std::ptr::from_ref(value).addr()
}

/// How many regular expressions a schema has.
pub(super) fn patterns(schema: &Value) -> usize {
    match schema {
        Value::Object(map) => {
            let named = map.get("patternProperties").and_then(Value::as_object).map_or(0, Map::len);
            let own = usize::from(map.contains_key("pattern")) + named;
            own + subschemas(map).map(patterns).sum::<usize>()
        }
        Value::Array(items) => items.iter().map(patterns).sum(),
        _ => 0,
    }
}
