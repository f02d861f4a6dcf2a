//! Mixed load for the soak test: many sessions in both eras call several servers' tools for a while. Others watch a resource
//! over streams, and answer server requests.
//!
//! `soak-load --url URL --seconds N --sessions N --calls JSON [--watch JSON] [--ask JSON] [--pause MILLISECONDS]`, where
//! `--calls` and `--ask` are lists of `{"server", "tool", "arguments", "expect"}`, and `--watch` is a list of
//! `{"server", "tool", "uri"}`, whose tool changes the resource. Prints one JSON line per failure, and a summary as the last line.

#![allow(unreachable_pub, reason = "in a program, `pub` means visible outside of the file")]

mod asking;
mod watching;

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail};
use ropeway_peers::http_client::{HttpReply, LoadClient, LoadEra, PostError};
use serde::Deserialize;
use serde_json::{Value, json};

use self::watching::Watch;

/// Calls in a session before it ends and the next one begins.
const CALLS_PER_SESSION: u64 = 200;
/// Time that a client tries to reach a gateway that restarts.
const PATIENCE: Duration = Duration::from_secs(20);
/// Maximum call duration. A longer one is a failure, whatever happens to its server.
const TIMEOUT: Duration = Duration::from_secs(20);

/// How the reason begins for a call without an answer.
const UNANSWERED: &str = "ended without an answer";

#[derive(Clone, Debug, Deserialize)]
struct Planned {
    server: String,
    tool: String,
    arguments: Value,
    expect: String,
}

#[derive(Debug, Default)]
struct Counts {
    calls: u64,
    failed: u64,
    sessions: u64,
    /// Connections that had to wait for the gateway.
    waits: u64,
    /// Requests that a stopping gateway refused with 503, and that were repeated.
    refused: u64,
    /// Calls whose response ended without an answer.
    unanswered: u64,
    /// Resource updates that arrived.
    updates: u64,
    /// Streams that were opened.
    streams: u64,
    /// Server requests that were answered.
    answers: u64,
}

impl std::ops::AddAssign for Counts {
    fn add_assign(&mut self, other: Self) {
        self.calls += other.calls;
        self.failed += other.failed;
        self.sessions += other.sessions;
        self.waits += other.waits;
        self.refused += other.refused;
        self.unanswered += other.unanswered;
        self.updates += other.updates;
        self.streams += other.streams;
        self.answers += other.answers;
    }
}

/// Prints a failure that the report explains or counts as lost.
fn print_failure(server: &str, era: LoadEra, started: u64, reason: &str) {
    let era = if era == LoadEra::Legacy { "legacy" } else { "modern" };
    println!("{}", json!({ "server": server, "era": era, "started": started, "ended": now(), "reason": reason }));
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let (mut url, mut seconds, mut sessions, mut plan) = (String::new(), 10, 8, Vec::new());
    let mut pause = Duration::ZERO;
    let (mut watched, mut asked) = (Vec::new(), Vec::new());
    let mut args = std::env::args().skip(1);
    while let Some(flag) = args.next() {
        let value = args.next().with_context(|| format!("`{flag}` needs a value"))?;
        match flag.as_str() {
            "--url" => url = value,
            "--seconds" => seconds = value.parse()?,
            "--sessions" => sessions = value.parse()?,
            "--pause" => pause = Duration::from_millis(value.parse()?),
            "--watch" => watched = serde_json::from_str::<Vec<Watch>>(&value)?,
            "--ask" => asked = serde_json::from_str::<Vec<Planned>>(&value)?,
            "--calls" => plan = serde_json::from_str::<Vec<Planned>>(&value)?,
            _ => bail!("unknown flag `{flag}`"),
        }
    }
    if plan.is_empty() {
        bail!("`--calls` is missing");
    }
    let plan: Arc<[Planned]> = plan.into();
    let end = Instant::now() + Duration::from_secs(seconds);
    let mut tasks = tokio::task::JoinSet::new();
    for number in 0..sessions {
        let era = if number % 2 == 0 { LoadEra::Legacy } else { LoadEra::Modern };
        tasks.spawn(run(LoadClient::new(&url, era)?, era, number, Arc::clone(&plan), pause, end));
    }
    for era in [LoadEra::Legacy, LoadEra::Modern] {
        for watch in &watched {
            tasks.spawn(watching::run(url.clone(), era, watch.clone(), end));
        }
        for planned in &asked {
            tasks.spawn(asking::run(url.clone(), era, planned.clone(), end));
        }
    }
    let mut sum = Counts::default();
    while let Some(done) = tasks.join_next().await {
        sum += done??;
    }
    let Counts { calls, failed, sessions, waits, refused, unanswered, updates, streams, answers } = sum;
    let summary = json!({ "calls": calls, "failed": failed, "sessions": sessions, "waits": waits, "refused": refused,
        "unanswered": unanswered, "updates": updates, "streams": streams, "answers": answers });
    println!("{summary}");
    Ok(())
}

async fn run(
    mut client: LoadClient,
    era: LoadEra,
    number: usize,
    plan: Arc<[Planned]>,
    pause: Duration,
    end: Instant,
) -> Result<Counts> {
    let mut counts = Counts::default();
    let mut at = number;
    while Instant::now() < end {
        open(&mut client, &mut counts).await?;
        counts.sessions += 1;
        for turn in 0..CALLS_PER_SESSION {
            if Instant::now() >= end {
                break;
            }
            if !pause.is_zero() {
                tokio::time::sleep(pause).await;
            }
            at += 1;
            let planned = &plan[at % plan.len()];
            let started = now();
            counts.calls += 1;
            let failure = if turn % 50 == 49 {
                attempt(&mut client, None, &mut counts).await
            } else {
                attempt(&mut client, Some(planned), &mut counts).await
            };
            if let Err(reason) = failure {
                counts.failed += 1;
                counts.unanswered += u64::from(reason.starts_with(UNANSWERED));
                print_failure(if turn % 50 == 49 { "tools/list" } else { &planned.server }, era, started, &reason);
                // A lost session is reported once; the next one goes on.
                if reason.contains("HTTP 404") {
                    break;
                }
            }
        }
        // The gateway may be restarting.
        let _ = client.close().await;
    }
    Ok(counts)
}

/// Opens a session, and waits for a gateway that restarts.
async fn open(client: &mut LoadClient, counts: &mut Counts) -> Result<()> {
    let until = Instant::now() + PATIENCE;
    loop {
        match client.open().await {
            Ok(()) => return Ok(()),
            Err(error) if Instant::now() >= until => return Err(error.context("the gateway did not come back")),
            Err(_) => {
                counts.waits += 1;
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    }
}

/// Makes one call, or lists the tools. A request that could not be sent is repeated, as every client does.
async fn attempt(client: &mut LoadClient, planned: Option<&Planned>, counts: &mut Counts) -> Result<(), String> {
    let until = Instant::now() + PATIENCE;
    loop {
        let sent = async {
            match planned {
                Some(planned) => client.call(&planned.tool, &planned.arguments).await,
                None => client.request("tools/list").await,
            }
        };
        match tokio::time::timeout(TIMEOUT, sent).await {
            Err(_) => return Err(format!("no response in {TIMEOUT:?}")),
            Ok(Ok(reply)) if reply.status == 503 && Instant::now() < until => {
                counts.refused += 1;
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            Ok(Ok(reply)) => return check(&reply, planned.map_or("\"tools\"", |planned| &planned.expect)),
            Ok(Err(PostError::Connect(_))) if Instant::now() < until => {
                counts.waits += 1;
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            Ok(Err(error)) => return Err(error.to_string()),
        }
    }
}

fn check(reply: &HttpReply, expect: &str) -> Result<(), String> {
    let text = String::from_utf8_lossy(&reply.body);
    if reply.status == 200 && text.contains("\"result\"") && text.contains(expect) {
        return Ok(());
    }
    if reply.status == 200 && !text.contains("\"result\"") && !text.contains("\"error\"") {
        return Err(format!("{UNANSWERED}: HTTP 200 {text:.200}"));
    }
    Err(format!("HTTP {} {:.300}", reply.status, text))
}

/// Returns the time in milliseconds, comparable between processes.
fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
