//! `ropeway` alone: what it can do, shown with the tools of the demo server.

use anstyle::Style;

use super::tools::list_json;
use super::{Setting, print, print_json};
use crate::failure::{Exit, Failure};
use crate::server::ServerOptions;
use crate::session::Session;
use crate::signature::signature;
use crate::text::{clean, clean_line, width, wrap};

const HEADING: Style = Style::new().bold().underline();
const FAINT: Style = Style::new().dimmed();

const TRY: [&str; 4] = [
    "call calculate expression='2^10 / 3'",
    "call time zone=Europe/Lisbon",
    "call chart values='[3, 1, 4, 1, 5]' --save out",
    "call countdown seconds=3",
];

const REAL: [&str; 3] = [
    "tools --stdio \"npx -y @modelcontextprotocol/server-everything\"",
    "tools --url https://example.com/mcp --bearer TOKEN",
    "call TOOL key=value --stdio \"COMMAND\"",
];

pub(super) async fn run(setting: Setting) -> Result<Exit, Failure> {
    let config = ServerOptions::default().config()?;
    Session::with(config, setting.deadline, setting.status, async |session| {
        let tools = session.definitions().await?;
        if setting.json {
            print_json(&list_json(session.server_info().as_deref(), &tools))?;
            return Ok(Exit::Done);
        }
        let (width, program) = (width(), program());
        let mut text = wrap("Ropeway brings the tools of any MCP server to your terminal. No server was given, so here are the tools of the built-in demo server.", width, 0);
        for tool in &tools {
            text.push_str(&format!("\n{}\n", signature(tool, width)));
            let description = tool.description.as_deref().map(clean).unwrap_or_default();
            // The first sentence says what it is; `ropeway tools` says the rest.
            let sentence = clean_line(&description);
            let sentence = sentence.split_once(". ").map_or(sentence.as_str(), |(first, _)| first);
            text.push_str(&wrap(sentence.trim_end_matches('.'), width, 4));
        }
        for (heading, lines) in [("Try one", &TRY[..]), ("Use a real server", &REAL[..])] {
            text.push_str(&format!("\n{HEADING}{heading}{HEADING:#}\n"));
            lines.iter().for_each(|line| text.push_str(&format!("  {program} {line}\n")));
        }
        text.push_str(&format!("\n{FAINT}{program} --help says more.{FAINT:#}\n"));
        print(&text)?;
        Ok(Exit::Done)
    })
    .await
}

/// The program as it was called, so that what is shown can be typed: `target/release/ropeway` before it is installed.
fn program() -> String {
    let name = std::env::args_os().next().map(|name| clean_line(&name.to_string_lossy()));
    let name = name.filter(|name| !name.is_empty()).unwrap_or_else(|| "ropeway".to_owned());
    shlex::try_quote(&name).map_or_else(|_| name.clone(), |quoted| quoted.into_owned())
}
