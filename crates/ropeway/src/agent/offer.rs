//! An offer: the tools as one turn's model sees them, listed or to be searched.

use std::fmt;
use std::sync::Arc;

use serde_json::{Value, json};

use super::read_more::READ_MORE;
use crate::checked::CheckedTool;
use crate::config::CollisionPolicy;
use crate::message::{CallArguments, ToolCall};
use crate::registry::{Collision, Registry, ToolSource};
use crate::tool::{
    Annotations, Arguments, BoxFuture, CallContext, CallError, Origin, Tool, ToolDefinition, ToolOutput,
};

/// What finds tools by words, where nobody else's tool has that name.
const FIND_TOOLS: &str = "find_tools";

/// What calls a tool that was found, where nobody else's tool has that name.
const CALL_TOOL: &str = "call_tool";

/// How many tools are found where nothing else is said, and at most.
const FOUND: usize = 5;
const MOST_FOUND: usize = 20;

/// The tools of one turn: all of them, and those that the model is told of.
#[derive(Debug, Default)]
pub(super) struct Offer {
    /// Everything that can be called.
    pub(super) all: Registry,
    /// What the model is told of.
    pub(super) shown: Registry,
    /// The names of those that come with the agent; no tool of anybody else has one of them.
    own: Vec<String>,
    /// What calls the tools that the model is not told of, where there are some.
    caller: Option<String>,
    /// The sources of the tools: a server that is removed stays connected as long as a turn uses it.
    kept: Kept,
}

/// Sources that are only held.
#[derive(Default)]
struct Kept(#[expect(dead_code, reason = "the sources live as long as the offer")] Vec<Arc<dyn ToolSource>>);

impl fmt::Debug for Kept {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Kept").finish_non_exhaustive()
    }
}

/// A call as it was meant.
#[derive(Debug)]
pub(super) enum Meant {
    /// A tool that there is, with what it is to be called with; nobody need be asked about one that comes with the agent.
    Tool { tool: CheckedTool, arguments: Arguments, is_own: bool },
    /// No tool that there is, or arguments that are none: the model hears why.
    Nothing { name: String, error: CallError },
}

impl Offer {
    /// The tools of an agent: those of the host, those of the sources, and those that come with it. Where two have one name, the
    /// host's is taken, then that of the later source.
    pub(super) fn new(
        local: &[CheckedTool],
        sources: &[Registry],
        ours: &[CheckedTool],
        search_over: usize,
    ) -> (Self, Vec<Collision>) {
        let mut groups: Vec<Vec<CheckedTool>> =
            sources.iter().map(|source| source.tools().cloned().collect()).collect();
        groups.push(local.to_vec());
        let (all, collisions) = Registry::assemble(groups, CollisionPolicy::LastWins);
        let hidden = sources.iter().flat_map(Registry::hidden);
        let all = all.with_hidden(hidden.map(|(name, reason)| (name.to_owned(), reason.to_owned())));
        let of_host = |tool: &&CheckedTool| tool.definition().origin == Origin::Local;
        let mut own: Vec<CheckedTool> = Vec::new();
        let mut caller = None;
        let listed: Vec<CheckedTool> = match all.len() > search_over {
            false => all.tools().cloned().collect(),
            true => {
                let listed: Vec<CheckedTool> = all.tools().filter(of_host).take(search_over).cloned().collect();
                let (find, call) = (free(&all, FIND_TOOLS), free(&all, CALL_TOOL));
                let unlisted = all.len() - listed.len();
                let both: [Arc<dyn Tool>; 2] = [
                    Arc::new(FindTools::new(&find, &call, all.clone(), unlisted)),
                    Arc::new(CallTool::new(&call, &find)),
                ];
                own.extend(both.map(CheckedTool::new));
                caller = Some(call);
                listed
            }
        };
        // Those that others point to by their names give way: they cannot have another one.
        let is_free = |tool: &&CheckedTool| all.get(&tool.definition().name).is_none();
        if !all.is_empty() {
            own.extend(ours.iter().filter(is_free).cloned());
        }
        let names = own.iter().map(|tool| tool.definition().name.clone()).collect();
        let (shown, _) = Registry::assemble([listed, own], CollisionPolicy::LastWins);
        (Self { all, shown, own: names, caller, kept: Kept::default() }, collisions)
    }

    /// Tools that are all told of, whoever answers for them.
    pub(super) fn listed(all: Registry, shown: Registry) -> Self {
        Self { all, shown, own: Vec::new(), caller: None, kept: Kept::default() }
    }

    /// Keeps the sources as long as the offer.
    pub(super) fn keeping(mut self, sources: Vec<Arc<dyn ToolSource>>) -> Self {
        self.kept = Kept(sources);
        self
    }

    /// Can the model read on in what was cut? Not if somebody else's tool has the name that it would be told.
    pub(super) fn reads_on(&self) -> bool {
        self.is_own(READ_MORE)
    }

    /// Does a tool with this name come with the agent?
    fn is_own(&self, name: &str) -> bool {
        self.own.iter().any(|own| own == name)
    }

    /// What a call means: also a tool that was found and not listed may be called by its own name.
    pub(super) fn meant(&self, call: &ToolCall) -> Meant {
        let nothing = |name: &str, error| Meant::Nothing { name: name.to_owned(), error };
        let arguments = match &call.arguments {
            CallArguments::Object(arguments) => arguments.clone(),
            CallArguments::Broken(broken) => return nothing(&call.name, invalid(&call.name, &broken.problem)),
        };
        let Some(caller) = self.caller.as_deref().filter(|caller| *caller == call.name) else {
            return self.tool(&call.name, arguments);
        };
        match inner(arguments) {
            Ok((name, _)) if name == caller => {
                let problem = format!("`name` must be the name of another tool than `{caller}`");
                nothing(caller, invalid(caller, &problem))
            }
            Ok((name, arguments)) => self.tool(&name, arguments),
            Err(problem) => nothing(caller, invalid(caller, &problem)),
        }
    }

    fn tool(&self, name: &str, arguments: Arguments) -> Meant {
        let is_own = self.is_own(name);
        // What is shown need not answer for itself.
        let tools = if is_own { &self.shown } else { &self.all };
        match tools.get(name) {
            Some(tool) => Meant::Tool { tool: tool.clone(), arguments, is_own },
            None => Meant::Nothing { name: name.to_owned(), error: self.all.missing(name) },
        }
    }
}

/// A name that none of these tools has.
fn free(tools: &Registry, name: &str) -> String {
    let others = (2..).map(|number| format!("ropeway_{name}_{number}"));
    let mut names = [name.to_owned(), format!("ropeway_{name}")].into_iter().chain(others);
    names.find(|name| tools.get(name).is_none()).unwrap_or_default()
}

fn invalid(tool: &str, reason: &str) -> CallError {
    let problem = crate::tool::ArgumentProblem { path: String::new(), reason: reason.to_owned() };
    CallError::InvalidArguments { tool: tool.to_owned(), problems: vec![problem] }
}

/// The call within a call: models write its arguments as an object, as the text of one, or beside the name.
fn inner(mut arguments: Arguments) -> Result<(String, Arguments), String> {
    let name = match arguments.shift_remove("name") {
        Some(Value::String(name)) if !name.is_empty() => name,
        _ => return Err("`name` is missing: the name of the tool to call".to_owned()),
    };
    match arguments.shift_remove("arguments") {
        Some(Value::Object(inner)) => Ok((name, inner)),
        Some(Value::String(text)) => match CallArguments::read(&text) {
            CallArguments::Object(inner) => Ok((name, inner)),
            CallArguments::Broken(broken) => Err(broken.problem),
        },
        Some(Value::Null) | None => Ok((name, arguments)),
        Some(_) => Err("`arguments` must be an object".to_owned()),
    }
}

/// A tool that finds others by words.
struct FindTools {
    definition: ToolDefinition,
    tools: Registry,
}

impl FindTools {
    fn new(name: &str, caller: &str, tools: Registry, unlisted: usize) -> Self {
        let description = format!(
            "Find tools by what they do. There are {unlisted} tools that are not listed here. Gives the names, descriptions and \
             input schemas of those that fit best; call them with `{caller}`."
        );
        let schema = json!({
            "type": "object",
            "properties": {
                "query": {"type": "string", "description": "Words for what the tool should do, such as `create github issue`."},
                "limit": {"type": "integer", "minimum": 1, "maximum": MOST_FOUND, "description": format!("How many tools at most; {FOUND} where nothing is said.")},
            },
            "required": ["query"],
        });
        Self { definition: harmless(name, &description, schema), tools }
    }

    fn find(&self, arguments: &Arguments) -> ToolOutput {
        let query = arguments.get("query").and_then(Value::as_str).unwrap_or_default();
        let limit = arguments.get("limit").and_then(Value::as_u64).map_or(FOUND, |limit| limit as usize);
        let hits = self.tools.search(query, limit.clamp(1, MOST_FOUND));
        if hits.is_empty() {
            let servers: Vec<&str> = self.tools.servers().into_iter().map(|server| server.as_str()).collect();
            let where_from = match servers.is_empty() {
                true => String::new(),
                false => format!(" The tools are those of {}.", servers.join(", ")),
            };
            return ToolOutput::text(format!("No tool fits `{query}`. Try other words.{where_from}"));
        }
        let found: Vec<Value> = hits.iter().map(|hit| shown(hit.tool.definition())).collect();
        ToolOutput::text(Value::Array(found).to_string())
    }
}

/// A tool as it is told of when it was found.
fn shown(definition: &ToolDefinition) -> Value {
    let mut shown = json!({"name": definition.name});
    if let Some(description) = &definition.description {
        shown["description"] = json!(description);
    }
    shown["input_schema"] = definition.input_schema.read().into_owned();
    shown
}

impl Tool for FindTools {
    fn definition(&self) -> &ToolDefinition {
        &self.definition
    }

    fn summarize(&self, arguments: &Arguments) -> Option<String> {
        Some(format!("Find tools for {}", arguments.get("query")?))
    }

    fn call<'a>(&'a self, arguments: Arguments, _: &'a CallContext) -> BoxFuture<'a, Result<ToolOutput, CallError>> {
        Box::pin(async move { Ok(self.find(&arguments)) })
    }
}

/// A tool that stands for all others. What it means is found out before it would be called.
struct CallTool(ToolDefinition);

impl CallTool {
    fn new(name: &str, finder: &str) -> Self {
        let description = format!("Call a tool that `{finder}` has found.");
        let schema = json!({
            "type": "object",
            "properties": {
                "name": {"type": "string", "description": "The name of the tool."},
                "arguments": {"type": "object", "description": "The arguments of the tool, by its input schema."},
            },
            "required": ["name", "arguments"],
        });
        Self(ToolDefinition::new(name).with_description(description).with_input_schema(schema))
    }
}

impl Tool for CallTool {
    fn definition(&self) -> &ToolDefinition {
        &self.0
    }

    fn call<'a>(&'a self, _: Arguments, _: &'a CallContext) -> BoxFuture<'a, Result<ToolOutput, CallError>> {
        let error = CallError::UnknownTool { tool: self.0.name.clone(), nearest: Vec::new() };
        Box::pin(std::future::ready(Err(error)))
    }
}

/// The definition of a tool that changes nothing.
fn harmless(name: &str, description: &str, schema: Value) -> ToolDefinition {
    let mut definition = ToolDefinition::new(name).with_description(description).with_input_schema(schema);
    definition.annotations = Annotations(serde_json::Map::from_iter([("readOnlyHint".to_owned(), Value::Bool(true))]));
    definition
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tool::LocalTool;

    fn tool(name: &str, description: &str) -> CheckedTool {
        let definition = ToolDefinition::new(name).with_description(description);
        let name = name.to_owned();
        CheckedTool::new(Arc::new(LocalTool::new(definition, move |arguments: Arguments, _| {
            let said = format!("{name} {}", Value::Object(arguments));
            async move { Ok::<_, crate::tool::BoxError>(said) }
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
            CheckedTool::new(Arc::new(LocalTool::new(definition, |_, _| async { Ok::<_, crate::tool::BoxError>("") })))
        });
        Registry::assemble([tools.collect()], CollisionPolicy::LastWins).0
    }

    fn call(name: &str, arguments: Value) -> ToolCall {
        ToolCall::new("c", name, arguments.as_object().cloned().unwrap_or_default())
    }

    #[test]
    fn a_few_tools_are_listed_and_many_are_searched() {
        let local = [tool("own", "")];
        let (few, _) = Offer::new(&local, &[source(3)], &[], 4);
        assert_eq!(names(&few.shown), ["s_0", "s_1", "s_2", "own"]);
        let (many, _) = Offer::new(&local, &[source(4)], &[], 4);
        assert_eq!(names(&many.shown), ["own", FIND_TOOLS, CALL_TOOL]);
        assert_eq!(many.all.len(), 5);
    }

    #[test]
    fn what_comes_with_the_agent_gives_way_to_what_the_host_has() {
        let ours = [tool("read_more", "ours")];
        let (offer, _) = Offer::new(&[tool("read_more", "the host's")], &[], &ours, 10);
        let description = offer.shown.get("read_more").and_then(|tool| tool.definition().description.as_deref());
        assert_eq!(description, Some("the host's"));
        assert!(!offer.reads_on(), "nobody is pointed to the host's");
        let (nothing, _) = Offer::new(&[], &[], &ours, 10);
        assert!(nothing.shown.is_empty(), "there is nothing to read more of");
    }

    #[tokio::test]
    async fn tools_are_found_by_words_and_called_by_name() {
        let (offer, _) = Offer::new(&[tool("a", "Sends a letter"), tool("b", "Boils water")], &[], &[], 1);
        let find = offer.shown.get(FIND_TOOLS).expect("find_tools");
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
            match offer.meant(&call(CALL_TOOL, arguments.clone())) {
                Meant::Tool { tool, arguments, is_own } => {
                    assert_eq!((tool.definition().name.as_str(), json!(arguments)), ("a", json!({"x": 1})));
                    assert!(!is_own, "somebody may have to be asked about it");
                }
                other => panic!("{arguments}: {other:?}"),
            }
        }
    }

    #[test]
    fn a_tool_that_was_found_may_be_called_by_its_own_name() {
        let (offer, _) = Offer::new(&[tool("a", ""), tool("b", "")], &[], &[], 1);
        assert!(
            matches!(offer.meant(&call("b", json!({}))), Meant::Tool { tool, .. } if tool.definition().name == "b")
        );
    }

    #[test]
    fn a_call_within_a_call_that_names_nothing_is_told_what_is_missing() {
        let (offer, _) = Offer::new(&[tool("a", ""), tool("b", "")], &[], &[], 1);
        let said = |arguments| match offer.meant(&call(CALL_TOOL, arguments)) {
            Meant::Nothing { error, .. } => error.to_string(),
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
    fn tools_of_others_that_have_the_names_of_ours_are_called_and_ours_have_other_names() {
        let local = [tool("find_tools", "theirs"), tool("call_tool", "theirs"), tool("ropeway_call_tool", "theirs")];
        let (offer, _) = Offer::new(&local, &[source(4)], &[], 3);
        let ours = ["ropeway_find_tools", "ropeway_call_tool_2"];
        assert_eq!(names(&offer.shown)[3..], ours);
        let described = |name: &str| {
            let tool = offer.shown.get(name).expect("a tool");
            tool.definition().description.clone().unwrap_or_default()
        };
        assert!(described(ours[0]).ends_with("call them with `ropeway_call_tool_2`."), "{}", described(ours[0]));
        assert_eq!(described(ours[1]), "Call a tool that `ropeway_find_tools` has found.");
        let meant = |name: &str, arguments| match offer.meant(&call(name, arguments)) {
            Meant::Tool { tool, is_own, .. } => (tool.definition().name.clone(), is_own),
            other => panic!("{other:?}"),
        };
        for name in ["find_tools", "call_tool"] {
            let theirs = (name.to_owned(), false);
            assert_eq!(meant(name, json!({"name": "s_0"})), theirs);
            assert_eq!(meant(ours[1], json!({"name": name})), theirs);
        }
        assert_eq!(meant(ours[0], json!({"query": "x"})), (ours[0].to_owned(), true));
        assert_eq!(meant(ours[1], json!({"name": "s_0"})), ("s_0".to_owned(), false));
    }

    #[test]
    fn only_tools_that_are_not_listed_are_counted_as_such() {
        let (offer, _) = Offer::new(&[tool("own", "")], &[source(4)], &[], 4);
        let description = offer.shown.get(FIND_TOOLS).and_then(|tool| tool.definition().description.as_deref());
        assert!(description.is_some_and(|it| it.contains("There are 4 tools that are not listed here.")));
    }

    #[test]
    fn broken_arguments_reach_no_tool() {
        let (offer, _) = Offer::new(&[tool("a", "")], &[], &[], 10);
        let mut broken = call("a", json!({}));
        broken.arguments = CallArguments::read("[1]");
        assert!(matches!(offer.meant(&broken), Meant::Nothing { name, .. } if name == "a"));
    }
}
