//! Recording and replaying exchanges.

use ropeway::message::{Conversation, Dialect};
use ropeway::provider::{
    Provider, ProviderError, ProviderErrorKind, ProviderSettings, Recorder, Recording, ReplyEvent,
};
use ropeway::testing::{ModelAnswer, ModelServer};
use ropeway_providers::{Exchange, ExchangeEnd};
use serde_json::json;

use super::{KEY, end, question, request, rest, settings, soon, word};

/// The comparable part of a stream's events.
fn comparable(events: &[Result<ReplyEvent, ProviderError>]) -> Vec<String> {
    let one = |event: &Result<ReplyEvent, ProviderError>| match event {
        Ok(event) => format!("{event:?}"),
        Err(error) => format!("{:?} {error} {:?} {:?}", error.kind, error.status, error.request_id),
    };
    events.iter().map(one).collect()
}

async fn collect_events(provider: &Provider, conversation: &Conversation) -> Vec<Result<ReplyEvent, ProviderError>> {
    rest(&mut provider.stream(&request(conversation))).await
}

#[tokio::test]
async fn a_recording_is_replayed_without_a_socket() {
    let answers = [
        ModelAnswer::json(503, &json!({"error": {"message": "busy"}})).with_header("x-request-id", "r-1"),
        ModelAnswer::events(word("Grüß")).then(word(" Gott.") + &end()),
        ModelAnswer::json(400, &json!({"error": {"message": "no", "code": "odd"}})).with_header("x-request-id", "r-2"),
        ModelAnswer::events(word("Hel")).cut_off(),
    ];
    let server = ModelServer::start(answers).await.expect("a server");
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("talk.jsonl");
    let settings = settings(&server);
    let live = Provider::new(settings.clone()).expect("a provider");
    let live = live.with_recorder(Recorder::to_file(&path).expect("a file"));
    let conversation = question();
    let mut heard = Vec::new();
    for _ in 0..3 {
        heard.push(comparable(&collect_events(&live, &conversation).await));
    }
    drop(server);

    let recording = Recording::load(&path).expect("a recording");
    assert_eq!(recording.exchanges.iter().map(|one| one.status).collect::<Vec<_>>(), [503, 200, 400, 200].map(Some));
    let expected = word("Grüß") + &word(" Gott.") + &end();
    assert_eq!((&recording.exchanges[1].body, &recording.exchanges[1].ending), (&expected, &ExchangeEnd::Whole));
    let again = Provider::replaying(settings, recording.clone()).with_recorder(Recorder::in_memory());
    for heard in heard {
        assert_eq!(comparable(&collect_events(&again, &conversation).await), heard);
    }
}

#[tokio::test]
async fn recording_a_replay_gives_the_same_recording() {
    let recording = Recording::new([
        Exchange::events(word("a") + &end()),
        Exchange::new(401, "{}").with_header("content-type", "application/json"),
        Exchange::failed(ProviderErrorKind::Unreadable, "odd"),
    ]);
    let recorder = Recorder::in_memory();
    let provider =
        Provider::replaying(ProviderSettings::new(Dialect::Chat), recording.clone()).with_recorder(recorder.clone());
    let conversation = question();
    for _ in 0..3 {
        collect_events(&provider, &conversation).await;
    }
    let mut again = recorder.recording();
    for exchange in &mut again.exchanges {
        assert!(exchange.request.take().is_some());
    }
    assert_eq!(again, recording);
}

#[cfg(unix)]
#[tokio::test]
async fn a_recording_file_is_private_and_grows_by_lines() {
    use std::os::unix::fs::PermissionsExt as _;
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("talk.jsonl");
    let conversation = question();
    for _ in 0..2 {
        let provider = Provider::replaying(
            ProviderSettings::new(Dialect::Chat),
            Recording::new([Exchange::events(word("a") + &end()), Exchange::events(word("b") + &end())]),
        );
        let provider = provider.with_recorder(Recorder::to_file(&path).expect("a file"));
        collect_events(&provider, &conversation).await;
        collect_events(&provider, &conversation).await;
    }
    assert_eq!(std::fs::metadata(&path).expect("a file").permissions().mode() & 0o777, 0o600);
    assert_eq!(Recording::load(&path).expect("a recording").exchanges.len(), 4);
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_write_error_does_not_fail_the_reply() {
    let recorder = Recorder::to_file("/dev/full").expect("a file");
    let recording = Recording::new([Exchange::events(word("a") + &end())]);
    let provider = Provider::replaying(ProviderSettings::new(Dialect::Chat), recording).with_recorder(recorder.clone());
    assert!(collect_events(&provider, &question()).await.iter().all(Result::is_ok));
    assert_eq!(recorder.take_error().map(|trouble| trouble.kind()), Some(std::io::ErrorKind::StorageFull));
    assert!(recorder.take_error().is_none());
}

#[tokio::test]
async fn a_dropped_stream_is_recorded_as_cut_off() {
    let answers = [ModelAnswer::events(word("Hel")).stall(), ModelAnswer::silence()];
    let server = ModelServer::start(answers).await.expect("a server");
    let recorder = Recorder::in_memory();
    let provider = Provider::new(settings(&server)).expect("a provider").with_recorder(recorder.clone());
    let conversation = question();
    let mut stream = provider.stream(&request(&conversation));
    stream.next().await.expect("an event").expect("no error");
    drop(stream);
    tokio::select! {
        answer = provider.complete(&request(&conversation)) => panic!("no answer, not {answer:?}"),
        () = soon(server.asked(2)) => {}
    }
    let recording = recorder.recording();
    let ends: Vec<_> = recording.exchanges.iter().map(|one| (one.status, one.body.as_str(), &one.ending)).collect();
    assert_eq!(ends, [(Some(200), word("Hel").as_str(), &ExchangeEnd::CutOff), (None, "", &ExchangeEnd::CutOff)]);
    // A replay is cut off at the same position.
    let again = Provider::replaying(settings(&server), recording);
    let events = collect_events(&again, &conversation).await;
    let [Ok(ReplyEvent::Text(text)), Err(error)] = events.as_slice() else { panic!("not {events:?}") };
    assert_eq!((text.as_str(), error.kind), ("Hel", ProviderErrorKind::Truncated));
}

#[tokio::test]
async fn no_recording_holds_the_key() {
    let (first, second) = KEY.split_at(7);
    let echo = ModelAnswer::events(word("a")).then(format!(": your key is {first}")).then(format!("{second}\n\n"));
    let echo = echo.then(word(KEY) + &end()).with_header("x-request-id", KEY);
    let server = ModelServer::start([echo, ModelAnswer::json(401, &json!({"error": KEY}))]).await.expect("a server");
    let settings = settings(&server)
        .with_header("X-Api-Key", "another-secret")
        .with_base_url(format!("{}/v1?key={KEY}", server.url()));
    let recorder = Recorder::in_memory();
    let provider = Provider::new(settings).expect("a provider").with_recorder(recorder.clone());
    let conversation = question().with_system(format!("Use {KEY}."));
    collect_events(&provider, &conversation).await;
    collect_events(&provider, &conversation).await;
    let recording = recorder.recording();
    let text = format!("{}{recording:?}{recorder:?}", recording.to_lines());
    assert!(!text.contains("0123456") && !text.contains("sk-test") && !text.contains("another"), "{text}");
    let sent = recording.exchanges[0].request.as_ref().expect("a request");
    assert_eq!(sent.url, format!("{}/v1/chat/completions?key=***", server.url()));
    let header = |name: &str| sent.headers.iter().find(|(other, _)| other.eq_ignore_ascii_case(name)).cloned();
    assert_eq!(header("authorization").map(|(_, value)| value).as_deref(), Some("Bearer ***"));
    assert_eq!(header("x-api-key").map(|(_, value)| value).as_deref(), Some("***"));
    assert_eq!(sent.body["messages"][0]["content"], "Use ***.");
    assert!(recording.exchanges[0].body.contains(": your key is ***\n"));
}

#[tokio::test]
async fn a_different_request_is_described() {
    let recorder = Recorder::in_memory();
    let first = Recording::new([Exchange::events(word("a") + &end())]);
    let provider = Provider::replaying(ProviderSettings::new(Dialect::Chat), first).with_recorder(recorder.clone());
    collect_events(&provider, &question()).await;
    let again = Provider::replaying(ProviderSettings::new(Dialect::Chat), recorder.recording());
    let events = collect_events(&again, &question().with_system("Be kind.")).await;
    let [Err(error)] = events.as_slice() else { panic!("one error, not {events:?}") };
    assert_eq!(error.kind, ProviderErrorKind::Unusable);
    let message = error.to_string();
    let beginning = "the request differs from exchange 1 of the recording: at `/messages/0/";
    assert!(message.starts_with(beginning), "{message}");
    // The matching request is still answered, a further one is not.
    assert!(collect_events(&again, &question()).await.iter().all(Result::is_ok));
    let events = collect_events(&again, &question()).await;
    let [Err(error)] = events.as_slice() else { panic!("one error, not {events:?}") };
    assert_eq!(error.to_string(), "the recording has no exchange left (1 used)");
}
