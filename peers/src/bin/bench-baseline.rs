//! A contestant: the baseline.

use std::time::Instant;

use anyhow::Result;
use ropeway_peers::baseline::Client;
use ropeway_peers::bench_case::{BenchCase, Scenario};
use ropeway_peers::meter::{Meter, Report, resident_kib};

fn main() -> Result<()> {
    let report = run(&BenchCase::from_args(std::env::args().skip(1))?)?;
    println!("{}", serde_json::to_string(&report)?);
    Ok(())
}

fn run(case: &BenchCase) -> Result<Report> {
    let mut client = Client::connect(&case.server)?;
    let idle = resident_kib();
    if case.scenario == Scenario::Connect {
        client.close()?;
        return connects(case, idle);
    }
    for number in 0..case.warm_up() {
        client.step(case.scenario, number)?;
    }
    let mut meter = Meter::start(case.rounds, idle);
    if case.scenario == Scenario::InFlight32 {
        for took in client.in_flight(case.rounds)? {
            meter.lap(took);
        }
    } else {
        for number in 0..case.rounds {
            let started = Instant::now();
            client.step(case.scenario, number)?;
            meter.lap(started.elapsed());
        }
    }
    let report = meter.finish();
    client.close()?;
    Ok(report)
}

fn connects(case: &BenchCase, idle: u64) -> Result<Report> {
    let mut meter = Meter::start(case.rounds, idle);
    for _ in 0..case.rounds {
        let started = Instant::now();
        let client = Client::connect(&case.server)?;
        meter.lap(started.elapsed());
        client.close()?;
    }
    Ok(meter.finish())
}
