//! A compiled schema that checks values.

use std::fmt;

use jsonschema::{Draft, PatternOptions};
use serde_json::Value;

use super::bounds::{self, JsonSize};
use super::deep_stack::{self, DeepStackValidator};
use super::draft::{draft_of, ignores_reference_siblings};
use super::reason;
use super::work_budget::{self, WorkError};
use crate::tool::ArgumentProblem;

/// Maximum number of backtracking steps for a regular expression with look-around. Others run in linear time.
const MAX_BACKTRACKS: usize = 5_000;

/// Maximum compiled regular expression size in bytes.
const MAX_REGEX_BYTES: usize = 1024 * 1024;

/// Maximum estimated check cost. More expensive values are not checked.
const MAX_VISITS: usize = 20_000_000;

/// Maximum estimated cost for finding all problems. Beyond it, only the first one is reported.
const MAX_VISITS_FOR_ALL: usize = 1_000_000;

/// Cost per regular expression match, in visits.
const VISITS_PER_MATCH: usize = 20;

/// A compiled schema that checks values.
///
/// `format` is a hint to the model and is not checked, since servers differ in how strictly they apply it.
///
/// # Examples
///
/// ```
/// use ropeway_core::schema::Validator;
/// use serde_json::json;
///
/// let validator = Validator::compile(&json!({"properties": {"n": {"type": "integer"}}}));
/// let problems = validator.validate(&json!({"n": "1"})).unwrap_err();
/// assert_eq!(problems[0].reason, "must be an integer, not a string");
/// ```
pub struct Validator {
    check: Check,
    warning: Option<String>,
}

enum Check {
    Schema(Box<Compiled>),
    /// The schema is unusable.
    AnyObject,
}

struct Compiled {
    validator: DeepStackValidator,
    nodes: usize,
    patterns: usize,
}

impl Compiled {
    /// Estimates what it costs to check a value without references: each subschema visits each part of the value, and
    /// each pattern reads its text.
    fn visits(&self, value: JsonSize) -> usize {
        let walks = self.nodes.saturating_mul(value.nodes);
        let matches = self.patterns.saturating_mul(value.bytes / 2 + value.nodes.saturating_mul(VISITS_PER_MATCH));
        walks.saturating_add(matches)
    }

    /// Returns an invalid value's problems. Finding them may cost far more than finding that the value is invalid.
    fn problems(&self, value: &Value, visits: usize) -> Vec<ArgumentProblem> {
        let validator = self.validator.get();
        let problems = work_budget::run_bounded(|| match visits {
            ..MAX_VISITS_FOR_ALL => {
                reason::problems(validator.iter().flat_map(|validator| validator.iter_errors(value)))
            }
            _ => reason::problems(validator.iter().filter_map(|validator| validator.validate(value).err())),
        });
        problems.unwrap_or_else(|_| vec![reason::problem("", "does not match the tool's schema")])
    }
}

impl Validator {
    /// Compiles a schema: draft 4, 6, 7, 2019-09 or 2020-12 according to its `$schema`, 2020-12 by default.
    ///
    /// Never fails and never fetches anything. A schema that cannot be used accepts any object, and
    /// [`warning`](Self::warning) returns the reason.
    pub fn compile(schema: &Value) -> Self {
        let (draft, draft_warning) = match draft_of(schema) {
            Ok(draft) => (draft, None),
            Err(odd) => {
                let odd = reason::truncated(&odd, 200);
                (Draft::Draft202012, Some(format!("unknown `$schema` {odd}; using draft 2020-12")))
            }
        };
        let compiled = match bounds::schema_size(schema) {
            Err(bound) => Err(bound.to_string()),
            Ok(size) if deep_stack::is_needed(size.nodes) => deep_stack::run(|| compile(schema, draft, size))
                .unwrap_or_else(|| Err("the schema compiler panicked".to_owned())),
            Ok(size) => compile(schema, draft, size),
        };
        match compiled {
            Ok(compiled) => Self { check: Check::Schema(Box::new(compiled)), warning: draft_warning },
            Err(why) => Self {
                check: Check::AnyObject,
                warning: Some(format!("unusable schema, any object is accepted: {why}")),
            },
        }
    }

    /// Returns a problem with the schema itself.
    pub fn warning(&self) -> Option<&str> {
        self.warning.as_deref()
    }

    /// Checks a value and reports at most eight problems.
    ///
    /// A value that exceeds the limits on time and depth passes: the tool itself decides.
    ///
    /// # Errors
    ///
    /// Returns the problems, if the value does not match the schema.
    pub fn validate(&self, value: &Value) -> Result<(), Vec<ArgumentProblem>> {
        let compiled = match &self.check {
            Check::Schema(compiled) => compiled,
            Check::AnyObject if value.is_object() => return Ok(()),
            Check::AnyObject => {
                let reason = format!("must be an object, not {}", reason::type_of(value));
                return Err(vec![ArgumentProblem { path: String::new(), reason }]);
            }
        };
        let visits = bounds::size(value).map_or(usize::MAX, |size| compiled.visits(size));
        if visits > MAX_VISITS {
            return Ok(());
        }
        match work_budget::run_bounded(|| compiled.validator.get().is_none_or(|validator| validator.is_valid(value))) {
            Ok(true) | Err(_) => Ok(()),
            Ok(false) => match compiled.problems(value, visits) {
                problems if problems.is_empty() => Ok(()),
                problems => Err(problems),
            },
        }
    }
}

impl fmt::Debug for Validator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Validator").field("warning", &self.warning).finish_non_exhaustive()
    }
}

/// Compiles a schema. The error is a short reason.
fn compile(schema: &Value, draft: Draft, size: JsonSize) -> Result<Compiled, String> {
    if let Some(reference) = work_budget::find_stray_reference(schema) {
        return Err(format!("`{}` does not refer to a schema", reason::truncated(reference, 200)));
    }
    if let Some(pattern) = work_budget::find_backtracking_name(schema) {
        return Err(format!("pattern `{}` of `patternProperties` has look-around", reason::truncated(pattern, 200)));
    }
    let mut counted = schema.clone();
    if let Value::Object(root) = &mut counted {
        // The draft is set below, and the compiler rejects unknown ones.
        root.shift_remove("$schema");
    }
    work_budget::count_references(&mut counted, ignores_reference_siblings(draft));
    work_budget::count_backtracking(&mut counted, !matches!(draft, Draft::Draft4 | Draft::Draft6));
    let options =
        jsonschema::options().with_draft(draft).offline().should_validate_formats(false).with_pattern_options(
            PatternOptions::fancy_regex().backtrack_limit(MAX_BACKTRACKS).size_limit(MAX_REGEX_BYTES),
        );
    match work_budget::run_bounded(|| work_budget::with_counting_keyword(options).build(&counted)) {
        Ok(Ok(validator)) => {
            let validator = DeepStackValidator::new(validator, deep_stack::is_needed(size.nodes));
            Ok(Compiled { validator, nodes: size.nodes, patterns: work_budget::patterns(schema) })
        }
        Ok(Err(error)) => Err(reason::explain_schema_error(&error)),
        Err(WorkError::BudgetExceeded) => Err("too expensive to compile".to_owned()),
        Err(WorkError::Panicked) => Err("the schema compiler panicked".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use serde_json::json;

    use super::super::bounds::tests::{nested, object};
    use super::*;

    fn problems(schema: Value, value: Value) -> Vec<(String, String)> {
        let validator = Validator::compile(&schema);
        assert_eq!(validator.warning(), None);
        let problems = validator.validate(&value).err().unwrap_or_default();
        problems.into_iter().map(|problem| (problem.path, problem.reason)).collect()
    }

    fn one(schema: Value, value: Value) -> (String, String) {
        let mut problems = problems(schema, value);
        assert_eq!(problems.len(), 1, "{problems:?}");
        problems.remove(0)
    }

    fn problem(path: &str, reason: &str) -> (String, String) {
        (path.to_owned(), reason.to_owned())
    }

    /// Compiles and validates within a time limit.
    fn quickly(schema: &Value, value: &Value) -> (Validator, Result<(), Vec<ArgumentProblem>>) {
        let start = Instant::now();
        let validator = Validator::compile(schema);
        let outcome = validator.validate(value);
        // Twice the time limit for each of three operations, on a busy machine.
        assert!(start.elapsed() < Duration::from_secs(5), "took {:?}", start.elapsed());
        (validator, outcome)
    }

    #[test]
    fn matching_arguments_pass() {
        let schema = json!({"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]});
        assert_eq!(problems(schema, json!({"a": 1})), []);
    }

    #[test]
    fn a_reason_names_the_expected_and_the_actual_value() {
        let schema = json!({
            "type": "object",
            "properties": {
                "count": {"type": "integer", "minimum": 1},
                "mode": {"enum": ["fast", "slow"]},
                "to/from": {"type": "array", "items": {"type": ["string", "null"], "pattern": "^a"}},
            },
            "required": ["count", "mode"],
            "additionalProperties": false,
        });
        assert_eq!(
            problems(schema.clone(), json!({"count": "3", "to/from": ["a", 3, "b"], "cuont": 1})),
            [
                problem("", "required property `mode` is missing"),
                problem("/count", "must be an integer, not a string"),
                problem("/to~1from/1", "must be a string or null, not an integer"),
                problem("/to~1from/2", "must match the pattern `^a`, not `\"b\"`"),
                problem("", "unknown property: `cuont`; leave it out"),
            ]
        );
        assert_eq!(
            problems(schema, json!({"count": 0, "mode": "warp"})),
            [
                problem("/count", "must be at least 1, not `0`"),
                problem("/mode", "must be one of `\"fast\"`, `\"slow\"`, not `\"warp\"`"),
            ]
        );
    }

    #[test]
    fn a_union_of_types_is_one_problem() {
        let nullable = json!({"properties": {"a": {"anyOf": [{"type": "string"}, {"type": "null"}]}}});
        assert_eq!(one(nullable, json!({"a": 3})), problem("/a", "must be a string or null, not an integer"));
    }

    #[test]
    fn the_alternative_that_was_probably_meant_is_explained() {
        let schema = json!({"oneOf": [
            {"type": "object", "properties": {"kind": {"const": "circle"}, "radius": {"type": "number"}}, "required": ["kind", "radius"]},
            {"type": "object", "properties": {"kind": {"const": "square"}, "side": {"type": "number"}}, "required": ["kind", "side"]},
            {"type": "null"},
        ]});
        assert_eq!(
            one(schema.clone(), json!({"kind": "square", "side": "2"})),
            problem("/side", "must be a number, not a string")
        );
        let (path, reason) = one(schema, json!({"kind": "blob"}));
        assert_eq!(path, "");
        assert!(
            reason.starts_with("matches none of 3 alternatives: (1) `/kind` must be `\"circle\"`, not `\"blob\"`; (2)"),
            "{reason}"
        );
    }

    #[test]
    fn problems_of_a_large_value_are_few_and_short() {
        let schema = json!({"additionalProperties": {"enum": ["x".repeat(5000), 1]}});
        let value: Value =
            (0..1000).map(|at| (format!("{at}{}", "k".repeat(5000)), json!("v".repeat(100_000)))).collect();
        let problems = problems(schema, value);
        assert_eq!(problems.len(), 8);
        assert!(problems.iter().all(|(path, reason)| path.chars().count() <= 301 && reason.chars().count() <= 301));
    }

    #[test]
    fn the_draft_is_read_from_the_schema() {
        let tuple = |uri: &str| json!({"$schema": uri, "properties": {"a": {"items": [{"type": "integer"}]}}});
        for old in [
            "http://json-schema.org/draft-04/schema#",
            "http://json-schema.org/draft-06/schema",
            "https://json-schema.org/draft-07/schema#",
            "https://json-schema.org/draft/2019-09/schema",
        ] {
            assert_eq!(one(tuple(old), json!({"a": ["x"]})), problem("/a/0", "must be an integer, not a string"));
        }
        // Draft 2020-12 does not allow a list there.
        let newest = Validator::compile(&tuple("https://json-schema.org/draft/2020-12/schema"));
        assert!(newest.warning().is_some_and(|warning| warning.contains("`/properties/a/items`")), "{newest:?}");
        let draft4 = json!({"$schema": "http://json-schema.org/draft-04/schema#", "properties": {"a": {"maximum": 3, "exclusiveMaximum": true}}});
        assert_eq!(one(draft4, json!({"a": 3})).0, "/a");
    }

    #[test]
    fn an_unknown_draft_is_read_as_the_newest_with_a_warning() {
        for odd in [json!("https://example.com/my-dialect"), json!(7), json!("")] {
            let validator = Validator::compile(&json!({"$schema": odd, "properties": {"a": {"type": "integer"}}}));
            assert!(validator.warning().is_some_and(|warning| warning.contains("2020-12")), "{validator:?}");
            assert!(validator.validate(&json!({"a": "x"})).is_err());
        }
    }

    #[test]
    fn a_schema_that_does_not_compile_accepts_any_object() {
        for broken in [
            json!({"type": "strnig"}),
            json!({"type": "object", "properties": []}),
            json!({"properties": {"a": {"type": "string", "required": true}}}),
            json!({"pattern": "("}),
            json!({"$ref": "#/$defs/nowhere"}),
            json!({"$ref": "#nowhere"}),
            json!({"$ref": 3}),
            json!(null),
            json!([]),
            json!("object"),
        ] {
            let validator = Validator::compile(&broken);
            assert!(validator.warning().is_some(), "{broken}");
            assert_eq!(validator.validate(&json!({"anything": 1})), Ok(()), "{broken}");
            let problem = ArgumentProblem { path: String::new(), reason: "must be an object, not an array".to_owned() };
            assert_eq!(validator.validate(&json!([])), Err(vec![problem]));
        }
    }

    #[test]
    fn remote_references_are_not_fetched() {
        for remote in [
            "http://127.0.0.1:9/schema.json",
            "https://example.com/schema.json#/definitions/a",
            "file:///etc/hostname",
            "other.json",
            "urn:example:other",
        ] {
            let validator = Validator::compile(&json!({"properties": {"a": {"$ref": remote}}}));
            assert!(validator.warning().is_some_and(|warning| warning.contains("is not fetched")), "{validator:?}");
            assert_eq!(validator.validate(&json!({"a": 1})), Ok(()));
        }
    }

    #[test]
    fn references_inside_the_document_are_followed() {
        let schema = json!({
            "$id": "https://example.com/tool",
            "properties": {"a": {"$ref": "#/$defs/n"}, "b": {"$ref": "#/properties/a"}, "c": {"$ref": "#named"}, "d": {"$ref": "tool#/x-more/e"}},
            "$defs": {"n": {"type": "integer"}, "m": {"$anchor": "named", "type": "string"}},
            "x-more": {"e": {"type": "null"}},
        });
        let paths: Vec<String> =
            problems(schema, json!({"a": "", "b": "", "c": 0, "d": 0})).into_iter().map(|(path, _)| path).collect();
        assert_eq!(paths, ["/a", "/b", "/c", "/d"]);
    }

    #[test]
    fn a_recursive_schema_checks_a_recursive_value() {
        let schema = json!({"type": "object", "properties": {"next": {"$ref": "#"}, "n": {"type": "integer"}}});
        assert_eq!(
            one(schema, json!({"next": {"next": {"n": "x"}}})),
            problem("/next/next/n", "must be an integer, not a string")
        );
        let dynamic =
            json!({"$dynamicAnchor": "node", "type": "object", "properties": {"next": {"$dynamicRef": "#node"}}});
        assert_eq!(
            one(dynamic, json!({"next": {"next": 1}})),
            problem("/next/next", "must be an object, not an integer")
        );
    }

    #[test]
    fn look_around_is_supported() {
        let schema = json!({"properties": {"a": {"pattern": "^(?!-)[a-z-]+(?<!-)$"}}});
        assert_eq!(problems(schema.clone(), json!({"a": "b-c"})), []);
        assert_eq!(one(schema, json!({"a": "-b"})).0, "/a");
    }

    #[test]
    fn an_escaped_backslash_or_parenthesis_is_not_taken_for_look_around() {
        for (pattern, name) in [(r"^\\1$", r"\1"), (r"^\\k$", r"\k"), (r"^a\(?=$", "a=")] {
            let schema = json!({"patternProperties": {pattern: {"type": "integer"}}});
            assert_eq!(Validator::compile(&schema).warning(), None, "{pattern}");
            let at = format!("/{name}");
            assert_eq!(one(schema, json!({name: "x"})), problem(&at, "must be an integer, not a string"));
        }
        for pattern in [r"^(a)\1$", r"^\\(?=a)", r"^\\\1$"] {
            let schema = json!({"patternProperties": {pattern: {"type": "integer"}}});
            assert!(Validator::compile(&schema).warning().is_some(), "{pattern}");
        }
    }

    #[test]
    fn a_property_may_be_named_like_a_keyword() {
        let schema = json!({"properties": {"default": {"type": "integer"}, "enum": {"$ref": "#/properties/default"}}});
        assert_eq!(one(schema, json!({"enum": "x"})), problem("/enum", "must be an integer, not a string"));
    }

    #[test]
    fn a_schema_that_only_refers_to_itself_terminates() {
        for endless in [
            json!({"$ref": "#"}),
            json!({"allOf": [{"$ref": "#"}, {"$ref": "#"}]}),
            json!({"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}}),
            json!({"$dynamicAnchor": "a", "anyOf": [{"$dynamicRef": "#a"}, {"not": {"$dynamicRef": "#a"}}]}),
            json!({"$schema": "https://json-schema.org/draft/2019-09/schema", "$recursiveAnchor": true, "$recursiveRef": "#"}),
            json!({"not": {"$ref": "#"}}),
            json!({"$ref": "#/default", "default": {"anyOf": [{"$ref": "#/default"}]}}),
        ] {
            let _ = quickly(&endless, &json!({"a": {"b": 1}}));
        }
    }

    #[test]
    fn validation_of_an_exponential_schema_is_aborted() {
        for keyword in ["allOf", "anyOf", "oneOf"] {
            for leaf in [json!({"type": "integer"}), json!({"type": "object"}), json!(true), json!(false)] {
                let mut defs = serde_json::Map::new();
                for step in 0..60 {
                    let next = json!({"$ref": format!("#/$defs/s{}", step + 1)});
                    defs.insert(format!("s{step}"), json!({keyword: [next.clone(), next]}));
                }
                defs.insert("s60".to_owned(), leaf);
                for place in [json!({"$ref": "#/$defs/s0"}), json!({"properties": {"a": {"$ref": "#/$defs/s0"}}})] {
                    let mut schema = place;
                    schema["$defs"] = defs.clone().into();
                    let _ = quickly(&schema, &json!({"a": "text"}));
                    schema["$schema"] = json!("http://json-schema.org/draft-07/schema#");
                    let _ = quickly(&schema, &json!({"a": "text"}));
                    schema["unevaluatedProperties"] = json!(false);
                    schema["$schema"] = json!("https://json-schema.org/draft/2020-12/schema");
                    let _ = quickly(&schema, &json!({"a": "text"}));
                }
            }
        }
    }

    #[test]
    fn validation_of_an_exponential_value_is_aborted() {
        let step = json!({"properties": {"a": {"$ref": "#"}}});
        let value = nested(100, |inner| object("a", inner));
        for keyword in ["allOf", "anyOf", "oneOf"] {
            let _ = quickly(&json!({"type": "object", keyword: [step, step, {"type": "null"}]}), &value);
            let _ = quickly(&json!({"type": "object", keyword: [step, step], "unevaluatedProperties": false}), &value);
        }
    }

    #[test]
    fn a_long_chain_of_references_does_not_overflow_the_stack() {
        for length in [500, 5_000] {
            let mut defs = serde_json::Map::new();
            for step in 0..length {
                defs.insert(format!("s{step}"), json!({"allOf": [{"$ref": format!("#/$defs/s{}", step + 1)}]}));
            }
            defs.insert(format!("s{length}"), json!({"properties": {"a": {"$ref": "#"}}}));
            let value = nested(100, |inner| object("a", inner));
            let _ = quickly(&json!({"$ref": "#/$defs/s0", "$defs": defs}), &value);
        }
    }

    #[test]
    fn a_schema_over_the_bounds_accepts_any_object() {
        let deep = nested(10_000, |inner| object("properties", object("a", inner)));
        let (validator, outcome) = quickly(&deep, &json!({"a": 1}));
        assert!(validator.warning().is_some_and(|warning| warning.contains("levels deep")), "{validator:?}");
        assert_eq!(outcome, Ok(()));
        let (validator, _) = quickly(&json!({"enum": (0..100_000).collect::<Vec<u32>>()}), &json!({}));
        assert!(validator.warning().is_some_and(|warning| warning.contains("more than 50000 values")), "{validator:?}");
    }

    #[test]
    fn a_huge_enum_within_the_bounds_works() {
        let options: Vec<String> = (0..40_000).map(|at| format!("option {at}")).collect();
        let (validator, outcome) = quickly(&json!({"properties": {"a": {"enum": options}}}), &json!({"a": "none"}));
        assert_eq!(validator.warning(), None);
        let reason = &outcome.expect_err("not among them")[0].reason;
        assert!(reason.contains("and 39988 more"), "{reason}");
    }

    #[test]
    fn a_deeply_nested_value_is_not_checked() {
        let deep = nested(10_000, |inner| object("a", inner));
        assert_eq!(quickly(&json!({"properties": {"a": {"$ref": "#"}}}), &deep).1, Ok(()));
    }

    #[test]
    fn a_regular_expression_is_bounded() {
        let text = format!("{}!", "a".repeat(1000));
        for pattern in ["^(a+)+$", "^(?=a)(a+)+$", "^(a|a)*(?<!b)$", "(?=(a+))\\1*b", "^(([a-z])+.)+[A-Z]([a-z])+$"] {
            let _ = quickly(&json!({"properties": {"a": {"pattern": pattern}}}), &json!({"a": text}));
            let _ = quickly(
                &json!({"additionalProperties": {"pattern": pattern}}),
                &(0..1000).map(|at| (at.to_string(), json!(text))).collect(),
            );
            let _ = quickly(
                &json!({"patternProperties": {pattern: {}}, "additionalProperties": false}),
                &json!({&text: 1}),
            );
        }
        for pattern in ["a{1000}{1000}{1000}", "(((a{100}){100}){100}){100}", "(?:\\p{L}{500}){500}"] {
            let many: Value =
                (0..200).map(|at| (at.to_string(), json!({"pattern": format!("{at}{pattern}")}))).collect();
            let _ = quickly(&json!({"properties": many}), &json!({"0": text}));
        }
    }

    #[test]
    fn an_aborted_match_is_not_a_problem() {
        let schema = json!({"properties": {"a": {"pattern": "^((a+)\\2?)+$"}, "b": {"type": "integer"}}});
        assert_eq!(problems(schema.clone(), json!({"a": format!("{}!", "a".repeat(100))})), []);
        assert_eq!(one(schema, json!({"a": format!("{}!", "a".repeat(100)), "b": "x"})).0, "/b");
    }

    #[test]
    fn small_arguments_are_checked_in_microseconds() {
        let schema = json!({
            "type": "object",
            "properties": {
                "path": {"type": "string"},
                "limit": {"type": "integer", "minimum": 1, "maximum": 100},
                "mode": {"enum": ["a", "b"]},
                "tags": {"type": "array", "items": {"type": "string"}},
            },
            "required": ["path"],
            "additionalProperties": false,
        });
        let validator = Validator::compile(&schema);
        let value = json!({"path": "/tmp/a", "limit": 3, "mode": "a", "tags": ["x", "y"]});
        let start = Instant::now();
        for _ in 0..1000 {
            assert_eq!(validator.validate(&value), Ok(()));
        }
        // Unoptimised and next to other tests; an optimised build takes a fraction of this.
        assert!(start.elapsed() / 1000 < Duration::from_micros(500), "{:?} for each", start.elapsed() / 1000);
    }
}
