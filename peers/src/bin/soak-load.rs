//! Mixed load of the soak test: many sessions of both eras call tools of several servers for a while.
//!
//! `soak-load --url URL --seconds N --sessions N --calls JSON [--pause MILLISECONDS]`, where JSON is a list of
//! `{"server", "tool", "arguments", "expect"}`. Prints one line of JSON per failed call, and a summary as the last line.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail};
use ropeway_peers::http_client::{HttpReply, LoadClient, LoadEra, PostError};
use serde::Deserialize;
use serde_json::{Value, json};

/// Calls of a session before it ends and the next one begins.
const CALLS_PER_SESSION: u64 = 200;
/// Time that a client tries to reach a gateway that restarts.
const PATIENCE: Duration = Duration::from_secs(20);
/// Maximum duration of a call.
const TIMEOUT: Duration = Duration::from_secs(60);

#[derive(Debug, Deserialize)]
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
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let (mut url, mut seconds, mut sessions, mut plan) = (String::new(), 10, 8, Vec::new());
    let mut pause = Duration::ZERO;
    let mut args = std::env::args().skip(1);
    while let Some(flag) = args.next() {
        let value = args.next().with_context(|| format!("`{flag}` needs a value"))?;
        match flag.as_str() {
            "--url" => url = value,
            "--seconds" => seconds = value.parse()?,
            "--sessions" => sessions = value.parse()?,
            "--pause" => pause = Duration::from_millis(value.parse()?),
            "--calls" => plan = serde_json::from_str::<Vec<Planned>>(&value)?,
            _ => bail!("unknown flag `{flag}`"),
        }
    }
    if plan.is_empty() {
        bail!("`--calls` is missing");
    }
    let plan: Arc<[Planned]> = plan.into();
    let end = Instant::now() + Duration::from_secs(seconds);
    let tasks: Vec<_> = (0..sessions)
        .map(|number| {
            let era = if number % 2 == 0 { LoadEra::Legacy } else { LoadEra::Modern };
            let client = LoadClient::new(&url, era)?;
            Ok(tokio::spawn(run(client, era, number, Arc::clone(&plan), pause, end)))
        })
        .collect::<Result<_>>()?;
    let mut sum = Counts::default();
    for task in tasks {
        let counts = task.await??;
        sum.calls += counts.calls;
        sum.failed += counts.failed;
        sum.sessions += counts.sessions;
        sum.waits += counts.waits;
        sum.refused += counts.refused;
    }
    let Counts { calls, failed, sessions, waits, refused } = sum;
    let summary = json!({ "calls": calls, "failed": failed, "sessions": sessions, "waits": waits, "refused": refused });
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
                let era = if era == LoadEra::Legacy { "legacy" } else { "modern" };
                let server = if turn % 50 == 49 { "tools/list" } else { &planned.server };
                println!(
                    "{}",
                    json!({ "server": server, "era": era, "started": started, "ended": now(), "reason": reason })
                );
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
    Err(format!("HTTP {} {:.300}", reply.status, text))
}

/// Returns the time in milliseconds, comparable between processes.
fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
