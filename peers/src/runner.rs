//! Runner: runs a benchmark case with a contestant on an async runtime.

use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Result;
use serde_json::{Map, Value};
use tokio::task::JoinSet;

use crate::bench_case::{BenchCase, IN_FLIGHT, Scenario, check, message};
use crate::meter::{Meter, Report, resident_kib};

/// A client library in the benchmark.
pub trait Contestant: Sized + Send + Sync + 'static {
    /// Starts the server and connects to it.
    fn connect(server: &[String]) -> impl Future<Output = Result<Self>> + Send;

    /// Makes one call and returns its result's size: text or base64 bytes, or rows.
    fn call(&self, tool: &'static str, arguments: Map<String, Value>) -> impl Future<Output = Result<usize>> + Send;

    /// Fetches the tool list from the server, not from a cache, and returns its length.
    fn list(&self) -> impl Future<Output = Result<usize>> + Send;

    /// Closes the connection and stops the server.
    fn close(self) -> impl Future<Output = ()> + Send;
}

/// Runs the case from the command line and prints the report.
pub fn main<C: Contestant>() -> Result<()> {
    let case = BenchCase::from_args(std::env::args().skip(1))?;
    let mut builder = if case.multi_thread {
        tokio::runtime::Builder::new_multi_thread()
    } else {
        tokio::runtime::Builder::new_current_thread()
    };
    let report = builder.enable_all().build()?.block_on(run::<C>(case))?;
    println!("{}", serde_json::to_string(&report)?);
    Ok(())
}

async fn run<C: Contestant>(case: BenchCase) -> Result<Report> {
    if case.scenario == Scenario::Connect {
        return connects::<C>(&case).await;
    }
    let contestant = Arc::new(C::connect(&case.server).await?);
    let idle = resident_kib();
    for number in 0..case.warm_up() {
        step(&*contestant, case.scenario, number).await?;
    }
    let mut meter = Meter::start(case.rounds, idle);
    if case.scenario == Scenario::InFlight32 {
        for took in in_flight(&contestant, case.rounds).await? {
            meter.lap(took);
        }
    } else {
        for number in 0..case.rounds {
            let started = Instant::now();
            step(&*contestant, case.scenario, number).await?;
            meter.lap(started.elapsed());
        }
    }
    let report = meter.finish();
    if let Ok(contestant) = Arc::try_unwrap(contestant) {
        contestant.close().await;
    }
    Ok(report)
}

async fn connects<C: Contestant>(case: &BenchCase) -> Result<Report> {
    C::connect(&case.server).await?.close().await;
    let mut meter = Meter::start(case.rounds, resident_kib());
    for _ in 0..case.rounds {
        let started = Instant::now();
        let contestant = C::connect(&case.server).await?;
        meter.lap(started.elapsed());
        contestant.close().await;
    }
    Ok(meter.finish())
}

/// Makes one call or fetches one list, depending on the scenario.
async fn step<C: Contestant>(contestant: &C, scenario: Scenario, number: usize) -> Result<()> {
    if scenario == Scenario::List200 {
        return check("list", 200, contestant.list().await?);
    }
    if let Some(call) = scenario.big_call() {
        return check(call.tool, call.size, contestant.call(call.tool, call.arguments).await?);
    }
    echo(contestant, number).await
}

async fn echo<C: Contestant>(contestant: &C, number: usize) -> Result<()> {
    let message = message(number);
    let length = message.len();
    let arguments = Map::from_iter([("message".to_owned(), Value::String(message))]);
    check("echo", length, contestant.call("echo", arguments).await?)
}

/// Makes calls in 32 concurrent tasks, each in sequence.
async fn in_flight<C: Contestant>(contestant: &Arc<C>, rounds: usize) -> Result<Vec<Duration>> {
    let mut tasks = JoinSet::new();
    for lane in 0..IN_FLIGHT {
        let contestant = contestant.clone();
        tasks.spawn(async move {
            let mut laps = Vec::with_capacity(rounds / IN_FLIGHT + 1);
            for number in (lane..rounds).step_by(IN_FLIGHT) {
                let started = Instant::now();
                echo(&*contestant, number).await?;
                laps.push(started.elapsed());
            }
            anyhow::Ok(laps)
        });
    }
    let mut laps = Vec::with_capacity(rounds);
    for lane in tasks.join_all().await {
        laps.extend(lane?);
    }
    Ok(laps)
}
