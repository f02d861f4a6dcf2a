//! A contestant: the floor.

use std::time::Instant;

use anyhow::Result;
use ropeway_peers::course::{Course, Scenario};
use ropeway_peers::floor::Client;
use ropeway_peers::meter::{Meter, Report, resident_kib};

fn main() -> Result<()> {
    let report = run(&Course::from_args(std::env::args().skip(1))?)?;
    println!("{}", serde_json::to_string(&report)?);
    Ok(())
}

fn run(course: &Course) -> Result<Report> {
    let mut client = Client::connect(&course.server)?;
    let idle = resident_kib();
    if course.scenario == Scenario::Connect {
        client.close()?;
        return connects(course, idle);
    }
    for number in 0..course.warm_up() {
        client.step(course.scenario, number)?;
    }
    let mut meter = Meter::start(course.rounds, idle);
    if course.scenario == Scenario::InFlight32 {
        for took in client.in_flight(course.rounds)? {
            meter.lap(took);
        }
    } else {
        for number in 0..course.rounds {
            let started = Instant::now();
            client.step(course.scenario, number)?;
            meter.lap(started.elapsed());
        }
    }
    let report = meter.finish();
    client.close()?;
    Ok(report)
}

fn connects(course: &Course, idle: u64) -> Result<Report> {
    let mut meter = Meter::start(course.rounds, idle);
    for _ in 0..course.rounds {
        let started = Instant::now();
        let client = Client::connect(&course.server)?;
        meter.lap(started.elapsed());
        client.close()?;
    }
    Ok(meter.finish())
}
