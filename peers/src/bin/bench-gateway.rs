//! Load on a gateway over HTTP: N sessions, each with one kept-alive connection and one call at a time.
//!
//! `bench-gateway --url URL --pid PID [--era legacy|legacy-sse|modern] [--sessions N] [--calls N] [--tool NAME]
//! [--token TOKEN]` prints one JSON line: calls per second, percentiles, and CPU time and memory for the process PID and its
//! descendants.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use memchr::memmem;
use ropeway_peers::http_client::{HttpReply, LoadClient, LoadEra};
use ropeway_peers::meter::micros;
use ropeway_peers::process_tree;
use serde_json::json;

/// Calls per session before the clock starts.
const WARM_UP: usize = 20;

const MESSAGE: &str = "hello over there";

struct Options {
    url: String,
    pid: u32,
    era: LoadEra,
    sessions: usize,
    calls: usize,
    tool: String,
    token: Option<String>,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let options = Arc::new(options()?);
    let mut clients = Vec::new();
    for _ in 0..options.sessions {
        let mut client = LoadClient::new(&options.url, options.era)?;
        if let Some(token) = &options.token {
            client = client.with_token(token);
        }
        client.open().await?;
        clients.push(client);
    }
    let idle = process_tree::usage(options.pid);
    let mut warm = Vec::new();
    for client in clients {
        let budget = Arc::new(AtomicUsize::new(WARM_UP));
        warm.push(tokio::spawn(run(client, Arc::clone(&options), budget)));
    }
    let mut clients = Vec::new();
    for task in warm {
        clients.push(task.await??.0);
    }

    let budget = Arc::new(AtomicUsize::new(options.calls));
    let before = process_tree::usage(options.pid);
    let started = Instant::now();
    let tasks: Vec<_> = clients
        .into_iter()
        .map(|client| tokio::spawn(run(client, Arc::clone(&options), Arc::clone(&budget))))
        .collect();
    let mut laps = Vec::with_capacity(options.calls);
    let mut clients = Vec::new();
    for task in tasks {
        let (client, own) = task.await??;
        laps.extend(own);
        clients.push(client);
    }
    let wall = started.elapsed();
    let after = process_tree::usage(options.pid);
    for mut client in clients {
        // A gateway without DELETE is still measured.
        let _ = client.close().await;
    }

    laps.sort_unstable();
    let percentile = |percent: usize| micros(laps.get((laps.len() - 1) * percent / 100).copied().unwrap_or_default());
    let calls = laps.len() as f64;
    let report = json!({
        "calls": laps.len(),
        "calls_per_second": calls / wall.as_secs_f64(),
        "p50_us": percentile(50),
        "p99_us": percentile(99),
        "cpu_us_per_call": (after.cpu.saturating_sub(before.cpu)).as_secs_f64() * 1e6 / calls,
        "idle_kib": idle.resident_kib,
        "peak_kib": after.resident_kib,
        "processes": after.processes,
    });
    println!("{report}");
    Ok(())
}

/// Makes calls until the budget that all sessions share is used up.
async fn run(
    mut client: LoadClient,
    options: Arc<Options>,
    budget: Arc<AtomicUsize>,
) -> Result<(LoadClient, Vec<Duration>)> {
    let arguments = json!({ "message": MESSAGE });
    let mut laps = Vec::new();
    while budget.try_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok() {
        let started = Instant::now();
        let reply = client.call(&options.tool, &arguments).await?;
        laps.push(started.elapsed());
        check(&reply)?;
    }
    Ok((client, laps))
}

fn check(reply: &HttpReply) -> Result<()> {
    if reply.status == 200 && memmem::find(&reply.body, MESSAGE.as_bytes()).is_some() {
        return Ok(());
    }
    bail!("a call failed: HTTP {} {:.300}", reply.status, String::from_utf8_lossy(&reply.body))
}

fn options() -> Result<Options> {
    let (mut url, mut pid, mut era, mut token) = (None, None, LoadEra::Legacy, None);
    let (mut sessions, mut calls, mut tool) = (1, 1_000, "echo".to_owned());
    let mut args = std::env::args().skip(1);
    while let Some(flag) = args.next() {
        let value = args.next().with_context(|| format!("`{flag}` needs a value"))?;
        match flag.as_str() {
            "--url" => url = Some(value),
            "--pid" => pid = Some(value.parse()?),
            "--era" => {
                era = match value.as_str() {
                    "legacy" => LoadEra::Legacy,
                    "legacy-sse" => LoadEra::LegacySse,
                    "modern" => LoadEra::Modern,
                    other => bail!("unknown era `{other}`"),
                }
            }
            "--sessions" => sessions = value.parse::<usize>()?.max(1),
            "--calls" => calls = value.parse::<usize>()?.max(1),
            "--tool" => tool = value,
            "--token" => token = Some(value),
            _ => bail!("unknown flag `{flag}`"),
        }
    }
    Ok(Options {
        url: url.context("`--url` is missing")?,
        pid: pid.context("`--pid` is missing")?,
        era,
        sessions,
        calls,
        tool,
        token,
    })
}
