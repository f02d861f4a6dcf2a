//! `ropeway login`: signs in to a server.

use std::io::IsTerminal as _;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use ropeway_core::duration::format_duration;
use ropeway_mcp::oauth::store::Protection;
use ropeway_mcp::oauth::{Credentials, SignInOptions, StoreError, TokenStore};
use serde_json::json;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, BufReader, Stdin};
use tokio::sync::Mutex;

use crate::chat::line_editor::{self, LineEditor, LineInput};
use crate::connect::command_context::CommandContext;
use crate::connect::session::Session;
use crate::failure::{Exit, Failure};
use crate::output::print::{print, print_json, say};
use crate::sign_in::failure::store_failure;
use crate::sign_in::flow::{SIGN_IN_TIMEOUT, SignInFlow, SignInMethod};
use crate::sign_in::target::{SignInTarget, servers_and_entry};
use crate::terminal::status::Status;
use crate::terminal::text::clean_line;

/// Time limit for connecting to a server without a sign-in.
const OPEN_TIMEOUT: Duration = Duration::from_secs(15);

/// Maximum pasted line length in bytes.
const MAX_LINE: u64 = 128 << 10;

/// Appended to `--help`.
pub(super) const EXAMPLES: &str = "\
Examples:
  ropeway login github
  ropeway login https://example.com/mcp
  ropeway login github --paste
  ropeway login github --device
  ropeway login github --scope repo
  ropeway login github --account key:alice

The browser is redirected to a port of 127.0.0.1. On a machine without a browser, use --device if the authorization \
server supports it, or --paste: open the printed URL on any machine, and paste the URL that the browser is redirected \
to. Without these options, the first method that works is used. BROWSER sets the command that opens a URL.

Tokens are stored in ~/.local/state/ropeway/tokens (see XDG_STATE_HOME, ROPEWAY_TOKENS_DIR), readable only by the \
user, and encrypted with a key in the system keyring if one is available (see ROPEWAY_KEYRING). They are refreshed \
when they expire. Without --timeout, a sign-in may take 5 minutes.";

/// Sign in to a server
///
/// Signs in with OAuth, and stores the tokens for all other commands.
#[derive(Debug, clap::Args)]
pub(super) struct Login {
    /// Name of a server in the configuration, or its URL
    #[arg(value_name = "SERVER")]
    server: String,
    /// Print the URL instead of opening a browser
    #[arg(long, conflicts_with_all = ["paste", "device"])]
    no_browser: bool,
    /// Print the URL, and ask for the URL that the browser is redirected to
    #[arg(long, conflicts_with = "device")]
    paste: bool,
    /// Print a code to enter on another device
    #[arg(long)]
    device: bool,
    /// Account to store the tokens for, such as a principal of a gateway
    #[arg(long, value_name = "NAME")]
    account: Option<String>,
    /// Scope to request, in addition to those that the server asks for (repeatable)
    #[arg(long = "scope", value_name = "SCOPE")]
    scopes: Vec<String>,
    /// Configuration file, if not the one in use
    #[arg(short, long, value_name = "FILE")]
    config: Option<PathBuf>,
}

impl Login {
    pub(super) async fn run(self, context: CommandContext) -> Result<Exit, Failure> {
        let target = SignInTarget::find(&self.server, self.config.as_deref(), &context)?;
        if let Some(reason) = target.own_tokens() {
            return self.check_connection(&target, reason, context).await;
        }
        target.check()?;
        let store = TokenStore::default_location().map_err(|error| store_failure(&error))?;
        let protection = store.check().await.map_err(|error| store_failure(&error))?;
        let credentials = match self.sign_in(&target, &store, &context).await {
            Ok(credentials) => credentials,
            // A server without authentication has no authorization server.
            Err(failure) if failure.exit() == Exit::Unreachable => {
                return self.check_open(&target, failure, &context).await;
            }
            Err(failure) => return Err(failure),
        };
        let saved = save(&store, &credentials).await;
        saved.map_err(|error| store_failure(&error).hint("the sign-in worked, but its tokens are not stored"))?;
        report(&target, &credentials, &protection, &store, context.json)?;
        Ok(Exit::Done)
    }

    async fn sign_in(
        &self,
        target: &SignInTarget,
        store: &TokenStore,
        context: &CommandContext,
    ) -> Result<Credentials, Failure> {
        let mut settings = target.settings();
        settings.scopes.extend(self.scopes.iter().cloned());
        let account = self.account.clone().or_else(|| settings.account.clone());
        // A damaged entry is replaced by this sign-in.
        let previous = store.load(&target.url, account.as_deref()).await.ok().flatten();
        let options =
            SignInOptions::new(&target.url).with_settings(settings).with_account(account).with_previous(previous);
        let can_ask = std::io::stdin().is_terminal() && std::io::stderr().is_terminal();
        let flow = SignInFlow { name: &target.name, method: self.method(), status: &context.status, can_ask };
        let input = UserInput::new(context.json);
        let signed_in = flow.run(options, async |prompt: &str| input.line(prompt, &context.status).await);
        let (limit, until) = match &context.deadline {
            Some(deadline) => (deadline.after(), deadline.at()),
            None => (SIGN_IN_TIMEOUT, tokio::time::Instant::now() + SIGN_IN_TIMEOUT),
        };
        let done = tokio::time::timeout_at(until, signed_in).await;
        // The prompt may still be open.
        line_editor::restore();
        done.unwrap_or_else(|_| Err(timeout_failure(target, limit)))
    }

    /// Connects to a server that offers no sign-in. Returns the sign-in failure unless the server accepts everybody.
    async fn check_open(
        &self,
        target: &SignInTarget,
        failure: Failure,
        context: &CommandContext,
    ) -> Result<Exit, Failure> {
        let (servers, _) = servers_and_entry(&self.server, self.config.as_deref(), context)?;
        let connected = Session::with(servers.without_lock(), context, async |_| Ok(()));
        match tokio::time::timeout(OPEN_TIMEOUT, connected).await {
            Ok(Ok(())) => {}
            _ => return Err(failure),
        }
        let name = clean_line(&target.name);
        context.print(&json!({"server": target.url, "name": target.name, "sign_in": "not needed"}), || {
            format!("server `{name}` does not ask for authentication: no sign-in is needed\n")
        })?;
        Ok(Exit::Done)
    }

    fn method(&self) -> SignInMethod {
        match (self.device, self.paste, self.no_browser) {
            (true, ..) => SignInMethod::Device,
            (_, true, _) => SignInMethod::Paste,
            (.., true) => SignInMethod::ShowUrl,
            _ => SignInMethod::Auto,
        }
    }

    /// Connects to a server that needs no sign-in, to check that it gets tokens.
    async fn check_connection(
        &self,
        target: &SignInTarget,
        reason: &str,
        context: CommandContext,
    ) -> Result<Exit, Failure> {
        say(&format!("server `{}` needs no sign-in: {reason}\n", clean_line(&target.name)));
        let (servers, _) = servers_and_entry(&self.server, self.config.as_deref(), &context)?;
        Session::with(servers.without_lock(), &context, async |_| {
            if context.json {
                print_json(&json!({"server": target.url, "name": target.name, "sign_in": "not needed"}))?;
            } else {
                print(&format!("connected to `{}` with a token\n", clean_line(&target.name)))?;
            }
            Ok(Exit::Done)
        })
        .await
    }
}

/// Where pasted lines come from.
enum UserInput {
    /// A terminal for input and output. It limits its own lines to 4 KiB, so the line editor reads them.
    Editor,
    /// Standard input.
    Lines(Box<Mutex<BufReader<Stdin>>>),
}

impl UserInput {
    fn new(json: bool) -> Self {
        // The editor's prompt goes to standard output.
        if !json && std::io::stdin().is_terminal() && std::io::stdout().is_terminal() {
            Self::Editor
        } else {
            Self::Lines(Box::new(Mutex::new(BufReader::new(tokio::io::stdin()))))
        }
    }

    /// Reads one line. Returns `None` for end-of-file and for Ctrl-C.
    async fn line(&self, prompt: &str, status: &Status) -> Option<String> {
        let _paused = status.pause();
        match self {
            Self::Editor => match LineEditor::start(false).ok()?.question(prompt).await {
                LineInput::Line(line) => Some(line),
                LineInput::Interrupted { .. } | LineInput::End => None,
            },
            Self::Lines(input) => {
                say(&format!("{prompt}\n"));
                let mut line = String::new();
                let mut input = input.lock().await;
                let length = (&mut *input).take(MAX_LINE).read_line(&mut line).await;
                length.ok().filter(|length| *length > 0).map(|_| line)
            }
        }
    }
}

/// Stores a sign-in while no other process refreshes the previous one.
async fn save(store: &TokenStore, credentials: &Credentials) -> Result<(), StoreError> {
    let _lock = store.lock(&credentials.server, credentials.account.as_deref()).await?;
    store.save(credentials).await
}

fn timeout_failure(target: &SignInTarget, limit: Duration) -> Failure {
    Failure::new(
        Exit::Timeout,
        format!("the sign-in to `{}` was not finished within {}", target.name, format_duration(limit)),
    )
    .hint(format!("try {} again, with a longer --timeout", target.command("login")))
}

fn report(
    target: &SignInTarget,
    credentials: &Credentials,
    protection: &Protection,
    store: &TokenStore,
    json: bool,
) -> Result<(), Failure> {
    let left = credentials.tokens.expires_at.map(|at| at.duration_since(SystemTime::now()).unwrap_or_default());
    if json {
        return print_json(&json!({
            "server": credentials.server,
            "name": target.name,
            "account": credentials.account,
            "issuer": credentials.issuer,
            "resource": credentials.resource,
            "scopes": credentials.granted,
            "expires_in": left.map(|left| left.as_secs()),
            "refreshable": credentials.tokens.refresh_token.is_some(),
            "stored": protection.to_string(),
            "folder": store.folder(),
        }));
    }
    let account = credentials.account.as_deref().map(|account| format!(" as `{account}`")).unwrap_or_default();
    let scopes = match &credentials.granted[..] {
        [] => String::new(),
        scopes => format!(" · scopes: {}", scopes.join(" ")),
    };
    let expiry = match (left, &credentials.tokens.refresh_token) {
        (_, Some(_)) | (None, _) => String::new(),
        (Some(left), None) => format!(" · expires in {}", format_duration(left)),
    };
    print(&format!(
        "{}\n",
        clean_line(&format!("signed in to `{}`{account}{scopes}{expiry} · stored: {protection}", target.name))
    ))
}
