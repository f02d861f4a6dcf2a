//! A conversation with a model that uses the tools of a session's servers.

mod agent_config;
pub(crate) mod approval;
pub(crate) mod approval_store;
pub(crate) mod attachment;
mod call_display;
pub(crate) mod elicitation;
mod json_steps;
pub(crate) mod line_editor;
mod markdown;
mod opening;
mod question;
mod results;
mod run;
pub(crate) mod save_file;
mod screen;
mod slash_commands;
mod slash_parser;
mod state;
pub(crate) mod stdin;
pub(crate) mod store;
mod terminal;
mod turn;
mod turn_failure;
mod undo;

pub(crate) use self::agent_config::AgentConfig;
pub(crate) use self::json_steps::print_failed;
pub(crate) use self::opening::wait_for_opening;
pub(crate) use self::question::Question;
pub(crate) use self::screen::Screen;
pub(crate) use self::state::{Chat, Mentions, SaveState};
pub(crate) use self::terminal::{TerminalUser, print_to_user};
