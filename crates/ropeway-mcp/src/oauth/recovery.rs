//! Recovers a request that a server refused: a newer token, a refresh, a grant, or a sign-in.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::active_token::{ActiveToken, TokenOrigin};
use super::authorizer::{Authorizer, Flight, TokenGrant};
use super::challenge::Challenge;
use super::credentials::Credentials;
use super::error::OAuthError;
use super::scopes::step_up_scopes;
use super::sign_in::SignInOptions;
use super::sign_in_request::{SignInAnswer, SignInReason, SignInRequest};
use super::store::canonical_server;
use ropeway_config::OAuthSettings;
use ropeway_core::event::Event;

/// Maximum number of recoveries for one request.
pub(crate) const MAX_RECOVERIES: u32 = 3;

/// After this time, the user may sign in again although the server rejected the last sign-in's token.
const REJECTION_TIME: Duration = Duration::from_secs(60);

/// Why a server refused a request.
#[derive(Debug)]
pub(crate) struct Refusal {
    /// The generation of the token that the request had.
    pub(crate) generation: u64,
    pub(crate) challenge: Option<Challenge>,
    /// Whether the token lacks scopes. Otherwise it is missing or invalid.
    pub(crate) is_scope: bool,
}

/// Who waits for a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Waiting {
    /// A call, which may prompt the user to sign in.
    Call,
    /// A handshake or a request in the background. Prompts the user only if a caller waits for the connection.
    Background,
    /// A request that never prompts for a sign-in, such as a notification.
    Optional,
}

impl Authorizer {
    /// Obtains another token after a refusal. On success, the request can be sent again.
    ///
    /// Concurrent requests share one recovery and its failure.
    pub(crate) async fn recover(self: &Arc<Self>, refusal: &Refusal, waiting: Waiting) -> Result<(), OAuthError> {
        let before = self.recoveries.load(Ordering::Acquire);
        let mut flight = self.flight.clone().lock_owned().await;
        // A recovery's failure ends all requests that waited for it, even if it has removed the token.
        if self.recoveries.load(Ordering::Acquire) != before
            && let Some(failure) = &flight.failure
        {
            return Err(failure.clone());
        }
        if self.generation() != refusal.generation {
            return Ok(());
        }
        let outcome = match &self.grant {
            TokenGrant::Person(settings) => self.recover_person(settings, refusal, waiting, &mut flight).await,
            TokenGrant::Machine(_) | TokenGrant::Command(_) => self.recover_machine(refusal).await,
        };
        flight.failure = outcome.as_ref().err().cloned();
        self.recoveries.fetch_add(1, Ordering::AcqRel);
        outcome
    }

    async fn recover_machine(&self, refusal: &Refusal) -> Result<(), OAuthError> {
        let token = self.current_token();
        let granted = token.as_ref().map(|token| token.granted().to_vec()).unwrap_or_default();
        let needed = refusal.challenge.as_ref().map(Challenge::scopes).unwrap_or_default();
        if let Some(token) = &token {
            let is_useless = if refusal.is_scope {
                matches!(self.grant, TokenGrant::Command(_)) || needed.iter().all(|scope| granted.contains(scope))
            } else {
                !token.is_accepted()
            };
            if is_useless {
                return Err(self.rejected(refusal));
            }
        }
        let scopes = if refusal.is_scope { granted } else { Vec::new() };
        self.obtain(refusal.challenge.as_ref(), &scopes).await
    }

    async fn recover_person(
        self: &Arc<Self>,
        settings: &OAuthSettings,
        refusal: &Refusal,
        waiting: Waiting,
        flight: &mut Flight,
    ) -> Result<(), OAuthError> {
        if self.is_store_changed(flight) && self.load_stored(flight).await? {
            return Ok(());
        }
        let token = self.current_token();
        if refusal.is_scope {
            let needed = refusal.challenge.as_ref().map(Challenge::scopes).unwrap_or_default();
            // A scope that was requested and not granted is not requested again. The Python SDK does not name the scopes.
            let is_known = |token: &Arc<ActiveToken>| {
                let has = |scope| token.granted().contains(scope) || flight.requested.contains(scope);
                needed.iter().all(has) && (!needed.is_empty() || flight.is_stepped_up)
            };
            if token.as_ref().is_some_and(|token| is_known(token) && token.origin == TokenOrigin::SignIn) {
                return Err(self.rejected(refusal));
            }
            // A handshake that has just prompted the user continues with the scopes that the sign-in lacked.
            let is_new = |token: &Arc<ActiveToken>| token.origin == TokenOrigin::SignIn && !token.is_accepted();
            let goes_on = waiting == Waiting::Background && token.as_ref().is_some_and(is_new);
            let waiting = if goes_on { Waiting::Call } else { waiting };
            return self.ask(settings, refusal, waiting, SignInReason::Scope, flight).await;
        }
        let Some(token) = token else {
            let reason = if flight.previous.is_some() { SignInReason::Expired } else { SignInReason::First };
            return self.ask(settings, refusal, waiting, reason, flight).await;
        };
        match (token.origin, token.is_accepted()) {
            (TokenOrigin::SignIn | TokenOrigin::Grant, false) => {
                let rejected_at = *flight.rejected_at.get_or_insert_with(tokio::time::Instant::now);
                if rejected_at.elapsed() < REJECTION_TIME {
                    return Err(self.rejected(refusal));
                }
                flight.rejected_at = None;
            }
            (TokenOrigin::Refresh, false) => {}
            _ if token.tokens.refresh_token.is_some() => match self.refresh_in_task(settings, flight).await {
                Ok(true) => return Ok(()),
                Ok(false) => {}
                Err(error) if error.is_invalid_grant() || error.is_invalid_client() => {}
                Err(error) => return Err(error),
            },
            _ => {}
        }
        self.ask(settings, refusal, waiting, SignInReason::Expired, flight).await
    }

    /// Refreshes the token in a task: a request that is dropped now must not lose a refresh token that was just replaced.
    async fn refresh_in_task(
        self: &Arc<Self>,
        settings: &OAuthSettings,
        flight: &mut Flight,
    ) -> Result<bool, OAuthError> {
        let (this, settings, mut moved) = (self.clone(), settings.clone(), std::mem::take(flight));
        let refreshing = tokio::spawn(async move {
            let outcome = this.refresh(&settings, &mut moved).await;
            (outcome, moved)
        });
        match refreshing.await {
            Ok((outcome, moved)) => {
                *flight = moved;
                outcome
            }
            Err(_) => Err(OAuthError::Settings { reason: "the refresh was aborted".to_owned() }),
        }
    }

    /// Prompts the user to sign in.
    async fn ask(
        &self,
        settings: &OAuthSettings,
        refusal: &Refusal,
        waiting: Waiting,
        reason: SignInReason,
        flight: &mut Flight,
    ) -> Result<(), OAuthError> {
        let may_ask = match waiting {
            Waiting::Call => true,
            Waiting::Background => self.take_offer(),
            Waiting::Optional => false,
        };
        let Some(handler) = self.sign_in.as_ref().filter(|_| may_ask) else { return Err(self.sign_in_required()) };
        // The offer was made: a reconnect in the background does not make another one.
        self.take_offer();
        let request = self.request(settings, refusal, reason, flight.previous.clone());
        let scopes = request.scopes.clone();
        self.events.emit(Event::SignInStarted { server: self.alias.clone(), reason: reason.name().to_owned() });
        let answer = {
            let _running = self.clock.start();
            match tokio::time::timeout(self.sign_in_timeout, handler(request)).await {
                Ok(answer) => answer,
                Err(_) => Err(OAuthError::Expired.into()),
            }
        };
        // Calls that arrived during the sign-in share its outcome.
        self.take_offer();
        match answer.map_err(|error| self.handler_error(error))? {
            SignInAnswer::SignedIn(credentials) => {
                let mut credentials = *credentials;
                let (own, other) = (canonical_server(self.server.as_str()), canonical_server(&credentials.server));
                if own != other {
                    return Err(OAuthError::mismatch("server of the sign-in", &own, &other));
                }
                credentials.account.clone_from(&self.account);
                self.learn(&credentials);
                let saved = self.store.save(&credentials).await;
                flight.stamp = Some(self.store.stamp(self.server.as_str(), self.account.as_deref()));
                self.adopt(ActiveToken::stored(credentials, TokenOrigin::SignIn)?);
                if let Err(error) = saved {
                    self.warn(&format!("could not store the token: {error}"));
                }
            }
            SignInAnswer::Stored => {
                if !self.load_stored(flight).await? {
                    return Err(self.sign_in_required());
                }
            }
            SignInAnswer::Declined => return Err(OAuthError::Denied { description: None }),
        }
        (flight.rejected_at, flight.previous, flight.requested) = (None, None, scopes);
        flight.is_stepped_up = reason == SignInReason::Scope;
        self.events.emit(Event::SignedIn { server: self.alias.clone() });
        Ok(())
    }

    fn request(
        &self,
        settings: &OAuthSettings,
        refusal: &Refusal,
        reason: SignInReason,
        ended: Option<Credentials>,
    ) -> SignInRequest {
        let token = self.current_token();
        let granted = token.as_ref().map(|token| token.granted().to_vec()).unwrap_or_default();
        let scopes = match (&refusal.challenge, refusal.is_scope) {
            (Some(challenge), true) => step_up_scopes(&granted, challenge),
            (Some(challenge), false) => challenge.scopes(),
            (None, _) => Vec::new(),
        };
        let mut options = SignInOptions::new(self.server.as_str());
        options.settings = settings.clone();
        options.challenge.clone_from(&refusal.challenge);
        options.account.clone_from(&self.account);
        options.previous = token.and_then(|token| token.credentials.clone()).or(ended);
        SignInRequest { server: self.alias.clone(), url: self.server.to_string(), reason, scopes, options }
    }

    fn handler_error(&self, error: ropeway_core::tool::BoxError) -> OAuthError {
        match error.downcast::<OAuthError>() {
            Ok(error) => *error,
            Err(error) => {
                let text = self.redactor.current().redact_beginning(&error.to_string(), 4 << 10);
                OAuthError::Denied { description: Some(text) }
            }
        }
    }

    fn rejected(&self, refusal: &Refusal) -> OAuthError {
        let said = refusal.challenge.as_ref().and_then(|challenge| challenge.error_description.as_deref());
        let redactor = self.redactor.current();
        let said = said.map(|said| redactor.redact_beginning(&said.replace(char::is_control, " "), 400));
        OAuthError::Rejected { is_scope: refusal.is_scope, said }
    }
}
