//! When output is coloured: `--color`, `NO_COLOR`, `FORCE_COLOR`, `CLICOLOR` and `CLICOLOR_FORCE`.

use std::ffi::{OsStr, OsString};

use anstream::ColorChoice;
use clap::ValueEnum;

/// The value of `--color`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum ColorOption {
    /// On terminals, unless variables such as `NO_COLOR` or `FORCE_COLOR` decide
    #[default]
    Auto,
    /// Always
    Always,
    /// Never
    Never,
}

impl ColorOption {
    /// Returns the value in a command line that is not parsed yet.
    pub(crate) fn named(words: &[OsString]) -> Option<Self> {
        let words: Vec<&str> = words.iter().take_while(|word| *word != "--").filter_map(|word| word.to_str()).collect();
        let behind = words.windows(2).find(|pair| pair[0] == "--color").map(|pair| pair[1]);
        let value = words.iter().find_map(|word| word.strip_prefix("--color=")).or(behind)?;
        Self::from_str(value, false).ok()
    }

    /// Applies the choice to all output.
    pub(crate) fn apply(self) {
        self.choice(|name| std::env::var_os(name)).write_global();
    }

    /// Resolves the choice. `anstream` knows the other variables, but not `FORCE_COLOR` (<https://force-color.org>).
    fn choice(self, variable: impl Fn(&str) -> Option<OsString>) -> ColorChoice {
        let is_set = |name: &str| variable(name).is_some_and(|value| !value.is_empty());
        match (self, variable("FORCE_COLOR").as_deref().and_then(OsStr::to_str)) {
            (Self::Always, _) => ColorChoice::Always,
            (Self::Never, _) => ColorChoice::Never,
            (Self::Auto, _) if is_set("NO_COLOR") => ColorChoice::Auto,
            (Self::Auto, Some("0" | "false")) => ColorChoice::Never,
            (Self::Auto, None | Some("")) => ColorChoice::Auto,
            (Self::Auto, Some(_)) => ColorChoice::Always,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_option_precedes_the_variables_and_no_color_precedes_force_color() {
        let choice = |option: ColorOption, variables: &[(&str, &str)]| {
            let value = |name: &str| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| value.into());
            option.choice(value)
        };
        let auto = |variables: &[(&str, &str)]| choice(ColorOption::Auto, variables);
        assert_eq!(auto(&[]), ColorChoice::Auto);
        assert_eq!(auto(&[("FORCE_COLOR", "1")]), ColorChoice::Always);
        assert_eq!(auto(&[("FORCE_COLOR", "0")]), ColorChoice::Never);
        assert_eq!(auto(&[("FORCE_COLOR", "")]), ColorChoice::Auto);
        assert_eq!(auto(&[("FORCE_COLOR", "3"), ("NO_COLOR", "1")]), ColorChoice::Auto);
        assert_eq!(choice(ColorOption::Always, &[("NO_COLOR", "1")]), ColorChoice::Always);
        assert_eq!(choice(ColorOption::Never, &[("FORCE_COLOR", "1")]), ColorChoice::Never);
    }

    #[test]
    fn the_option_is_found_before_the_line_is_parsed() {
        let named = |line: &str| ColorOption::named(&line.split(' ').map(OsString::from).collect::<Vec<_>>());
        assert_eq!(named("ropeway --color=never tools"), Some(ColorOption::Never));
        assert_eq!(named("ropeway tools --color always"), Some(ColorOption::Always));
        assert_eq!(named("ropeway call draw --color red"), None);
        assert_eq!(named("ropeway call draw -- --color never"), None);
    }
}
