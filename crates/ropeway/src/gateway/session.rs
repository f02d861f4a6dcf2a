//! Sessions of legacy clients. A session id is sealed, so that a restarted gateway accepts its earlier sessions.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ring::rand::{SecureRandom as _, SystemRandom};
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use super::client::{Client, ClientCapabilities, ClientDescription, LogLevel, Principal};
use super::journal::{self, Journal, SessionNotes};
use super::seal::{KeyRing, SealKind};
use crate::protocol::Era;
use crate::sync::lock;

/// How long a session without requests and streams stays in memory. Its id revives it later.
const MAX_IDLE: Duration = Duration::from_secs(30 * 60);

/// Maximum size of a description that is part of the session id. Larger ones are reduced.
const MAX_INFO_BYTES: usize = 512;

/// Maximum size of a description in memory. Larger ones are reduced.
const MAX_KEPT_BYTES: usize = 4 << 10;

/// Stands for a `clientInfo` that is too large.
const UNKNOWN_INFO: &str = r#"{"name":"unknown","version":"0"}"#;

/// The content of a session id.
#[derive(Serialize, Deserialize)]
struct Payload {
    /// Identifies the session in the journal.
    uid: String,
    version: Box<str>,
    profile: Arc<str>,
    capabilities: Box<str>,
    info: Box<str>,
    expires: u64,
}

/// A session in memory.
struct Session {
    client: Arc<Client>,
    uid: String,
    expires: u64,
    used_at: Instant,
}

/// A session that was found by its id.
pub(crate) struct FoundSession {
    pub(crate) client: Arc<Client>,
    /// Set if the session was not in memory. The caller restores its subscriptions.
    pub(crate) revived: Option<SessionNotes>,
}

/// The sessions of a gateway.
pub(crate) struct Sessions {
    keys: Arc<KeyRing>,
    journal: Journal,
    lifetime: Duration,
    limit: usize,
    /// Clients of evicted sessions.
    forgotten: Mutex<Vec<Arc<Client>>>,
    table: Mutex<HashMap<Arc<str>, Session>>,
}

/// Too many sessions are in memory, and all of them are in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum TooManySessions {
    /// All principals together have too many.
    #[error("too many sessions")]
    Gateway,
    /// One principal has too many.
    #[error("too many sessions (limit: {limit} per principal); try again when one of them has ended")]
    Principal {
        /// The limit.
        limit: usize,
    },
}

impl TooManySessions {
    /// Returns the HTTP status of the error.
    pub(crate) fn status(self) -> u16 {
        match self {
            Self::Gateway => 503,
            Self::Principal { .. } => 429,
        }
    }
}

impl Sessions {
    pub(crate) fn new(keys: Arc<KeyRing>, journal: Journal, lifetime: Duration, limit: usize) -> Self {
        Self { keys, journal, lifetime, limit, forgotten: Mutex::default(), table: Mutex::default() }
    }

    /// Starts a session and returns its id.
    pub(crate) fn create(
        &self,
        description: &ClientDescription,
        principal: &Principal,
        profile: &Arc<str>,
    ) -> Result<(Arc<str>, Arc<Client>), TooManySessions> {
        let expires = journal::now() + self.lifetime.as_secs();
        let known = ClientCapabilities::parse(&description.capabilities).to_json();
        let reduced = |limit| ClientDescription {
            version: description.version.clone(),
            capabilities: bounded(&description.capabilities, limit, &known),
            info: bounded(&description.info, limit, UNKNOWN_INFO),
        };
        let mut client = Client::new(Era::Legacy, reduced(MAX_KEPT_BYTES), principal.clone(), profile.clone(), None);
        let uid = random_id();
        client.session = uid.as_str().into();
        let client = Arc::new(client);
        let ClientDescription { version, capabilities, info } = reduced(MAX_INFO_BYTES);
        let payload = Payload { uid, version, profile: profile.clone(), capabilities, info, expires };
        // A struct of strings and numbers always has a JSON form.
        let text = serde_json::to_vec(&payload).unwrap_or_default();
        let id: Arc<str> = self.keys.seal(SealKind::Session, principal.id(), self.lifetime, &text).into();
        self.insert(&id, client.clone(), payload.uid, expires)?;
        Ok((id, client))
    }

    /// Finds a session of the principal by its id, in memory or by opening the id.
    pub(crate) fn find(&self, id: &str, principal: &Principal) -> Option<FoundSession> {
        if let Some(found) = self.find_in_memory(id, principal) {
            return found;
        }
        let payload = self.keys.open(SealKind::Session, principal.id(), id).ok()?;
        let payload: Payload = serde_json::from_slice(&payload).ok()?;
        let notes = self.journal.notes(&payload.uid).unwrap_or_default();
        if notes.ended {
            return None;
        }
        let description =
            ClientDescription { version: payload.version, capabilities: payload.capabilities, info: payload.info };
        let mut client = Client::new(Era::Legacy, description, principal.clone(), payload.profile, None);
        client.session = payload.uid.as_str().into();
        if let Some(level) = notes.log_level.as_deref().and_then(LogLevel::parse) {
            client.set_log_level(level);
        }
        let client = Arc::new(client);
        self.insert(&id.into(), client.clone(), payload.uid, payload.expires).ok()?;
        Some(FoundSession { client, revived: Some(notes) })
    }

    /// Finds a session in memory. Returns `None` if the id has to be opened, and `Some(None)` if the session is not valid.
    fn find_in_memory(&self, id: &str, principal: &Principal) -> Option<Option<FoundSession>> {
        let mut table = lock(&self.table);
        let session = table.get_mut(id)?;
        let is_own = session.client.principal == *principal && session.expires >= journal::now();
        if is_own && !session.client.principal.is_clone(principal) {
            // The key was replaced by another one with the same name. The client gets the rights of the new one.
            lock(&self.forgotten).extend(table.remove(id).map(|session| session.client));
            return None;
        }
        session.used_at = Instant::now();
        Some(is_own.then(|| FoundSession { client: session.client.clone(), revived: None }))
    }

    /// Adds a session. Evicts the least recently used one if necessary.
    fn insert(&self, id: &Arc<str>, client: Arc<Client>, uid: String, expires: u64) -> Result<(), TooManySessions> {
        let mut table = lock(&self.table);
        let is_own = |session: &Session| session.client.principal == client.principal;
        let own_limit = client.principal.limits().sessions;
        if let Some(limit) = own_limit
            && table.values().filter(|session| is_own(session)).count() >= limit
        {
            self.forget_oldest(&mut table, is_own).ok_or(TooManySessions::Principal { limit })?;
        }
        if table.len() >= self.limit {
            self.forget_oldest(&mut table, |_| true).ok_or(TooManySessions::Gateway)?;
        }
        table.insert(id.clone(), Session { client, uid, expires, used_at: Instant::now() });
        Ok(())
    }

    /// Evicts the least recently used idle session. Returns `None` if all of them are in use.
    fn forget_oldest(&self, table: &mut HashMap<Arc<str>, Session>, concerns: impl Fn(&Session) -> bool) -> Option<()> {
        let idle = table.iter().filter(|(_, session)| session.client.is_idle() && concerns(session));
        let oldest = idle.min_by_key(|(_, session)| session.used_at).map(|(id, _)| id.clone())?;
        lock(&self.forgotten).extend(table.remove(&oldest).map(|session| session.client));
        Some(())
    }

    /// Ends a session permanently. Returns its client, or `None` if the session is unknown.
    pub(crate) fn end(&self, id: &str, principal: &Principal) -> Option<Arc<Client>> {
        let client = self.find(id, principal)?.client;
        let session = lock(&self.table).remove(id)?;
        self.journal.change(&session.uid, session.expires, |notes| {
            *notes = SessionNotes { ended: true, expires: notes.expires, ..SessionNotes::default() };
        });
        client.close();
        Some(client)
    }

    /// Notes the log level of a session, for its revival.
    pub(crate) fn note_log_level(&self, client: &Client, level: LogLevel) {
        self.note(client, |notes| notes.log_level = Some(level.name().to_owned()));
    }

    /// Notes that a session has subscribed to a resource, by the client's URI, for its revival.
    pub(crate) fn note_subscribed(&self, client: &Client, uri: &str) {
        self.note(client, |notes| drop(notes.subscriptions.insert(uri.to_owned())));
    }

    /// Notes that a session has ended a subscription.
    pub(crate) fn note_unsubscribed(&self, client: &Client, uri: &str) {
        self.note(client, |notes| drop(notes.subscriptions.remove(uri)));
    }

    /// Changes the notes about a session.
    fn note(&self, client: &Client, change: impl FnOnce(&mut SessionNotes)) {
        let found = {
            let table = lock(&self.table);
            let session = table.values().find(|session| session.client.id == client.id);
            session.map(|session| (session.uid.clone(), session.expires))
        };
        if let Some((uid, expires)) = found {
            self.journal.change(&uid, expires, change);
        }
    }

    /// Evicts idle sessions. Their ids stay valid. Returns their clients.
    pub(crate) fn forget_idle(&self) -> Vec<Arc<Client>> {
        let mut table = lock(&self.table);
        let is_old = |session: &Session| session.client.is_idle() && session.used_at.elapsed() > MAX_IDLE;
        let ids: Vec<Arc<str>> =
            table.iter().filter(|(_, session)| is_old(session)).map(|(id, _)| id.clone()).collect();
        let idle = ids.iter().filter_map(|id| table.remove(id)).map(|session| session.client);
        std::mem::take(&mut *lock(&self.forgotten)).into_iter().chain(idle).collect()
    }

    /// Returns the clients of all sessions in memory.
    #[cfg(test)]
    pub(crate) fn clients(&self) -> Vec<Arc<Client>> {
        lock(&self.table).values().map(|session| session.client.clone()).collect()
    }

    /// Returns the number of sessions in memory.
    pub(crate) fn len(&self) -> usize {
        lock(&self.table).len()
    }
}

/// Returns the text, or a replacement if it is larger than the limit.
fn bounded(text: &str, limit: usize, replacement: &str) -> Box<str> {
    if text.len() <= limit { text.into() } else { replacement.into() }
}

/// Returns 128 random bits in hexadecimal.
fn random_id() -> String {
    let mut bytes = [0; 16];
    // The seal of the id protects it. The random number only has to be different.
    if SystemRandom::new().fill(&mut bytes).is_err() {
        bytes = (u128::from(fastrand::u64(..)) << 64 | u128::from(fastrand::u64(..))).to_be_bytes();
    }
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: Duration = Duration::from_secs(86_400);

    fn description() -> ClientDescription {
        ClientDescription {
            version: "2025-06-18".into(),
            capabilities: r#"{"roots":{}}"#.into(),
            info: r#"{"name":"c","version":"1"}"#.into(),
        }
    }

    fn sessions(keys: &Arc<KeyRing>, limit: usize) -> Sessions {
        Sessions::new(keys.clone(), Journal::in_memory(), DAY, limit)
    }

    fn keys() -> Arc<KeyRing> {
        Arc::new(KeyRing::generate().expect("random numbers"))
    }

    #[test]
    fn a_session_id_is_known_after_a_restart() {
        let (keys, alice, bob) = (keys(), Principal::from("alice"), Principal::from("bob"));
        let before = sessions(&keys, 10);
        let (id, _) = before.create(&description(), &alice, &"default".into()).expect("room");
        assert!(before.find(&id, &alice).is_some_and(|found| found.revived.is_none()));
        let after = sessions(&keys, 10);
        assert!(after.find(&id, &bob).is_none());
        let found = after.find(&id, &alice).expect("the session");
        assert!(found.revived.is_some() && found.client.capabilities.roots);
        assert_eq!(&*found.client.description.version, "2025-06-18");
        assert!(after.find(&id, &bob).is_none(), "a session in memory is bound to its principal, too");
    }

    #[test]
    fn a_session_continues_with_the_rights_of_a_new_key_of_the_same_name() {
        let (keys, old, new) = (keys(), Principal::from("key:a"), Principal::from("key:a"));
        let sessions = sessions(&keys, 10);
        let (id, _) = sessions.create(&description(), &old, &"default".into()).expect("room");
        let found = sessions.find(&id, &new).expect("the session");
        assert!(found.client.principal.is_clone(&new) && found.revived.is_some());
        assert_eq!(sessions.len(), 1);
    }

    #[test]
    fn a_session_in_memory_ends_with_its_life() {
        let (keys, anyone) = (keys(), Principal::from(""));
        let sessions = sessions(&keys, 10);
        let (id, _) = sessions.create(&description(), &anyone, &"default".into()).expect("room");
        let expires = lock(&sessions.table)[&id].expires;
        assert_eq!(expires.saturating_sub(journal::now()).div_ceil(3600), 24);
        assert!(sessions.find(&id, &anyone).is_some());
        lock(&sessions.table).get_mut(&id).expect("the session").expires = journal::now() - 1;
        assert!(sessions.find(&id, &anyone).is_none());
        assert!(sessions.end(&id, &anyone).is_none());
    }

    #[test]
    fn large_capabilities_survive_a_restart() {
        let (keys, anyone) = (keys(), Principal::from(""));
        let details = "x".repeat(2 * MAX_INFO_BYTES);
        let capabilities = format!(r#"{{"elicitation":{{"url":{{}}}},"experimental":{{"{details}":{{}}}}}}"#).into();
        let description = ClientDescription { capabilities, ..description() };
        let (id, before) = sessions(&keys, 10).create(&description, &anyone, &"default".into()).expect("room");
        let after = sessions(&keys, 10).find(&id, &anyone).expect("the session").client;
        assert!(after.capabilities.url);
        assert_eq!(after.capabilities, before.capabilities);
    }

    #[test]
    fn a_large_description_is_reduced_in_memory() {
        let anyone = Principal::from("");
        let details = "x".repeat(MAX_KEPT_BYTES);
        let description = ClientDescription {
            version: "2025-06-18".into(),
            capabilities: format!(r#"{{"roots":{{}},"experimental":{{"{details}":{{}}}}}}"#).into(),
            info: format!(r#"{{"name":"{details}"}}"#).into(),
        };
        let (_, client) = sessions(&keys(), 10).create(&description, &anyone, &"default".into()).expect("room");
        assert!(client.capabilities.roots && client.description_bytes() < 1000, "{}", client.description_bytes());
    }

    #[test]
    fn an_ended_session_stays_ended() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("sessions.jsonl");
        let (keys, anyone) = (keys(), Principal::from(""));
        let open = || Sessions::new(keys.clone(), Journal::open(&path).expect("a journal"), DAY, 10);
        let before = open();
        let (id, _) = before.create(&description(), &anyone, &"default".into()).expect("room");
        assert!(before.end(&id, &anyone).is_some());
        assert!(before.find(&id, &anyone).is_none());
        assert!(before.end(&id, &anyone).is_none());
        assert!(open().find(&id, &anyone).is_none());
    }

    #[test]
    fn the_oldest_idle_session_makes_room_and_is_revived() {
        let (keys, anyone) = (keys(), Principal::from(""));
        let sessions = sessions(&keys, 2);
        let create = || sessions.create(&description(), &anyone, &"default".into());
        let (first, _) = create().expect("room");
        let (_second, client) = create().expect("room");
        let _busy = client.begin(serde_json::from_str("1").expect("an id")).expect("a free id");
        create().expect("room");
        assert_eq!(sessions.len(), 2);
        assert_eq!(sessions.forget_idle().len(), 1, "what belongs to the first one is released");
        assert!(sessions.find(&first, &anyone).is_some_and(|found| found.revived.is_some()));
        let busy: Vec<_> = sessions
            .clients()
            .iter()
            .filter_map(|client| client.begin(serde_json::from_str("9").expect("an id")))
            .collect();
        assert_eq!(busy.len(), 2);
        assert_eq!(create().err(), Some(TooManySessions::Gateway));
    }
}
