//! Tests of routes: names, filters, search, and servers that are missing.

use serde_json::json;

use super::*;
use crate::request::search;
use ropeway_bridge::registry::ToolShape;
use ropeway_config::{PrefixMode, ProfileSettings, ServerConfig, StdioServer, ToolOverride, ToolSettings};
use ropeway_core::tool::Origin;

/// A tool of a server, whose arguments the server gets unchanged.
struct ServerTool(ToolDefinition);

impl Tool for ServerTool {
    fn definition(&self) -> &ToolDefinition {
        &self.0
    }

    fn argument_mapping(&self) -> ArgumentMapping {
        ArgumentMapping::Verbatim
    }

    fn call<'a>(&'a self, _: Arguments, _: &'a CallContext) -> BoxFuture<'a, Result<ToolOutput, CallError>> {
        Box::pin(async { Err(CallError::Cancelled) })
    }
}

fn definition(server: &str, name: &str) -> ToolDefinition {
    let schema = json!({"type": "object", "properties": {"path": {"type": "string"}, "mode": {"type": "string"}}});
    let mut definition = ToolDefinition::new(name).with_description(format!("Tool {name}.")).with_input_schema(schema);
    definition.origin = Origin::Server { server: server.into(), tool: name.into() };
    definition
}

fn entry(alias: &str) -> ServerEntry {
    ServerEntry::new(ServerConfig::new(alias, StdioServer::command("x")))
}

fn view_of(entry: ServerEntry, definitions: Vec<ToolDefinition>) -> ServerView {
    let status = ServerStatus::new(entry.alias.clone(), ServerState::Ready { tools: definitions.len() });
    let tools: Vec<Arc<dyn Tool>> = definitions.into_iter().map(|tool| Arc::new(ServerTool(tool)) as _).collect();
    disconnected(entry, status, &tools)
}

/// The view of a server that is not connected.
fn disconnected(entry: ServerEntry, status: ServerStatus, tools: &[Arc<dyn Tool>]) -> ServerView {
    let shape = ToolShape::new(&entry).expect("globs");
    let tools = shape.apply_all(tools.iter().cloned());
    ServerView {
        alias: entry.alias.clone(),
        entry: Arc::new(entry),
        status,
        mcp: None,
        tools,
        version: 1,
        slot: 1,
        shape,
    }
}

fn view(alias: &str, tools: &[&str]) -> ServerView {
    view_of(entry(alias), tools.iter().map(|tool| definition(alias, tool)).collect())
}

fn down(alias: &str, state: ServerState) -> ServerView {
    disconnected(entry(alias), ServerStatus::new(alias, state), &[])
}

fn router(settings: &GatewaySettings, views: &[ServerView], profile: &str) -> Arc<Router> {
    RouterSet::build(settings, views, None).get(profile).expect("a profile")
}

fn names(router: &Router) -> Vec<&str> {
    router.tool_entries().iter().map(|entry| &*entry.name).collect()
}

/// Returns where a call goes: the server and its own name of the tool.
fn target<'a>(router: &'a Router, name: &str) -> Option<(&'a str, &'a str)> {
    router.tool(name).map(|route| (route.server.as_str(), &*route.own_name))
}

#[test]
fn one_server_keeps_its_own_names() {
    let settings = GatewaySettings::default();
    let views = [view("web", &["search", "files/read.v2", "ünïcode"])];
    for profile in ["default", "web"] {
        let router = router(&settings, &views, profile);
        assert_eq!(names(&router), ["search", "files/read.v2", "ünïcode"]);
        assert_eq!(target(&router, "files/read.v2"), Some(("web", "files/read.v2")));
        let expected = wire_definition_text(&definition("web", "files/read.v2"));
        assert_eq!(&*router.tool_entries()[1].json, expected);
    }
}

#[test]
fn two_servers_get_prefixes() {
    let mut own = entry("git");
    own.prefix = "g-".to_owned();
    let git = view_of(own, vec![definition("git", "log")]);
    let views = [view("web", &["search", "log"]), git];
    let settings = GatewaySettings::default();
    let all = router(&settings, &views, "default");
    assert_eq!(names(&all), ["web_search", "web_log", "g-log"]);
    assert_eq!((target(&all, "g-log"), target(&all, "log")), (Some(("git", "log")), None));
    assert_eq!(all.nearest_tools("web_serch"), ["web_search"]);
    assert_eq!(names(&router(&settings, &views, "git")), ["log"]);
    let never = router(&settings.clone().with_prefix(PrefixMode::Never), &views, "default");
    assert_eq!(names(&never), ["search", "log", "g-log"]);
    assert_eq!((target(&never, "log"), target(&never, "g-log")), (Some(("web", "log")), Some(("git", "log"))));
    let always = router(&settings.with_prefix(PrefixMode::Always), &views[..1], "default");
    assert_eq!(names(&always), ["web_search", "web_log"]);
}

#[test]
fn names_do_not_depend_on_which_servers_are_up() {
    let settings = GatewaySettings::default();
    let states = [
        ServerState::Connecting,
        ServerState::NotStarted,
        ServerState::NeedsAuth,
        ServerState::Down { cause: "x".into() },
        ServerState::Skipped { secrets: vec!["A".into()] },
        ServerState::FilteredToZero { of: 3 },
    ];
    let up = router(&settings, &[view("web", &["search"]), view("git", &["log"])], "default");
    assert_eq!(names(&up), ["web_search", "git_log"]);
    for state in states {
        let router = router(&settings, &[view("web", &["search"]), down("git", state.clone())], "default");
        assert_eq!(names(&router), ["web_search"], "{state:?}");
    }
    // A disabled server is not part of the configuration.
    let mut disabled = entry("git");
    disabled.enabled = false;
    let disabled = disconnected(disabled, ServerStatus::new("git", ServerState::Disabled), &[]);
    assert_eq!(names(&router(&settings, &[view("web", &["search"]), disabled], "default")), ["search"]);
}

#[test]
fn a_profile_filters_and_renames() {
    let change = |name: Option<&str>, hide: &[&str]| ToolOverride {
        name: name.map(str::to_owned),
        hide: hide.iter().map(ToString::to_string).collect(),
        ..ToolOverride::default()
    };
    let tools = ToolSettings::default()
        .with_allow(["read_*", "git.*"].map(str::to_owned).to_vec())
        .with_deny(["*.read_secret".to_owned()].to_vec())
        .with_overrides(vec![
            ("files.read_file".to_owned(), change(Some("open"), &["mode"])),
            ("log".to_owned(), change(Some("history"), &[])),
        ]);
    let coding = ProfileSettings::new("coding")
        .with_servers(vec!["files".into(), "git".into()])
        .with_tools(tools)
        .with_prefix(PrefixMode::Never);
    let mut renaming = entry("git");
    renaming.tools.overrides.push(("status".to_owned(), change(Some("state"), &[])));
    let git = view_of(renaming, vec![definition("git", "log"), definition("git", "status")]);
    let files = view("files", &["read_file", "read_secret", "write_file"]);
    let views = [files, git, view("web", &["read_page"])];
    let settings = GatewaySettings::default().with_profile(coding);
    let router = router(&settings, &views, "coding");
    assert_eq!(names(&router), ["open", "history", "state"]);
    assert_eq!(router.servers(), ["files", "git"].map(Alias::from));
    assert_eq!(target(&router, "open"), Some(("files", "read_file")));
    assert_eq!(target(&router, "state"), Some(("git", "status")));
    let mapping = |name: &str| router.tool(name).map(|route| route.mapping);
    assert_eq!((mapping("open"), mapping("history")), (Some(ArgumentMapping::Mapped), Some(ArgumentMapping::Verbatim)));
    let mut arguments = json!({"path": "/", "mode": "x"}).as_object().cloned().expect("an object");
    router.tool("open").expect("a tool").tool.map_arguments(&mut arguments);
    assert_eq!(Value::Object(arguments), json!({"path": "/"}));
    let listed: Value = serde_json::from_str(&router.tool_entries()[0].json).expect("JSON");
    assert_eq!(listed["inputSchema"]["properties"], json!({"path": {"type": "string"}}));
    // Other profiles are not affected.
    let all = RouterSet::build(&settings, &views, None).get("default").expect("a profile");
    assert_eq!(all.tool_entries().len(), 6);
}

#[test]
fn a_list_names_the_servers_that_are_missing() {
    let views = [
        view("web", &["search"]),
        down("git", ServerState::Down { cause: "could not start `git`".into() }),
        down("empty", ServerState::Ready { tools: 0 }),
        down("filtered", ServerState::FilteredToZero { of: 2 }),
        down("keys", ServerState::Skipped { secrets: vec!["A".into(), "B".into()] }),
        down("slow", ServerState::Connecting),
        down("locked", ServerState::Hidden { of: 2 }),
    ];
    let router = router(&GatewaySettings::default(), &views, "default");
    assert_eq!(
        json!(router.missing_tools()),
        json!([
            {"alias": "git", "state": "down", "reason": "could not start `git`"},
            {"alias": "keys", "state": "skipped", "reason": "secrets are not set: A, B"},
            {"alias": "slow", "state": "connecting"},
            {"alias": "locked", "state": "hidden", "reason": "`ropeway lock` has not accepted its tools (2)"},
        ])
    );
    // The tools of a server that is being reconnected stay listed.
    let mut lost = view("web", &["search"]);
    lost.status = ServerStatus::new("web", ServerState::Down { cause: "x".into() });
    let router = RouterSet::build(&GatewaySettings::default(), &[lost], None).get("web").expect("a profile");
    assert_eq!((names(&router), router.missing_tools()), (vec!["search"], Vec::new()));
}

#[test]
fn a_search_profile_lists_two_tools() {
    let all = ProfileSettings::new("all").with_search(true);
    let settings = GatewaySettings::default().with_profile(all);
    let views = [view("web", &["search_pages", "fetch"]), view("git", &["log"])];
    let router = router(&settings, &views, "all");
    assert_eq!(names(&router), ["find_tools", "call_tool"]);
    assert!(router.is_search());
    assert_eq!(target(&router, "git_log"), Some(("git", "log")));
    let found = search::find_tools(&router, br#"{"query":"search pages"}"#).expect("a result");
    let found: Value = serde_json::from_str(&found).expect("JSON");
    let tools: Value = serde_json::from_str(found["content"][0]["text"].as_str().expect("text")).expect("JSON");
    assert_eq!(tools[0]["name"], "web_search_pages");
    for invalid in [&b""[..], b"[]", b"{}", br#"{"query":1}"#] {
        assert_eq!(search::find_tools(&router, invalid).expect_err("no result").code, -32602);
    }
}

#[test]
fn two_servers_with_one_user_interface_are_kept_apart() {
    let tool = |server: &str, uri: &str| {
        let mut definition = definition(server, "show");
        definition.meta = json!({"ui": {"resourceUri": uri}, "x": 1}).as_object().cloned();
        definition
    };
    let one = view_of(entry("one"), vec![tool("one", "ui://panel"), tool("one", "ui://panel")]);
    let two = view_of(entry("two"), vec![tool("two", "ui://panel")]);
    let router = router(&GatewaySettings::default(), &[one, two], "default");
    let uris: Vec<Value> =
        router.tool_entries().iter().map(|entry| serde_json::from_str(&entry.json).expect("JSON")).collect();
    let uris: Vec<&str> = uris.iter().filter_map(|tool| tool["_meta"]["ui"]["resourceUri"].as_str()).collect();
    assert_eq!(uris, ["ui://panel", "ui://panel", "ropeway://two/ui://panel"]);
}

#[test]
fn routers_of_unchanged_servers_are_shared() {
    let settings = GatewaySettings::default();
    let views = || [view("web", &["search"]), view("git", &["log"])];
    let before = RouterSet::build(&settings, &views(), None);
    let same = RouterSet::build(&settings, &views(), Some(&before));
    let mut changed = views();
    changed[1].version = 2;
    let after = RouterSet::build(&settings, &changed, Some(&before));
    let id = |set: &RouterSet, name: &str| set.get(name).map(|router| router.id);
    for profile in ["default", "web", "git"] {
        assert_eq!(id(&before, profile), id(&same, profile));
    }
    assert_eq!(id(&before, "web"), id(&after, "web"));
    assert_ne!(id(&before, "git"), id(&after, "git"));
    assert!(before.get("git").expect("a router").has_same_tools(&after.get("git").expect("a router")));
    assert!(before.get("git").expect("a router").is_outdated(&changed));
    assert!(!before.get("web").expect("a router").is_outdated(&changed));
    assert_eq!(before.select(&Selector::Named("other".into())), None);
    assert_eq!(before.select(&Selector::All).as_deref(), Some("default"));
}

#[test]
fn header_params_and_tasks_are_read_from_definitions() {
    let mut tool = definition("web", "query").with_input_schema(json!({
        "type": "object", "properties": {"region": {"type": "string", "x-mcp-header": "Region"}}}));
    tool.extra.insert("execution".to_owned(), json!({"taskSupport": "required"}));
    let views = [view_of(entry("web"), vec![tool, definition("web", "plain")])];
    let router = router(&GatewaySettings::default(), &views, "default");
    let route = |name: &str| router.tool(name).expect("a route").clone();
    assert!(!route("query").headers.is_empty() && route("query").has_header_params && route("query").needs_task);
    assert!(route("plain").headers.is_empty() && !route("plain").has_header_params && !route("plain").needs_task);
}
