//! Clients that watch a resource: over a legacy session's stream, and with `subscriptions/listen`.

use std::time::{Duration, Instant};

use anyhow::Result;
use ropeway_peers::http_client::{LoadClient, LoadEra};
use ropeway_peers::message_stream::MessageStream;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::mpsc::{self, Receiver};
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::{Counts, Planned, attempt, now, open, print_failure};

/// Time between two changes.
const PAUSE: Duration = Duration::from_millis(700);
/// Maximum time until a change arrives.
const ARRIVAL: Duration = Duration::from_secs(5);
/// Maximum messages that wait for the watcher.
const WAITING: usize = 256;

/// A resource, and the tool that changes it.
#[derive(Clone, Debug, Deserialize)]
pub struct Watch {
    server: String,
    tool: String,
    uri: String,
}

/// Watches and changes a resource until the end. Each change has to arrive.
pub async fn run(url: String, era: LoadEra, watch: Watch, end: Instant) -> Result<Counts> {
    let mut counts = Counts::default();
    let mut client = LoadClient::new(&url, era)?.with_identity("watcher", json!({}));
    let change = Planned {
        server: watch.server.clone(),
        tool: watch.tool.clone(),
        arguments: json!({ "uri": watch.uri }),
        expect: String::new(),
    };
    while Instant::now() < end {
        open(&mut client, &mut counts).await?;
        counts.sessions += 1;
        let started = now();
        // Dropping the set ends the stream's reader.
        let mut reading = JoinSet::new();
        let subscribed = timeout(super::TIMEOUT, subscribe(&mut client, era, &watch, &mut reading)).await;
        let mut messages = match subscribed {
            Ok(Ok(messages)) => messages,
            Ok(Err(reason)) => {
                counts.failed += 1;
                print_failure(&watch.server, era, started, &format!("no subscription: {reason}"));
                tokio::time::sleep(PAUSE).await;
                continue;
            }
            Err(_) => {
                counts.failed += 1;
                print_failure(&watch.server, era, started, "no subscription: no answer");
                continue;
            }
        };
        counts.streams += 1;
        watch_stream(&mut client, era, &watch, &change, &mut messages, &mut counts, end).await;
        // The gateway may be restarting.
        let _ = client.close().await;
    }
    Ok(counts)
}

/// Changes the resource again and again, until the stream ends or a change does not arrive.
async fn watch_stream(
    client: &mut LoadClient,
    era: LoadEra,
    watch: &Watch,
    change: &Planned,
    messages: &mut Receiver<Value>,
    counts: &mut Counts,
    end: Instant,
) {
    while Instant::now() < end {
        let paused = now();
        tokio::time::sleep(PAUSE).await;
        while messages.try_recv().is_ok() {}
        if messages.is_closed() {
            // Noticed before the next change, which can take long while a new gateway's servers start.
            counts.failed += 1;
            print_failure(&watch.server, era, paused, "the stream ended");
            return;
        }
        let started = now();
        counts.calls += 1;
        let waits = counts.waits;
        if let Err(reason) = attempt(client, Some(change), counts).await {
            counts.failed += 1;
            counts.unanswered += u64::from(reason.starts_with(super::UNANSWERED));
            print_failure(&watch.server, era, started, &reason);
            return;
        }
        if counts.waits > waits {
            // The gateway was restarted meanwhile, and the stream has ended with it.
            return;
        }
        let is_update = |message: &Value| {
            message["method"] == "notifications/resources/updated" && message["params"]["uri"] == watch.uri.as_str()
        };
        let arrived = timeout(ARRIVAL, async {
            while let Some(message) = messages.recv().await {
                if is_update(&message) {
                    return true;
                }
            }
            false
        });
        let reason = match arrived.await {
            Ok(true) => {
                counts.updates += 1;
                continue;
            }
            Ok(false) => "the stream ended".to_owned(),
            Err(_) => format!("no update in {ARRIVAL:?}"),
        };
        counts.failed += 1;
        print_failure(&watch.server, era, started, &reason);
        return;
    }
}

/// Opens the stream and subscribes; the stream's messages arrive at the receiver.
async fn subscribe(
    client: &mut LoadClient,
    era: LoadEra,
    watch: &Watch,
    reading: &mut JoinSet<()>,
) -> Result<Receiver<Value>, String> {
    let authority = client.authority().to_owned();
    let request = if era == LoadEra::Modern {
        let filter = json!({ "notifications": { "resourceSubscriptions": [watch.uri] } });
        client.request_bytes("subscriptions/listen", "", &filter)
    } else {
        client.stream_bytes()
    };
    let mut stream = MessageStream::open(&authority, &request).await.map_err(|error| error.to_string())?;
    if stream.status != 200 {
        return Err(format!("HTTP {}", stream.status));
    }
    let (sender, mut receiver) = mpsc::channel(WAITING);
    reading.spawn(async move {
        while let Ok(Some(message)) = stream.next().await {
            if sender.send(message).await.is_err() {
                return;
            }
        }
    });
    if era == LoadEra::Modern {
        // The acknowledgement comes first.
        let first = receiver.recv().await.ok_or("the stream ended at once")?;
        let is_refused = first.get("error").is_some();
        return if is_refused { Err(first.to_string()) } else { Ok(receiver) };
    }
    let request = client.request_bytes("resources/subscribe", "", &json!({ "uri": watch.uri }));
    let mut answer = MessageStream::open(&authority, &request).await.map_err(|error| error.to_string())?;
    let message = answer.next().await.map_err(|error| error.to_string())?.unwrap_or_default();
    if message.get("result").is_none() {
        return Err(format!("HTTP {} {message}", answer.status));
    }
    Ok(receiver)
}
