//! Legacy client sessions, whose sealed ids a restarted gateway still accepts.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use ring::rand::{SecureRandom as _, SystemRandom};
use serde::{Deserialize, Serialize};

use crate::client::journal;
use crate::client::journal::{
    Journal, NotStored, NoteChange, NotedSession, PendingEnd, PrincipalKey, SessionNotes, SessionUid,
};
use crate::client::seal::{KeyRing, SealKind};
use crate::client::session_table::{Session, SessionTable};
use crate::client::shares::{Hold, Resource, ShareError, Shares};
use crate::client::{Client, ClientCapabilities, ClientDescription, LogLevel, Principal};
use ropeway_core::sync::lock;
use ropeway_mcp::protocol::Era;

/// How long a session without requests and streams stays in memory. Its id revives it later.
const MAX_IDLE: Duration = Duration::from_secs(30 * 60);

/// Maximum description size in a session id. Larger descriptions are reduced.
const MAX_INFO_BYTES: usize = 512;

/// Maximum description size in memory. Larger descriptions are reduced.
const MAX_KEPT_BYTES: usize = 4 << 10;

/// Stands for a `clientInfo` that is too large.
const UNKNOWN_INFO: &str = r#"{"name":"unknown","version":"0"}"#;

/// A session id's content.
#[derive(Serialize, Deserialize)]
struct Payload {
    /// Identifies the session in the journal.
    uid: String,
    version: Box<str>,
    profile: Arc<str>,
    capabilities: Box<str>,
    info: Box<str>,
    /// When the session started. Absent in ids from earlier versions.
    #[serde(default)]
    issued: Option<u64>,
    expires: u64,
}

impl Payload {
    /// Returns the session as the journal knows it. An id without a start time counts as having the usual lifetime.
    fn noted(&self, principal: &Principal, lifetime: Duration) -> Option<NotedSession> {
        Some(NotedSession {
            uid: SessionUid::parse(&self.uid)?,
            principal: Some(PrincipalKey::of(principal.id())),
            issued: self.issued.unwrap_or(self.expires.saturating_sub(lifetime.as_secs())),
            expires: self.expires,
        })
    }
}

/// A session that was found by its id.
pub(crate) struct FoundSession {
    pub(crate) client: Arc<Client>,
    /// Set if the session was not in memory. The caller restores its subscriptions.
    pub(crate) revived: Option<SessionNotes>,
}

/// A session that has ended.
pub(crate) struct EndedSession {
    /// The client, if the session was in memory. The caller releases it.
    pub(crate) client: Option<Arc<Client>>,
    /// The session is valid again after a restart, unless its end is stored.
    pub(crate) pending: PendingEnd,
}

/// Clients whose sessions made room for others. The caller releases them; the session ids stay valid and revive the sessions.
pub(crate) type Evicted = Vec<Arc<Client>>;

/// A gateway's sessions.
///
/// A session in memory counts against its principal's share. At the share, the principal's own least recently used idle session
/// makes room; at the gateway's limit, an idle session of the principal that holds the most.
///
/// The table's lock is taken before the journal's, so that a session cannot end while its id revives it. Neither is held across
/// an `.await`: [`end`](Self::end) returns a [`PendingEnd`] that the caller waits for without a lock. Clients of evicted sessions
/// are returned as well, so that the caller releases them after the lock. Dropping `Sessions` drops the journal, which waits for
/// its file.
pub(crate) struct Sessions {
    keys: Arc<KeyRing>,
    journal: Journal,
    lifetime: Duration,
    limit: usize,
    shares: Shares,
    table: Mutex<SessionTable>,
}

impl Sessions {
    pub(crate) fn new(keys: Arc<KeyRing>, journal: Journal, lifetime: Duration, limit: usize, shares: Shares) -> Self {
        Self { keys, journal, lifetime, limit, shares, table: Mutex::default() }
    }

    /// Starts a session and returns its id.
    pub(crate) fn create(
        &self,
        description: &ClientDescription,
        principal: &Principal,
        profile: &Arc<str>,
        evicted: &mut Evicted,
    ) -> Result<(Arc<str>, Arc<Client>), ShareError> {
        let issued = journal::now();
        let expires = issued + self.lifetime.as_secs();
        let known = ClientCapabilities::parse(&description.capabilities).to_json();
        let reduced = |limit| ClientDescription {
            version: description.version.clone(),
            capabilities: bounded(&description.capabilities, limit, &known),
            info: bounded(&description.info, limit, UNKNOWN_INFO),
        };
        let mut client = Client::new(Era::Legacy, reduced(MAX_KEPT_BYTES), principal.clone(), profile.clone(), None);
        let uid = random_uid();
        client.session = uid.to_string().into();
        let client = Arc::new(client);
        let ClientDescription { version, capabilities, info } = reduced(MAX_INFO_BYTES);
        let (profile, issued_at) = (profile.clone(), Some(issued));
        let payload =
            Payload { uid: uid.to_string(), version, profile, capabilities, info, issued: issued_at, expires };
        // A struct of strings and numbers always has a JSON form.
        let text = serde_json::to_vec(&payload).unwrap_or_default();
        let id: Arc<str> = self.keys.seal(SealKind::Session, principal.id(), self.lifetime, &text).into();
        let noted = NotedSession { uid, principal: Some(PrincipalKey::of(principal.id())), issued, expires };
        let mut table = lock(&self.table);
        let hold = self.make_room(&mut table, principal, evicted)?;
        table.insert(Session { id: id.clone(), client: client.clone(), noted, _hold: hold });
        Ok((id, client))
    }

    /// Counts against the session limit without a session in memory, for a client whose stream is its session.
    pub(crate) fn reserve(&self, principal: &Principal, evicted: &mut Evicted) -> Result<Hold, ShareError> {
        self.make_room(&mut lock(&self.table), principal, evicted)
    }

    /// Takes one session from the principal's share. Evicts idle sessions if necessary.
    fn make_room(
        &self,
        table: &mut SessionTable,
        principal: &Principal,
        evicted: &mut Evicted,
    ) -> Result<Hold, ShareError> {
        let own_limit = principal.limits().sessions.unwrap_or(usize::MAX);
        loop {
            let error = match self.shares.take_within(Resource::Sessions, principal.holdings(), 1, own_limit) {
                Ok(hold) => return Ok(hold),
                // A principal that may hold everything has reached the gateway's limit.
                Err(ShareError::Principal { resource, limit }) if limit >= self.limit => {
                    ShareError::Gateway { resource, limit: self.limit }
                }
                Err(error) => error,
            };
            let session = match error {
                ShareError::Principal { .. } => table.evict_of(principal.id()),
                ShareError::Gateway { .. } => table.evict_for(principal.id(), self.limit),
            };
            evicted.push(session.ok_or(error)?.client);
        }
    }

    /// Finds the principal's session with this id, in memory or by opening the id. Returns `None` if the session is not valid.
    ///
    /// # Errors
    ///
    /// Fails if the session is not in memory, and there is no room for it.
    pub(crate) fn find(
        &self,
        id: &str,
        principal: &Principal,
        evicted: &mut Evicted,
    ) -> Result<Option<FoundSession>, ShareError> {
        if let Some(found) = self.find_in_memory(&mut lock(&self.table), id, principal, evicted) {
            return Ok(found);
        }
        let Some((payload, noted)) = self.open(id, principal) else { return Ok(None) };
        let description =
            ClientDescription { version: payload.version, capabilities: payload.capabilities, info: payload.info };
        let mut client = Client::new(Era::Legacy, description, principal.clone(), payload.profile, None);
        client.session = payload.uid.as_str().into();
        let client = Arc::new(client);
        let mut table = lock(&self.table);
        // A concurrent request may have revived it.
        if let Some(found) = self.find_in_memory(&mut table, id, principal, evicted) {
            return Ok(found);
        }
        let Some(notes) = self.journal.revive(&noted) else { return Ok(None) };
        if let Some(level) = notes.log_level {
            client.set_log_level(level);
        }
        let hold = self.make_room(&mut table, principal, evicted)?;
        table.insert(Session { id: id.into(), client: client.clone(), noted, _hold: hold });
        Ok(Some(FoundSession { client, revived: Some(notes) }))
    }

    /// Opens a session id.
    fn open(&self, id: &str, principal: &Principal) -> Option<(Payload, NotedSession)> {
        let payload = self.keys.open(SealKind::Session, principal.id(), id).ok()?;
        let payload: Payload = serde_json::from_slice(&payload).ok()?;
        let noted = payload.noted(principal, self.lifetime)?;
        Some((payload, noted))
    }

    /// Finds a session in memory. Returns `None` if the id has to be opened, and `Some(None)` if the session is not valid.
    fn find_in_memory(
        &self,
        table: &mut SessionTable,
        id: &str,
        principal: &Principal,
        evicted: &mut Evicted,
    ) -> Option<Option<FoundSession>> {
        let session = table.get(id)?;
        if session.client.principal != *principal || session.noted.expires < journal::now() {
            return Some(None);
        }
        if !session.client.principal.is_clone(principal) {
            // The key was replaced by another one with the same name. The client gets the new key's rights.
            evicted.extend(table.remove(id).map(|session| session.client));
            return None;
        }
        let client = session.client.clone();
        table.touch(client.id);
        Some(Some(FoundSession { client, revived: None }))
    }

    /// Ends a session permanently. Returns `None` if the profile has no such session, and an error if the end cannot be noted;
    /// the session then continues.
    pub(crate) fn end(
        &self,
        id: &str,
        principal: &Principal,
        profile: &str,
    ) -> Option<Result<EndedSession, NotStored>> {
        let mut table = lock(&self.table);
        let in_memory = table.get(id).map(|session| (session.client.clone(), session.noted));
        let (client, noted) = match in_memory {
            Some((client, noted)) => {
                let is_valid = client.principal == *principal && noted.expires >= journal::now();
                if !is_valid || *client.profile != *profile {
                    return None;
                }
                (Some(client), noted)
            }
            None => {
                let (payload, noted) = self.open(id, principal)?;
                // An ended session's end is stored again if the disk failed.
                let is_ended = self.journal.revive(&noted).is_none() && !self.journal.is_failing();
                if is_ended || *payload.profile != *profile {
                    return None;
                }
                (None, noted)
            }
        };
        Some(self.journal.end(&noted).map(|pending| {
            table.remove(id);
            if let Some(client) = &client {
                client.close();
            }
            EndedSession { client, pending }
        }))
    }

    /// Notes a session's log level, for its revival.
    pub(crate) fn note_log_level(&self, client: &Client, level: LogLevel) {
        self.note(client, NoteChange::LogLevel(level));
    }

    /// Notes that a session has subscribed to a resource, by the client's URI, for its revival.
    pub(crate) fn note_subscribed(&self, client: &Client, uri: &str) {
        self.note(client, NoteChange::Subscribe(uri));
    }

    /// Notes that a session has ended a subscription.
    pub(crate) fn note_unsubscribed(&self, client: &Client, uri: &str) {
        self.note(client, NoteChange::Unsubscribe(uri));
    }

    fn note(&self, client: &Client, change: NoteChange<'_>) {
        let noted = lock(&self.table).of_client(client.id).map(|session| session.noted);
        if let Some(noted) = noted {
            self.journal.change(&noted, change);
        }
    }

    /// Evicts idle sessions. Their ids stay valid.
    pub(crate) fn evict_unused(&self) -> Evicted {
        // The lock is released in between, so that requests do not wait for thousands of sessions.
        std::iter::from_fn(|| lock(&self.table).evict_unused(MAX_IDLE)).map(|session| session.client).collect()
    }

    /// Waits until the journal is written.
    pub(crate) async fn flush(&self, limit: Duration) {
        self.journal.flush(limit).await;
    }

    /// Returns the clients whose sessions are in memory.
    #[cfg(test)]
    pub(crate) fn clients(&self) -> Vec<Arc<Client>> {
        lock(&self.table).iter().map(|session| session.client.clone()).collect()
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

/// Returns an id with 128 random bits.
fn random_uid() -> SessionUid {
    let mut bytes = [0; 16];
    // The seal protects the id. The random number only has to be different.
    if SystemRandom::new().fill(&mut bytes).is_err() {
        bytes = (u128::from(fastrand::u64(..)) << 64 | u128::from(fastrand::u64(..))).to_be_bytes();
    }
    SessionUid::from_bits(u128::from_be_bytes(bytes))
}

#[cfg(test)]
mod tests;
