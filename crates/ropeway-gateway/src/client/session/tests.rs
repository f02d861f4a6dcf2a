//! Tests of sessions: their limits, their order and their end.

use std::sync::Barrier;

use super::*;
use crate::client::principal::Grant;
use ropeway_config::{GatewayLimits, PrincipalLimits};

const DAY: Duration = Duration::from_secs(86_400);

fn description() -> ClientDescription {
    ClientDescription {
        version: "2025-06-18".into(),
        capabilities: r#"{"roots":{}}"#.into(),
        info: r#"{"name":"c","version":"1"}"#.into(),
    }
}

fn sessions_in(journal: Journal, keys: &Arc<KeyRing>, limit: usize) -> Sessions {
    let shares = Shares::new(&GatewayLimits { sessions: limit, ..GatewayLimits::default() });
    Sessions::new(keys.clone(), journal, DAY, limit, shares)
}

fn sessions(keys: &Arc<KeyRing>, limit: usize) -> Sessions {
    sessions_in(Journal::in_memory(), keys, limit)
}

fn keys() -> Arc<KeyRing> {
    Arc::new(KeyRing::generate().expect("random numbers"))
}

/// Starts a session. Returns its id, its client, and the clients that made room.
fn start(sessions: &Sessions, principal: &Principal) -> Result<(Arc<str>, Arc<Client>, Evicted), ShareError> {
    let mut evicted = Evicted::new();
    let (id, client) = sessions.create(&description(), principal, &"default".into(), &mut evicted)?;
    Ok((id, client, evicted))
}

fn find(sessions: &Sessions, id: &str, principal: &Principal) -> Option<FoundSession> {
    sessions.find(id, principal, &mut Evicted::new()).expect("room")
}

fn is_in_memory(sessions: &Sessions, id: &str) -> bool {
    lock(&sessions.table).get(id).is_some()
}

#[test]
fn a_session_id_is_known_after_a_restart() {
    let (keys, alice, bob) = (keys(), Principal::from("alice"), Principal::from("bob"));
    let before = sessions(&keys, 10);
    let (id, ..) = start(&before, &alice).expect("room");
    assert!(find(&before, &id, &alice).is_some_and(|found| found.revived.is_none()));
    let after = sessions(&keys, 10);
    assert!(find(&after, &id, &bob).is_none());
    let found = find(&after, &id, &alice).expect("the session");
    assert!(found.revived.is_some() && found.client.capabilities.roots);
    assert_eq!(&*found.client.description.version, "2025-06-18");
    assert!(find(&after, &id, &bob).is_none(), "a session in memory is bound to its principal, too");
}

#[test]
fn an_id_of_an_earlier_version_is_known() {
    let (keys, alice) = (keys(), Principal::from("alice"));
    let payload = serde_json::json!({"uid": "0123456789abcdef0123456789abcdef", "version": "2025-06-18",
        "profile": "default", "capabilities": "{}", "info": "{}", "expires": journal::now() + 100});
    let id = keys.seal(SealKind::Session, "alice", DAY, payload.to_string().as_bytes());
    let found = find(&sessions(&keys, 10), &id, &alice).expect("the session");
    assert_eq!(&*found.client.session, "0123456789abcdef0123456789abcdef");
}

#[test]
fn a_session_continues_with_the_rights_of_a_new_key_of_the_same_name() {
    let (keys, old, new) = (keys(), Principal::from("key:a"), Principal::from("key:a"));
    let sessions = sessions(&keys, 10);
    let (id, ..) = start(&sessions, &old).expect("room");
    let mut evicted = Evicted::new();
    let found = sessions.find(&id, &new, &mut evicted).expect("room").expect("the session");
    assert!(found.client.principal.is_clone(&new) && found.revived.is_some());
    assert_eq!((sessions.len(), evicted.len()), (1, 1), "the client with the old rights is released");
}

#[test]
fn a_session_in_memory_ends_with_its_life() {
    let (keys, anyone) = (keys(), Principal::from(""));
    let sessions = sessions(&keys, 10);
    let (id, ..) = start(&sessions, &anyone).expect("room");
    let expires = lock(&sessions.table).get(&id).expect("the session").noted.expires;
    assert_eq!(expires.saturating_sub(journal::now()).div_ceil(3600), 24);
    assert!(find(&sessions, &id, &anyone).is_some());
    lock(&sessions.table).get_mut(&id).expect("the session").noted.expires = journal::now() - 1;
    assert!(find(&sessions, &id, &anyone).is_none());
    assert!(sessions.end(&id, &anyone, "default").is_none());
}

#[test]
fn large_capabilities_survive_a_restart() {
    let (keys, anyone) = (keys(), Principal::from(""));
    let details = "x".repeat(2 * MAX_INFO_BYTES);
    let capabilities = format!(r#"{{"elicitation":{{"url":{{}}}},"experimental":{{"{details}":{{}}}}}}"#).into();
    let description = ClientDescription { capabilities, ..description() };
    let created = sessions(&keys, 10).create(&description, &anyone, &"default".into(), &mut Evicted::new());
    let (id, before) = created.expect("room");
    let after = find(&sessions(&keys, 10), &id, &anyone).expect("the session").client;
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
    let created = sessions(&keys(), 10).create(&description, &anyone, &"default".into(), &mut Evicted::new());
    let (_, client) = created.expect("room");
    assert!(client.capabilities.roots && client.description_bytes() < 1000, "{}", client.description_bytes());
}

#[tokio::test]
async fn an_ended_session_stays_ended() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("sessions.jsonl");
    let (keys, anyone) = (keys(), Principal::from(""));
    let open = || sessions_in(Journal::open(&path).expect("a journal"), &keys, 10);
    let before = open();
    let (id, ..) = start(&before, &anyone).expect("room");
    assert!(before.end(&id, &anyone, "other").is_none(), "it belongs to another profile");
    let ended = before.end(&id, &anyone, "default").expect("the session").expect("room in the journal");
    assert!(ended.client.is_some());
    ended.pending.stored().await.expect("stored");
    assert!(find(&before, &id, &anyone).is_none());
    assert!(before.end(&id, &anyone, "default").is_none());
    assert!(find(&open(), &id, &anyone).is_none(), "the end is on disk when it is confirmed");
}

#[test]
fn a_session_that_is_not_in_memory_ends_without_a_revival() {
    let (keys, anyone) = (keys(), Principal::from(""));
    let (id, ..) = start(&sessions(&keys, 10), &anyone).expect("room");
    let after = sessions(&keys, 10);
    let ended = after.end(&id, &anyone, "default").expect("the session").expect("room in the journal");
    assert!(ended.client.is_none() && after.len() == 0);
    assert!(find(&after, &id, &anyone).is_none());
}

#[test]
fn the_oldest_idle_session_makes_room_and_is_revived() {
    let (keys, anyone) = (keys(), Principal::from(""));
    let sessions = sessions(&keys, 2);
    let (first, first_client, _) = start(&sessions, &anyone).expect("room");
    let (_second, client, _) = start(&sessions, &anyone).expect("room");
    let _busy = client.begin(serde_json::from_str("1").expect("an id")).expect("a free id");
    let (_third, _, evicted) = start(&sessions, &anyone).expect("room");
    assert_eq!(sessions.len(), 2);
    assert!(matches!(&evicted[..], [evicted] if Arc::ptr_eq(evicted, &first_client)), "it is returned at once");
    drop((evicted, first_client));
    assert!(find(&sessions, &first, &anyone).is_some_and(|found| found.revived.is_some()));
    let busy: Vec<_> = sessions
        .clients()
        .iter()
        .filter_map(|client| client.begin(serde_json::from_str("9").expect("an id")))
        .collect();
    assert_eq!(busy.len(), 2);
    assert_eq!(start(&sessions, &anyone).err().map(ShareError::status), Some(503));
    let mut evicted = Evicted::new();
    let revived = sessions.find(&_third, &anyone, &mut evicted).err();
    assert_eq!(revived.map(ShareError::status), Some(503), "the session is not unknown, but has no room");
}

#[test]
fn an_evicted_client_is_dropped_at_once() {
    let limits = PrincipalLimits::default().with_sessions(Some(1));
    let alice = Principal::new("key:a", Grant { limits, ..Grant::default() });
    let sessions = sessions(&keys(), 100);
    let clients: Vec<_> = (0..100).map(|_| Arc::downgrade(&start(&sessions, &alice).expect("room").1)).collect();
    assert_eq!(clients.iter().filter(|client| client.strong_count() > 0).count(), 1);
}

#[test]
fn a_principal_at_its_share_loses_its_own_oldest_session() {
    let (alice, bob) = (Principal::from("key:a"), Principal::from("key:b"));
    let sessions = sessions(&keys(), 16);
    let (bobs, ..) = start(&sessions, &bob).expect("room");
    let (first, ..) = start(&sessions, &alice).expect("room");
    let (second, ..) = start(&sessions, &alice).expect("room");
    find(&sessions, &first, &alice).expect("it is used");
    for _ in 0..3 {
        start(&sessions, &alice).expect("room");
    }
    assert!(!is_in_memory(&sessions, &second), "the least recently used one");
    assert!(is_in_memory(&sessions, &first) && is_in_memory(&sessions, &bobs));
    for _ in 0..100 {
        start(&sessions, &alice).expect("room");
    }
    assert!(is_in_memory(&sessions, &bobs), "the oldest of all, and of another principal");
    assert_eq!(sessions.len(), 5);
}

#[test]
fn the_largest_holder_makes_room_at_the_limit_of_the_gateway() {
    let sessions = sessions(&keys(), 16);
    let small = Principal::from("key:small");
    let (kept, ..) = start(&sessions, &small).expect("room");
    let large: Vec<_> = (0..4).map(|number| Principal::from(&*format!("key:{number}"))).collect();
    for principal in large.iter().cycle().take(100) {
        start(&sessions, principal).expect("room");
    }
    assert_eq!(sessions.len(), 16);
    assert!(is_in_memory(&sessions, &kept), "it holds less than its fair share");
    let (_, _, evicted) = start(&sessions, &small).expect("room");
    assert!(evicted.iter().all(|client| client.principal != small) && evicted.len() == 1);
}

#[test]
fn sessions_in_use_are_passed_over() {
    let (keys, anyone) = (keys(), Principal::from(""));
    let sessions = sessions(&keys, 50);
    let clients: Vec<_> = (0..50).map(|_| start(&sessions, &anyone).expect("room").1).collect();
    let _streams: Vec<_> = clients[..40].iter().map(Client::open_stream).collect();
    for _ in 0..100 {
        start(&sessions, &anyone).expect("room");
    }
    let held = sessions.clients();
    assert!(clients[..40].iter().all(|client| held.iter().any(|held| Arc::ptr_eq(held, client))));
    assert_eq!(sessions.len(), 50);
}

#[tokio::test(start_paused = true)]
async fn unused_sessions_leave_memory() {
    let (keys, anyone) = (keys(), Principal::from(""));
    let sessions = sessions(&keys, 50);
    let (_old, ..) = start(&sessions, &anyone).expect("room");
    let (used, ..) = start(&sessions, &anyone).expect("room");
    let (_busy, client, _) = start(&sessions, &anyone).expect("room");
    let stream = client.open_stream();
    tokio::time::advance(MAX_IDLE - Duration::from_secs(1)).await;
    assert!(sessions.evict_unused().is_empty());
    find(&sessions, &used, &anyone).expect("the session");
    tokio::time::advance(Duration::from_secs(2)).await;
    assert_eq!(sessions.evict_unused().len(), 1);
    tokio::time::advance(MAX_IDLE).await;
    assert_eq!(sessions.evict_unused().len(), 1);
    drop(stream);
    tokio::time::advance(MAX_IDLE + Duration::from_secs(1)).await;
    assert_eq!((sessions.evict_unused().len(), sessions.len()), (1, 0));
}

#[test]
fn concurrent_revivals_share_one_client() {
    let (keys, anyone) = (keys(), Principal::from(""));
    for _ in 0..20 {
        let (id, ..) = start(&sessions(&keys, 10), &anyone).expect("room");
        let (after, barrier) = (sessions(&keys, 10), Barrier::new(4));
        let found: Vec<_> = std::thread::scope(|scope| {
            let revive = || {
                barrier.wait();
                find(&after, &id, &anyone).expect("the session")
            };
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(revive)).collect();
            threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
        });
        assert_eq!(found.iter().filter(|found| found.revived.is_some()).count(), 1);
        assert!(found.iter().all(|other| Arc::ptr_eq(&other.client, &found[0].client)));
    }
}

#[test]
fn notes_are_found_by_the_client() {
    let (keys, anyone) = (keys(), Principal::from(""));
    let sessions = sessions(&keys, 1);
    let (id, client, _) = start(&sessions, &anyone).expect("room");
    let level = LogLevel::parse("error").expect("a level");
    sessions.note_log_level(&client, level);
    sessions.note_subscribed(&client, "a:");
    sessions.note_subscribed(&client, "b:");
    sessions.note_unsubscribed(&client, "a:");
    start(&sessions, &anyone).expect("room");
    let notes = find(&sessions, &id, &anyone).expect("the session").revived.expect("a revival");
    assert_eq!(notes, SessionNotes { log_level: Some(level), subscriptions: ["b:".into()].into() });
}

/// Returns the CPU time of this thread, which does not depend on other processes.
fn cpu_time() -> Duration {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    Duration::from_nanos(stat.split(' ').next().and_then(|time| time.parse().ok()).expect("a time"))
}

#[test]
fn the_cost_of_a_session_does_not_grow_with_their_number() {
    let (keys, anyone) = (keys(), Principal::from(""));
    let level = LogLevel::parse("error").expect("a level");
    // Each session evicts another, gets a note and ends.
    let cost = |limit: usize| {
        let sessions = sessions(&keys, limit);
        (0..limit).for_each(|_| drop(start(&sessions, &anyone).expect("room")));
        let began = cpu_time();
        for _ in 0..2000 {
            let (id, client, _) = start(&sessions, &anyone).expect("room");
            sessions.note_log_level(&client, level);
            let ended = sessions.end(&id, &anyone, "default").expect("the session");
            assert!(ended.is_ok() && start(&sessions, &anyone).is_ok());
        }
        cpu_time() - began
    };
    let (few, many) = (cost(100), cost(30_000));
    assert!(many < 3 * few, "{few:?} and {many:?}");
}
