//! Exposed tools: a turn's tools, listed for the model or found by search.

use std::sync::Arc;

use serde_json::Value;

use super::remainder::READ_MORE;
use ropeway_bridge::registry::search_tools::{CALL_TOOL, CallTool, FIND_TOOLS, FindTools};
use ropeway_bridge::registry::{Collision, Registry, ToolSource};
use ropeway_config::CollisionPolicy;
use ropeway_core::checked::CheckedTool;
use ropeway_core::message::{CallArguments, ToolCall};
use ropeway_core::tool::{ArgumentProblem, Arguments, CallError, Origin, Tool};

/// One turn's tools.
#[derive(Default)]
pub(super) struct ExposedTools {
    /// Every tool that can be called, except the built-in ones.
    pub(super) all: Registry,
    /// The tools that are sent to the model.
    pub(super) listed: Registry,
    /// The names of the built-in tools. No other tool has one of them.
    builtin: Vec<String>,
    /// The tools for unlisted tools, if some tools are unlisted.
    search: Option<SearchToolNames>,
    /// Keeps a removed server connected while a turn uses it.
    _sources: Vec<Arc<dyn ToolSource>>,
}

/// The names of the tools that find and call unlisted tools.
struct SearchToolNames {
    find: String,
    call: String,
}

/// The tool and the arguments that a call refers to.
#[derive(Debug)]
pub(super) enum ResolvedCall {
    /// A known tool. Built-in tools need no approval.
    Tool { tool: CheckedTool, arguments: Arguments, is_builtin: bool },
    /// An unknown tool, or arguments that are not an object.
    Invalid { name: String, error: CallError },
}

impl ExposedTools {
    /// Combines host tools, source tools and the built-in ones. If two have the same name, the host's wins, then the later
    /// source's.
    pub(super) fn new(
        local: &[CheckedTool],
        sources: &[Registry],
        builtin: &[CheckedTool],
        search_over: usize,
    ) -> (Self, Vec<Collision>) {
        let mut groups: Vec<Vec<CheckedTool>> =
            sources.iter().map(|source| source.tools().cloned().collect()).collect();
        groups.push(local.to_vec());
        let (all, collisions) = Registry::assemble(groups, CollisionPolicy::LastWins);
        let hidden = sources.iter().flat_map(Registry::hidden);
        let all = all.with_hidden(hidden.map(|(name, reason)| (name.to_owned(), reason.to_owned())));
        let mut added: Vec<CheckedTool> = Vec::new();
        let mut search = None;
        let listed: Vec<CheckedTool> = if all.len() <= search_over {
            all.tools().cloned().collect()
        } else {
            let is_local = |tool: &&CheckedTool| tool.definition().origin == Origin::Local;
            let listed: Vec<CheckedTool> = all.tools().filter(is_local).take(search_over).cloned().collect();
            let (find, call) = (free_name(&all, FIND_TOOLS), free_name(&all, CALL_TOOL));
            let unlisted = all.len() - listed.len();
            let tools: [Arc<dyn Tool>; 2] =
                [Arc::new(FindTools::new(&find, &call, all.clone(), unlisted)), Arc::new(CallTool::new(&call, &find))];
            added.extend(tools.map(CheckedTool::new));
            search = Some(SearchToolNames { find, call });
            listed
        };
        // Built-in tools with a fixed name are left out if another tool has it.
        let is_free = |tool: &&CheckedTool| all.get(&tool.definition().name).is_none();
        if !all.is_empty() {
            added.extend(builtin.iter().filter(is_free).cloned());
        }
        let names = added.iter().map(|tool| tool.definition().name.clone()).collect();
        let (listed, _) = Registry::assemble([listed, added], CollisionPolicy::LastWins);
        (Self { all, listed, builtin: names, search, _sources: Vec::new() }, collisions)
    }

    /// Exposes `listed` to the model, and calls the tools in `all` under the same names.
    pub(super) fn listed(all: Registry, listed: Registry) -> Self {
        Self { all, listed, ..Self::default() }
    }

    /// Keeps the sources alive as long as the tools.
    pub(super) fn with_sources(self, sources: Vec<Arc<dyn ToolSource>>) -> Self {
        Self { _sources: sources, ..self }
    }

    /// Returns `true` if the model can call the built-in `read_more`.
    pub(super) fn can_read_more(&self) -> bool {
        self.is_builtin(READ_MORE)
    }

    fn is_builtin(&self, name: &str) -> bool {
        self.builtin.iter().any(|builtin| builtin == name)
    }

    /// Returns the tool that a call refers to. Unlisted tools can also be called by their own names.
    pub(super) fn resolve(&self, call: &ToolCall) -> ResolvedCall {
        let invalid = |name: &str, error| ResolvedCall::Invalid { name: name.to_owned(), error };
        let arguments = match &call.arguments {
            CallArguments::Object(arguments) => arguments.clone(),
            CallArguments::Broken { problem, .. } => {
                return invalid(&call.name, invalid_arguments(&call.name, problem));
            }
        };
        let call_tool = self.search.as_ref().map(|search| search.call.as_str());
        let Some(call_tool) = call_tool.filter(|name| *name == call.name) else {
            return self.tool(&call.name, arguments);
        };
        match inner_call(arguments) {
            Ok((name, _)) if name == call_tool => {
                let problem = format!("`name` must be the name of another tool than `{call_tool}`");
                invalid(call_tool, invalid_arguments(call_tool, &problem))
            }
            Ok((name, arguments)) => self.tool(&name, arguments),
            Err(problem) => invalid(call_tool, invalid_arguments(call_tool, &problem)),
        }
    }

    fn tool(&self, name: &str, arguments: Arguments) -> ResolvedCall {
        let is_builtin = self.is_builtin(name);
        // Other listed tools may be definitions only.
        let tools = if is_builtin { &self.listed } else { &self.all };
        match tools.get(name) {
            Some(tool) => ResolvedCall::Tool { tool: tool.clone(), arguments, is_builtin },
            None => ResolvedCall::Invalid { name: name.to_owned(), error: self.missing(name) },
        }
    }

    /// Returns the error for a call to an unknown tool.
    fn missing(&self, name: &str) -> CallError {
        match (self.all.missing(name), &self.search) {
            (CallError::UnknownTool { tool, nearest }, Some(SearchToolNames { find, call })) => {
                CallError::UnlistedTool { tool, nearest, find_with: find.clone(), call_with: call.clone() }
            }
            (error, _) => error,
        }
    }
}

/// Returns a variant of the name that no tool has.
fn free_name(tools: &Registry, name: &str) -> String {
    let others = (2..).map(|number| format!("ropeway_{name}_{number}"));
    let mut names = [name.to_owned(), format!("ropeway_{name}")].into_iter().chain(others);
    names.find(|name| tools.get(name).is_none()).unwrap_or_default()
}

fn invalid_arguments(tool: &str, reason: &str) -> CallError {
    let problem = ArgumentProblem { path: String::new(), reason: reason.to_owned() };
    CallError::InvalidArguments { tool: tool.to_owned(), problems: vec![problem] }
}

/// Returns the call inside a `call_tool` call. Models write its arguments as an object, as a JSON string, or next to the name.
fn inner_call(mut arguments: Arguments) -> Result<(String, Arguments), String> {
    let name = match arguments.shift_remove("name") {
        Some(Value::String(name)) if !name.is_empty() => name,
        _ => return Err("`name` is missing: the name of the tool to call".to_owned()),
    };
    match arguments.shift_remove("arguments") {
        Some(Value::Object(inner)) => Ok((name, inner)),
        Some(Value::String(text)) => match CallArguments::read(&text) {
            CallArguments::Object(inner) => Ok((name, inner)),
            CallArguments::Broken { problem, .. } => Err(problem),
        },
        Some(Value::Null) | None => Ok((name, arguments)),
        Some(_) => Err("`arguments` must be an object".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use ropeway_core::tool::{CallContext, LocalTool, ToolDefinition};

    fn tool(name: &str, description: &str) -> CheckedTool {
        let definition = ToolDefinition::new(name).with_description(description);
        let name = name.to_owned();
        CheckedTool::new(Arc::new(LocalTool::new(definition, move |arguments: Arguments, _| {
            let said = format!("{name} {}", Value::Object(arguments));
            async move { Ok::<_, ropeway_core::tool::BoxError>(said) }
        })))
    }

    fn names(registry: &Registry) -> Vec<&str> {
        registry.definitions().map(|definition| definition.name.as_str()).collect()
    }

    fn source(count: usize) -> Registry {
        let tools = (0..count).map(|number| {
            let mut definition =
                ToolDefinition::new(format!("s_{number}")).with_description(format!("Counts to {number}"));
            definition.origin = Origin::Server { server: "s".into(), tool: format!("{number}").into() };
            CheckedTool::new(Arc::new(LocalTool::new(definition, |_, _| async {
                Ok::<_, ropeway_core::tool::BoxError>("")
            })))
        });
        Registry::assemble([tools.collect()], CollisionPolicy::LastWins).0
    }

    fn call(name: &str, arguments: Value) -> ToolCall {
        ToolCall::new("c", name, arguments.as_object().cloned().unwrap_or_default())
    }

    #[test]
    fn a_few_tools_are_listed_and_many_are_searched() {
        let local = [tool("own", "")];
        let (few, _) = ExposedTools::new(&local, &[source(3)], &[], 4);
        assert_eq!(names(&few.listed), ["s_0", "s_1", "s_2", "own"]);
        let (many, _) = ExposedTools::new(&local, &[source(4)], &[], 4);
        assert_eq!(names(&many.listed), ["own", FIND_TOOLS, CALL_TOOL]);
        assert_eq!(many.all.len(), 5);
    }

    #[test]
    fn a_tool_of_the_host_replaces_a_built_in_tool() {
        let ours = [tool("read_more", "ours")];
        let (exposed, _) = ExposedTools::new(&[tool("read_more", "the host's")], &[], &ours, 10);
        let description = exposed.listed.get("read_more").and_then(|tool| tool.definition().description.as_deref());
        assert_eq!(description, Some("the host's"));
        assert!(!exposed.can_read_more(), "the host's tool is not read_more");
        let (nothing, _) = ExposedTools::new(&[], &[], &ours, 10);
        assert!(nothing.listed.is_empty(), "without tools there are no outputs to read");
    }

    #[tokio::test]
    async fn tools_are_found_by_words_and_called_by_name() {
        let (exposed, _) = ExposedTools::new(&[tool("a", "Sends a letter"), tool("b", "Boils water")], &[], &[], 1);
        let find = exposed.listed.get(FIND_TOOLS).expect("find_tools");
        let found = find
            .call(Arguments::from_iter([("query".to_owned(), json!("send a letter"))]), &CallContext::default())
            .await;
        let text = found.meta.content[0].as_text().expect("text");
        let tools: Value = serde_json::from_str(text).expect("JSON");
        assert_eq!(tools, json!([{"name": "a", "description": "Sends a letter", "input_schema": {"type": "object"}}]));
        for arguments in [
            json!({"name": "a", "arguments": {"x": 1}}),
            json!({"name": "a", "arguments": "{\"x\": 1}"}),
            json!({"name": "a", "x": 1}),
        ] {
            match exposed.resolve(&call(CALL_TOOL, arguments.clone())) {
                ResolvedCall::Tool { tool, arguments, is_builtin } => {
                    assert_eq!((tool.definition().name.as_str(), json!(arguments)), ("a", json!({"x": 1})));
                    assert!(!is_builtin, "it may need approval");
                }
                other => panic!("{arguments}: {other:?}"),
            }
        }
    }

    #[test]
    fn an_unlisted_tool_may_be_called_by_its_own_name() {
        let (exposed, _) = ExposedTools::new(&[tool("a", ""), tool("b", "")], &[], &[], 1);
        assert!(
            matches!(exposed.resolve(&call("b", json!({}))), ResolvedCall::Tool { tool, .. } if tool.definition().name == "b")
        );
    }

    #[test]
    fn a_wrong_name_is_answered_with_the_tool_that_calls_unlisted_tools() {
        let (exposed, _) = ExposedTools::new(&[tool("read_file", ""), tool("call_tool", "")], &[], &[], 1);
        match exposed.resolve(&call("raed_file", json!({}))) {
            ResolvedCall::Invalid { error: CallError::UnlistedTool { nearest, find_with, call_with, .. }, .. } => {
                assert_eq!((nearest, find_with.as_str()), (vec!["read_file".to_owned()], FIND_TOOLS));
                assert_eq!(call_with, "ropeway_call_tool");
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn an_inner_call_without_a_tool_reports_the_missing_field() {
        let (exposed, _) = ExposedTools::new(&[tool("a", ""), tool("b", "")], &[], &[], 1);
        let said = |arguments| match exposed.resolve(&call(CALL_TOOL, arguments)) {
            ResolvedCall::Invalid { error, .. } => error.to_string(),
            other => panic!("{other:?}"),
        };
        let missing = "invalid arguments for tool `call_tool`: `name` is missing: the name of the tool to call";
        assert_eq!(said(json!({"arguments": {}})), missing);
        assert_eq!(
            said(json!({"name": "a", "arguments": 3})),
            "invalid arguments for tool `call_tool`: `arguments` must be an object"
        );
        assert_eq!(said(json!({"name": "nowhere"})), "unknown tool `nowhere`");
        assert_eq!(
            said(json!({"name": "call_tool", "arguments": {"name": "a"}})),
            "invalid arguments for tool `call_tool`: `name` must be the name of another tool than `call_tool`"
        );
    }

    #[test]
    fn built_in_tools_are_renamed_if_other_tools_have_their_names() {
        let local = [tool("find_tools", "theirs"), tool("call_tool", "theirs"), tool("ropeway_call_tool", "theirs")];
        let (exposed, _) = ExposedTools::new(&local, &[source(4)], &[], 3);
        let ours = ["ropeway_find_tools", "ropeway_call_tool_2"];
        assert_eq!(names(&exposed.listed)[3..], ours);
        let described = |name: &str| {
            let tool = exposed.listed.get(name).expect("a tool");
            tool.definition().description.clone().unwrap_or_default()
        };
        assert!(described(ours[0]).ends_with("call them with `ropeway_call_tool_2`."), "{}", described(ours[0]));
        assert_eq!(described(ours[1]), "Call a tool found with `ropeway_find_tools`.");
        let resolved = |name: &str, arguments| match exposed.resolve(&call(name, arguments)) {
            ResolvedCall::Tool { tool, is_builtin, .. } => (tool.definition().name.clone(), is_builtin),
            other => panic!("{other:?}"),
        };
        for name in ["find_tools", "call_tool"] {
            let theirs = (name.to_owned(), false);
            assert_eq!(resolved(name, json!({"name": "s_0"})), theirs);
            assert_eq!(resolved(ours[1], json!({"name": name})), theirs);
        }
        assert_eq!(resolved(ours[0], json!({"query": "x"})), (ours[0].to_owned(), true));
        assert_eq!(resolved(ours[1], json!({"name": "s_0"})), ("s_0".to_owned(), false));
    }

    #[test]
    fn find_tools_counts_the_unlisted_tools() {
        let (exposed, _) = ExposedTools::new(&[tool("own", "")], &[source(4)], &[], 4);
        let description = exposed.listed.get(FIND_TOOLS).and_then(|tool| tool.definition().description.as_deref());
        assert!(description.is_some_and(|it| it.contains("4 tools are available that are not listed here.")));
    }

    #[test]
    fn malformed_arguments_reach_no_tool() {
        let (exposed, _) = ExposedTools::new(&[tool("a", "")], &[], &[], 10);
        let mut broken = call("a", json!({}));
        broken.arguments = CallArguments::read("[1]");
        assert!(matches!(exposed.resolve(&broken), ResolvedCall::Invalid { name, .. } if name == "a"));
    }
}
