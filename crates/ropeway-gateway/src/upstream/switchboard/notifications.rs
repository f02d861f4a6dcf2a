//! Server notifications: each goes to the client that it belongs to, or to none.

use std::borrow::Cow;
use std::sync::{Arc, Weak};

use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::Switchboard;
use super::links::LinkView;
use crate::client::clients::ChangedList;
use crate::client::notification::notification;
use crate::client::outbound::{Frame, FrameKind};
use crate::client::{Client, LogLevel};
use crate::method::Method;
use crate::request::exchange::Exchange;
use ropeway_core::sync::lock;
use ropeway_mcp::protocol::Era;
use ropeway_mcp::{Callers, LinkKey, RequestTag};

/// How a notification is routed.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Route {
    /// A list has changed, for all clients.
    Changed(ChangedList),
    /// A resource has changed, for its subscribers.
    Updated,
    /// A log message.
    Log,
    /// A URL elicitation is complete, for the client that got it.
    ElicitationComplete,
    /// To the request that it belongs to.
    Request,
    /// To no client.
    None,
}

impl Route {
    fn of(method: &str) -> Self {
        match method {
            "notifications/tools/list_changed" => Self::Changed(ChangedList::Tools),
            "notifications/prompts/list_changed" => Self::Changed(ChangedList::Prompts),
            "notifications/resources/list_changed" => Self::Changed(ChangedList::Resources),
            "notifications/resources/updated" => Self::Updated,
            "notifications/message" => Self::Log,
            "notifications/elicitation/complete" => Self::ElicitationComplete,
            // It answers the gateway's own subscription, which may begin during a client's request.
            "notifications/subscriptions/acknowledged"
            // Servers do not send these.
            | "notifications/initialized"
            | "notifications/cancelled"
            | "notifications/progress"
            | "notifications/roots/list_changed"
            | "elicitation/create"
            | "sampling/createMessage"
            | "roots/list" => Self::None,
            // Clients use sealed task ids.
            method if method == "notifications/tasks" || method.starts_with("notifications/tasks/") => Self::None,
            method if Method::parse(method).is_some() => Self::None,
            _ => Self::Request,
        }
    }
}

impl Switchboard {
    /// Delivers a notification. Malformed ones are dropped.
    pub(super) fn route_notification(&self, key: LinkKey, method: &str, params: Option<&RawValue>, callers: &Callers) {
        let route = Route::of(method);
        // Its subscribers are found by the connection itself, which may not be known yet.
        if let (Route::Updated, Some(params)) = (route, params) {
            let params: Value = serde_json::from_str(params.get()).unwrap_or_default();
            if let (Some(uri), Some(subscriptions)) = (params["uri"].as_str(), self.subscriptions.upgrade()) {
                subscriptions.notify(key, uri);
            }
            return;
        }
        let Some(link) = self.link(key) else { return };
        match (route, params) {
            (Route::Changed(list), _) => {
                // The bridge only follows the tools on shared connections.
                let owner = link.client.as_ref().filter(|_| list == ChangedList::Tools).and_then(Weak::upgrade);
                owner.iter().for_each(|client| self.clients.notify_isolated(list, client));
                lock(&self.changed).extend(link.servers.into_iter().map(|server| (server, list)));
                self.changed_notify.notify_one();
            }
            (Route::Log, Some(params)) => self.log(&link, params, callers),
            (Route::ElicitationComplete, Some(params)) => {
                if !self.complete_elicitation(key, method, params) {
                    self.pass_on(&link, method, Some(params), callers);
                }
            }
            (Route::Request, params) => self.pass_on(&link, method, params, callers),
            (Route::Updated | Route::None, _) | (Route::Log | Route::ElicitationComplete, None) => {}
        }
    }

    /// Notifies the client that got a URL elicitation that it is complete. Returns `false` if the elicitation is unknown.
    fn complete_elicitation(&self, link: LinkKey, method: &str, params: &RawValue) -> bool {
        let value: Value = serde_json::from_str(params.get()).unwrap_or_default();
        let id = value.get("elicitationId").and_then(Value::as_str);
        let Some(elicitation) = id.and_then(|id| self.take_url_elicitation(link, id)) else { return false };
        let frame = Frame::new(FrameKind::Change, notification(method, params.get()));
        let exchange = elicitation.exchange.and_then(|key| self.exchanges.get(key));
        if let Some(exchange) = exchange {
            exchange.outbound.send(frame);
        } else if let Some(client) = elicitation.client.upgrade() {
            client.outbound.send(frame);
        }
        true
    }

    /// Delivers an unknown notification to the client whose request it belongs to, if that is certain.
    fn pass_on(&self, link: &LinkView, method: &str, raw: Option<&RawValue>, callers: &Callers) {
        let params = raw.map_or("{}", RawValue::get);
        if is_ambiguous(link, callers) || !params.starts_with('{') {
            return tracing::debug!(server = link.names(), "dropped a notification");
        }
        if let [exchange] = self.in_progress(&callers.keys).as_slice() {
            let server = link.server_of(Some(exchange.key));
            let sealed = raw.and_then(|params| self.with_sealed_task(&exchange.client, server, params));
            let params = sealed.as_deref().map_or(params, RawValue::get);
            exchange.outbound.send(Frame::new(FrameKind::Log, notification(method, params)));
        }
    }

    /// Delivers a log message to the client that it belongs to, if that client has requested log messages.
    ///
    /// A message on a request's stream belongs to that request. A modern server sends log messages only for requests that ask for
    /// them, so that others do not matter. Other messages belong to the client with requests in progress on the connection, if it
    /// is the only one that uses it, or, between requests, to the only client that has ever used it. All others are dropped,
    /// because they could reveal one client's calls to another.
    fn log(&self, link: &LinkView, params: &RawValue, callers: &Callers) {
        #[derive(Deserialize)]
        struct Message<'a> {
            #[serde(borrow)]
            level: Cow<'a, str>,
        }
        let Ok(message) = serde_json::from_str::<Message<'_>>(params.get()) else { return };
        // An unknown level counts as the most severe one.
        let level = LogLevel::parse(&message.level).unwrap_or(LogLevel::MAX);
        let frame = |client: &Client, exchange: Option<RequestTag>| {
            let sealed = self.with_sealed_task(client, link.server_of(exchange), params);
            let params = sealed.as_deref().unwrap_or(params);
            Frame::new(FrameKind::Log, notification("notifications/message", params.get()))
        };
        let mut exchanges = self.in_progress(&callers.keys);
        let mut is_shared = link.is_shared;
        if link.era == Some(Era::Modern) && !callers.is_certain {
            exchanges.retain(|exchange| link.logging.contains(&exchange.key));
            is_shared = link.is_log_shared;
        }
        exchanges.sort_by_key(|exchange| exchange.key);
        let Some(newest) = exchanges.last() else {
            let only = link.only_user.filter(|_| !callers.is_certain).and_then(|client| self.clients.get(client));
            if let Some(client) = only.filter(|client| client.wants_log(level)) {
                client.outbound.send(frame(&client, None));
            }
            return;
        };
        let client = &newest.client;
        let look_alike = client.is_anonymous && exchanges.len() > 1;
        let is_other = |exchange: &Arc<Exchange>| exchange.client.id != client.id;
        if (is_shared && !callers.is_certain) || look_alike || exchanges.iter().any(is_other) {
            return tracing::debug!(
                server = link.names(),
                "dropped a log message that could belong to several clients"
            );
        }
        if let Some(exchange) = exchanges.iter().rev().find(|exchange| exchange.wants_log(level)) {
            exchange.outbound.send(frame(&exchange.client, Some(exchange.key)));
        }
    }
}

/// Returns `true` if a message can belong to several clients.
fn is_ambiguous(link: &LinkView, callers: &Callers) -> bool {
    link.is_shared && !callers.is_certain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_get_no_notification_that_is_not_for_them() {
        let never = ["notifications/initialized", "tools/call", "roots/list", "notifications/tasks/status", "ping"];
        for method in never {
            assert_eq!(Route::of(method), Route::None, "{method}");
        }
        for method in ["notifications/odd", "codex/event"] {
            assert_eq!(Route::of(method), Route::Request, "{method}");
        }
    }
}
