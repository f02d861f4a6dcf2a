//! The scripts that shells complete with.

use std::io::Write as _;
use std::process::{Command, Stdio};

use crate::Run;

/// The commands, as the help names them.
pub(crate) fn commands() -> Vec<String> {
    let help = Run::of(&["--help"]).expect(0).stdout;
    let lines = help.lines().skip_while(|line| *line != "Commands:").skip(1).take_while(|line| !line.is_empty());
    // What a description goes on with is indented further.
    let names = lines.filter(|line| !line.starts_with("   ")).filter_map(|line| line.split_whitespace().next());
    // `help` is another way to ask for the help of the others.
    names.filter(|name| *name != "help").map(str::to_owned).collect()
}

#[test]
fn the_script_for_every_shell_knows_every_command() {
    let commands = commands();
    assert!(commands.contains(&"demo-server".to_owned()) && commands.len() >= 4, "{commands:?}");
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let run = Run::of(&["completions", shell]).expect(0);
        for command in &commands {
            assert!(run.stdout.contains(command.as_str()), "{shell} does not know {command}");
        }
        assert!(run.stdout.contains("--stdio") || run.stdout.contains("-l stdio"), "{shell} knows no options");
        assert_eq!(run.stderr, "");
    }
}

#[test]
fn bash_takes_its_script_and_completes_with_it() {
    let script = Run::of(&["completions", "bash"]).expect(0).stdout;
    let ask = r#"
        COMP_WORDS=(ropeway comp); COMP_CWORD=1
        _ropeway ropeway comp ropeway
        printf '%s\n' "${COMPREPLY[@]}""#;
    let mut bash = Command::new("bash");
    let bash = bash.args(["--norc", "--noprofile", "-s"]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut bash = bash.stderr(Stdio::piped()).spawn().expect("bash runs");
    bash.stdin.take().expect("its input").write_all(format!("{script}\n{ask}").as_bytes()).expect("bash reads");
    let run = Run::from(bash.wait_with_output().expect("an end")).expect(0);
    assert_eq!((run.stdout.as_str(), run.stderr.as_str()), ("completions\n", ""));
}

#[test]
fn an_unknown_shell_is_a_usage_error_that_names_the_known_ones() {
    let run = Run::of(&["completions", "tcsh"]).expect(2);
    assert!(run.stderr.contains("bash, elvish, fish, powershell, zsh"), "{}", run.stderr);
}
