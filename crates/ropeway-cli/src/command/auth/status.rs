//! `ropeway auth status`: lists stored sign-ins and servers that need one.

use std::path::PathBuf;
use std::time::SystemTime;

use anstyle::Style;
use jiff::Timestamp;
use ropeway_core::duration::format_duration;
use ropeway_mcp::oauth::TokenStore;
use ropeway_mcp::oauth::store::CredentialsSummary;
use serde_json::{Value, json};

use crate::connect::command_context::CommandContext;
use crate::failure::{Exit, Failure, chain_text};
use crate::output::print::{print, print_json, say};
use crate::sign_in::failure::store_failure;
use crate::sign_in::target::{SignInTarget, configured_targets};
use crate::terminal::status_icon::StatusIcon;
use crate::terminal::style::warning;
use crate::terminal::table::{Cell, Overflow, Table};
use crate::terminal::text::terminal_width;

const FAINT: Style = Style::new().dimmed();

#[derive(Debug, clap::Args)]
pub(super) struct Status {
    /// Configuration file, if not the one in use
    #[arg(short, long, value_name = "FILE")]
    config: Option<PathBuf>,
}

/// Whether a sign-in is still valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Validity {
    Valid,
    /// The access token has expired, and the next use refreshes it.
    Refreshable,
    Expired,
}

impl Validity {
    fn of(entry: &CredentialsSummary, now: SystemTime) -> Self {
        match entry.expires_at {
            Some(expires) if expires <= now && entry.refreshable => Self::Refreshable,
            Some(expires) if expires <= now => Self::Expired,
            _ => Self::Valid,
        }
    }

    fn cell(self) -> Cell {
        match self {
            Self::Valid => StatusIcon::Good.cell("signed in"),
            Self::Refreshable => StatusIcon::Good.cell("refreshed on use"),
            Self::Expired => StatusIcon::Bad.cell("expired"),
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Valid => "valid",
            Self::Refreshable => "refreshable",
            Self::Expired => "expired",
        }
    }
}

impl Status {
    pub(super) async fn run(self, store: &TokenStore, context: &CommandContext) -> Result<Exit, Failure> {
        let targets = configured_targets(self.config.as_deref(), context)?;
        let list = store.list().await.map_err(|error| store_failure(&error))?;
        let name =
            |entry: &CredentialsSummary| SignInTarget::of_sign_in(&targets, &entry.server, entry.account.as_deref());
        let is_signed_in = |target: &&SignInTarget| list.entries.iter().any(|entry| target.uses(entry));
        let missing: Vec<&SignInTarget> =
            targets.iter().filter(|target| target.needs_sign_in()).filter(|target| !is_signed_in(target)).collect();
        let problems: Vec<String> = list.unreadable.iter().map(|error| chain_text(error)).collect();
        let now = SystemTime::now();
        if context.json {
            let signed_in = list.entries.iter().map(|entry| describe(entry, name(entry), now));
            let missing = missing.iter().map(|target| json!({"name": target.name, "server": target.url.as_str()}));
            print_json(&json!({
                "folder": store.folder(),
                "sign_ins": signed_in.collect::<Vec<_>>(),
                "not_signed_in": missing.collect::<Vec<_>>(),
                "problems": problems,
            }))?;
            return Ok(Exit::Done);
        }
        if list.entries.is_empty() && missing.is_empty() {
            print("no sign-ins; sign in with `ropeway login SERVER`\n")?;
        } else {
            let mut table =
                Table::new(&["", "SERVER", "ACCOUNT", "ISSUER", "EXPIRES", "STORED", "SCOPES"], Overflow::Wrap)
                    .with_optional(&[5, 3, 2]);
            for entry in &list.entries {
                table.row(row(entry, name(entry), now));
            }
            for target in &missing {
                let text = format!("run {}", target.command("login"));
                let cells = [Cell::new(&target.name), dash(), dash(), dash(), dash(), Cell::new(&text).styled(FAINT)];
                table.row([StatusIcon::Off.cell("not signed in")].into_iter().chain(cells));
            }
            print(&table.render(terminal_width(&std::io::stdout()), 0))?;
        }
        problems.iter().for_each(|problem| say(&warning(problem)));
        if list.truncated {
            say(&warning("more sign-ins are stored than are listed"));
        }
        Ok(Exit::Done)
    }
}

fn dash() -> Cell {
    Cell::new("-").styled(FAINT)
}

fn row(entry: &CredentialsSummary, target: Option<&SignInTarget>, now: SystemTime) -> [Cell; 7] {
    let validity = Validity::of(entry, now);
    let server = target.map_or(entry.server.as_str(), |target| target.name.as_str());
    let scopes = match &entry.scopes[..] {
        [] => dash(),
        scopes => Cell::new(&scopes.join(" ")),
    };
    [
        validity.cell(),
        Cell::new(server),
        entry.account.as_deref().map_or_else(dash, Cell::new),
        Cell::new(&entry.issuer).styled(FAINT),
        Cell::new(&expiry(entry.expires_at, now)),
        Cell::new(&entry.protection.to_string()).styled(FAINT),
        scopes,
    ]
}

/// Formats an expiry relative to now.
fn expiry(expires: Option<SystemTime>, now: SystemTime) -> String {
    match expires.map(|expires| expires.duration_since(now)) {
        None => "unknown".to_owned(),
        Some(Ok(left)) => format!("in {}", format_duration(left)),
        Some(Err(past)) => format!("{} ago", format_duration(past.duration())),
    }
}

fn describe(entry: &CredentialsSummary, target: Option<&SignInTarget>, now: SystemTime) -> Value {
    json!({
        "server": entry.server,
        "name": target.map(|target| &target.name),
        "account": entry.account,
        "issuer": entry.issuer,
        "resource": entry.resource,
        "client_id": entry.client_id,
        "scopes": entry.scopes,
        "state": Validity::of(entry, now).name(),
        "expires_at": entry.expires_at.and_then(timestamp),
        "refreshable": entry.refreshable,
        "dpop": entry.dpop,
        "obtained_at": timestamp(entry.obtained_at),
        "stored": entry.protection.to_string(),
    })
}

/// Formats a time as RFC 3339 in seconds.
fn timestamp(time: SystemTime) -> Option<String> {
    let time = Timestamp::try_from(time).ok()?;
    Some(time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn an_expiry_is_relative() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000);
        let at = |seconds: u64| Some(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds));
        assert_eq!(expiry(None, now), "unknown");
        assert_eq!(expiry(at(1_000_030), now), "in 30 s");
        assert_eq!(expiry(at(999_990), now), "10 s ago");
    }
}
