//! Sign-ins to servers and sign-outs, for the audit log.

use std::sync::Arc;
use std::time::SystemTime;

use serde::ser::{Serialize, SerializeMap as _, Serializer};

use super::record::bounded;
use crate::client::principal::Principal;
use ropeway_core::event::timestamp;

/// A change to a server account that a principal has requested, or that a call has offered to its client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum SignInAction {
    SignIn,
    SignOut,
    /// A call's client was asked to sign in.
    Offer,
}

impl SignInAction {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::SignIn => "sign_in",
            Self::SignOut => "sign_out",
            Self::Offer => "sign_in_offer",
        }
    }
}

/// A [`SignInAction`]'s outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum SignInOutcome {
    /// The browser was sent to the authorization server. Another record follows when it returns.
    Started,
    Ok,
    /// A sign-out found no tokens.
    NotSignedIn,
    /// The client or the user has declined an offer, or the sign-in has failed.
    Declined,
    /// The call has not waited any longer.
    TimedOut,
    Error,
    /// A rule has refused it.
    Denied(&'static str),
}

impl SignInOutcome {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Started => "started",
            Self::Ok => "ok",
            Self::NotSignedIn => "not_signed_in",
            Self::Declined => "declined",
            Self::TimedOut => "timed_out",
            Self::Error | Self::Denied(_) => "error",
        }
    }
}

/// A sign-in or sign-out.
#[derive(Clone, Debug)]
pub(crate) struct SignInRecord {
    time: SystemTime,
    principal: Arc<str>,
    key_id: Option<Arc<str>>,
    pub(super) action: SignInAction,
    server: Box<str>,
    /// Whether all principals share the account. `None` if the server is unknown to the principal.
    is_shared: Option<bool>,
    pub(super) outcome: SignInOutcome,
}

impl SignInRecord {
    pub(crate) fn new(principal: &Principal, action: SignInAction, server: &str, outcome: SignInOutcome) -> Self {
        Self {
            time: SystemTime::now(),
            principal: principal.shared_id(),
            key_id: principal.key_id(),
            action,
            server: bounded(server).into(),
            is_shared: None,
            outcome,
        }
    }

    /// Sets whether all principals share the account.
    pub(crate) fn with_shared(self, is_shared: bool) -> Self {
        Self { is_shared: Some(is_shared), ..self }
    }
}

impl Serialize for SignInRecord {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("time", &timestamp(self.time))?;
        map.serialize_entry("principal", &*self.principal)?;
        if let Some(key) = &self.key_id {
            map.serialize_entry("key_id", &**key)?;
        }
        map.serialize_entry("action", self.action.as_str())?;
        map.serialize_entry("server", &*self.server)?;
        if let Some(is_shared) = self.is_shared {
            map.serialize_entry("account", if is_shared { "shared" } else { "own" })?;
        }
        match self.outcome {
            SignInOutcome::Denied(rule) => {
                map.serialize_entry("decision", "deny")?;
                map.serialize_entry("rule", rule)?;
            }
            _ => map.serialize_entry("decision", "allow")?,
        }
        map.serialize_entry("outcome", self.outcome.as_str())?;
        map.end()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_line_names_the_principal_the_server_the_account_and_the_outcome() {
        let line = |record: SignInRecord| {
            let mut line = serde_json::to_value(&record).expect("JSON");
            assert!(line["time"].take().is_string());
            line
        };
        let principal = Principal::from("key:ann");
        let finished = SignInRecord::new(&principal, SignInAction::SignIn, "web", SignInOutcome::Ok).with_shared(true);
        let expected = json!({"time": null, "principal": "key:ann", "action": "sign_in", "server": "web",
            "account": "shared", "decision": "allow", "outcome": "ok"});
        assert_eq!(line(finished), expected);
        let denied = SignInOutcome::Denied("operators");
        let denied = SignInRecord::new(&principal, SignInAction::SignOut, &"w".repeat(10_000), denied);
        let line = line(denied);
        assert_eq!((&line["decision"], &line["rule"]), (&json!("deny"), &json!("operators")));
        assert!(line["server"].as_str().is_some_and(|server| server.len() < 1000), "{line}");
    }
}
