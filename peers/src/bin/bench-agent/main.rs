//! Agents: what a turn takes whose model and tools take nothing.
//!
//! `bench-agent --contestant ropeway|floor --url URL --model steps-N|parallel-N --tools FILE --turns N --warm-up N` runs turns
//! over the benchmark's model, `--contestant own` over answers that are there already, in every dialect. `--offer N` prints
//! the tools for all contestants. All else is printed as one line of JSON.

mod floor;
mod own;
mod ropeway;

use anyhow::{Result, bail};
use ropeway_peers::offer;
use ropeway_peers::turns::Course;
use serde_json::Value;

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [flag, count] = arguments.as_slice()
        && flag == "--offer"
    {
        println!("{}", Value::from(offer::functions(count.parse()?)));
        return Ok(());
    }
    let course = Course::from_args(arguments)?;
    let mut builder = match course.multi_thread {
        true => tokio::runtime::Builder::new_multi_thread(),
        false => tokio::runtime::Builder::new_current_thread(),
    };
    let runtime = builder.enable_all().build()?;
    let report = match course.contestant.as_str() {
        "floor" => serde_json::to_value(floor::run(&course)?)?,
        "ropeway" => serde_json::to_value(runtime.block_on(ropeway::run(&course))?)?,
        "own" => runtime.block_on(own::run(&course))?,
        other => bail!("unknown contestant `{other}`"),
    };
    println!("{report}");
    Ok(())
}
