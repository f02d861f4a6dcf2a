//! The handlers for all methods, and the methods that the gateway answers itself.

use std::sync::Arc;

use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::client::{COMMANDS, ClientDescription, LogLevel, Principal};
use crate::method::Method;
use crate::request::calls;
use crate::request::errors::ErrorReply;
use crate::request::exchange::Dispatch;
use crate::request::listen;
use crate::request::lists;
use crate::request::reply::{Reply, ResultExtras};
use crate::request::requester::Requester;
use crate::request::subscribe;
use crate::request::tasks;
use crate::shared::GatewayShared;
use ropeway_mcp::MessageHandler;
use ropeway_mcp::protocol::{ClientParams, Era, LATEST_LEGACY, LEGACY_VERSIONS, MODERN, meta};

/// Maximum size of a client's capabilities, and of its name and version. Both are kept as long as its session, or for later
/// requests.
const MAX_DESCRIPTION_BYTES: usize = 16 << 10;

/// Handles a client's request after its era and version are checked.
pub(crate) fn handle(
    shared: &Arc<GatewayShared>,
    requester: Requester<'_>,
    method: Method,
    params: &ClientParams<'_>,
) -> Result<Dispatch, ErrorReply> {
    match method {
        Method::Initialize => Err(ErrorReply::invalid_request("the client is already initialized")),
        Method::Ping => Ok(pong(shared, requester.id)),
        Method::SetLevel => set_level(shared, &requester, params),
        Method::Discover => Ok(discover(shared, &requester)),
        Method::Listen => listen::listen(shared, &requester, params),
        Method::ListTools | Method::ListPrompts | Method::ListResources | Method::ListTemplates => {
            lists::list(shared, &requester, method, params)
        }
        Method::CallTool => calls::call_tool(shared, &requester, params),
        Method::GetPrompt => calls::get_prompt(shared, &requester, params),
        Method::ReadResource => calls::read_resource(shared, &requester, params),
        Method::Complete => calls::complete(shared, &requester, params),
        Method::Subscribe => subscribe::subscribe(shared, &requester, params),
        Method::Unsubscribe => subscribe::unsubscribe(shared, &requester, params),
        Method::GetTask | Method::UpdateTask | Method::CancelTask | Method::ListTasks | Method::TaskResult => {
            tasks::task(shared, &requester, method, params)
        }
    }
}

/// Answers `ping`.
pub(crate) fn pong(shared: &GatewayShared, id: &RawValue) -> Dispatch {
    done(shared, id, Era::Legacy, &json!({}), ResultExtras::default())
}

/// Responds with the gateway's own result.
fn done(shared: &GatewayShared, id: &RawValue, era: Era, result: &Value, extras: ResultExtras) -> Dispatch {
    let info = shared.info_text();
    let reply = Reply::for_client(id, result.to_string().into(), Era::Legacy, era, extras, Some(&info));
    Dispatch::Done { status: 200, reply }
}

/// Reads the description that a legacy client sends in `initialize`.
pub(crate) fn describe_client(params: &ClientParams<'_>) -> Result<ClientDescription, ErrorReply> {
    let requested =
        params.get("protocolVersion").and_then(|version| serde_json::from_str::<String>(version.get()).ok());
    let requested = requested.ok_or_else(|| ErrorReply::invalid_params("`protocolVersion` is missing"))?;
    let version = LEGACY_VERSIONS.iter().find(|version| **version == requested).unwrap_or(&LATEST_LEGACY);
    let object = |key: &str| params.get(key).map(RawValue::get).filter(|text| text.starts_with('{'));
    for key in ["capabilities", "clientInfo"] {
        check_description(key, object(key))?;
    }
    Ok(ClientDescription {
        version: (*version).into(),
        capabilities: object("capabilities").unwrap_or("{}").into(),
        info: object("clientInfo").unwrap_or(r#"{"name":"unknown","version":"0"}"#).into(),
    })
}

/// Checks the size of one part of a client's description.
pub(crate) fn check_description(key: &str, text: Option<&str>) -> Result<(), ErrorReply> {
    if text.is_some_and(|text| text.len() > MAX_DESCRIPTION_BYTES) {
        return Err(ErrorReply::invalid_params(format!("`{key}` is longer than {MAX_DESCRIPTION_BYTES} bytes")));
    }
    Ok(())
}

/// Answers `initialize`.
pub(crate) fn initialized(
    shared: &GatewayShared,
    id: &RawValue,
    (profile, principal): (&str, &Principal),
    client: &ClientDescription,
) -> Reply {
    let description = shared.describe(profile, principal, Era::Legacy);
    let mut result = json!({
        "protocolVersion": client.version,
        "capabilities": description.capabilities,
        "serverInfo": description.info,
        "_meta": {(meta::GATEWAY_ID): shared.switchboard.own_id()},
    });
    if let Some(instructions) = description.instructions {
        result["instructions"] = instructions.into();
    }
    Reply::result(id, result.to_string().into())
}

/// Answers `server/discover`.
fn discover(shared: &GatewayShared, requester: &Requester<'_>) -> Dispatch {
    let client = &requester.client;
    let description = shared.describe(&client.profile, &client.principal, Era::Modern);
    let mut result = json!({"supportedVersions": [MODERN], "capabilities": description.capabilities});
    if let Some(instructions) = description.instructions {
        result["instructions"] = instructions.into();
    }
    result["_meta"] = json!({(meta::SERVER_INFO): description.info, (meta::GATEWAY_ID): shared.switchboard.own_id()});
    if let Some(info) = description.only_server.filter(|_| client.isolation_key == COMMANDS) {
        result["_meta"][meta::SERVER_PROTOCOL] = json!({"era": info.era, "version": info.protocol_version});
    }
    done(shared, requester.id, Era::Modern, &result, ResultExtras::cacheable(0))
}

/// Sets a legacy client's log level.
fn set_level(
    shared: &Arc<GatewayShared>,
    requester: &Requester<'_>,
    params: &ClientParams<'_>,
) -> Result<Dispatch, ErrorReply> {
    let name = params.get("level").and_then(|level| serde_json::from_str::<String>(level.get()).ok());
    let name = name.ok_or_else(|| ErrorReply::invalid_params("`level` is missing"))?;
    let level = LogLevel::parse(&name).ok_or_else(|| ErrorReply::unknown_level(&name))?;
    shared.clients.set_log_level(&requester.client, level);
    shared.sessions.note_log_level(&requester.client, level);
    shared.update_log_levels();
    Ok(done(shared, requester.id, Era::Legacy, &json!({}), ResultExtras::default()))
}
