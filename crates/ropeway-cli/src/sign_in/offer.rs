//! Offers a sign-in on the spot, when a call or a connection needs one.

use std::future::Future;

use anstyle::Style;
use ropeway_mcp::Handlers;
use ropeway_mcp::oauth::{SignInAnswer, SignInReason, SignInRequest};
use tokio::sync::oneshot;

use super::flow::{SignInFlow, SignInMethod};
use crate::output::print::say;
use crate::terminal::status::Status;
use crate::terminal::text::{clean_line, cut, escape_invisible};

const NAME: Style = Style::new().bold();

/// Maximum scope text width in columns.
const MAX_SCOPES: usize = 500;

/// A sign-in that the user is asked for, and where the answer goes.
pub(crate) type SignInQuestion = (Box<SignInRequest>, oneshot::Sender<SignInAnswer>);

/// Sets a handler that passes sign-ins on to `send`. A sign-in without an answer is declined.
pub(crate) fn on_sign_in<F, R>(handlers: Handlers, send: F) -> Handlers
where
    F: Fn(SignInQuestion) -> R + Clone + Send + Sync + 'static,
    R: Future<Output = ()> + Send,
{
    handlers.on_sign_in(move |request| {
        let send = send.clone();
        async move {
            let (answer, answered) = oneshot::channel();
            send((Box::new(request), answer)).await;
            Ok(answered.await.unwrap_or(SignInAnswer::Declined))
        }
    })
}

/// Asks whether to sign in now, and signs in. `ask` prompts for one line, and returns `None` if the user gives none.
pub(crate) async fn offer(
    request: &SignInRequest,
    status: &Status,
    ask: impl AsyncFn(&str) -> Option<String>,
) -> SignInAnswer {
    say(&offer_text(request));
    loop {
        match ask("Sign in now? [y]es / [n]o: ").await.map(|line| line.trim().to_lowercase()).as_deref() {
            Some("y" | "yes") => break,
            Some("n" | "no") | None => return SignInAnswer::Declined,
            Some(_) => {}
        }
    }
    let flow = SignInFlow { name: request.server.as_str(), method: SignInMethod::Auto, status, can_ask: true };
    match flow.run(request.options.clone(), ask).await {
        Ok(credentials) => {
            say(&format!("signed in to `{}`\n", clean_line(request.server.as_str())));
            SignInAnswer::from(credentials)
        }
        Err(failure) => {
            say(&failure.render());
            SignInAnswer::Declined
        }
    }
}

fn offer_text(request: &SignInRequest) -> String {
    let server = clean_line(request.server.as_str());
    let why = match request.reason {
        SignInReason::Expired => "needs a new sign-in: the last one has expired".to_owned(),
        SignInReason::Scope => "asks for further permissions".to_owned(),
        _ => "needs a sign-in".to_owned(),
    };
    let scopes = match &request.scopes[..] {
        [] => String::new(),
        scopes => {
            let scopes = escape_invisible(&clean_line(&scopes.join(" ")));
            format!(" (scopes: {})", cut(&scopes, MAX_SCOPES))
        }
    };
    format!("{NAME}{server}{NAME:#} {why}{scopes}\n")
}
