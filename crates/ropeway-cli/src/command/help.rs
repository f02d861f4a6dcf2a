//! The program's help, with its commands in groups.

use std::fmt::Write as _;

use anstyle::Style;
use clap::Command;

/// The style for headings and names, as in other help texts.
const HEADING: Style = Style::new().bold().underline();
const NAME: Style = Style::new().bold();

/// The commands by purpose.
const GROUPS: [(&str, &[&str]); 4] = [
    ("Use", &["tools", "call", "chat", "resources", "read", "prompts", "prompt", "generate"]),
    ("Servers", &["add", "remove", "import", "login", "logout", "auth", "health", "doctor", "events"]),
    ("Gateway", &["serve", "up", "down", "status", "top", "key", "install"]),
    ("Setup", &["config", "trust", "lock", "completions", "man", "demo-server"]),
];

/// Lists the program's commands in groups instead of one list.
pub(super) fn in_groups(command: Command) -> Command {
    let longest = GROUPS.iter().flat_map(|(_, names)| *names).map(|name| name.len()).max().unwrap_or_default();
    let mut groups = String::new();
    for (heading, names) in GROUPS {
        // Writing to a string cannot fail.
        let _ = writeln!(groups, "{HEADING}{heading}:{HEADING:#}");
        for name in names {
            let found = command.find_subcommand(name);
            let about = found.and_then(Command::get_about).map(ToString::to_string).unwrap_or_default();
            let aliases: Vec<&str> = found.into_iter().flat_map(Command::get_visible_aliases).collect();
            let aliases =
                if aliases.is_empty() { String::new() } else { format!(" [aliases: {}]", aliases.join(", ")) };
            let _ = writeln!(groups, "  {NAME}{name}{NAME:#}{:1$}  {about}{aliases}", "", longest - name.len());
        }
        groups.push('\n');
    }
    command.help_template(format!(
        "{{about-with-newline}}\n{{usage-heading}} {{usage}}\n\n{groups}{HEADING}Options:{HEADING:#}\n{{options}}{{after-help}}"
    ))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;
    use crate::command::CommandLine;

    #[test]
    fn every_command_is_in_one_group() {
        let command = CommandLine::command();
        let mut known: Vec<&str> =
            command.get_subcommands().filter(|command| !command.is_hide_set()).map(Command::get_name).collect();
        let mut grouped: Vec<&str> = GROUPS.iter().flat_map(|(_, names)| *names).copied().collect();
        known.sort_unstable();
        grouped.sort_unstable();
        assert_eq!(grouped, known);
    }
}
