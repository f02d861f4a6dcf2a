//! A contest: how a contestant on an async runtime runs its course.

use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Result;
use serde_json::{Map, Value};
use tokio::task::JoinSet;

use crate::course::{Course, IN_FLIGHT, Scenario, check, message};
use crate::meter::{Meter, Report, resident_kib};

/// A client library that takes part.
pub trait Contestant: Sized + Send + Sync + 'static {
    /// Starts the server and gets ready to call.
    fn connect(server: &[String]) -> impl Future<Output = Result<Self>> + Send;

    /// Makes one call; answers with the size of what came back: bytes of text or base64, else rows.
    fn call(&self, tool: &'static str, arguments: Map<String, Value>) -> impl Future<Output = Result<usize>> + Send;

    /// Fetches the list of tools from the server, whatever is cached; answers with how many there are.
    fn list(&self) -> impl Future<Output = Result<usize>> + Send;

    /// Ends the connection and the server.
    fn close(self) -> impl Future<Output = ()> + Send;
}

/// Runs the course that the command line asks for and prints the report.
pub fn main<C: Contestant>() -> Result<()> {
    let course = Course::from_args(std::env::args().skip(1))?;
    let mut builder = match course.multi_thread {
        true => tokio::runtime::Builder::new_multi_thread(),
        false => tokio::runtime::Builder::new_current_thread(),
    };
    let report = builder.enable_all().build()?.block_on(run::<C>(course))?;
    println!("{}", serde_json::to_string(&report)?);
    Ok(())
}

async fn run<C: Contestant>(course: Course) -> Result<Report> {
    if course.scenario == Scenario::Connect {
        return connects::<C>(&course).await;
    }
    let contestant = Arc::new(C::connect(&course.server).await?);
    let idle = resident_kib();
    for number in 0..course.warm_up() {
        step(&*contestant, course.scenario, number).await?;
    }
    let mut meter = Meter::start(course.rounds, idle);
    if course.scenario == Scenario::InFlight32 {
        for took in in_flight(&contestant, course.rounds).await? {
            meter.lap(took);
        }
    } else {
        for number in 0..course.rounds {
            let started = Instant::now();
            step(&*contestant, course.scenario, number).await?;
            meter.lap(started.elapsed());
        }
    }
    let report = meter.finish();
    if let Ok(contestant) = Arc::try_unwrap(contestant) {
        contestant.close().await;
    }
    Ok(report)
}

async fn connects<C: Contestant>(course: &Course) -> Result<Report> {
    C::connect(&course.server).await?.close().await;
    let mut meter = Meter::start(course.rounds, resident_kib());
    for _ in 0..course.rounds {
        let started = Instant::now();
        let contestant = C::connect(&course.server).await?;
        meter.lap(started.elapsed());
        contestant.close().await;
    }
    Ok(meter.finish())
}

/// One call or one list, whichever the scenario is about.
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

/// As many tasks as calls in flight, each making its share one after the other.
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
