//! Tests of the registry.

mod selection;
mod shape;

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use proptest::collection::hash_set;
use proptest::prelude::*;
use serde_json::json;

use super::*;
use ropeway_config::{CollisionPolicy, ServerConfig, ServerEntry, StdioServer};
use ropeway_core::checked::CheckedTool;
use ropeway_core::content::ContentPart;
use ropeway_core::envelope::EnvelopeData;
use ropeway_core::lowering::Lower as _;
use ropeway_core::message::{CallArguments, Dialect, ToolCall, ToolResult};
use ropeway_core::tool::{Alias, Arguments, CallContext, CallError, LocalTool, Origin, Tool, ToolDefinition};

/// A tool that returns `answer`.
fn tool(name: &str, origin: Origin, answer: &'static str) -> Arc<dyn Tool> {
    let mut definition = ToolDefinition::new(name);
    definition.origin = origin;
    Arc::new(LocalTool::new(definition, move |_, _| async move { Ok(answer) }))
}

fn local(name: &str, answer: &'static str) -> Arc<dyn Tool> {
    tool(name, Origin::Local, answer)
}

/// Returns the tools of a server, without a prefix.
fn group(server: &str, names: &[&str]) -> Vec<CheckedTool> {
    let mut entry = ServerEntry::new(ServerConfig::new(server, StdioServer::new("none", [""; 0])));
    entry.prefix.clear();
    let own = |name: &&str| tool(name, Origin::Server { server: server.into(), tool: (*name).into() }, "");
    ToolShape::new(&entry).expect("a shape").apply_all(names.iter().map(own))
}

fn assembled(groups: &[(&str, &[&str])], policy: CollisionPolicy) -> (Registry, Vec<Collision>) {
    Registry::assemble(groups.iter().map(|(server, names)| group(server, names)), policy)
}

/// Returns each tool's name, its server and the server's own name for it.
fn listed(registry: &Registry) -> Vec<String> {
    let line = |definition: &ToolDefinition| match &definition.origin {
        Origin::Server { server, tool } => format!("{} = {server}.{tool}", definition.name),
        Origin::Local => definition.name.clone(),
    };
    registry.definitions().map(line).collect()
}

fn collision(name: &str, kept: (&str, &str), other: (&str, &str), renamed_to: Option<&str>) -> Collision {
    let origin = |(server, tool): (&str, &str)| Origin::Server { server: server.into(), tool: tool.into() };
    Collision {
        name: name.to_owned(),
        kept: origin(kept),
        other: origin(other),
        renamed_to: renamed_to.map(str::to_owned),
    }
}

async fn answer(registry: &Registry, name: &str) -> String {
    match registry.call_with(name, Arguments::new(), &CallContext::default()).await.data() {
        EnvelopeData::Text(text) => text.into_owned(),
        other => panic!("{other:?}"),
    }
}

const TWO: &[(&str, &[&str])] = &[("a", &["x", "y"]), ("b", &["z", "x"])];

#[test]
fn last_wins_replaces_the_first_tool() {
    let (registry, collisions) = assembled(TWO, CollisionPolicy::LastWins);
    assert_eq!(listed(&registry), ["x = b.x", "y = a.y", "z = b.z"]);
    assert_eq!(collisions, [collision("x", ("b", "x"), ("a", "x"), None)]);
}

#[test]
fn error_keeps_the_first_tool() {
    let (registry, collisions) = assembled(TWO, CollisionPolicy::Error);
    assert_eq!(listed(&registry), ["x = a.x", "y = a.y", "z = b.z"]);
    assert_eq!(collisions, [collision("x", ("a", "x"), ("b", "x"), None)]);
}

#[test]
fn suffix_keeps_all_tools_within_the_maximum_length() {
    let (registry, collisions) = assembled(TWO, CollisionPolicy::Suffix);
    assert_eq!(listed(&registry), ["x = a.x", "y = a.y", "z = b.z", "x_2 = b.x"]);
    assert_eq!(collisions, [collision("x", ("a", "x"), ("b", "x"), Some("x_2"))]);

    let long = "l".repeat(naming::MAX_LENGTH);
    let servers: Vec<String> = (0..12).map(|number| format!("s{number}")).collect();
    let only = [long.as_str()];
    let groups: Vec<(&str, &[&str])> = servers.iter().map(|server| (server.as_str(), &only[..])).collect();
    let (registry, collisions) = assembled(&groups, CollisionPolicy::Suffix);
    assert_eq!((registry.len(), collisions.len()), (12, 11));
    assert!(registry.definitions().all(|definition| definition.name.len() == naming::MAX_LENGTH));
    assert!(registry.get(&format!("{}_12", "l".repeat(61))).is_some());
}

#[test]
fn a_suffix_that_is_taken_is_skipped() {
    let (registry, _) = assembled(&[("a", &["x", "x_2"]), ("b", &["x"])], CollisionPolicy::Suffix);
    assert_eq!(listed(&registry), ["x = a.x", "x_2 = a.x_2", "x_3 = b.x"]);
}

#[test]
fn tools_of_one_server_with_equal_valid_names_are_all_kept() {
    let names = ["a.b", "a_b", "a/b", "搜索", "工具"];
    for policy in [CollisionPolicy::LastWins, CollisionPolicy::Error, CollisionPolicy::Suffix] {
        let (registry, collisions) = assembled(&[("s", &names)], policy);
        assert_eq!(
            listed(&registry),
            [
                "a_b_e27bcb35 = s.a.b",
                "a_b = s.a_b",
                "a_b_e2480c78 = s.a/b",
                "___82a900b1 = s.搜索",
                "___88f4f8f8 = s.工具"
            ]
        );
        assert_eq!(collisions, []);
    }
    let backwards: Vec<&str> = names.into_iter().rev().collect();
    let (registry, _) = assembled(&[("s", &backwards)], CollisionPolicy::Error);
    assert!(registry.get("a_b_e27bcb35").is_some_and(|tool| tool.definition().own_name() == "a.b"));
}

#[test]
fn truncated_names_of_one_server_are_all_kept() {
    let names: Vec<String> = (0..200).map(|number| format!("{}_{number}", "very_long".repeat(9))).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let (registry, collisions) = assembled(&[("s", &names)], CollisionPolicy::Error);
    assert_eq!((registry.len(), collisions), (200, vec![]));
    assert!(registry.definitions().all(|definition| definition.name.len() <= naming::MAX_LENGTH));
}

#[test]
fn without_server_removes_exactly_its_tools() {
    let (mut registry, _) = assembled(&[("a", &["x", "y"]), ("b", &["z"]), ("c", &["w"])], CollisionPolicy::Error);
    registry.register(local("here", ""));
    assert_eq!(registry.servers(), [&Alias::from("a"), &"b".into(), &"c".into()]);
    let a = Alias::from("a");
    let of_a = registry.of_server(&a).map(|tool| tool.definition().name.as_str());
    assert_eq!(of_a.collect::<Vec<_>>(), ["x", "y"]);
    let without = registry.without_server(&"a".into());
    assert_eq!(listed(&without), ["z = b.z", "w = c.w", "here"]);
    assert!(without.get("w").is_some() && without.get("x").is_none());
    assert_eq!(registry.len(), 5);
    assert_eq!(listed(&registry.without_server(&"d".into())), listed(&registry));
}

#[tokio::test]
async fn registering_a_tool_does_not_change_clones() {
    let mut registry = Registry::default();
    assert!(registry.is_empty());
    assert_eq!(registry.register(local("look", "before")), None);
    let turn = registry.clone();
    assert_eq!(turn.search("look", 9).len(), 1);
    assert_eq!(
        registry.register(local("look", "after")),
        Some(Collision { name: "look".to_owned(), kept: Origin::Local, other: Origin::Local, renamed_to: None })
    );
    registry.register(local("listen", ""));
    assert_eq!((answer(&turn, "look").await.as_str(), turn.len()), ("before", 1));
    assert_eq!((answer(&registry, "look").await.as_str(), registry.len()), ("after", 2));
    assert_eq!((turn.search("listen", 9).len(), registry.search("listen", 9).len()), (0, 1));
}

#[tokio::test]
async fn an_unknown_tool_returns_an_envelope_with_suggestions() {
    let (registry, _) = assembled(&[("a", &["read_file", "write_file", "git_log"])], CollisionPolicy::Error);
    let envelope = registry.call_with("raed_file", Arguments::new(), &CallContext::new("7")).await;
    assert_eq!((envelope.id.0.as_str(), envelope.tool.as_str(), &envelope.origin), ("7", "raed_file", &Origin::Local));
    assert!(matches!(
        envelope.error.as_deref(),
        Some(CallError::UnknownTool { tool, nearest }) if tool == "raed_file" && nearest == &["read_file"]
    ));
    assert_eq!(
        answer(&registry, "raed_file").await,
        "Error: unknown tool `raed_file`. Did you mean `read_file`? Call only tools that you were offered, by their \
         exact names."
    );
    // Different spelling, same words.
    assert!(answer(&registry, "log_of_git").await.contains("Did you mean `git_log`?"));
    assert!(!answer(&registry, "xylophone").await.contains("Did you mean"));
    assert!(answer(&Registry::default(), "x").await.starts_with("Error: unknown tool `x`. Call"));
}

#[tokio::test]
async fn every_call_of_a_model_has_a_result() {
    let mut registry = Registry::default();
    registry.register(local("look", "seen"));
    let cx = CallContext::default();
    let good = ToolCall::new("1", "look", Arguments::new());
    assert_eq!(registry.answer(&good, &cx).await, ToolResult::new(&good, vec![ContentPart::text("seen")]));
    let broken = ToolCall { arguments: CallArguments::read("[1]"), ..good.clone() };
    let told = ToolResult::error(&broken, "the arguments must be a JSON object, not an array");
    assert_eq!(registry.answer(&broken, &cx).await, told);
    let unknown = ToolCall::new("2", "lock", Arguments::new());
    let told = registry.answer(&unknown, &cx).await;
    assert!(told.is_error && told.content[0].as_text().is_some_and(|text| text.contains("`look`")), "{told:?}");
}

#[test]
fn definitions_and_schemas_are_passed_through_unchanged() {
    let schema = r##"{"zeta":1,"properties":{"b":{"$ref":"#/$defs/d"},"a":{}},"$defs":{"d":{}},"type":"object"}"##;
    let definition = ToolDefinition::new("x").with_input_schema(serde_json::from_str(schema).expect("JSON"));
    let tools = ["x", "x", "x"].map(|_| LocalTool::new(definition.clone(), |_, _| async { Ok("") }));
    let group = tools.map(|tool| CheckedTool::new(Arc::new(tool))).to_vec();
    let (registry, _) = Registry::assemble([group], CollisionPolicy::Suffix);
    assert_eq!(registry.len(), 3);
    for found in registry.definitions() {
        assert!(found.input_schema.ptr_eq(&definition.input_schema), "{}", found.name);
        assert_eq!(found.input_schema.to_string(), schema);
    }
}

#[tokio::test]
async fn a_renamed_tool_calls_the_original() {
    static CALLS: AtomicU32 = AtomicU32::new(0);
    let definition = ToolDefinition::new("x").with_input_schema(json!({"required": ["n"]}));
    let tool = CheckedTool::new(Arc::new(LocalTool::new(definition, |_, _| async {
        CALLS.fetch_add(1, Ordering::Relaxed);
        Ok("fine")
    })));
    let (registry, _) = Registry::assemble([vec![tool.clone()], vec![tool]], CollisionPolicy::Suffix);
    assert!(answer(&registry, "x_2").await.contains("for tool `x_2`"));
    let arguments = json!({"n": 1}).as_object().cloned().unwrap_or_default();
    let envelope = registry.call_with("x_2", arguments, &CallContext::default()).await;
    assert_eq!((envelope.tool.as_str(), envelope.data()), ("x_2", EnvelopeData::Text("fine".into())));
    assert_eq!(CALLS.load(Ordering::Relaxed), 1);
}

#[tokio::test]
async fn a_registry_is_a_tool_source_also_behind_an_arc() {
    let (registry, _) = assembled(TWO, CollisionPolicy::Error);
    let source: Arc<dyn ToolSource> = Arc::new(registry.clone());
    ToolSource::ready(&source).await;
    assert_eq!(listed(&ToolSource::registry(&source)), listed(&registry));
    assert_eq!(ToolSource::statuses(&source), []);
}

#[test]
fn tools_of_one_server_never_replace_each_other() {
    // The second tool has the name that the first one would get.
    let names = ["a.b", "a_b_e27bcb35", "a_b"];
    for policy in [CollisionPolicy::LastWins, CollisionPolicy::Error] {
        let (registry, collisions) = assembled(&[("s", &names)], policy);
        assert_eq!(listed(&registry), ["a_b_e27bcb35 = s.a.b", "a_b_e27bcb35_2 = s.a_b_e27bcb35", "a_b = s.a_b"]);
        let renamed = Some("a_b_e27bcb35_2");
        assert_eq!(collisions, [collision("a_b_e27bcb35", ("s", "a.b"), ("s", "a_b_e27bcb35"), renamed)]);
    }
}

proptest! {
    #[test]
    fn no_tool_of_a_server_is_lost_for_any_names(
        names in hash_set(prop_oneof!["[ab._/]{1,4}", "\\PC{1,6}", "x{60,64}[ab.]{1,4}"], 0..40),
        policy in prop_oneof![Just(CollisionPolicy::LastWins), Just(CollisionPolicy::Error), Just(CollisionPolicy::Suffix)],
    ) {
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let (registry, _) = assembled(&[("s", &names)], policy);
        let found: HashSet<&str> = registry.definitions().map(ToolDefinition::own_name).collect();
        prop_assert_eq!(found, names.into_iter().collect::<HashSet<_>>());
        for definition in registry.definitions() {
            prop_assert_eq!(naming::sanitize(&definition.name), definition.name.as_str());
            prop_assert_eq!(registry.get(&definition.name).map(CheckedTool::definition), Some(definition));
        }
    }
}

#[test]
fn an_unchanged_registry_is_lowered_once() {
    let (mut registry, _) = assembled(TWO, CollisionPolicy::Suffix);
    let first = registry.lowered(Dialect::Chat);
    assert_eq!(first.tools.len(), 4);
    assert!(Arc::ptr_eq(&first, &registry.lowered(Dialect::Chat)));
    assert!(Arc::ptr_eq(&first, &registry.clone().lowered(Dialect::Chat)));
    registry.register(local("another", ""));
    let second = registry.lowered(Dialect::Chat);
    assert_eq!((first.tools.len(), second.tools.len()), (4, 5));
    assert!(second.get("another").is_some());
}
