//! A scripted server's methods.

use serde_json::{Value, json};

use super::call::{CallOutcome, ClientCall, MODERN, ScriptedError, TASKS};
use super::catalog;
use super::script::{PagingStyle, UnknownMethods};
use super::session::{Negotiated, ScriptedSession, Subscription};
use super::task::TaskState;
use super::tools;
use ropeway_mcp::protocol::Era;

impl ScriptedSession {
    pub(super) fn handle(&mut self, call: &ClientCall) -> CallOutcome {
        match (call.method.as_str(), call.era) {
            ("initialize", Era::Legacy) => self.initialize(call),
            ("ping", Era::Legacy) | ("logging/setLevel", Era::Legacy) => CallOutcome::Answer(json!({})),
            ("server/discover", Era::Modern) => self.discover(),
            ("tools/list", _) => {
                let script = self.scripted.script();
                let builtin =
                    if script.builtin_tools { tools::definitions(call.era, &call.version) } else { Vec::new() };
                let extra = script.extra_tools.into_iter().map(|tool| tool.definition);
                self.page(call, "tools", builtin.into_iter().chain(extra).collect())
            }
            ("tools/call", _) => tools::call(&self.scripted, call),
            ("resources/list", _) => self.page(call, "resources", catalog::resources()),
            ("resources/templates/list", _) => self.page(call, "resourceTemplates", catalog::templates()),
            ("resources/read", _) => {
                let code = if call.era == Era::Modern { -32602 } else { -32002 };
                let unknown =
                    || ScriptedError::new(code, "resource not found").with(json!({ "uri": call.text("uri") }));
                catalog::read(call.text("uri")).map_or_else(|| unknown().into(), CallOutcome::Answer)
            }
            ("resources/subscribe", Era::Legacy) => {
                self.subscribed.insert(call.text("uri").to_owned());
                CallOutcome::Answer(json!({}))
            }
            ("resources/unsubscribe", Era::Legacy) => {
                self.subscribed.remove(call.text("uri"));
                CallOutcome::Answer(json!({}))
            }
            ("prompts/list", _) => self.page(call, "prompts", catalog::prompts()),
            ("prompts/get", _) => {
                let arguments = call.params.get("arguments").and_then(Value::as_object).cloned().unwrap_or_default();
                let unknown = || ScriptedError::new(-32602, "no such prompt, or an argument is missing");
                catalog::prompt(call.text("name"), &arguments).map_or_else(|| unknown().into(), CallOutcome::Answer)
            }
            ("completion/complete", _) => CallOutcome::Answer(catalog::complete(&call.params)),
            ("subscriptions/listen", Era::Modern) => {
                let wanted = call.params.get("notifications").cloned().unwrap_or_else(|| json!({}));
                self.listening.push(Subscription { call: call.clone(), wanted: wanted.clone() });
                CallOutcome::Silence
            }
            ("tasks/get" | "tasks/result" | "tasks/cancel" | "tasks/update" | "tasks/list", _) => {
                self.handle_task(call)
            }
            _ => match self.scripted.script().unknown_methods {
                UnknownMethods::MethodNotFound => {
                    ScriptedError::new(-32601, format!("unknown method `{}`", call.method)).into()
                }
                UnknownMethods::InvalidParams => ScriptedError::new(-32602, "Invalid request parameters").into(),
                UnknownMethods::Silence => CallOutcome::Silence,
                UnknownMethods::Exit => CallOutcome::Exit(1),
            },
        }
    }

    fn initialize(&mut self, call: &ClientCall) -> CallOutcome {
        let script = self.scripted.script();
        let asked_for = call.text("protocolVersion");
        let version = script.legacy_versions.iter().find(|version| *version == asked_for);
        let version = version.or(script.legacy_versions.first()).cloned().unwrap_or_default();
        let mut capabilities = capabilities();
        capabilities["logging"] = json!({});
        if version == "2025-11-25" {
            capabilities["tasks"] = json!({ "list": {}, "cancel": {}, "requests": { "tools": { "call": {} } } });
        }
        let mut result = json!({ "protocolVersion": version, "capabilities": capabilities,
            "serverInfo": { "name": script.name, "version": "1.0.0" } });
        if let Some(instructions) = script.instructions {
            result["instructions"] = json!(instructions);
        }
        let capabilities = call.params.get("capabilities").cloned().unwrap_or_default();
        self.negotiated = Some(Negotiated { version, capabilities });
        CallOutcome::Answer(result)
    }

    fn discover(&self) -> CallOutcome {
        let script = self.scripted.script();
        let mut capabilities = capabilities();
        capabilities["extensions"] = json!({ TASKS: {} });
        let mut result = json!({ "supportedVersions": [MODERN], "capabilities": capabilities });
        if let Some(instructions) = script.instructions {
            result["instructions"] = json!(instructions);
        }
        CallOutcome::Answer(result)
    }

    /// Returns one page of a list.
    fn page(&self, call: &ClientCall, key: &str, items: Vec<Value>) -> CallOutcome {
        let script = self.scripted.script();
        let size = script.page_size.unwrap_or(usize::MAX).max(1);
        let page = match call.params.get("cursor") {
            None => Some(0),
            Some(Value::String(cursor)) => cursor.strip_prefix("page-").and_then(|page| page.parse().ok()),
            Some(cursor) => cursor.as_u64().and_then(|page| usize::try_from(page).ok()),
        };
        let Some(page) = page else {
            return ScriptedError::new(-32602, "no such cursor").into();
        };
        let endless = matches!(script.paging, PagingStyle::Endless | PagingStyle::Repeated);
        let begin = if endless { 0 } else { page.saturating_mul(size) };
        let shown: Vec<Value> = items.iter().skip(begin).take(size).cloned().collect();
        let mut result = json!({ key: shown });
        if endless || begin.saturating_add(size) < items.len() {
            result["nextCursor"] = match script.paging {
                PagingStyle::Repeated => json!("page-1"),
                PagingStyle::NumericCursors => json!(page + 1),
                PagingStyle::Honest | PagingStyle::Endless => json!(format!("page-{}", page + 1)),
            };
        }
        CallOutcome::Answer(result)
    }

    fn handle_task(&self, call: &ClientCall) -> CallOutcome {
        if call.method == "tasks/list" {
            let tasks: Vec<Value> = self.scripted.tasks(|tasks| tasks.values().map(|task| task.legacy()).collect());
            return CallOutcome::Answer(json!({ "tasks": tasks }));
        }
        let task = self.scripted.tasks(|tasks| {
            let task = tasks.get_mut(call.text("taskId"))?;
            match call.method.as_str() {
                "tasks/cancel" => task.state = TaskState::Cancelled,
                "tasks/update" if task.state == TaskState::Asking => task.state = TaskState::Running,
                _ => {}
            }
            Some(task.clone())
        });
        let Some(task) = task else {
            return ScriptedError::new(-32602, format!("no task `{}`", call.text("taskId"))).into();
        };
        match (call.method.as_str(), call.era) {
            ("tasks/get", Era::Modern) => CallOutcome::Answer(task.modern_detailed()),
            ("tasks/cancel" | "tasks/update", Era::Modern) => CallOutcome::Answer(json!({})),
            ("tasks/get" | "tasks/cancel", Era::Legacy) => CallOutcome::Answer(task.legacy()),
            ("tasks/result", Era::Legacy) => match task.state {
                TaskState::Cancelled => ScriptedError::new(-32602, "the task was cancelled").into(),
                TaskState::Failing => ScriptedError::new(-32603, "the task failed").into(),
                TaskState::Running | TaskState::Asking => {
                    let mut answer = task.result.clone();
                    answer["_meta"] = json!({ "io.modelcontextprotocol/related-task": { "taskId": task.id } });
                    CallOutcome::Steps { before: vec![(task.remaining(), None)], answer }
                }
            },
            _ => ScriptedError::new(-32601, format!("unknown method `{}`", call.method)).into(),
        }
    }
}

fn capabilities() -> Value {
    json!({
        "tools": { "listChanged": true },
        "resources": { "subscribe": true, "listChanged": true },
        "prompts": { "listChanged": true },
        "completions": {},
    })
}
