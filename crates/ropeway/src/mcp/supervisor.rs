//! The task of a connection: connects, stays connected, and ends it all in good order.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::fault::{ConnectErrorKind, Fault};
use super::handshake;
use super::inbox::Clocks;
use super::pace::Backoff;
use super::session::Session;
use super::shared::{ConnectionState, Shared};
use super::tools;
use super::transport::Request;
use crate::config::MAX_TIMEOUT;
use crate::protocol::Era;
use crate::tool::CallContext;

/// A session that lived this long was a good one: the next try is the first again.
const GOOD_LIFE: Duration = Duration::from_secs(10);

/// How many sessions in a row may be forgotten before the next one has to wait its turn.
const MOST_FORGOTTEN: u32 = 3;

/// How long changes of the tool list are gathered before it is fetched again, and how far that wait grows while they keep
/// coming. Callers that ask for the list get the newest one at any time.
const GATHER: Duration = Duration::from_millis(50);
const LONGEST_GATHER: Duration = Duration::from_secs(30);

/// The wait before a subscription that ended is made again, and how far it grows.
const FIRST_LISTEN: Duration = Duration::from_millis(200);
const LONGEST_LISTEN: Duration = Duration::from_secs(30);

/// How many failures count when a call waits for the server: it must not wait for the longest pause.
const MOST_WANTED_FAILURES: u32 = 3;

/// What the owner may ask of the task; when the owner goes, the channel closes.
#[derive(Debug)]
pub(crate) enum Order {
    /// Try again now.
    Retry,
}

/// Runs until the owner closes the channel.
pub(crate) async fn run(shared: Arc<Shared>, mut orders: mpsc::UnboundedReceiver<Order>) {
    let _farewell = Farewell(&shared);
    let mut failures = 0;
    let mut short_lives = 0;
    loop {
        shared.enter(ConnectionState::Connecting { failures });
        let connecting = handshake::connect(&shared.config, &shared.host, shared.era());
        let outcome = tokio::select! {
            outcome = connecting => outcome,
            () = closed(&mut orders) => break,
        };
        let (cause, pause) = match outcome {
            Ok(session) => {
                let born = Instant::now();
                let session = Arc::new(session);
                failures = 0;
                // Asked before anyone can list the tools of the new session, whose list needs no renewal.
                let has_old_tools = shared.tools().is_some();
                shared.remember_era(Some(session.era()));
                shared.set_session(Some(session.clone()));
                shared.enter(ConnectionState::Ready { server: session.info.clone() });
                let lost = tokio::select! {
                    cause = session.link.lost() => Some(cause),
                    () = closed(&mut orders) => None,
                    () = care(&shared, &session, has_old_tools) => None,
                };
                shared.set_session(None);
                shared.host.hush();
                let Some(cause) = lost else {
                    session.link.close(shared.config.timeouts.close).await;
                    break;
                };
                // A server that is lost as soon as it is ready must not be started over and over without a pause.
                let before = if born.elapsed() >= GOOD_LIFE { 0 } else { short_lives };
                short_lives = before + 1;
                // The server is there and only wants to be greeted again, unless it forgets every greeting.
                if matches!(*cause, ConnectErrorKind::SessionExpired) && before < MOST_FORGOTTEN {
                    continue;
                }
                (cause, before)
            }
            Err(cause) => {
                // What was remembered may be what is wrong.
                shared.remember_era(None);
                failures += 1;
                (cause, failures.max(short_lives))
            }
        };
        if !rest(&shared, &mut orders, cause, pause).await {
            break;
        }
    }
}

/// However the task ends, nobody is left waiting for it.
struct Farewell<'a>(&'a Shared);

impl Drop for Farewell<'_> {
    fn drop(&mut self) {
        self.0.set_session(None);
        self.0.host.hush();
        self.0.enter(ConnectionState::Closed);
    }
}

/// Waits until it is time for the next try after so many failures; false when there will be none.
async fn rest(
    shared: &Shared,
    orders: &mut mpsc::UnboundedReceiver<Order>,
    cause: Arc<ConnectErrorKind>,
    failures: u32,
) -> bool {
    if let ConnectErrorKind::NeedsAuth { challenge } = &*cause {
        shared.enter(ConnectionState::NeedsAuth { challenge: challenge.clone() });
        return orders.recv().await.is_some();
    }
    if !shared.config.reconnect.enabled {
        shared.enter(ConnectionState::Down { cause, retry_at: None });
        return orders.recv().await.is_some();
    }
    let pause = shared.pause(failures);
    shared.enter(ConnectionState::Down { cause, retry_at: Some(std::time::Instant::now() + pause) });
    let soonest = shared.pause(failures.min(MOST_WANTED_FAILURES));
    let cut_short = async {
        shared.wanted.notified().await;
        tokio::time::sleep(soonest).await;
    };
    tokio::select! {
        () = tokio::time::sleep(pause) => true,
        () = cut_short => true,
        order = orders.recv() => order.is_some(),
    }
}

/// Waits until the owner is gone; orders to retry mean nothing here.
async fn closed(orders: &mut mpsc::UnboundedReceiver<Order>) {
    while orders.recv().await.is_some() {}
}

/// What a session needs while it lives: a fresh tool list, and word of changes. Never ends.
async fn care(shared: &Arc<Shared>, session: &Arc<Session>, has_old_tools: bool) {
    tokio::join!(keep_tools(shared, has_old_tools), keep_subscribed(shared, session));
    std::future::pending().await
}

/// Fetches the tool list again whenever it has changed.
async fn keep_tools(shared: &Arc<Shared>, has_old_tools: bool) {
    if has_old_tools {
        // The server may be another one than before.
        refresh(shared).await;
    }
    let mut backoff = Backoff::new(GATHER, LONGEST_GATHER);
    loop {
        shared.host.tools_stale.notified().await;
        tokio::time::sleep(backoff.next_wait()).await;
        match shared.tools() {
            // Somebody else may have been quicker.
            Some(list) if list.is_fresh(shared.host.tools_changed()) => {}
            Some(_) => refresh(shared).await,
            None => shared.tell_tools_changed(),
        }
    }
}

async fn refresh(shared: &Arc<Shared>) {
    if let Err(error) = tools::fetch(shared, &CallContext::default()).await {
        shared.host.warn(&format!("the tool list could not be renewed: {}", super::shared::chain(&error)));
    }
}

/// Asks the server to tell changes, in its era's way, and asks again when what we want has changed.
async fn keep_subscribed(shared: &Arc<Shared>, session: &Arc<Session>) {
    match session.era() {
        Era::Legacy => {
            let mut told = std::collections::BTreeSet::new();
            loop {
                let wanted = subscriptions(shared);
                for (method, uris) in [
                    ("resources/subscribe", wanted.difference(&told)),
                    ("resources/unsubscribe", told.difference(&wanted)),
                ] {
                    for uri in uris {
                        let params = json!({"uri": uri}).to_string();
                        let request = Request { idempotent: true, ..Request::new(method, params.as_bytes()) };
                        let cx = CallContext::default();
                        if let Err(fault) = session.request(&request, &cx, shared.clocks(&cx)).await {
                            shared.host.warn(&format!("`{method}` of `{uri}` failed: {fault}"));
                        }
                    }
                }
                told = wanted;
                shared.subscriptions_changed.notified().await;
            }
        }
        Era::Modern => listen(shared, session).await,
    }
}

fn subscriptions(shared: &Shared) -> std::collections::BTreeSet<String> {
    shared.subscriptions.lock().unwrap_or_else(std::sync::PoisonError::into_inner).clone()
}

async fn listen(shared: &Arc<Shared>, session: &Arc<Session>) {
    let mut backoff = Backoff::new(FIRST_LISTEN, LONGEST_LISTEN);
    loop {
        let info = &session.info;
        let mut filter = serde_json::Map::new();
        for (capability, name) in
            [("tools", "toolsListChanged"), ("prompts", "promptsListChanged"), ("resources", "resourcesListChanged")]
        {
            if info.can(&[capability, "listChanged"]) {
                filter.insert(name.to_owned(), true.into());
            }
        }
        let uris = subscriptions(shared);
        if !uris.is_empty() {
            filter.insert("resourceSubscriptions".to_owned(), json!(uris));
        }
        if filter.is_empty() {
            shared.subscriptions_changed.notified().await;
            continue;
        }
        let params = json!({"notifications": filter}).to_string();
        let request = Request { standing: true, ..Request::new("subscriptions/listen", params.as_bytes()) };
        let cx = CallContext::default();
        let started = Instant::now();
        let changed = async {
            while subscriptions(shared) == uris {
                shared.subscriptions_changed.notified().await;
            }
        };
        let ended = tokio::select! {
            outcome = session.request(&request, &cx, endless(started)) => Some(outcome),
            () = changed => None,
        };
        match ended {
            None => continue,
            // The server does not know it after all.
            Some(Err(Fault::Refused(_))) => return,
            Some(_) => {}
        }
        tokio::time::sleep(backoff.next_wait()).await;
        // What changed while nobody listened is not known.
        shared.host.change_all();
    }
}

/// The clocks of a request that stays open by design.
fn endless(started: Instant) -> Clocks {
    Clocks { idle: MAX_TIMEOUT, deadline: started + MAX_TIMEOUT, started }
}
