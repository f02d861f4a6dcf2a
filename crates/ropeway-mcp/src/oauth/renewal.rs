//! Request headers, and token renewal without a user: refreshes, machine grants, and commands.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, SystemTime};

use reqwest::header::HeaderValue;
use reqwest::{Method, Url};

use super::active_token::{ActiveToken, TokenOrigin};
use super::authorizer::{Access, Authorizer, Flight, TokenGrant, store_error};
use super::challenge::Challenge;
use super::error::OAuthError;
use super::machine_grant::{GrantTarget, machine_grant};
use super::refresh::refresh;
use super::token_command;
use ropeway_config::{OAuthGrant, OAuthSettings, TokenSource};

/// A token is replaced this long before it expires.
const REFRESH_MARGIN: Duration = Duration::from_secs(30);

impl Authorizer {
    /// Returns a request's headers. Replaces a token that is about to expire first.
    pub(crate) async fn authorize(self: &Arc<Self>, method: &Method, url: &Url) -> Result<Access, OAuthError> {
        if self.needs_replacement() {
            Box::pin(self.replace()).await?;
        }
        let (generation, token) = self.snapshot();
        let Some(token) = token else { return Ok(Access { generation, authorization: None, proof: None }) };
        let proof = match &token.dpop_key {
            None => None,
            Some(key) => {
                let nonce = self.nonces.get(url);
                let secret = Some(&token.tokens.access_token);
                let proof = key.proof(method.as_str(), url, secret, nonce.as_deref(), self.http.time_at(url))?;
                let invalid = |_| OAuthError::Key { reason: "the proof is not a valid header".to_owned() };
                Some(HeaderValue::try_from(proof).map_err(invalid)?)
            }
        };
        Ok(Access { generation, authorization: Some(token.header.clone()), proof })
    }

    fn needs_replacement(&self) -> bool {
        match &self.current_token() {
            Some(token) => {
                let renewable = match &self.grant {
                    TokenGrant::Person(_) => token.tokens.refresh_token.is_some(),
                    TokenGrant::Machine(_) | TokenGrant::Command(_) => true,
                };
                renewable && token.tokens.expires_within(REFRESH_MARGIN, SystemTime::now())
            }
            None => matches!(self.grant, TokenGrant::Command(_)),
        }
    }

    /// Replaces the current token before it expires. Concurrent requests share one replacement and its failure.
    async fn replace(self: &Arc<Self>) -> Result<(), OAuthError> {
        let before = self.replacements.load(Ordering::Acquire);
        let mut flight = self.flight.clone().lock_owned().await;
        if self.replacements.load(Ordering::Acquire) != before {
            return self.judge_replacement(flight.replacement_failure.clone());
        }
        if !self.needs_replacement() {
            return Ok(());
        }
        let this = self.clone();
        // A task, because a request that is dropped now must not lose a refresh token that was just replaced.
        let replacing = tokio::spawn(async move {
            let outcome = match &this.grant {
                TokenGrant::Person(settings) => this.refresh(settings, &mut flight).await.map(|_| ()),
                TokenGrant::Machine(_) | TokenGrant::Command(_) => {
                    let granted = this.current_token().map(|token| token.granted().to_vec()).unwrap_or_default();
                    this.obtain(None, &granted).await
                }
            };
            flight.replacement_failure = outcome.as_ref().err().cloned();
            this.replacements.fetch_add(1, Ordering::AcqRel);
            outcome
        });
        self.judge_replacement(joined(replacing.await).err())
    }

    /// Returns an error if requests cannot continue after a failed replacement.
    fn judge_replacement(&self, failure: Option<OAuthError>) -> Result<(), OAuthError> {
        match failure {
            None => Ok(()),
            // The server rejects the expired token, and the user signs in.
            Some(error) if error.is_invalid_grant() || error.is_invalid_client() => Ok(()),
            Some(_) if self.is_still_valid() => Ok(()),
            Some(error) => Err(error),
        }
    }

    fn is_still_valid(&self) -> bool {
        self.current_token().is_some_and(|token| !token.tokens.expires_within(Duration::ZERO, SystemTime::now()))
    }

    /// Refreshes the stored tokens, once across all processes. Returns `false` if no refresh is possible.
    pub(super) async fn refresh(&self, settings: &OAuthSettings, flight: &mut Flight) -> Result<bool, OAuthError> {
        let Some(used) = self.current_token() else { return Ok(false) };
        let (server, account) = (self.server.as_str(), self.account.as_deref());
        let _lock = self.store.lock(server, account).await.map_err(store_error)?;
        let stamp = self.store.stamp(server, account);
        let stored = self.store.load(server, account).await.map_err(store_error)?;
        flight.stamp = Some(stamp);
        let Some(stored) = stored.filter(|stored| self.is_usable(stored)) else {
            // Signed out elsewhere.
            self.drop_token();
            return Ok(false);
        };
        if !used.is_same(&stored.tokens) {
            // Another process was faster.
            self.adopt(ActiveToken::stored(stored, TokenOrigin::Store)?);
            return Ok(true);
        }
        if stored.tokens.refresh_token.is_none() {
            return Ok(false);
        }
        match refresh(&self.http, &stored, settings).await {
            Ok(fresh) => {
                self.learn(&fresh);
                // The refresh token may have been replaced: without the new one, the next refresh fails.
                let saved = self.store.save(&fresh).await;
                flight.stamp = Some(self.store.stamp(server, account));
                self.adopt(ActiveToken::stored(fresh, TokenOrigin::Refresh)?);
                if let Err(error) = saved {
                    self.warn(&format!("could not store the refreshed token: {error}"));
                }
                Ok(true)
            }
            Err(error) if error.is_invalid_grant() || error.is_invalid_client() => {
                self.store.remove(server, account).await.map_err(store_error)?;
                flight.stamp = Some(self.store.stamp(server, account));
                // An unknown client has to be registered again.
                flight.previous = Some(stored).filter(|_| error.is_invalid_grant());
                self.drop_token();
                self.warn(&format!("the sign-in has ended, because its refresh was refused: {error}"));
                Err(error)
            }
            Err(error) => Err(error),
        }
    }

    /// Obtains a token without a user.
    pub(super) async fn obtain(&self, challenge: Option<&Challenge>, granted: &[String]) -> Result<(), OAuthError> {
        let redactor = self.redactor.current();
        let token = match &self.grant {
            TokenGrant::Person(_) => return Err(self.sign_in_required()),
            TokenGrant::Command(command) => {
                let tokens = token_command::run(command, &redactor).await?;
                ActiveToken::bearer(tokens, TokenOrigin::Grant)?
            }
            TokenGrant::Machine(settings) => {
                let source: Option<&TokenSource> = match &settings.grant {
                    OAuthGrant::WorkloadIdentity { assertion } => Some(assertion),
                    OAuthGrant::EnterpriseManaged(idp) => Some(&idp.id_token),
                    OAuthGrant::AuthorizationCode | OAuthGrant::ClientCredentials => None,
                };
                let assertion = match source {
                    Some(source) => Some(token_command::read_token(source, &redactor).await?),
                    None => None,
                };
                self.redactor.learn(&assertion);
                let target = GrantTarget { server: &self.server, settings, issuer: self.issuer() };
                let credentials = machine_grant(&self.http, &target, challenge, granted, assertion.as_ref()).await?;
                ActiveToken::stored(credentials, TokenOrigin::Grant)?
            }
        };
        self.adopt(token);
        Ok(())
    }

    /// Returns the authorization server that issued the current token.
    fn issuer(&self) -> Option<String> {
        self.current_token()?.credentials.as_ref().map(|credentials| credentials.issuer.clone())
    }
}

/// Returns a task's outcome. The authorizer's tasks are not aborted, and a panic is a bug.
fn joined(outcome: Result<Result<(), OAuthError>, tokio::task::JoinError>) -> Result<(), OAuthError> {
    outcome.unwrap_or_else(|_| Err(OAuthError::Settings { reason: "the request for a token was aborted".to_owned() }))
}
