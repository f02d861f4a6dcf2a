//! The bridge: many servers at once beside a hand-written client of many, and the command lines.

use std::path::Path;
use std::process::Command;

use anyhow::Result;
use serde_json::{Value, json};

use super::cli::{CommandLines, Contestant, Task};
use super::rounds::Rounds;
use super::verdict::{Unit, Verdict};
use super::{cores, load, trial};

/// Who starts the servers.
type Name = &'static str;

const FLOOR: Name = "floor";
const OURS: Name = "ropeway";
/// In the order in which they run within a round.
const STARTERS: [Name; 2] = [FLOOR, OURS];

/// A crowd of servers that is started.
struct Crowd {
    name: Name,
    servers: usize,
    /// Of each server.
    tools: usize,
    delay_ms: usize,
}

const SLOW: Crowd = Crowd { name: "slow10", servers: 10, tools: 4, delay_ms: 1000 };
const ONE: Crowd = Crowd { name: "one", servers: 1, tools: 32, delay_ms: 0 };
const FIFTY: Crowd = Crowd { name: "fifty", servers: 50, tools: 32, delay_ms: 0 };
/// Native servers start faster than the kernel starts processes; these take about as long as a small script.
const ONE_SCRIPT: Crowd = Crowd { name: "one200", delay_ms: 200, ..ONE };
const FIFTY_SCRIPTS: Crowd = Crowd { name: "fifty200", delay_ms: 200, ..FIFTY };
const CROWDS: [Crowd; 5] = [SLOW, ONE, FIFTY, ONE_SCRIPT, FIFTY_SCRIPTS];

/// What was measured.
pub(super) struct Board {
    rounds: usize,
    /// How busy the machine was with other things before and with all things after.
    load: [Option<f64>; 2],
    crowds: Rounds<(Name, Name)>,
    tasks: Rounds<(Task, Contestant)>,
    absent: Vec<(Contestant, String)>,
}

impl Board {
    /// Runs everything. Rounds are interleaved, so that a busy moment of the machine hits all alike.
    pub(super) fn fill(built: &Path, quick: bool) -> Result<Self> {
        let rounds = if quick { 3 } else { 11 };
        let lines = CommandLines::new(built)?;
        let before = load();
        let (mut crowds, mut tasks) = (Rounds::new(), Rounds::new());
        eprintln!("round 0 of {rounds}, which does not count: files are read from the disk");
        lines.round(&mut Rounds::new())?;
        for round in 1..=rounds {
            eprintln!("round {round} of {rounds}");
            for crowd in &CROWDS {
                for starter in STARTERS {
                    crowds.add((crowd.name, starter), start(built, crowd, starter)?);
                }
            }
            lines.round(&mut tasks)?;
        }
        Ok(Self { rounds, load: [before, load()], crowds, tasks, absent: lines.absent })
    }

    fn crowd(&self, crowd: &Crowd, starter: Name, key: &str) -> Option<f64> {
        self.crowds.figure(&(crowd.name, starter), key)
    }

    /// How many times as long many take as one.
    fn many_of_one(&self, many: &Crowd, one: &Crowd, starter: Name) -> Option<f64> {
        self.crowds.ratio(&(many.name, starter), &(one.name, starter), "ready_us")
    }

    /// How many times as long as one whole start it takes to start fifty processes and nothing more. No bridge can be
    /// faster than that.
    fn spawns_of_one(&self) -> Option<f64> {
        Some(self.crowd(&FIFTY, FLOOR, "spawned_us")? / self.crowd(&ONE, FLOOR, "ready_us")?)
    }

    /// What the crowd of fifty added to the process that holds it; the children's own memory is not in it.
    fn megabytes(&self, key: &str) -> Option<f64> {
        let more = self.crowd(&FIFTY, OURS, key)? - self.crowd(&FIFTY, OURS, "before_kib")?;
        Some(more * 1024.0 / 1e6)
    }

    fn took(&self, task: Task, contestant: Contestant) -> Option<f64> {
        self.tasks.figure(&(task, contestant), "took_ms")
    }

    /// The fastest of the others, and how many times as long as ours it takes.
    fn best_other(&self, task: Task) -> Option<(Contestant, f64)> {
        let others = Contestant::OTHERS.into_iter().filter_map(|other| Some((other, self.took(task, other)?)));
        let (best, _) = others.min_by(|(_, one), (_, other)| one.total_cmp(other))?;
        Some((best, self.tasks.ratio(&(task, best), &(task, Contestant::Ropeway), "took_ms")?))
    }

    fn verdicts(&self) -> Vec<Verdict> {
        let floor_takes = self.crowd(&SLOW, FLOOR, "ready_us").map(|us| format!("the floor takes {:.2} s", us / 1e6));
        let floor_ratio = self.many_of_one(&FIFTY, &ONE, FLOOR).zip(self.spawns_of_one()).map(|(ratio, spawns)| {
            format!("the floor takes {ratio:.2} ×, {spawns:.2} × until the last process is started")
        });
        let script_ratio = self.many_of_one(&FIFTY_SCRIPTS, &ONE_SCRIPT, FLOOR);
        let script_ratio = script_ratio.map(|ratio| format!("the floor takes {ratio:.2} ×"));
        let mut verdicts = vec![
            Verdict::at_most(
                "S15.3",
                "ten servers of 1 s each, ready in",
                self.crowd(&SLOW, OURS, "ready_us").map(|us| us / 1e6),
                1.5,
            )
            .counted_in(Unit::Seconds)
            .noting(floor_takes),
            Verdict::at_most(
                "S15.3",
                "50 servers with 1,600 tools, time of one",
                self.many_of_one(&FIFTY, &ONE, OURS),
                3.0,
            )
            .noting(floor_ratio),
            Verdict::at_most(
                "200 ms",
                "the same, each takes 200 ms to start",
                self.many_of_one(&FIFTY_SCRIPTS, &ONE_SCRIPT, OURS),
                3.0,
            )
            .noting(script_ratio),
            Verdict::at_most("memory", "50 connections, beyond the process without", self.megabytes("peak_kib"), 20.0)
                .counted_in(Unit::Megabytes),
            Verdict::at_most(
                "S15.4",
                "tools of one server, from exec to exit",
                self.took(Task::ListOne, Contestant::Ropeway),
                50.0,
            )
            .counted_in(Unit::Milliseconds),
        ];
        for (task, promise, what) in [
            (Task::ListOne, "S15.4", "tools of one server, the best other's time"),
            (Task::ListTen, "list10", "tools of ten servers, the best other's time"),
            (Task::Call, "call", "one call, the best other's time"),
        ] {
            let best = self.best_other(task);
            let note = best.map(|(other, _)| format!("the best other is {}", other.name()));
            verdicts.push(Verdict::at_least(promise, what, best.map(|(_, ratio)| ratio), 20.0).noting(note));
        }
        verdicts
    }

    pub(super) fn to_json(&self) -> Value {
        let mut crowds = Vec::new();
        for crowd in &CROWDS {
            for starter in STARTERS {
                let key = (crowd.name, starter);
                crowds.push(json!({
                    "crowd": crowd.name,
                    "servers": crowd.servers,
                    "tools": crowd.servers * crowd.tools,
                    "starter": starter,
                    "failure": self.crowds.failure(&key),
                    "ready_us": self.crowds.figure(&key, "ready_us"),
                    "spawned_us": self.crowds.figure(&key, "spawned_us"),
                    "before_kib": self.crowds.figure(&key, "before_kib"),
                    "held_kib": self.crowds.figure(&key, "held_kib"),
                    "peak_kib": self.crowds.figure(&key, "peak_kib"),
                    "ratio_to_floor": self.crowds.ratio(&key, &(crowd.name, FLOOR), "ready_us"),
                }));
            }
        }
        let mut command_lines = Vec::new();
        for task in Task::ALL {
            for contestant in Contestant::ALL {
                let key = (task, contestant);
                command_lines.push(json!({
                    "task": task.name(),
                    "contestant": contestant.name(),
                    "failure": self.tasks.failure(&key),
                    "took_ms": self.tasks.figure(&key, "took_ms"),
                    "ratio_to_ropeway": self.tasks.ratio(&key, &(task, Contestant::Ropeway), "took_ms"),
                }));
            }
        }
        let absent: Vec<Value> =
            self.absent.iter().map(|(who, why)| json!({"contestant": who.name(), "why": why})).collect();
        let verdicts: Vec<Value> = self.verdicts().iter().map(Verdict::to_json).collect();
        json!({
            "rounds": self.rounds,
            "cores": cores(),
            "load_before": self.load[0],
            "load_after": self.load[1],
            "crowds": crowds,
            "command_lines": command_lines,
            "absent": absent,
            "verdicts": verdicts,
        })
    }

    pub(super) fn to_text(&self) -> String {
        let [before, after] = self.load.map(|load| load.map_or_else(|| "unknown".to_owned(), |load| load.to_string()));
        let mut text = format!(
            "{} cores, load {before} before and {after} after, medians of {} interleaved rounds\n",
            cores(),
            self.rounds
        );
        text += &format!(
            "\n{:<8} {:>7} {:>7} {:<10} {:>10} {:>10} {:>10} {:>10} {:>8}\n",
            "start", "servers", "tools", "", "ready ms", "before MiB", "held MiB", "peak MiB", "× floor"
        );
        for crowd in &CROWDS {
            for starter in STARTERS {
                text += &self.crowd_row(crowd, starter);
            }
        }
        text += &format!("\n{:<8} {:<10} {:>10} {:>10}\n", "exec", "", "ms", "× ropeway");
        for task in Task::ALL {
            for contestant in Contestant::ALL {
                text += &self.task_row(task, contestant);
            }
        }
        text.push('\n');
        for verdict in self.verdicts() {
            text += &verdict.to_text();
        }
        text
    }

    fn crowd_row(&self, crowd: &Crowd, starter: Name) -> String {
        let (servers, tools) = (crowd.servers, crowd.servers * crowd.tools);
        let name = format!("{:<8} {servers:>7} {tools:>7} {starter:<10}", crowd.name);
        if let Some(failure) = self.crowds.failure(&(crowd.name, starter)) {
            return format!("{name} failed: {failure}\n");
        }
        let figure = |key| self.crowd(crowd, starter, key).unwrap_or(f64::NAN);
        let ratio = self.crowds.ratio(&(crowd.name, starter), &(crowd.name, FLOOR), "ready_us").unwrap_or(f64::NAN);
        format!(
            "{name} {:>10.1} {:>10.1} {:>10.1} {:>10.1} {ratio:>8.2}\n",
            figure("ready_us") / 1e3,
            figure("before_kib") / 1024.0,
            figure("held_kib") / 1024.0,
            figure("peak_kib") / 1024.0,
        )
    }

    fn task_row(&self, task: Task, contestant: Contestant) -> String {
        let name = format!("{:<8} {:<10}", task.name(), contestant.name());
        if let Some((_, why)) = self.absent.iter().find(|(absent, _)| *absent == contestant) {
            return format!("{name} left out: {why}\n");
        }
        if let Some(failure) = self.tasks.failure(&(task, contestant)) {
            return format!("{name} failed: {failure}\n");
        }
        let Some(took) = self.took(task, contestant) else { return format!("{name} does not do this\n") };
        let ratio = self.tasks.ratio(&(task, contestant), &(task, Contestant::Ropeway), "took_ms");
        let ratio = ratio.map_or_else(|| "-".to_owned(), |ratio| format!("{ratio:.1}"));
        format!("{name} {took:>10.1} {ratio:>10}\n")
    }
}

/// One start of one crowd.
fn start(built: &Path, crowd: &Crowd, starter: Name) -> Result<Result<Value, String>> {
    let mut command = Command::new(built.join("bench-bridge"));
    command.args(["--contestant", starter, "--server"]).arg(built.join("echo-server"));
    for (flag, number) in [("--servers", crowd.servers), ("--tools", crowd.tools), ("--delay-ms", crowd.delay_ms)] {
        command.arg(flag).arg(number.to_string());
    }
    trial::report(&mut command)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn board() -> Board {
        Board {
            rounds: 1,
            load: [None, None],
            crowds: Rounds::new(),
            tasks: Rounds::new(),
            absent: vec![(Contestant::FastMcp, "no Python".to_owned())],
        }
    }

    fn reached(board: &Board) -> Vec<Option<bool>> {
        board.verdicts().iter().map(Verdict::reached).collect()
    }

    #[test]
    fn each_promise_is_judged_by_its_own_figures() {
        let mut board = board();
        for starter in STARTERS {
            board.crowds.add((SLOW.name, starter), Ok(json!({"ready_us": 1_400_000.0})));
            board.crowds.add((ONE.name, starter), Ok(json!({"ready_us": 4_000.0})));
            let fifty = json!({"ready_us": 13_000.0, "before_kib": 5_000, "held_kib": 9_000, "peak_kib": 24_000});
            board.crowds.add((FIFTY.name, starter), Ok(fifty));
            board.crowds.add((ONE_SCRIPT.name, starter), Ok(json!({"ready_us": 204_000.0})));
            board.crowds.add((FIFTY_SCRIPTS.name, starter), Ok(json!({"ready_us": 350_000.0})));
        }
        for task in Task::ALL {
            for (contestant, took) in
                [(Contestant::Ropeway, 10.0), (Contestant::Mcporter, 300.0), (Contestant::Inspector, 199.0)]
            {
                board.tasks.add((task, contestant), Ok(json!({ "took_ms": took })));
            }
        }
        let expected = [true, false, true, true, true, false, false, false];
        assert_eq!(reached(&board), expected.map(Some));
        assert_eq!(board.best_other(Task::Call), Some((Contestant::Inspector, 19.9)));
    }

    #[test]
    fn who_is_left_out_and_what_failed_is_named() {
        let mut board = board();
        board.tasks.add((Task::ListTen, Contestant::Ropeway), Err("exit status: 2: no such flag".to_owned()));
        assert_eq!(board.task_row(Task::Call, Contestant::FastMcp), "call     fastmcp    left out: no Python\n");
        assert_eq!(
            board.task_row(Task::ListTen, Contestant::Ropeway),
            "list10   ropeway    failed: exit status: 2: no such flag\n"
        );
        assert_eq!(board.task_row(Task::ListTen, Contestant::Inspector), "list10   inspector  does not do this\n");
        assert_eq!(reached(&board), [None; 8]);
    }
}
