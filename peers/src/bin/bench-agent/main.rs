//! Measures a turn whose model and tools cost nothing.
//!
//! `bench-agent --contestant ropeway|baseline --url URL --model steps-N|parallel-N --tools FILE --turns N --warm-up N` runs turns
//! over the benchmark's model, `--contestant own` over recorded replies, in every dialect. `--print-tools N` prints all
//! contestants' tools. Reports are one JSON line.

mod baseline;
mod loop_cost;
mod ropeway;

use anyhow::{Result, bail};
use ropeway_peers::agent_case::AgentCase;
use ropeway_peers::payloads;
use serde_json::Value;

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [flag, count] = arguments.as_slice()
        && flag == "--print-tools"
    {
        println!("{}", Value::from(payloads::functions(count.parse()?)));
        return Ok(());
    }
    let case = AgentCase::from_args(arguments)?;
    let mut builder = if case.multi_thread {
        tokio::runtime::Builder::new_multi_thread()
    } else {
        tokio::runtime::Builder::new_current_thread()
    };
    let runtime = builder.enable_all().build()?;
    let report = match case.contestant.as_str() {
        "baseline" => serde_json::to_value(baseline::run(&case)?)?,
        "ropeway" => serde_json::to_value(runtime.block_on(ropeway::run(&case))?)?,
        "own" => runtime.block_on(loop_cost::run(&case))?,
        other => bail!("unknown contestant `{other}`"),
    };
    println!("{report}");
    Ok(())
}
