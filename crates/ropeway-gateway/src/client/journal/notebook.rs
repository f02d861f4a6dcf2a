//! The notes about sessions in memory, bounded for each principal and in all.
//!
//! Every operation takes logarithmic time in the session count, so that a lock around the notebook is held only briefly.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::line::{NoteChange, NotedSession, PrincipalKey, Record, SessionNotes, SessionUid, Watermark, encode};

/// Bytes that a session with notes is counted with, in addition to its URIs.
const SESSION_BYTES: usize = 256;

/// Bytes that a subscription is counted with, in addition to its URI.
const SUBSCRIPTION_BYTES: usize = 64;

/// Maximum number of expired sessions that one change removes.
const MAX_REMOVED: usize = 64;

/// A named principal may hold one in this many ended sessions and bytes.
const SHARE: usize = 4;

/// How much a journal holds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// Ended sessions, for all principals together.
    pub(super) ended: usize,
    /// Note bytes, for all principals together.
    pub(super) bytes: usize,
    /// Note bytes, for one session.
    pub(super) session_bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { ended: 100_000, bytes: 32 << 20, session_bytes: 1 << 20 }
    }
}

impl Limits {
    /// Returns one principal's share in an amount.
    fn share(amount: usize, principal: PrincipalKey) -> usize {
        if principal == PrincipalKey::UNNAMED { amount } else { (amount / SHARE).max(1) }
    }
}

/// The journal has no room for one more ended session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Full;

/// The notes about all sessions.
///
/// An ended session is one entry until its id expires. A principal at its limit gives up its oldest ended sessions' entries and
/// gets a watermark instead: all its sessions that started until then have ended, even sessions that its clients have not ended
/// and that only their ids could revive. An ended session therefore never comes back.
///
/// [`Journal`](super::Journal) owns the notebook behind a mutex and is its only writer. The notebook has no lock, does no I/O and
/// waits for nothing, so that its caller can queue lines under the same lock. The writer's thread builds a separate notebook
/// whenever it rewrites the file. `update` is the only function that changes a principal's entry, and it keeps the orders
/// consistent. Dropping a notebook only frees memory.
#[derive(Debug)]
pub(super) struct Notebook {
    limits: Limits,
    sessions: HashMap<SessionUid, Entry>,
    principals: HashMap<PrincipalKey, Holder>,
    /// Principals by ended session count.
    by_ended: BTreeSet<(usize, PrincipalKey)>,
    /// Principals by note bytes.
    by_bytes: BTreeSet<(usize, PrincipalKey)>,
    by_expiry: BTreeSet<(u64, SessionUid)>,
    watermarks_by_expiry: BTreeSet<(u64, PrincipalKey)>,
    /// Ended sessions and watermarks, for all principals together.
    ended: usize,
    /// Note bytes, for all principals together.
    bytes: usize,
    changes: u64,
}

#[derive(Debug)]
struct Entry {
    session: NotedSession,
    content: Content,
}

#[derive(Debug)]
enum Content {
    Notes {
        notes: SessionNotes,
        bytes: usize,
        /// The last change's number.
        changed: u64,
    },
    Ended,
}

/// What one principal holds.
#[derive(Debug, Default)]
struct Holder {
    /// Ended sessions by their start.
    ended: BTreeSet<(u64, SessionUid)>,
    watermark: Option<Watermark>,
    /// Sessions with notes by their last change.
    notes: BTreeMap<u64, SessionUid>,
    bytes: usize,
}

impl Holder {
    fn is_empty(&self) -> bool {
        self.ended.is_empty() && self.watermark.is_none() && self.notes.is_empty()
    }
}

impl Notebook {
    pub(super) fn new(limits: Limits) -> Self {
        Self {
            limits,
            sessions: HashMap::new(),
            principals: HashMap::new(),
            by_ended: BTreeSet::new(),
            by_bytes: BTreeSet::new(),
            by_expiry: BTreeSet::new(),
            watermarks_by_expiry: BTreeSet::new(),
            ended: 0,
            bytes: 0,
            changes: 0,
        }
    }

    /// Returns the notes about a session.
    pub(super) fn notes(&self, session: SessionUid) -> SessionNotes {
        match self.sessions.get(&session).map(|entry| &entry.content) {
            Some(Content::Notes { notes, .. }) => notes.clone(),
            Some(Content::Ended) | None => SessionNotes::default(),
        }
    }

    /// Returns `true` if a session has ended.
    pub(super) fn is_ended(&self, session: &NotedSession) -> bool {
        let entry = self.sessions.get(&session.uid);
        entry.is_some_and(|entry| matches!(entry.content, Content::Ended)) || self.is_below_watermark(session)
    }

    fn is_below_watermark(&self, session: &NotedSession) -> bool {
        let holder = session.principal.and_then(|principal| self.principals.get(&principal));
        holder.and_then(|holder| holder.watermark).is_some_and(|watermark| session.issued <= watermark.issued)
    }

    /// Applies a line from the file. Lines about expired sessions are ignored.
    pub(super) fn apply(&mut self, record: Record, now: u64) {
        match record {
            Record::Notes(session, notes) if session.expires > now => self.replace(&session, notes),
            Record::Change(session, change) if session.expires > now => {
                self.change(&session, &change.as_change());
            }
            // The file holds no more than the notebook that wrote it.
            Record::End(session) if session.expires > now => drop(self.end(&session)),
            Record::Watermark(watermark) if watermark.expires > now => self.raise(watermark),
            _ => {}
        }
    }

    /// Removes sessions and watermarks that have expired, a bounded number at once.
    pub(super) fn remove_expired(&mut self, now: u64) {
        for _ in 0..MAX_REMOVED {
            let Some((expires, uid)) = self.by_expiry.first().copied() else { break };
            if expires > now {
                break;
            }
            self.remove(uid);
        }
        for _ in 0..MAX_REMOVED {
            let Some((expires, principal)) = self.watermarks_by_expiry.first().copied() else { return };
            if expires > now {
                return;
            }
            self.watermarks_by_expiry.pop_first();
            self.ended -= 1;
            self.update(principal, |holder| holder.watermark = None);
        }
    }

    /// Changes the notes about a session. Returns `false` if that changes nothing, or if the change is not kept, because the session
    /// has ended or its notes are too large.
    pub(super) fn change(&mut self, session: &NotedSession, change: &NoteChange<'_>) -> bool {
        if self.is_ended(session) || !self.is_change(session.uid, change) {
            return false;
        }
        let before = self.remove(session.uid);
        let (mut notes, mut bytes) = match before.map(|entry| entry.content) {
            Some(Content::Notes { notes, bytes, .. }) => (notes, bytes),
            _ => (SessionNotes::default(), SESSION_BYTES),
        };
        let mut is_kept = true;
        match change {
            NoteChange::LogLevel(level) => notes.log_level = Some(*level),
            NoteChange::Subscribe(uri) => {
                let size = SUBSCRIPTION_BYTES + uri.len();
                is_kept = bytes + size <= self.limits.session_bytes;
                if is_kept {
                    notes.subscriptions.insert((*uri).into());
                    bytes += size;
                }
            }
            NoteChange::Unsubscribe(uri) => {
                notes.subscriptions.remove(*uri);
                bytes -= SUBSCRIPTION_BYTES + uri.len();
            }
        }
        self.insert_notes(session, notes, bytes);
        is_kept
    }

    /// Returns `true` if a change would change the notes about a session.
    fn is_change(&self, session: SessionUid, change: &NoteChange<'_>) -> bool {
        let notes = match self.sessions.get(&session).map(|entry| &entry.content) {
            Some(Content::Notes { notes, .. }) => Some(notes),
            Some(Content::Ended) | None => None,
        };
        match change {
            NoteChange::LogLevel(level) => notes.is_none_or(|notes| notes.log_level != Some(*level)),
            NoteChange::Subscribe(uri) => notes.is_none_or(|notes| !notes.subscriptions.contains(*uri)),
            NoteChange::Unsubscribe(uri) => notes.is_some_and(|notes| notes.subscriptions.contains(*uri)),
        }
    }

    /// Replaces the notes about a session.
    fn replace(&mut self, session: &NotedSession, notes: SessionNotes) {
        if self.is_ended(session) {
            return;
        }
        self.remove(session.uid);
        let uris = notes.subscriptions.iter().map(|uri| SUBSCRIPTION_BYTES + uri.len());
        let bytes = SESSION_BYTES + uris.sum::<usize>();
        if bytes <= self.limits.session_bytes {
            self.insert_notes(session, notes, bytes);
        }
    }

    /// Adds the notes about a session that has none. The oldest notes make room: the principal's own at its share, and at the
    /// total limit those with the principal that has the most bytes.
    fn insert_notes(&mut self, session: &NotedSession, notes: SessionNotes, bytes: usize) {
        if notes.is_empty() {
            return;
        }
        self.changes += 1;
        let changed = self.changes;
        let entry = Entry { session: *session, content: Content::Notes { notes, bytes, changed } };
        self.sessions.insert(session.uid, entry);
        self.by_expiry.insert((session.expires, session.uid));
        let Some(principal) = session.principal else { return };
        self.bytes += bytes;
        self.update(principal, |holder| {
            holder.notes.insert(changed, session.uid);
            holder.bytes += bytes;
        });
        let limit = Limits::share(self.limits.bytes, principal).max(self.limits.session_bytes);
        while self.principals.get(&principal).is_some_and(|holder| holder.bytes > limit) {
            self.remove_oldest_notes(principal);
        }
        while self.bytes > self.limits.bytes {
            let Some((_, largest)) = self.by_bytes.last().copied() else { return };
            self.remove_oldest_notes(largest);
        }
    }

    fn remove_oldest_notes(&mut self, principal: PrincipalKey) {
        let holder = self.principals.get(&principal);
        if let Some(uid) = holder.and_then(|holder| holder.notes.values().next().copied()) {
            self.remove(uid);
        }
    }

    /// Ends a session. Returns the watermarks that were raised to make room.
    pub(super) fn end(&mut self, session: &NotedSession) -> Result<Vec<Watermark>, Full> {
        if self.is_ended(session) {
            return Ok(Vec::new());
        }
        let mut raised = Vec::new();
        if let Some(principal) = session.principal {
            let limit = Limits::share(self.limits.ended, principal);
            let held = self.principals.get(&principal).map_or(0, |holder| holder.ended.len());
            if held >= limit {
                raised.extend(self.give_up_oldest(principal));
            }
            while self.ended >= self.limits.ended {
                let largest = self.by_ended.last().map(|(_, largest)| *largest);
                raised.push(largest.and_then(|largest| self.give_up_oldest(largest)).ok_or(Full)?);
            }
        }
        self.remove(session.uid);
        self.sessions.insert(session.uid, Entry { session: *session, content: Content::Ended });
        self.by_expiry.insert((session.expires, session.uid));
        if let Some(principal) = session.principal {
            self.ended += 1;
            self.update(principal, |holder| {
                holder.ended.insert((session.issued, session.uid));
            });
        }
        Ok(raised)
    }

    /// Replaces a principal's oldest ended sessions by a watermark. Returns `None` if that would make no room.
    fn give_up_oldest(&mut self, principal: PrincipalKey) -> Option<Watermark> {
        let holder = self.principals.get(&principal)?;
        // The first watermark takes one session's room.
        let count = if holder.watermark.is_some() { 1 } else { 2 };
        let oldest: Vec<_> = holder.ended.iter().take(count).copied().collect();
        let (issued, _) = oldest.get(count - 1)?;
        let expiries = oldest.iter().filter_map(|(_, uid)| self.sessions.get(uid)).map(|entry| entry.session.expires);
        let watermark = Watermark { principal, issued: *issued, expires: expiries.max()? };
        self.raise(watermark);
        self.principals.get(&principal)?.watermark
    }

    /// Raises a principal's watermark, and removes the ended sessions that it covers.
    fn raise(&mut self, watermark: Watermark) {
        let principal = watermark.principal;
        let before = self.principals.get(&principal).and_then(|holder| holder.watermark);
        let merged = before.map_or(watermark, |before| Watermark {
            principal,
            issued: before.issued.max(watermark.issued),
            expires: before.expires.max(watermark.expires),
        });
        match before {
            Some(before) => {
                self.watermarks_by_expiry.remove(&(before.expires, principal));
            }
            None => self.ended += 1,
        }
        self.watermarks_by_expiry.insert((merged.expires, principal));
        self.update(principal, |holder| holder.watermark = Some(merged));
        while let Some(holder) = self.principals.get(&principal)
            && let Some((issued, uid)) = holder.ended.first().copied()
            && issued <= merged.issued
        {
            self.remove(uid);
        }
    }

    /// Removes a session's entry.
    fn remove(&mut self, uid: SessionUid) -> Option<Entry> {
        let entry = self.sessions.remove(&uid)?;
        self.by_expiry.remove(&(entry.session.expires, uid));
        let Some(principal) = entry.session.principal else { return Some(entry) };
        match entry.content {
            Content::Notes { bytes, changed, .. } => {
                self.bytes -= bytes;
                self.update(principal, |holder| {
                    holder.notes.remove(&changed);
                    holder.bytes -= bytes;
                });
            }
            Content::Ended => {
                self.ended -= 1;
                self.update(principal, |holder| {
                    holder.ended.remove(&(entry.session.issued, uid));
                });
            }
        }
        Some(entry)
    }

    /// Changes what a principal holds, and its place in the orders.
    fn update(&mut self, principal: PrincipalKey, change: impl FnOnce(&mut Holder)) {
        let holder = self.principals.entry(principal).or_default();
        self.by_ended.remove(&(holder.ended.len(), principal));
        self.by_bytes.remove(&(holder.bytes, principal));
        change(holder);
        if holder.is_empty() {
            self.principals.remove(&principal);
            return;
        }
        self.by_ended.insert((holder.ended.len(), principal));
        self.by_bytes.insert((holder.bytes, principal));
    }

    /// Writes all lines that [`apply`](Self::apply) needs to build the same notebook.
    pub(super) fn write(&self, text: &mut Vec<u8>) {
        let mut notes = Vec::new();
        for holder in self.principals.values() {
            holder.watermark.iter().for_each(|watermark| encode::watermark(watermark, text));
        }
        for entry in self.sessions.values() {
            match &entry.content {
                Content::Ended => encode::end(&entry.session, text),
                Content::Notes { notes: about, changed, .. } => notes.push((*changed, &entry.session, about)),
            }
        }
        // The notes that are read first make room first.
        notes.sort_unstable_by_key(|(changed, ..)| *changed);
        notes.iter().for_each(|(_, session, about)| encode::notes(session, about, text));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::LogLevel;
    use crate::client::journal::line::decode;

    const LIMITS: Limits = Limits { ended: 16, bytes: 16 << 10, session_bytes: 2 << 10 };

    fn session(principal: &str, number: u64) -> NotedSession {
        let key = PrincipalKey::of(principal);
        let uid = SessionUid(u128::from(number) << 64 | principal.len() as u128);
        NotedSession { uid, principal: Some(key), issued: number, expires: number + 1000 }
    }

    /// Checks the sums, and that the notebook's lines make the same notebook.
    fn check(notebook: &Notebook) {
        let is_ended = |entry: &&Entry| matches!(entry.content, Content::Ended);
        let watermarks = notebook.principals.values().filter(|holder| holder.watermark.is_some()).count();
        assert_eq!(notebook.ended, notebook.sessions.values().filter(is_ended).count() + watermarks);
        assert_eq!(notebook.bytes, notebook.principals.values().map(|holder| holder.bytes).sum::<usize>());
        assert_eq!(notebook.by_expiry.len(), notebook.sessions.len());
        assert_eq!(notebook.by_ended.len(), notebook.principals.len());
        assert_eq!(notebook.by_bytes.len(), notebook.principals.len());
        assert!(notebook.ended <= notebook.limits.ended && notebook.bytes <= notebook.limits.bytes);
        let mut text = Vec::new();
        notebook.write(&mut text);
        let mut again = Notebook::new(notebook.limits);
        text.split_inclusive(|byte| *byte == b'\n').filter_map(decode).for_each(|record| again.apply(record, 0));
        let [mut one, mut two] = [Vec::new(), Vec::new()];
        notebook.write(&mut one);
        again.write(&mut two);
        let sorted = |text: Vec<u8>| {
            let mut lines: Vec<_> = text.split(|byte| *byte == b'\n').map(<[u8]>::to_vec).collect();
            lines.sort();
            lines
        };
        assert_eq!(sorted(one), sorted(two));
    }

    #[test]
    fn an_ended_session_never_comes_back() {
        let mut notebook = Notebook::new(LIMITS);
        for number in 0..100 {
            let raised = notebook.end(&session("key:a", number)).expect("room");
            assert!(raised.is_empty() || number >= 4, "a quarter of 16 is kept: {number}");
            assert!((0..=number).all(|number| notebook.is_ended(&session("key:a", number))), "{number}");
            assert!(!notebook.is_ended(&session("key:a", number + 1)) && !notebook.is_ended(&session("key:bb", 0)));
            check(&notebook);
        }
        assert!(notebook.sessions.len() <= 4);
    }

    #[test]
    fn a_principal_with_many_ended_sessions_makes_room_for_others() {
        let mut notebook = Notebook::new(LIMITS);
        for number in 0..40 {
            for principal in ["key:a", "key:bb", "key:ccc", "key:dddd", "key:eeeee", "key:ffffff"] {
                notebook.end(&session(principal, number)).expect("room");
                check(&notebook);
            }
        }
        for principal in ["key:a", "key:ffffff"] {
            assert!((0..40).all(|number| notebook.is_ended(&session(principal, number))));
            assert!(!notebook.is_ended(&session(principal, 40)));
        }
    }

    #[test]
    fn more_principals_than_entries_are_refused_and_expire() {
        let mut notebook = Notebook::new(LIMITS);
        let session = |number: u64| NotedSession {
            principal: Some(PrincipalKey::of(&format!("jwt:{number}"))),
            ..session("", number)
        };
        assert!((0..16).all(|number| notebook.end(&session(number)).is_ok()));
        assert_eq!(notebook.end(&session(16)), Err(Full));
        assert!(!notebook.is_ended(&session(16)));
        notebook.remove_expired(1000);
        notebook.end(&session(16)).expect("room of the first one");
        check(&notebook);
        notebook.remove_expired(5000);
        assert!(notebook.sessions.is_empty() && notebook.principals.is_empty() && notebook.ended == 0);
    }

    #[test]
    fn a_watermark_expires_with_the_sessions_that_it_covers() {
        let mut notebook = Notebook::new(LIMITS);
        (0..10).for_each(|number| drop(notebook.end(&session("key:a", number))));
        notebook.remove_expired(1000 + 9);
        assert!(notebook.principals.is_empty() && notebook.watermarks_by_expiry.is_empty() && notebook.ended == 0);
    }

    #[test]
    fn notes_are_bounded_and_the_oldest_make_room() {
        let mut notebook = Notebook::new(LIMITS);
        let bob = session("key:bb", 1);
        assert!(notebook.change(&bob, &NoteChange::Subscribe("b:")));
        let uri = "x".repeat(600);
        for number in 0..50 {
            assert!(notebook.change(&session("key:a", number), &NoteChange::Subscribe(&uri)));
            check(&notebook);
        }
        assert!(notebook.notes(session("key:a", 49).uid).subscriptions.contains(&*uri));
        assert!(notebook.notes(session("key:a", 0).uid).is_empty());
        assert!(!notebook.notes(bob.uid).is_empty(), "others keep theirs");
        let large = session("key:a", 49);
        assert!(!notebook.change(&large, &NoteChange::Subscribe(&"y".repeat(2000))));
        assert_eq!(notebook.notes(large.uid).subscriptions.len(), 1);
        let level = LogLevel::parse("error").expect("a level");
        assert!(notebook.change(&large, &NoteChange::LogLevel(level)));
        assert!(notebook.change(&large, &NoteChange::Unsubscribe(&uri)));
        let left = SessionNotes { log_level: Some(level), ..SessionNotes::default() };
        assert_eq!(notebook.notes(large.uid), left);
        notebook.end(&large).expect("room");
        assert!(!notebook.change(&large, &NoteChange::LogLevel(level)), "an ended session has no notes");
        assert!(!notebook.change(&bob, &NoteChange::Subscribe("b:")), "nothing changes");
        assert!(!notebook.change(&bob, &NoteChange::Unsubscribe("c:")), "nothing changes");
        check(&notebook);
    }
}
