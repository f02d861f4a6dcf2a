//! A validator: one schema, compiled once, that arguments are checked against.

use std::fmt;

use jsonschema::{Draft, PatternOptions};
use serde_json::Value;

use super::bounds::{self, Size};
use super::effort::{self, Unfinished};
use super::reason;
use super::tall::{self, Tall};
use crate::tool::ArgumentProblem;

/// How often a regular expression with look-around may step back before its match is given up.
/// Those without run in linear time.
const MAX_BACKTRACKS: usize = 5_000;

/// How many bytes a compiled regular expression may take.
const MAX_REGEX_BYTES: usize = 1024 * 1024;

/// What checking may come to, by the sizes of schema and value, for it to be done at all.
const MAX_VISITS: usize = 20_000_000;

/// What checking may come to for all problems to be found; past it the first one has to do.
const MAX_VISITS_FOR_ALL: usize = 1_000_000;

/// A match may be as much work as so many visits.
const VISITS_PER_MATCH: usize = 20;

/// One schema, compiled once, that arguments are checked against.
///
/// `format` is a hint to the model and is not checked: only the server knows how strictly it means it.
pub struct Validator {
    check: Check,
    warning: Option<String>,
}

/// What is asked of a value.
enum Check {
    /// That it fits a schema.
    Schema(Box<Compiled>),
    /// Only that it is an object: there is no schema that can be worked with.
    AnyObject,
}

/// A schema that can be worked with.
struct Compiled {
    validator: Tall,
    nodes: usize,
    patterns: usize,
}

impl Compiled {
    /// What checking a value of this size may come to where no reference is followed: a visit to each
    /// subschema for each part of the value, and its text for each pattern.
    fn visits(&self, value: Size) -> usize {
        let walks = self.nodes.saturating_mul(value.nodes);
        let matches = self.patterns.saturating_mul(value.bytes / 2 + value.nodes.saturating_mul(VISITS_PER_MATCH));
        walks.saturating_add(matches)
    }

    /// What is wrong with a value. Finding that may cost far more than finding that something is.
    fn problems(&self, value: &Value, visits: usize) -> Vec<ArgumentProblem> {
        let validator = self.validator.get();
        let problems = effort::bounded(|| match visits {
            ..MAX_VISITS_FOR_ALL => {
                reason::problems(validator.iter().flat_map(|validator| validator.iter_errors(value)))
            }
            _ => reason::problems(validator.iter().filter_map(|validator| validator.validate(value).err())),
        });
        problems.unwrap_or_else(|_| vec![reason::problem("", "does not fit the schema of the tool")])
    }
}

impl Validator {
    /// Compiles a schema: draft 4, 6, 7, 2019-09 or 2020-12 as its `$schema` says, 2020-12 by default.
    ///
    /// This never fails and never fetches anything. A schema that cannot be worked with is replaced by
    /// "any object", and [`Validator::warning`] says why.
    pub fn compile(schema: &Value) -> Self {
        let (draft, odd_dialect) = match dialect(schema) {
            Ok(draft) => (draft, None),
            Err(odd) => {
                let odd = reason::shortened(&odd, 200);
                (Draft::Draft202012, Some(format!("its `$schema` {odd} is unknown and is read as draft 2020-12")))
            }
        };
        let compiled = match bounds::schema_size(schema) {
            Err(bound) => Err(bound.to_string()),
            Ok(size) if tall::is_needed(size.nodes) => {
                tall::run(|| compile(schema, draft, size)).unwrap_or_else(|| Err("it breaks the compiler".to_owned()))
            }
            Ok(size) => compile(schema, draft, size),
        };
        match compiled {
            Ok(compiled) => Self { check: Check::Schema(Box::new(compiled)), warning: odd_dialect },
            Err(why) => Self {
                check: Check::AnyObject,
                warning: Some(format!("any object is accepted, because the schema cannot be used: {why}")),
            },
        }
    }

    /// What is wrong with the schema itself, for whoever is responsible for it.
    pub fn warning(&self) -> Option<&str> {
        self.warning.as_deref()
    }

    /// Checks a value. At most eight problems are named, each in a few words.
    ///
    /// A value that cannot be checked within the bounds on time and depth passes: the tool itself has the last word.
    pub fn validate(&self, value: &Value) -> Result<(), Vec<ArgumentProblem>> {
        let compiled = match &self.check {
            Check::Schema(compiled) => compiled,
            Check::AnyObject if value.is_object() => return Ok(()),
            Check::AnyObject => {
                let reason = format!("must be an object, not {}", reason::kind_of(value));
                return Err(vec![ArgumentProblem { path: String::new(), reason }]);
            }
        };
        let visits = bounds::size(value).map_or(usize::MAX, |size| compiled.visits(size));
        if visits > MAX_VISITS {
            return Ok(());
        }
        match effort::bounded(|| compiled.validator.get().is_none_or(|validator| validator.is_valid(value))) {
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

/// The draft that a schema says it is written in; the text of `$schema` where we do not know it.
pub(super) fn dialect(schema: &Value) -> Result<Draft, String> {
    let Some(written) = schema.get("$schema") else { return Ok(Draft::Draft202012) };
    let address = written.as_str().map(|uri| uri.trim().trim_end_matches('#'));
    let name = address.and_then(|uri| uri.strip_prefix("https://").or_else(|| uri.strip_prefix("http://")));
    match name {
        Some("json-schema.org/draft-04/schema") => Ok(Draft::Draft4),
        Some("json-schema.org/draft-06/schema") => Ok(Draft::Draft6),
        Some("json-schema.org/draft-07/schema") => Ok(Draft::Draft7),
        Some("json-schema.org/draft/2019-09/schema") => Ok(Draft::Draft201909),
        Some("json-schema.org/draft/2020-12/schema") => Ok(Draft::Draft202012),
        _ => Err(written.to_string()),
    }
}

/// Compiles a schema, or says in a few words why that cannot be done.
fn compile(schema: &Value, draft: Draft, size: Size) -> Result<Compiled, String> {
    if let Some(reference) = effort::stray_reference(schema) {
        return Err(format!("`{}` does not point at a schema", reason::shortened(reference, 200)));
    }
    if let Some(pattern) = effort::backtracking_name(schema) {
        return Err(format!("the pattern `{}` for names has look-around", reason::shortened(pattern, 200)));
    }
    let mut counted = schema.clone();
    if let Value::Object(root) = &mut counted {
        // The draft is set below, and an unknown one would stop the compiler.
        root.shift_remove("$schema");
    }
    effort::count_references(&mut counted, matches!(draft, Draft::Draft4 | Draft::Draft6 | Draft::Draft7));
    effort::count_backtracking(&mut counted, !matches!(draft, Draft::Draft4 | Draft::Draft6));
    let options =
        jsonschema::options().with_draft(draft).offline().should_validate_formats(false).with_pattern_options(
            PatternOptions::fancy_regex().backtrack_limit(MAX_BACKTRACKS).size_limit(MAX_REGEX_BYTES),
        );
    match effort::bounded(|| effort::counting(options).build(&counted)) {
        Ok(Ok(validator)) => {
            let validator = Tall::new(validator, tall::is_needed(size.nodes));
            Ok(Compiled { validator, nodes: size.nodes, patterns: effort::patterns(schema) })
        }
        Ok(Err(error)) => Err(reason::of_schema(&error)),
        Err(Unfinished::GivenUp) => Err("it takes too much work to compile".to_owned()),
        Err(Unfinished::Panicked) => Err("it breaks the compiler".to_owned()),
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

    fn said(path: &str, reason: &str) -> (String, String) {
        (path.to_owned(), reason.to_owned())
    }

    /// Compiles and validates, and fails the test if that takes long.
    fn quickly(schema: &Value, value: &Value) -> (Validator, Result<(), Vec<ArgumentProblem>>) {
        let start = Instant::now();
        let validator = Validator::compile(schema);
        let outcome = validator.validate(value);
        // Twice the limit on time for each of three pieces of work, on a machine that is busy.
        assert!(start.elapsed() < Duration::from_secs(5), "took {:?}", start.elapsed());
        (validator, outcome)
    }

    #[test]
    fn arguments_that_fit_pass() {
        let schema = json!({"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]});
        assert_eq!(problems(schema, json!({"a": 1})), []);
    }

    #[test]
    fn a_reason_says_what_is_wanted_and_what_came() {
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
                said("", "the required property `mode` is missing"),
                said("/count", "must be an integer, not a string"),
                said("/to~1from/1", "must be a string or null, not an integer"),
                said("/to~1from/2", "must match the pattern `^a`, unlike `\"b\"`"),
                said("", "there is no such property: `cuont`; leave it out"),
            ]
        );
        assert_eq!(
            problems(schema, json!({"count": 0, "mode": "warp"})),
            [
                said("/count", "must be at least 1, not `0`"),
                said("/mode", "must be one of `\"fast\"`, `\"slow\"`, not `\"warp\"`"),
            ]
        );
    }

    #[test]
    fn a_union_of_types_reads_as_one_wish() {
        let nullable = json!({"properties": {"a": {"anyOf": [{"type": "string"}, {"type": "null"}]}}});
        assert_eq!(one(nullable, json!({"a": 3})), said("/a", "must be a string or null, not an integer"));
    }

    #[test]
    fn of_several_alternatives_the_one_that_was_meant_is_explained() {
        let schema = json!({"oneOf": [
            {"type": "object", "properties": {"kind": {"const": "circle"}, "radius": {"type": "number"}}, "required": ["kind", "radius"]},
            {"type": "object", "properties": {"kind": {"const": "square"}, "side": {"type": "number"}}, "required": ["kind", "side"]},
            {"type": "null"},
        ]});
        assert_eq!(
            one(schema.clone(), json!({"kind": "square", "side": "2"})),
            said("/side", "must be a number, not a string")
        );
        let (path, reason) = one(schema, json!({"kind": "blob"}));
        assert_eq!(path, "");
        assert!(
            reason.starts_with("fits none of 3 alternatives: (1) `/kind` must be `\"circle\"`, not `\"blob\"`; (2)"),
            "{reason}"
        );
    }

    #[test]
    fn problems_are_few_and_short_however_large_the_value_is() {
        let schema = json!({"additionalProperties": {"enum": ["x".repeat(5000), 1]}});
        let value: Value =
            (0..1000).map(|at| (format!("{at}{}", "k".repeat(5000)), json!("v".repeat(100_000)))).collect();
        let problems = problems(schema, value);
        assert_eq!(problems.len(), 8);
        assert!(problems.iter().all(|(path, reason)| path.chars().count() <= 301 && reason.chars().count() <= 301));
    }

    #[test]
    fn the_dialect_is_what_the_schema_says() {
        let tuple = |uri: &str| json!({"$schema": uri, "properties": {"a": {"items": [{"type": "integer"}]}}});
        for old in [
            "http://json-schema.org/draft-04/schema#",
            "http://json-schema.org/draft-06/schema",
            "https://json-schema.org/draft-07/schema#",
            "https://json-schema.org/draft/2019-09/schema",
        ] {
            assert_eq!(one(tuple(old), json!({"a": ["x"]})), said("/a/0", "must be an integer, not a string"));
        }
        // A list of items is no longer allowed there.
        let newest = Validator::compile(&tuple("https://json-schema.org/draft/2020-12/schema"));
        assert!(newest.warning().is_some_and(|warning| warning.contains("`/properties/a/items`")), "{newest:?}");
        let draft4 = json!({"$schema": "http://json-schema.org/draft-04/schema#", "properties": {"a": {"maximum": 3, "exclusiveMaximum": true}}});
        assert_eq!(one(draft4, json!({"a": 3})).0, "/a");
    }

    #[test]
    fn an_unknown_dialect_is_read_as_the_newest_with_a_warning() {
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
    fn nothing_is_fetched() {
        for remote in [
            "http://127.0.0.1:9/schema.json",
            "https://example.com/schema.json#/definitions/a",
            "file:///etc/hostname",
            "other.json",
            "urn:example:other",
        ] {
            let validator = Validator::compile(&json!({"properties": {"a": {"$ref": remote}}}));
            assert!(validator.warning().is_some_and(|warning| warning.contains("nothing is fetched")), "{validator:?}");
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
            said("/next/next/n", "must be an integer, not a string")
        );
        let dynamic =
            json!({"$dynamicAnchor": "node", "type": "object", "properties": {"next": {"$dynamicRef": "#node"}}});
        assert_eq!(one(dynamic, json!({"next": {"next": 1}})), said("/next/next", "must be an object, not an integer"));
    }

    #[test]
    fn look_around_works() {
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
            assert_eq!(one(schema, json!({name: "x"})), said(&at, "must be an integer, not a string"));
        }
        for pattern in [r"^(a)\1$", r"^\\(?=a)", r"^\\\1$"] {
            let schema = json!({"patternProperties": {pattern: {"type": "integer"}}});
            assert!(Validator::compile(&schema).warning().is_some(), "{pattern}");
        }
    }

    #[test]
    fn a_property_may_be_named_like_a_keyword() {
        let schema = json!({"properties": {"default": {"type": "integer"}, "enum": {"$ref": "#/properties/default"}}});
        assert_eq!(one(schema, json!({"enum": "x"})), said("/enum", "must be an integer, not a string"));
    }

    #[test]
    fn a_schema_that_points_at_nothing_but_itself_ends() {
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
    fn a_schema_that_doubles_at_every_step_is_given_up() {
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
    fn a_value_that_doubles_the_work_at_every_level_is_given_up() {
        let step = json!({"properties": {"a": {"$ref": "#"}}});
        let value = nested(100, |inner| object("a", inner));
        for keyword in ["allOf", "anyOf", "oneOf"] {
            let _ = quickly(&json!({"type": "object", keyword: [step, step, {"type": "null"}]}), &value);
            let _ = quickly(&json!({"type": "object", keyword: [step, step], "unevaluatedProperties": false}), &value);
        }
    }

    #[test]
    fn a_long_chain_of_references_does_not_end_the_process() {
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
        assert!(validator.warning().is_some_and(|warning| warning.contains("nests deeper")), "{validator:?}");
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
    fn a_value_that_nests_too_deep_is_not_checked() {
        let deep = nested(10_000, |inner| object("a", inner));
        assert_eq!(quickly(&json!({"properties": {"a": {"$ref": "#"}}}), &deep).1, Ok(()));
    }

    #[test]
    fn a_regular_expression_cannot_run_for_ever() {
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
    fn a_match_that_is_given_up_is_nobodys_fault() {
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
        // Without optimisation and beside other tests; an optimised build takes a fraction of one.
        assert!(start.elapsed() / 1000 < Duration::from_micros(500), "{:?} for each", start.elapsed() / 1000);
    }
}
