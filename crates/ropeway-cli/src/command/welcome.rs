//! `ropeway` without a command: configured servers, or the demo server.

use std::path::{Path, PathBuf};

use anstyle::Style;
use ropeway_core::tool::Alias;
use serde_json::json;

use crate::catalog::list_json;
use crate::connect::advice::ServerAdvice;
use crate::connect::command_context::CommandContext;
use crate::connect::server_options::ServerOptions;
use crate::connect::servers::{ServerSource, Servers};
use crate::connect::session::Session;
use crate::describe::signature::signature;
use crate::failure::{Exit, Failure};
use crate::output::print::{print, print_json};
use crate::terminal::table::{Cell, Overflow, Table};
use crate::terminal::text::{clean, clean_line, counted, first_sentence, width, wrap};

const HEADING: Style = Style::new().bold().underline();
const FAINT: Style = Style::new().dimmed();

const TRY: [&str; 4] = [
    "call calculate expression='2^10 / 3'",
    "call time zone=Europe/Lisbon",
    "call chart values='[3, 1, 4, 1, 5]' --save out",
    "call countdown seconds=3",
];

const REAL: [&str; 4] = [
    "add NAME -- COMMAND",
    "import",
    "tools --stdio \"npx -y @modelcontextprotocol/server-everything\"",
    "tools --url https://example.com/mcp --bearer TOKEN",
];

const DO: [(&str, &str); 5] = [
    ("tools", "list tools"),
    ("tools --find QUERY", "find a tool"),
    ("call SERVER.TOOL key=value", "call a tool"),
    ("health", "show server status"),
    ("add NAME -- COMMAND", "add a server"),
];

pub(super) async fn run(config: Option<PathBuf>, context: CommandContext) -> Result<Exit, Failure> {
    let options = ServerOptions { config, ..ServerOptions::default() };
    if let Some(file) = options.config_file()? {
        // Starts no servers, so trust is not needed.
        let is_trusted = file.is_trusted(context.trust);
        let config = if is_trusted { file.parse() } else { file.parse_unread() };
        let config = config.map_err(|error| Failure::config(&error))?;
        let servers = Servers::new(config, ServerSource::File(file.path.clone()));
        servers.redact_secrets();
        servers.show_all_warnings();
        return configured(&file.path, &servers, is_trusted, &context);
    }
    let servers = options.own_servers(&context)?;
    Session::with(servers, &context, async |session| {
        session.wait_for_servers().await?;
        let listing = session.listing();
        if context.json {
            print_json(&list_json(session, &listing))?;
            return Ok(Exit::Done);
        }
        let (width, program) = (width(), program());
        let mut text = wrap("Ropeway lists and calls the tools of MCP servers. No servers are configured, so these are the tools of the built-in demo server.", width, 0);
        for tool in listing.registry.definitions() {
            text.push_str(&format!("\n{}\n", signature(tool, width)));
            let description = tool.description.as_deref().map(clean).unwrap_or_default();
            text.push_str(&wrap(&first_sentence(&description), width, 4));
        }
        for (heading, lines) in [("Try one", &TRY[..]), ("Use a real server", &REAL[..])] {
            text.push_str(&format!("\n{HEADING}{heading}{HEADING:#}\n"));
            lines.iter().for_each(|line| text.push_str(&format!("  {program} {line}\n")));
        }
        text.push_str(&format!("\n{FAINT}See {program} --help for all commands.{FAINT:#}\n"));
        print(&text)?;
        Ok(Exit::Done)
    })
    .await
}

/// Lists the configured servers and common commands.
fn configured(file: &Path, servers: &Servers, is_trusted: bool, context: &CommandContext) -> Result<Exit, Failure> {
    let names: Vec<&str> = servers.names().into_iter().map(Alias::as_str).collect();
    if context.json {
        print_json(&json!({"config": file, "servers": names, "trusted": is_trusted}))?;
        return Ok(Exit::Done);
    }
    if names.is_empty() {
        print(&ServerAdvice::new(servers.source.clone(), None).no_servers())?;
        return Ok(Exit::Done);
    }
    let (width, program) = (width(), program());
    let mut text = wrap(
        &format!("{} in {}: {}", counted(names.len(), "server"), file.display(), clean_line(&names.join(", "))),
        width,
        0,
    );
    if !is_trusted {
        let note = format!("The file is not trusted. Review and accept it with `{program} trust`.");
        text.push_str(&format!("\n{}", wrap(&note, width, 0)));
    }
    text.push_str(&format!("\n{HEADING}Commands{HEADING:#}\n"));
    let mut table = Table::new(&[], Overflow::Wrap);
    for (command, what) in DO {
        table.row([Cell::new(&format!("{program} {command}")), Cell::new(what).styled(FAINT)]);
    }
    text.push_str(&table.render(Some(width), 2));
    text.push_str(&format!("\n{FAINT}See {program} --help for all commands.{FAINT:#}\n"));
    print(&text)?;
    Ok(Exit::Done)
}

/// Returns the program as it was called, such as `target/release/ropeway`, so that examples can be pasted.
fn program() -> String {
    let name = std::env::args_os().next().map(|name| clean_line(&name.to_string_lossy()));
    let name = name.filter(|name| !name.is_empty()).unwrap_or_else(|| "ropeway".to_owned());
    shlex::try_quote(&name).map_or_else(|_| name.clone(), |quoted| quoted.into_owned())
}
