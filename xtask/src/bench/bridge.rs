//! Bridge benchmark: many servers at once compared with a hand-written client, and the command lines.

use std::path::Path;
use std::process::Command;

use anyhow::Result;
use serde_json::{Value, json};

use super::cli::{CommandLines, Contestant, Task};
use super::goal::{Goal, Unit};
use super::rounds::Rounds;
use super::{cores, load, trial};

/// A contestant's or group's name.
type Name = &'static str;

const BASELINE: Name = "baseline";
const OURS: Name = "ropeway";
/// In round order.
const STARTERS: [Name; 2] = [BASELINE, OURS];

/// Servers that are started together.
struct ServerGroup {
    name: Name,
    servers: usize,
    /// Tools per server.
    tools: usize,
    delay_ms: usize,
}

const SLOW: ServerGroup = ServerGroup { name: "slow10", servers: 10, tools: 4, delay_ms: 1000 };
const ONE: ServerGroup = ServerGroup { name: "one", servers: 1, tools: 32, delay_ms: 0 };
const FIFTY: ServerGroup = ServerGroup { name: "fifty", servers: 50, tools: 32, delay_ms: 0 };
/// Servers that take about as long to start as a small script. Native ones start faster than the kernel starts processes.
const ONE_SCRIPT: ServerGroup = ServerGroup { name: "one200", delay_ms: 200, ..ONE };
const FIFTY_SCRIPTS: ServerGroup = ServerGroup { name: "fifty200", delay_ms: 200, ..FIFTY };
const GROUPS: [ServerGroup; 5] = [SLOW, ONE, FIFTY, ONE_SCRIPT, FIFTY_SCRIPTS];

/// The measurements.
pub(super) struct Report {
    rounds: usize,
    /// Load average before and after.
    load: [Option<f64>; 2],
    groups: Rounds<(Name, Name)>,
    tasks: Rounds<(Task, Contestant)>,
    absent: Vec<(Contestant, String)>,
}

impl Report {
    /// Runs everything. Rounds are interleaved, so a busy moment on the machine affects all contestants.
    pub(super) fn measure(built: &Path, quick: bool) -> Result<Self> {
        let rounds = if quick { 3 } else { 11 };
        let lines = CommandLines::new(built)?;
        let before = load();
        let (mut groups, mut tasks) = (Rounds::new(), Rounds::new());
        eprintln!("round 0 of {rounds}: warm-up, not counted");
        lines.round(&mut Rounds::new())?;
        for round in 1..=rounds {
            eprintln!("round {round} of {rounds}");
            for group in &GROUPS {
                for starter in STARTERS {
                    groups.add((group.name, starter), start(built, group, starter)?);
                }
            }
            lines.round(&mut tasks)?;
        }
        Ok(Self { rounds, load: [before, load()], groups, tasks, absent: lines.absent })
    }

    fn group(&self, group: &ServerGroup, starter: Name, key: &str) -> Option<f64> {
        self.groups.figure(&(group.name, starter), key)
    }

    /// Returns the time for many servers relative to one.
    fn many_of_one(&self, many: &ServerGroup, one: &ServerGroup, starter: Name) -> Option<f64> {
        self.groups.ratio(&(many.name, starter), &(one.name, starter), "ready_us")
    }

    /// Returns the time to spawn fifty processes relative to one whole start: the lower bound for any bridge.
    fn spawns_of_one(&self) -> Option<f64> {
        Some(self.group(&FIFTY, BASELINE, "spawned_us")? / self.group(&ONE, BASELINE, "ready_us")?)
    }

    /// Returns the memory that fifty connections add to the process, without the servers themselves.
    fn megabytes(&self, key: &str) -> Option<f64> {
        let more = self.group(&FIFTY, OURS, key)? - self.group(&FIFTY, OURS, "before_kib")?;
        Some(more * 1024.0 / 1e6)
    }

    fn took(&self, task: Task, contestant: Contestant) -> Option<f64> {
        self.tasks.figure(&(task, contestant), "took_ms")
    }

    /// Returns the fastest other contestant, and its time relative to ropeway.
    fn best_other(&self, task: Task) -> Option<(Contestant, f64)> {
        let others = Contestant::OTHERS.into_iter().filter_map(|other| Some((other, self.took(task, other)?)));
        let (best, _) = others.min_by(|(_, one), (_, other)| one.total_cmp(other))?;
        Some((best, self.tasks.ratio(&(task, best), &(task, Contestant::Ropeway), "took_ms")?))
    }

    fn goals(&self) -> Vec<Goal> {
        let baseline_takes =
            self.group(&SLOW, BASELINE, "ready_us").map(|us| format!("the baseline takes {:.2} s", us / 1e6));
        let baseline_ratio =
            self.many_of_one(&FIFTY, &ONE, BASELINE).zip(self.spawns_of_one()).map(|(ratio, spawns)| {
                format!("the baseline takes {ratio:.2} ×, {spawns:.2} × until the last process is started")
            });
        let script_ratio = self.many_of_one(&FIFTY_SCRIPTS, &ONE_SCRIPT, BASELINE);
        let script_ratio = script_ratio.map(|ratio| format!("the baseline takes {ratio:.2} ×"));
        let mut goals = vec![
            Goal::at_most(
                "S15.3",
                "ten servers of 1 s each, ready in",
                self.group(&SLOW, OURS, "ready_us").map(|us| us / 1e6),
                1.5,
            )
            .with_unit(Unit::Seconds)
            .with_note(baseline_takes),
            Goal::at_most(
                "S15.3",
                "50 servers with 1,600 tools, relative to one",
                self.many_of_one(&FIFTY, &ONE, OURS),
                3.0,
            )
            .with_note(baseline_ratio),
            Goal::at_most(
                "200 ms",
                "the same, each takes 200 ms to start",
                self.many_of_one(&FIFTY_SCRIPTS, &ONE_SCRIPT, OURS),
                3.0,
            )
            .with_note(script_ratio),
            Goal::at_most("memory", "50 connections, added memory", self.megabytes("peak_kib"), 20.0)
                .with_unit(Unit::Megabytes),
            Goal::at_most(
                "S15.4",
                "tools of one server, from exec to exit",
                self.took(Task::ListOne, Contestant::Ropeway),
                50.0,
            )
            .with_unit(Unit::Milliseconds),
        ];
        for (task, promise, what) in [
            (Task::ListOne, "S15.4", "tools of one server, best other CLI"),
            (Task::ListTen, "list10", "tools of ten servers, best other CLI"),
            (Task::Call, "call", "one call, best other CLI"),
        ] {
            let best = self.best_other(task);
            let note = best.map(|(other, _)| format!("the best other is {}", other.name()));
            goals.push(Goal::at_least(promise, what, best.map(|(_, ratio)| ratio), 20.0).with_note(note));
        }
        goals
    }

    pub(super) fn to_json(&self) -> Value {
        let mut groups = Vec::new();
        for group in &GROUPS {
            for starter in STARTERS {
                let key = (group.name, starter);
                groups.push(json!({
                    "crowd": group.name,
                    "servers": group.servers,
                    "tools": group.servers * group.tools,
                    "starter": starter,
                    "failure": self.groups.failure(&key),
                    "ready_us": self.groups.figure(&key, "ready_us"),
                    "spawned_us": self.groups.figure(&key, "spawned_us"),
                    "before_kib": self.groups.figure(&key, "before_kib"),
                    "held_kib": self.groups.figure(&key, "held_kib"),
                    "peak_kib": self.groups.figure(&key, "peak_kib"),
                    "ratio_to_floor": self.groups.ratio(&key, &(group.name, BASELINE), "ready_us"),
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
        let goals: Vec<Value> = self.goals().iter().map(Goal::to_json).collect();
        json!({
            "rounds": self.rounds,
            "cores": cores(),
            "load_before": self.load[0],
            "load_after": self.load[1],
            "crowds": groups,
            "command_lines": command_lines,
            "absent": absent,
            "verdicts": goals,
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
            "start", "servers", "tools", "", "ready ms", "before MiB", "held MiB", "peak MiB", "× base"
        );
        for group in &GROUPS {
            for starter in STARTERS {
                text += &self.group_row(group, starter);
            }
        }
        text += &format!("\n{:<8} {:<10} {:>10} {:>10}\n", "exec", "", "ms", "× ropeway");
        for task in Task::ALL {
            for contestant in Contestant::ALL {
                text += &self.task_row(task, contestant);
            }
        }
        text.push('\n');
        for goal in self.goals() {
            text += &goal.to_text();
        }
        text
    }

    fn group_row(&self, group: &ServerGroup, starter: Name) -> String {
        let (servers, tools) = (group.servers, group.servers * group.tools);
        let name = format!("{:<8} {servers:>7} {tools:>7} {starter:<10}", group.name);
        if let Some(failure) = self.groups.failure(&(group.name, starter)) {
            return format!("{name} failed: {failure}\n");
        }
        let figure = |key| self.group(group, starter, key).unwrap_or(f64::NAN);
        let ratio = self.groups.ratio(&(group.name, starter), &(group.name, BASELINE), "ready_us").unwrap_or(f64::NAN);
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
            return format!("{name} skipped: {why}\n");
        }
        if let Some(failure) = self.tasks.failure(&(task, contestant)) {
            return format!("{name} failed: {failure}\n");
        }
        let Some(took) = self.took(task, contestant) else { return format!("{name} not supported\n") };
        let ratio = self.tasks.ratio(&(task, contestant), &(task, Contestant::Ropeway), "took_ms");
        let ratio = ratio.map_or_else(|| "-".to_owned(), |ratio| format!("{ratio:.1}"));
        format!("{name} {took:>10.1} {ratio:>10}\n")
    }
}

/// Starts one group once.
fn start(built: &Path, group: &ServerGroup, starter: Name) -> Result<Result<Value, String>> {
    let mut command = Command::new(built.join("bench-bridge"));
    command.args(["--contestant", starter, "--server"]).arg(built.join("echo-server"));
    for (flag, number) in [("--servers", group.servers), ("--tools", group.tools), ("--delay-ms", group.delay_ms)] {
        command.arg(flag).arg(number.to_string());
    }
    trial::report(&mut command)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report() -> Report {
        Report {
            rounds: 1,
            load: [None, None],
            groups: Rounds::new(),
            tasks: Rounds::new(),
            absent: vec![(Contestant::FastMcp, "no Python".to_owned())],
        }
    }

    fn reached(report: &Report) -> Vec<Option<bool>> {
        report.goals().iter().map(Goal::reached).collect()
    }

    #[test]
    fn each_goal_uses_its_own_figures() {
        let mut report = report();
        for starter in STARTERS {
            report.groups.add((SLOW.name, starter), Ok(json!({"ready_us": 1_400_000.0})));
            report.groups.add((ONE.name, starter), Ok(json!({"ready_us": 4_000.0})));
            let fifty = json!({"ready_us": 13_000.0, "before_kib": 5_000, "held_kib": 9_000, "peak_kib": 24_000});
            report.groups.add((FIFTY.name, starter), Ok(fifty));
            report.groups.add((ONE_SCRIPT.name, starter), Ok(json!({"ready_us": 204_000.0})));
            report.groups.add((FIFTY_SCRIPTS.name, starter), Ok(json!({"ready_us": 350_000.0})));
        }
        for task in Task::ALL {
            for (contestant, took) in
                [(Contestant::Ropeway, 10.0), (Contestant::Mcporter, 300.0), (Contestant::Inspector, 199.0)]
            {
                report.tasks.add((task, contestant), Ok(json!({ "took_ms": took })));
            }
        }
        let expected = [true, false, true, true, true, false, false, false];
        assert_eq!(reached(&report), expected.map(Some));
        assert_eq!(report.best_other(Task::Call), Some((Contestant::Inspector, 19.9)));
    }

    #[test]
    fn missing_and_failed_contestants_are_named() {
        let mut report = report();
        report.tasks.add((Task::ListTen, Contestant::Ropeway), Err("exit status: 2: no such flag".to_owned()));
        assert_eq!(report.task_row(Task::Call, Contestant::FastMcp), "call     fastmcp    skipped: no Python\n");
        assert_eq!(
            report.task_row(Task::ListTen, Contestant::Ropeway),
            "list10   ropeway    failed: exit status: 2: no such flag\n"
        );
        assert_eq!(report.task_row(Task::ListTen, Contestant::Inspector), "list10   inspector  not supported\n");
        assert_eq!(reached(&report), [None; 8]);
    }
}
