//! Session journal lines.

use std::collections::BTreeSet;
use std::fmt;

use ring::digest;
use serde::{Deserialize, Serialize};

use crate::client::LogLevel;

/// Identifies a session in the journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct SessionUid(pub(super) u128);

impl SessionUid {
    /// Returns the id with these random bits.
    pub(crate) fn from_bits(bits: u128) -> Self {
        Self(bits)
    }

    /// Reads an id in hexadecimal.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        u128::from_str_radix(text, 16).ok().map(Self)
    }
}

impl fmt::Display for SessionUid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

/// Identifies a principal in the journal: part of its id's SHA-256 digest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct PrincipalKey(u128);

impl PrincipalKey {
    /// All clients without a name.
    pub(super) const UNNAMED: Self = Self(0);

    /// Returns the key for the principal with this id.
    pub(crate) fn of(id: &str) -> Self {
        if id.is_empty() {
            return Self::UNNAMED;
        }
        let digest = digest::digest(&digest::SHA256, id.as_bytes());
        let bits = digest.as_ref().first_chunk::<16>().map_or(1, |bytes| u128::from_be_bytes(*bytes));
        Self(bits)
    }
}

/// A session as the journal knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NotedSession {
    pub(crate) uid: SessionUid,
    /// `None` if the session's line was written before journals had principals.
    pub(crate) principal: Option<PrincipalKey>,
    /// When the session started, in seconds since 1970.
    pub(crate) issued: u64,
    /// When the session's id expires, in seconds since 1970.
    pub(crate) expires: u64,
}

/// The parts of a session that its id does not hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct SessionNotes {
    pub(crate) log_level: Option<LogLevel>,
    /// The subscribed resources, by the client's URIs.
    pub(crate) subscriptions: BTreeSet<Box<str>>,
}

impl SessionNotes {
    pub(super) fn is_empty(&self) -> bool {
        self.log_level.is_none() && self.subscriptions.is_empty()
    }
}

/// One change to a session's notes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoteChange<'a> {
    LogLevel(LogLevel),
    Subscribe(&'a str),
    Unsubscribe(&'a str),
}

/// Marks all sessions that a principal started until a time as ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Watermark {
    pub(super) principal: PrincipalKey,
    pub(super) issued: u64,
    /// When the last session that it stands for expires.
    pub(super) expires: u64,
}

/// A line's content.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Record {
    /// Replaces the notes about a session.
    Notes(NotedSession, SessionNotes),
    Change(NotedSession, OwnedChange),
    End(NotedSession),
    Watermark(Watermark),
}

/// A [`NoteChange`] that was read.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum OwnedChange {
    LogLevel(LogLevel),
    Subscribe(String),
    Unsubscribe(String),
}

impl OwnedChange {
    pub(super) fn as_change(&self) -> NoteChange<'_> {
        match self {
            Self::LogLevel(level) => NoteChange::LogLevel(*level),
            Self::Subscribe(uri) => NoteChange::Subscribe(uri),
            Self::Unsubscribe(uri) => NoteChange::Unsubscribe(uri),
        }
    }
}

/// A line's JSON. Earlier versions wrote `session`, `log_level`, `subscriptions`, `ended` and `expires` only, with all notes
/// about the session in each line.
#[derive(Default, Serialize, Deserialize)]
#[serde(default)]
struct Line {
    #[serde(skip_serializing_if = "Option::is_none")]
    session: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    principal: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    issued: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    log_level: Option<String>,
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    subscriptions: BTreeSet<Box<str>>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    ended: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    change: Option<ChangeText>,
    expires: u64,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum ChangeText {
    LogLevel(String),
    Subscribe(String),
    Unsubscribe(String),
}

/// Reads a line. Returns `None` if it is malformed.
pub(super) fn decode(line: &[u8]) -> Option<Record> {
    let line: Line = serde_json::from_slice(line).ok()?;
    let principal = line.principal.as_deref().map(|key| u128::from_str_radix(key, 16)).transpose().ok()?;
    let principal = principal.map(PrincipalKey);
    let Some(session) = &line.session else {
        let issued = line.issued.filter(|_| line.ended)?;
        return Some(Record::Watermark(Watermark { principal: principal?, issued, expires: line.expires }));
    };
    let uid = SessionUid::parse(session)?;
    let session = NotedSession { uid, principal, issued: line.issued.unwrap_or_default(), expires: line.expires };
    if line.ended {
        return Some(Record::End(session));
    }
    Some(match line.change {
        Some(ChangeText::LogLevel(level)) => Record::Change(session, OwnedChange::LogLevel(LogLevel::parse(&level)?)),
        Some(ChangeText::Subscribe(uri)) => Record::Change(session, OwnedChange::Subscribe(uri)),
        Some(ChangeText::Unsubscribe(uri)) => Record::Change(session, OwnedChange::Unsubscribe(uri)),
        None => {
            let log_level = line.log_level.as_deref().and_then(LogLevel::parse);
            Record::Notes(session, SessionNotes { log_level, subscriptions: line.subscriptions })
        }
    })
}

/// Writes lines.
pub(super) mod encode {
    use super::{ChangeText, Line, NoteChange, NotedSession, PrincipalKey, SessionNotes, Watermark};

    fn of_session(session: &NotedSession) -> Line {
        Line {
            session: Some(session.uid.to_string()),
            principal: session.principal.map(hexadecimal),
            issued: Some(session.issued).filter(|issued| *issued > 0),
            expires: session.expires,
            ..Line::default()
        }
    }

    fn hexadecimal(PrincipalKey(bits): PrincipalKey) -> String {
        format!("{bits:x}")
    }

    fn write(line: &Line, text: &mut Vec<u8>) {
        // A struct with only strings and numbers always has a JSON form, and writing to memory does not fail.
        let _ = serde_json::to_writer(&mut *text, line);
        text.push(b'\n');
    }

    /// Writes all notes about a session.
    pub(in super::super) fn notes(session: &NotedSession, notes: &SessionNotes, text: &mut Vec<u8>) {
        let log_level = notes.log_level.map(|level| level.name().to_owned());
        write(&Line { log_level, subscriptions: notes.subscriptions.clone(), ..of_session(session) }, text);
    }

    /// Writes one change to a session's notes.
    pub(in super::super) fn change(session: &NotedSession, change: &NoteChange<'_>, text: &mut Vec<u8>) {
        let change = match change {
            NoteChange::LogLevel(level) => ChangeText::LogLevel(level.name().to_owned()),
            NoteChange::Subscribe(uri) => ChangeText::Subscribe((*uri).to_owned()),
            NoteChange::Unsubscribe(uri) => ChangeText::Unsubscribe((*uri).to_owned()),
        };
        write(&Line { change: Some(change), ..of_session(session) }, text);
    }

    /// Writes a session's end.
    pub(in super::super) fn end(session: &NotedSession, text: &mut Vec<u8>) {
        write(&Line { ended: true, ..of_session(session) }, text);
    }

    /// Writes that all sessions that a principal started until a time have ended.
    pub(in super::super) fn watermark(watermark: &Watermark, text: &mut Vec<u8>) {
        let principal = Some(hexadecimal(watermark.principal));
        let (issued, expires) = (Some(watermark.issued), watermark.expires);
        write(&Line { principal, issued, expires, ended: true, ..Line::default() }, text);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn session() -> NotedSession {
        NotedSession { uid: SessionUid(0xab), principal: Some(PrincipalKey::of("key:a")), issued: 7, expires: 9 }
    }

    #[test]
    fn lines_are_read_as_they_were_written() {
        let level = LogLevel::parse("error").expect("a level");
        let notes = SessionNotes { log_level: Some(level), subscriptions: ["a:".into(), "b:".into()].into() };
        let mut text = Vec::new();
        encode::notes(&session(), &notes, &mut text);
        encode::change(&session(), &NoteChange::Subscribe("c:\n"), &mut text);
        encode::change(&session(), &NoteChange::Unsubscribe("c:\n"), &mut text);
        encode::change(&session(), &NoteChange::LogLevel(level), &mut text);
        encode::end(&session(), &mut text);
        let watermark = Watermark { principal: PrincipalKey::UNNAMED, issued: 3, expires: 4 };
        encode::watermark(&watermark, &mut text);
        let read: Vec<_> = text.split_inclusive(|byte| *byte == b'\n').map(decode).collect();
        let expected = [
            Record::Notes(session(), notes),
            Record::Change(session(), OwnedChange::Subscribe("c:\n".into())),
            Record::Change(session(), OwnedChange::Unsubscribe("c:\n".into())),
            Record::Change(session(), OwnedChange::LogLevel(level)),
            Record::End(session()),
            Record::Watermark(watermark),
        ];
        assert_eq!(read, expected.map(Some));
    }

    #[test]
    fn lines_of_earlier_versions_are_read() {
        let uid = "00000000000000000000000000000abc";
        let old = NotedSession { uid: SessionUid(0xabc), principal: None, issued: 0, expires: 5 };
        let ended = format!(r#"{{"session":"{uid}","ended":true,"expires":5}}"#);
        assert_eq!(decode(ended.as_bytes()), Some(Record::End(old)));
        let noted = format!(r#"{{"session":"{uid}","log_level":"debug","subscriptions":["x:"],"expires":5}}"#);
        let notes = SessionNotes { log_level: LogLevel::parse("debug"), subscriptions: ["x:".into()].into() };
        assert_eq!(decode(noted.as_bytes()), Some(Record::Notes(old, notes)));
        for broken in ["garbage", "{}", r#"{"session":7}"#, r#"{"session":"xyz","expires":5}"#, "\0"] {
            assert_eq!(decode(broken.as_bytes()), None, "{broken}");
        }
    }
}
