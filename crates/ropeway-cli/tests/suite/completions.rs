//! Completion scripts.

use crate::{Ropeway, Run};

/// Returns the commands of the help text.
pub(crate) fn commands() -> Vec<String> {
    let help = Run::of(&["--help"]).expect(0).stdout;
    let lines = help.lines().skip_while(|line| *line != "Use:").take_while(|line| *line != "Options:");
    // Continued descriptions are indented further.
    let names = lines.filter(|line| line.starts_with("  ") && !line.starts_with("   "));
    names.filter_map(|line| line.split_whitespace().next()).map(str::to_owned).collect()
}

#[test]
fn every_shell_completes_every_command() {
    let commands = commands();
    assert!(commands.contains(&"demo-server".to_owned()) && commands.len() >= 4, "{commands:?}");
    for shell in ["elvish", "powershell"] {
        let run = Run::of(&["completions", shell]).expect(0);
        for command in &commands {
            assert!(run.stdout.contains(command.as_str()), "{shell} does not know {command}");
        }
        assert!(run.stdout.contains("--stdio") || run.stdout.contains("-l stdio"), "{shell} knows no options");
        assert_eq!(run.stderr, "");
    }
    let complete = |words: &[&str]| {
        let ropeway = Ropeway::new(words).with(|command| {
            command.env("ROPEWAY_COMPLETION_TIMEOUT", "60s");
        });
        ropeway.run().expect(0).stdout
    };
    let known = complete(&["complete", "zsh", "ropeway", ""]);
    let known: Vec<&str> = known.lines().filter_map(|line| line.split('\t').next()).collect();
    for command in &commands {
        assert!(known.contains(&command.as_str()), "{command} is not known: {known:?}");
    }
    let options = complete(&["complete", "fish", "ropeway", "tools", "--"]);
    assert!(options.contains("--stdio\t") && options.contains("--json\t"), "{options}");
}

#[test]
fn an_unknown_shell_is_a_usage_error_that_names_the_known_ones() {
    let run = Run::of(&["completions", "tcsh"]).expect(2);
    assert!(run.stderr.contains("bash, elvish, fish, powershell, zsh"), "{}", run.stderr);
}
