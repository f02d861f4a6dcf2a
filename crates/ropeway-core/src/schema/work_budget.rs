//! A budget that bounds the time, steps and stack for schema operations.
//!
//! A schema with a few lines and branching references can take practically forever, and `jsonschema` has no limit. So
//! an additional keyword is inserted before every reference: it accepts any value and counts the visits. Beyond the
//! limit it unwinds out of the validator. Without references, the schema and value sizes bound the work in advance.

use std::cell::Cell;
use std::collections::HashSet;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::{Duration, Instant};

use jsonschema::paths::Location;
use jsonschema::{Keyword, ValidationError, ValidationOptions};
use serde_json::{Map, Value, json};

use super::pointer;

/// The keyword that counts visits.
const KEYWORD: &str = "x-ropeway-visit";

/// Maximum number of references to follow in one operation.
const MAX_VISITS: u32 = 100_000;

/// Maximum operation duration.
const MAX_TIME: Duration = Duration::from_millis(250);

/// Maximum stack use in an operation. Tokio's threads have 2 MiB.
const MAX_STACK: usize = 512 * 1024;

/// The current operation's remaining budget.
#[derive(Clone, Copy)]
struct Remaining {
    visits: u32,
    until: Instant,
    stack_base: usize,
}

thread_local! {
    // A validation is one synchronous call, and keywords receive no context.
    static REMAINING: Cell<Option<Remaining>> = const { Cell::new(None) };
}

/// Why an operation has no result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WorkError {
    BudgetExceeded,
    Panicked,
}

/// The payload that unwinds out of the validator.
struct BudgetExceeded;

/// Runs an operation until it exceeds its budget.
pub(super) fn run_bounded<T>(work: impl FnOnce() -> T) -> Result<T, WorkError> {
    REMAINING.set(Some(Remaining {
        visits: MAX_VISITS,
        until: Instant::now() + MAX_TIME,
        stack_base: stack_position(),
    }));
    // The operation does not modify state shared with the caller, so unwinding leaves no broken state.
    let outcome = catch_unwind(AssertUnwindSafe(work));
    REMAINING.set(None);
    outcome
        .map_err(|thrown| if thrown.is::<BudgetExceeded>() { WorkError::BudgetExceeded } else { WorkError::Panicked })
}

/// Registers the counting keyword.
pub(super) fn with_counting_keyword(options: ValidationOptions<'_>) -> ValidationOptions<'_> {
    options.with_keyword(KEYWORD, keyword)
}

/// Counts one visit. Returns `false` when the budget is used up.
fn count_visit() -> bool {
    let Some(remaining) = REMAINING.get() else { return true };
    let visits = remaining.visits.saturating_sub(1);
    REMAINING.set(Some(Remaining { visits, ..remaining }));
    visits > 0 && stack_position().abs_diff(remaining.stack_base) < MAX_STACK && Instant::now() < remaining.until
}

/// Returns an approximate stack pointer, which is the only recursion measure inside `jsonschema`.
#[inline(never)]
fn stack_position() -> usize {
    let here = 0_u8;
    std::ptr::from_ref(std::hint::black_box(&here)).addr()
}

/// The keyword that counts visits and accepts any value.
struct VisitCounter;

impl<'i> Keyword<'i> for VisitCounter {
    fn validate(&self, _: &'i Value) -> Result<(), ValidationError<'i>> {
        if !count_visit() {
            // `resume_unwind` calls no panic hook, so nothing is printed.
            resume_unwind(Box::new(BudgetExceeded));
        }
        Ok(())
    }

    fn is_valid(&self, instance: &'i Value) -> bool {
        self.validate(instance).is_ok()
    }
}

/// Creates the keyword while a schema is compiled, which needs a budget as well.
fn keyword<'a>(
    _: &'a Map<String, Value>,
    _: &'a Value,
    _: Location,
) -> Result<Box<dyn for<'i> Keyword<'i>>, ValidationError<'a>> {
    if count_visit() { Ok(Box::new(VisitCounter)) } else { Err(ValidationError::schema("too expensive to compile")) }
}

/// Keywords whose value is data without schemas.
const DATA: [&str; 5] = ["const", "default", "enum", "example", "examples"];

/// Keywords whose value is a map from names to schemas: its keys are not keywords.
const MAPS: [&str; 6] = ["$defs", "definitions", "dependencies", "dependentSchemas", "patternProperties", "properties"];

/// Keywords that refer to another schema.
const REFERENCES: [&str; 3] = ["$ref", "$dynamicRef", "$recursiveRef"];

/// Returns the values inside a schema that may be schemas, or lists of them.
///
/// An unknown keyword may hold anything, including a reference's target, and therefore counts as a schema.
fn subschemas(map: &Map<String, Value>) -> impl Iterator<Item = &Value> {
    map.iter().filter(|(keyword, _)| !DATA.contains(&keyword.as_str())).flat_map(|(keyword, value)| match value {
        Value::Object(map) if MAPS.contains(&keyword.as_str()) => map.values().collect(),
        value => vec![value],
    })
}

/// Like [`subschemas`], mutable.
fn subschemas_mut(map: &mut Map<String, Value>) -> impl Iterator<Item = &mut Value> {
    map.iter_mut().filter(|(keyword, _)| !DATA.contains(&keyword.as_str())).flat_map(|(keyword, value)| {
        if value.is_object() && MAPS.contains(&keyword.as_str()) {
            value.as_object_mut().into_iter().flat_map(Map::values_mut).collect()
        } else {
            vec![value]
        }
    })
}

/// Calls `visit` for every object that may be a schema, the innermost first.
fn rewrite(schema: &mut Value, visit: &mut dyn FnMut(&mut Map<String, Value>)) {
    match schema {
        Value::Object(map) => {
            subschemas_mut(map).for_each(|schema| rewrite(schema, visit));
            visit(map);
        }
        Value::Array(items) => items.iter_mut().for_each(|schema| rewrite(schema, visit)),
        _ => {}
    }
}

/// Calls `visit` for every value that may be a schema.
fn walk<'a>(schema: &'a Value, visit: &mut dyn FnMut(&'a Value)) {
    visit(schema);
    match schema {
        Value::Object(map) => subschemas(map).for_each(|schema| walk(schema, visit)),
        Value::Array(items) => items.iter().for_each(|schema| walk(schema, visit)),
        _ => {}
    }
}

/// Inserts the counting keyword before every reference: `{"$ref": x}` becomes
/// `{"allOf": [{"allOf": [count, {"$ref": x}]}]}`.
///
/// `allOf` is evaluated in order. Next to a reference, the keyword would be evaluated after it.
pub(super) fn count_references(schema: &mut Value, ignores_siblings: bool) {
    rewrite(schema, &mut |map| count_own_references(map, ignores_siblings));
}

fn count_own_references(map: &mut Map<String, Value>, ignores_siblings: bool) {
    let mut counted = Vec::new();
    for keyword in REFERENCES {
        if let Some(reference) = map.shift_remove(keyword) {
            counted.push(json!({"allOf": [{KEYWORD: true}, {keyword: reference}]}));
            if ignores_siblings {
                // Up to draft 7, a reference's siblings are ignored, and must stay without effect.
                map.retain(|keyword, _| matches!(keyword.as_str(), "$defs" | "definitions"));
                break;
            }
        }
    }
    if counted.is_empty() {
        return;
    }
    // If `allOf` is not a list, the compiler reports it.
    if let Value::Array(all) = map.entry("allOf").or_insert_with(|| json!([])) {
        all.extend(counted);
    }
}

/// Maximum length of a text that is matched with a backtracking pattern, in characters.
const MAX_BACKTRACKED_TEXT: usize = 1024;

/// Inserts the counting keyword before every backtracking pattern and exempts long text from it: one match may take
/// time that is quadratic in the text.
pub(super) fn count_backtracking(schema: &mut Value, has_if: bool) {
    rewrite(schema, &mut |map| {
        if !map.get("pattern").and_then(Value::as_str).is_some_and(backtracks) {
            return;
        }
        let pattern = map.shift_remove("pattern");
        // Drafts 4 and 6 have no `if`, so these patterns are not checked.
        if let (true, Value::Array(all)) = (has_if, map.entry("allOf").or_insert_with(|| json!([]))) {
            let short = json!({"if": {"maxLength": MAX_BACKTRACKED_TEXT}, "then": {"pattern": pattern}});
            all.push(json!({"allOf": [{KEYWORD: true}, short]}));
        }
    });
}

/// Returns `true` if a pattern has look-around, a back-reference or an atomic group. All others run in linear time.
fn backtracks(pattern: &str) -> bool {
    let groups = ["(?=", "(?!", "(?<=", "(?<!", "(?>"].map(str::as_bytes);
    let mut rest = pattern.as_bytes();
    loop {
        rest = match rest {
            [b'\\', b'1'..=b'9' | b'k', ..] => return true,
            // Skips escaped backslashes and parentheses.
            [b'\\', _, after @ ..] => after,
            [_, ..] if groups.iter().any(|group| rest.starts_with(group)) => return true,
            [_, after @ ..] => after,
            [] => return false,
        }
    }
}

/// Returns the patterns in `patternProperties`.
fn name_patterns(schema: &Value) -> impl Iterator<Item = &String> {
    schema.get("patternProperties").and_then(Value::as_object).into_iter().flat_map(Map::keys)
}

/// Returns a backtracking pattern in `patternProperties`, where no counting keyword can be inserted.
pub(super) fn find_backtracking_name(schema: &Value) -> Option<&str> {
    let mut found = None;
    walk(schema, &mut |schema| found = found.or_else(|| name_patterns(schema).find(|pattern| backtracks(pattern))));
    found.map(String::as_str)
}

/// Returns a `$ref` to something that is not a schema, such as a `default`, whose references are not counted.
pub(super) fn find_stray_reference(schema: &Value) -> Option<&str> {
    let mut positions = HashSet::new();
    let mut references = Vec::new();
    walk(schema, &mut |schema| {
        positions.insert(address(schema));
        references.extend(schema.get("$ref").and_then(Value::as_str));
    });
    references.into_iter().find(|reference| {
        // Other references are resolved to subschemas only.
        reference.starts_with("#/")
            && pointer::resolve(schema, reference).is_some_and(|target| !positions.contains(&address(target)))
    })
}

fn address(value: &Value) -> usize {
    std::ptr::from_ref(value).addr()
}

/// Returns how many regular expressions a schema has.
pub(super) fn patterns(schema: &Value) -> usize {
    let mut count = 0;
    walk(schema, &mut |schema| count += usize::from(schema.get("pattern").is_some()) + name_patterns(schema).count());
    count
}
