//! Agents: what a turn takes whose model and tools take nothing.
//!
//! `bench-agent --contestant ropeway|floor --url URL --model steps-N|parallel-N --tools FILE --turns N --warm-up N` runs turns
//! over the benchmark's model, `--contestant own` over answers that are there already, in every dialect. `--offer N` prints
//! the tools for all contestants. All else is printed as one line of JSON.

mod floor;

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
    let report = match course.contestant.as_str() {
        "floor" => serde_json::to_value(floor::run(&course)?)?,
        other => bail!("unknown contestant `{other}`"),
    };
    println!("{report}");
    Ok(())
}
