//! Turns a request into its response.

use serde_json::{Value, json};

use crate::call::{Call, Interrupt, Outcome};
use crate::server::server_info;
use crate::wire::{Era, LEVELS, METHOD_NOT_FOUND, RpcError, SERVER_INFO, TASKS, response};
use crate::{content, task_methods, tools};

const INSTRUCTIONS: &str = "The reference server of the conformance tests.";

/// Runs a request and returns its response.
pub async fn respond(call: &Call) -> Value {
    let outcome = match handle(call).await {
        Ok(result) => Ok(result),
        Err(Interrupt::InputRequired(result)) => Ok(result),
        Err(Interrupt::Error(error)) => Err(error),
    };
    match outcome {
        Ok(result) => response(&call.id, complete(call, result)),
        Err(error) => error.response(&call.id),
    }
}

async fn handle(call: &Call) -> Outcome {
    Ok(match (call.method.as_str(), call.era) {
        ("tools/list", _) => tools::list(call),
        ("tools/call", _) => return tools::run(call).await,
        ("prompts/list", _) => content::prompts(call),
        ("prompts/get", _) => return content::prompt(call).await,
        ("resources/list", _) => content::resources(),
        ("resources/templates/list", _) => content::templates(),
        ("resources/read", _) => return content::resource(call),
        ("completion/complete", _) => content::completion(call),
        ("server/discover", Era::Modern) => json!({
            "supportedVersions": [crate::wire::MODERN], "capabilities": capabilities(Era::Modern),
            "instructions": INSTRUCTIONS,
        }),
        ("tasks/get" | "tasks/update" | "tasks/cancel", Era::Modern) => return task_methods::handle(call),
        ("ping", Era::Legacy) => json!({}),
        ("logging/setLevel", Era::Legacy) => {
            let level = LEVELS.iter().position(|level| *level == call.text("level"));
            let level = level.ok_or_else(|| RpcError::new(-32602, "unknown log level"))?;
            *crate::server::lock(&call.log_level) = level;
            json!({})
        }
        (method, _) => return Err(RpcError::new(METHOD_NOT_FOUND, format!("unknown method `{method}`")).into()),
    })
}

/// Adds the members that the modern era requires in every result.
fn complete(call: &Call, mut result: Value) -> Value {
    if call.era == Era::Modern {
        if result.get("resultType").is_none() {
            result["resultType"] = json!("complete");
        }
        let method = call.method.as_str();
        if method == "server/discover" || method == "resources/read" || method.ends_with("/list") {
            result["ttlMs"] = json!(0);
            result["cacheScope"] = json!("private");
        }
        result["_meta"] = json!({ SERVER_INFO: server_info() });
    }
    result
}

/// Returns the `initialize` result.
pub fn initialize(version: &str) -> Value {
    json!({ "protocolVersion": version, "capabilities": capabilities(Era::Legacy), "serverInfo": server_info(),
        "instructions": INSTRUCTIONS })
}

fn capabilities(era: Era) -> Value {
    let mut capabilities = json!({
        "tools": { "listChanged": true }, "prompts": { "listChanged": true },
        "resources": { "subscribe": true, "listChanged": false }, "completions": {}, "logging": {},
    });
    if era == Era::Modern {
        capabilities["extensions"] = json!({ TASKS: {} });
    }
    capabilities
}
