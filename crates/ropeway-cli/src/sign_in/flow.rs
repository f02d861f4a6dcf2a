//! Runs a sign-in with the user: opens the browser or shows a URL or a code, and waits for the result.

use std::time::Duration;

use anstyle::Style;
use ropeway_mcp::oauth::{Credentials, DeviceAuthorization, OAuthError, SignIn, SignInOptions};
use url::Url;

use super::browser::{self, BrowserEnvironment, OpenedBrowser};
use super::callback::{CallbackListener, ReservedPort};
use super::failure::{oauth_failure, redact_credentials};
use crate::failure::{Exit, Failure};
use crate::output::print::say;
use crate::terminal::status::Status;
use crate::terminal::style::{faint, warning};
use crate::terminal::text::{clean_line, escape_invisible};

const STRONG: Style = Style::new().bold();

/// Time limit for the user, unless `--timeout` is given.
pub(crate) const SIGN_IN_TIMEOUT: Duration = Duration::from_secs(5 * 60);

/// Maximum pasted texts that are not the callback.
const MAX_PASTES: usize = 5;

/// Maximum pasted callback size in bytes.
const MAX_PASTE: usize = 64 << 10;

/// How the user signs in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum SignInMethod {
    /// The browser, or what works without one.
    #[default]
    Auto,
    /// Shows the URL and waits for the callback.
    ShowUrl,
    /// Shows the URL and reads the callback from the user.
    Paste,
    /// Shows a code to enter on another device.
    Device,
}

/// A method that was chosen for this machine and server.
#[derive(Clone, Debug, PartialEq, Eq)]
enum ChosenMethod {
    /// Opens the URL with this command.
    Browser(Vec<String>),
    ShowUrl,
    Paste,
    Device,
}

/// What a method depends on.
#[derive(Clone, Debug)]
struct Possibilities {
    browser: Option<Vec<String>>,
    can_ask: bool,
    has_device_flow: bool,
    has_authorization_endpoint: bool,
}

impl SignInMethod {
    fn choose(self, possible: Possibilities) -> ChosenMethod {
        let Possibilities { browser, can_ask, has_device_flow, has_authorization_endpoint } = possible;
        match (self, browser) {
            (Self::Device, _) => ChosenMethod::Device,
            (Self::Paste, _) => ChosenMethod::Paste,
            (Self::ShowUrl, _) => ChosenMethod::ShowUrl,
            (Self::Auto, _) if !has_authorization_endpoint && has_device_flow => ChosenMethod::Device,
            (Self::Auto, Some(browser)) => ChosenMethod::Browser(browser),
            (Self::Auto, None) if has_device_flow && can_ask => ChosenMethod::Device,
            (Self::Auto, None) if can_ask => ChosenMethod::Paste,
            (Self::Auto, None) => ChosenMethod::ShowUrl,
        }
    }
}

/// A sign-in with the user at the terminal.
pub(crate) struct SignInFlow<'a> {
    /// The server's name, for messages.
    pub(crate) name: &'a str,
    pub(crate) method: SignInMethod,
    pub(crate) status: &'a Status,
    /// The user can be prompted for a URL.
    pub(crate) can_ask: bool,
}

impl SignInFlow<'_> {
    /// Signs in. `ask` prompts for one line, and returns `None` if the user gives none.
    pub(crate) async fn run(
        &self,
        options: SignInOptions,
        ask: impl AsyncFn(&str) -> Option<String>,
    ) -> Result<Credentials, Failure> {
        let port = options.settings.redirect_port;
        let label = || format!("looking up the authorization server of {}", self.name);
        let started = self.status.during_labelled(label, SignIn::start(options)).await;
        let mut sign_in = started.map_err(|error| self.start_failure(&error))?;
        if let Some(before) = sign_in.previous_issuer() {
            say(&warning(&format!(
                "the authorization server changed (previously {before}); sign in only if you expect this"
            )));
        }
        let chosen = self.method.choose(Possibilities {
            browser: BrowserEnvironment::of_process().command(),
            can_ask: self.can_ask,
            has_device_flow: sign_in.has_device_flow(),
            has_authorization_endpoint: sign_in.has_authorization_endpoint(),
        });
        let done = match chosen {
            ChosenMethod::Device => self.with_device(&mut sign_in).await?,
            ChosenMethod::Paste => self.with_paste(&mut sign_in, port, ask).await?,
            ChosenMethod::Browser(command) => self.with_callback(&mut sign_in, port, Some(command)).await?,
            ChosenMethod::ShowUrl => self.with_callback(&mut sign_in, port, None).await?,
        };
        let credentials = done.map_err(|error| self.failure(&error))?;
        redact_credentials(&credentials);
        Ok(credentials)
    }

    /// Waits for a browser's callback. The browser is opened with a command.
    async fn with_callback(
        &self,
        sign_in: &mut SignIn,
        port: Option<u16>,
        command: Option<Vec<String>>,
    ) -> Result<Result<Credentials, OAuthError>, Failure> {
        let mut listener = CallbackListener::bind(port).await?;
        let url = self.prepare(sign_in, &listener.redirect_uri()).await?;
        let opened = match &command {
            Some(command) => {
                say(&format!("opening a browser to sign in to {}; if none opens, visit\n", self.server(sign_in)));
                browser::open(command, &url).await.ok()
            }
            None => {
                say(&format!("sign in to {} at\n", self.server(sign_in)));
                None
            }
        };
        say(&format!("  {}\n", escape_invisible(url.as_str())));
        let state = state_of(&url).ok_or_else(|| Failure::new(Exit::Unreachable, "the URL has no `state`"))?;
        let waiting = async {
            let (callback, received) = listener.callback(&state).await;
            received.during(sign_in.finish(callback.as_str())).await
        };
        let waiting = report_failure(opened, command.is_some(), waiting);
        Ok(self.status.during_labelled(|| "waiting for the browser".to_owned(), waiting).await)
    }

    /// Reads the callback from the user. The browser may be on another machine, so nothing listens.
    async fn with_paste(
        &self,
        sign_in: &mut SignIn,
        port: Option<u16>,
        ask: impl AsyncFn(&str) -> Option<String>,
    ) -> Result<Result<Credentials, OAuthError>, Failure> {
        // No other program on this machine receives the callback while the port is reserved.
        let reserved = ReservedPort::bind(port)?;
        let url = self.prepare(sign_in, &reserved.redirect_uri()).await?;
        say(&format!(
            "sign in to {} in a browser on any machine:\n  {}\n",
            self.server(sign_in),
            escape_invisible(url.as_str())
        ));
        say(&faint("afterwards the browser shows an error page; copy its URL from the address bar\n"));
        for _ in 0..MAX_PASTES {
            let Some(line) = ask("paste the URL here: ").await else {
                return Err(Failure::new(Exit::NeedsAuth, format!("sign-in to `{}` was cancelled", self.name)));
            };
            let pasted = line.trim();
            if pasted.is_empty() || pasted.len() > MAX_PASTE {
                continue;
            }
            let label = || format!("signing in to {}", self.name);
            match self.status.during_labelled(label, sign_in.finish(pasted)).await {
                Err(OAuthError::Mismatch { .. }) => {
                    say(&warning(
                        "this is not the URL of this sign-in; copy the whole URL, which has `code` and `state`",
                    ));
                }
                done => return Ok(done),
            }
        }
        Err(Failure::new(Exit::NeedsAuth, format!("sign-in to `{}` was not completed", self.name))
            .hint("copy the whole URL from the address bar, and try again"))
    }

    /// Waits until the user enters a code on another device ([RFC 8628](https://www.rfc-editor.org/rfc/rfc8628)).
    async fn with_device(&self, sign_in: &mut SignIn) -> Result<Result<Credentials, OAuthError>, Failure> {
        let label = || format!("requesting a code for {}", self.name);
        let device = match self.status.during_labelled(label, sign_in.device()).await {
            Ok(device) => device,
            Err(error) => return Ok(Err(error)),
        };
        say(&self.device_text(&self.server(sign_in), &device));
        let waiting = sign_in.wait_for_device(&device);
        Ok(self.status.during_labelled(|| "waiting for the code to be entered".to_owned(), waiting).await)
    }

    fn device_text(&self, server: &str, device: &DeviceAuthorization) -> String {
        let code = escape_invisible(&clean_line(&device.user_code));
        let uri = escape_invisible(&device.verification_uri);
        let mut text =
            format!("sign in to {server} on any device: visit\n  {uri}\nand enter the code {STRONG}{code}{STRONG:#}\n");
        if let Some(complete) = &device.verification_uri_complete {
            text.push_str(&faint(&format!("or visit {}\n", escape_invisible(complete))));
        }
        text
    }

    async fn prepare(&self, sign_in: &mut SignIn, redirect_uri: &str) -> Result<Url, Failure> {
        let label = || format!("preparing the sign-in to {}", self.name);
        let url = self.status.during_labelled(label, sign_in.prepare(redirect_uri)).await;
        let url = url.map_err(|error| self.failure(&error))?;
        Url::parse(&url)
            .map_err(|error| Failure::new(Exit::Unreachable, "the authorization URL is invalid").caused_by(&error))
    }

    /// Names the server and the authorization server, which the user is about to trust with a password.
    fn server(&self, sign_in: &SignIn) -> String {
        format!("`{}` ({})", clean_line(self.name), escape_invisible(&clean_line(sign_in.issuer())))
    }

    fn failure(&self, error: &OAuthError) -> Failure {
        let failure = oauth_failure(format!("could not sign in to `{}`", self.name), error);
        match error {
            OAuthError::Expired => failure.hint("start the sign-in again"),
            _ => failure,
        }
    }

    fn start_failure(&self, error: &OAuthError) -> Failure {
        let failure = oauth_failure(format!("could not sign in to `{}`", self.name), error);
        match error {
            OAuthError::Unsupported { .. } | OAuthError::Invalid { .. } => {
                failure.hint("the server may not use OAuth; set a token with `auth: {bearer: …}`")
            }
            _ => failure,
        }
    }
}

/// Waits for a sign-in, and informs the user if the browser does not open.
async fn report_failure<T>(opened: Option<OpenedBrowser>, is_wanted: bool, waiting: impl Future<Output = T>) -> T {
    let mut waiting = std::pin::pin!(waiting);
    let note = "could not open a browser; visit the URL yourself, or try `--paste`";
    match opened {
        Some(mut opened) => {
            tokio::select! {
                biased;
                done = &mut waiting => return done,
                () = opened.failed() => say(&warning(note)),
            }
        }
        None if is_wanted => say(&warning(note)),
        None => {}
    }
    waiting.await
}

fn state_of(url: &Url) -> Option<String> {
    url.query_pairs().find(|(name, _)| name == "state").map(|(_, value)| value.into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn possible(browser: bool, can_ask: bool, has_device_flow: bool) -> Possibilities {
        let browser = browser.then(|| vec!["open".to_owned()]);
        Possibilities { browser, can_ask, has_device_flow, has_authorization_endpoint: true }
    }

    #[test]
    fn without_a_browser_the_device_flow_comes_before_pasting() {
        let auto = |browser, can_ask, device| SignInMethod::Auto.choose(possible(browser, can_ask, device));
        let browser = ChosenMethod::Browser(vec!["open".to_owned()]);
        assert_eq!([auto(true, true, true), auto(true, false, false)], [browser.clone(), browser]);
        assert_eq!([auto(false, true, true), auto(false, true, false)], [ChosenMethod::Device, ChosenMethod::Paste]);
        assert_eq!([auto(false, false, true), auto(false, false, false)], [const { ChosenMethod::ShowUrl }; 2]);
    }

    #[test]
    fn an_option_decides_the_method() {
        for (method, chosen) in [
            (SignInMethod::Device, ChosenMethod::Device),
            (SignInMethod::Paste, ChosenMethod::Paste),
            (SignInMethod::ShowUrl, ChosenMethod::ShowUrl),
        ] {
            assert_eq!(method.choose(possible(true, true, true)), chosen);
        }
        let only_device = Possibilities { has_authorization_endpoint: false, ..possible(true, false, true) };
        assert_eq!(SignInMethod::Auto.choose(only_device), ChosenMethod::Device);
    }
}
