//! Models that do not take pictures, sounds or documents: they are told in words, and no request fails for them.

use ropeway::content::ContentPart;
use ropeway::lowering::Toolset;
use ropeway::message::{AssistantMessage, AssistantPart, Conversation, Dialect, ToolCall, ToolResult};
use ropeway::provider::{
    ChatRequest, MediaSupport, Provider, ProviderErrorKind, ProviderSettings, Recorder, ReplyEvent, encode,
};
use ropeway::testing::{ModelAnswer, ModelServer, ScriptedReply};
use ropeway::tool::ToolDefinition;
use serde_json::{Value, json};

use super::{end, question, request, rest, settings, word};

/// What llama.cpp says, status and all.
const NO_PICTURES: &str =
    "image input is not supported - hint: if this is unexpected, you may need to provide the mmproj";

const TOLD: &str = "model `test-model` takes no pictures: what is not text was described in words";

async fn started(answers: impl IntoIterator<Item = ModelAnswer>) -> ModelServer {
    ModelServer::start(answers).await.expect("a server")
}

fn provider(settings: ProviderSettings) -> Provider {
    Provider::new(settings).expect("a provider")
}

fn refused(status: u16, words: &str) -> ModelAnswer {
    ModelAnswer::json(status, &json!({"error": {"code": status, "message": words, "type": "server_error"}}))
}

fn hello() -> ModelAnswer {
    ModelAnswer::events(word("Hello.") + &end())
}

fn parts(parts: Value) -> Vec<ContentPart> {
    serde_json::from_value(parts).expect("parts")
}

fn picture() -> Value {
    json!({"type": "image", "data": "iVBORw0KGgo=", "mimeType": "image/png"})
}

fn sound() -> Value {
    json!({"type": "audio", "data": "UklGRgAAAABXQVZF", "mimeType": "audio/wav"})
}

fn pdf() -> Value {
    json!({"type": "resource", "resource": {"uri": "file:///a.pdf", "mimeType": "application/pdf", "blob": "JVBERi0x"}})
}

/// A person who shows everything there is, and a tool that does.
fn everything() -> Conversation {
    let all = || parts(json!([{"type": "text", "text": "Look."}, picture(), sound(), pdf()]));
    let call = ToolCall::new("c1", "camera", Default::default());
    let mut answer = AssistantMessage::default();
    answer.parts.push(AssistantPart::ToolCall(call.clone()));
    Conversation::new().with(all()).with(answer).with(vec![ToolResult::new(&call, all())])
}

fn with_picture() -> Conversation {
    Conversation::new().with(parts(json!([{"type": "text", "text": "Look."}, picture()])))
}

fn with_sound() -> Conversation {
    Conversation::new().with(parts(json!([{"type": "text", "text": "Listen."}, sound()])))
}

/// The body of a request that tells some media in words.
fn body(settings: &ProviderSettings, request: &ChatRequest<'_>, in_words: MediaSupport) -> Value {
    let mut request = request.clone();
    request.in_words = in_words;
    let encoded = encode(settings, &request).expect("a request");
    serde_json::from_slice(&encoded.request.body).expect("JSON")
}

/// The warnings and texts of an answer, and how it ended.
async fn heard(provider: &Provider, request: &ChatRequest<'_>) -> Vec<String> {
    let events = rest(&mut provider.stream(request)).await;
    let told = events.into_iter().filter_map(|event| match event {
        Ok(ReplyEvent::Warning(warning)) => Some(format!("warning: {warning}")),
        Ok(ReplyEvent::Text(text)) => Some(format!("text: {text}")),
        Ok(_) => None,
        Err(error) => Some(format!("{:?}: {error}", error.kind)),
    });
    told.collect()
}

#[tokio::test]
async fn what_a_model_does_not_take_is_told_in_words_in_every_dialect() {
    let conversation = everything();
    let request = request(&conversation);
    for dialect in Dialect::ALL {
        for status in [400, 404, 415, 422, 500] {
            let server = started([refused(status, NO_PICTURES), ScriptedReply::text("Hello.").answer(dialect)]).await;
            let settings = ProviderSettings::new(dialect).with_base_url(server.url());
            let reply = provider(settings.clone()).complete(&request).await.expect("an answer");
            assert_eq!((reply.message.to_text(), reply.warnings), ("Hello.".to_owned(), vec![TOLD.to_owned()]));
            let [shown, told] = [MediaSupport::NONE, MediaSupport::ALL].map(|media| body(&settings, &request, media));
            assert_eq!(server.bodies(), [shown.clone(), told.clone()], "{dialect} {status}");
            let [shown, told] = [shown.to_string(), told.to_string()];
            assert_eq!(shown.matches("iVBORw0KGgo=").count(), 2, "{dialect}: {shown}");
            for data in ["iVBORw0KGgo=", "UklGRgAAAABXQVZF", "JVBERi0x"] {
                assert!(!told.contains(data), "{dialect}: {told}");
            }
            for line in
                ["[image, image/png, 8 bytes", "[sound, audio/wav, 12 bytes", "[document `file:///a.pdf`, application"]
            {
                assert_eq!(told.matches(line).count(), 2, "{dialect}: {told}");
            }
        }
    }
}

#[test]
fn in_words_a_chat_is_plain_text_and_nothing_else() {
    let conversation = everything();
    let body = body(&ProviderSettings::new(Dialect::Chat), &request(&conversation), MediaSupport::ALL);
    let told = "Look.\n[image, image/png, 8 bytes: it cannot be shown here]\n[sound, audio/wav, 12 bytes: it cannot be shown \
                here]\n[document `file:///a.pdf`, application/pdf, 6 bytes: it cannot be shown here]";
    let call = json!({"id": "c1", "type": "function", "function": {"name": "camera", "arguments": "{}"}});
    assert_eq!(
        body["messages"],
        json!([
            {"role": "user", "content": told},
            {"role": "assistant", "content": null, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "c1", "content": told},
        ])
    );
}

#[tokio::test]
async fn what_a_model_does_not_take_is_known_from_then_on_to_all_clones_and_told_once() {
    let server = started([refused(500, NO_PICTURES), hello(), hello(), hello()]).await;
    let provider = provider(settings(&server));
    let conversation = with_picture();
    let request = request(&conversation);
    assert_eq!(heard(&provider.clone(), &request).await, [format!("warning: {TOLD}"), "text: Hello.".to_owned()]);
    assert_eq!(heard(&provider, &request).await, ["text: Hello."]);
    let other = ChatRequest::new("other-model", &conversation);
    assert_eq!(heard(&provider, &other).await, ["text: Hello."]);
    let [shown, told] =
        [MediaSupport::NONE, MediaSupport::PICTURES].map(|media| body(provider.settings(), &request, media));
    let others = body(provider.settings(), &other, MediaSupport::NONE);
    assert_eq!(server.bodies(), [shown, told.clone(), told, others]);
}

#[tokio::test]
async fn a_model_that_hears_nothing_may_still_see() {
    let server = started([
        refused(500, "audio input is not supported"),
        hello(),
        hello(),
        refused(500, NO_PICTURES),
        hello(),
        hello(),
    ])
    .await;
    let provider = provider(settings(&server));
    let [sound, picture] = [with_sound(), with_picture()];
    for conversation in [&sound, &picture, &picture, &picture] {
        provider.complete(&request(conversation)).await.expect("an answer");
    }
    let body =
        |conversation: &Conversation, media: MediaSupport| body(provider.settings(), &request(conversation), media);
    let sounds = [body(&sound, MediaSupport::NONE), body(&sound, MediaSupport::ALL)];
    let (shown, told) = (body(&picture, MediaSupport::NONE), body(&picture, MediaSupport::ALL));
    assert_eq!(server.bodies(), [&sounds[..], &[shown.clone(), shown, told.clone(), told]].concat());
}

#[tokio::test]
async fn a_refusal_that_stays_one_is_an_error_and_comes_to_an_end() {
    let server = started(vec![refused(500, NO_PICTURES); 4]).await;
    let provider = provider(settings(&server));
    let conversation = with_picture();
    let error = provider.complete(&request(&conversation)).await.expect_err("no answer");
    assert!(error.is_media() && !error.is_retryable());
    assert_eq!(error.to_string(), format!("the provider refused with status 500: {NO_PICTURES}"));
    assert_eq!(server.bodies().len(), 2);
    // Nothing was learned: it was not for the picture.
    provider.complete(&request(&conversation)).await.expect_err("no answer");
    let [shown, told] =
        [MediaSupport::NONE, MediaSupport::ALL].map(|media| body(provider.settings(), &request(&conversation), media));
    assert_eq!(server.bodies(), [shown.clone(), told.clone(), shown, told]);
}

#[tokio::test]
async fn words_alone_that_are_refused_so_are_not_sent_again() {
    let server = started([refused(500, NO_PICTURES), refused(500, NO_PICTURES)]).await;
    let error = provider(settings(&server)).complete(&request(&question())).await.expect_err("no answer");
    assert_eq!((error.kind, server.bodies().len()), (ProviderErrorKind::Media, 1));
    let conversation = with_picture();
    let mut in_words = request(&conversation);
    in_words.in_words = MediaSupport::PICTURES;
    let error = provider(settings(&server)).complete(&in_words).await.expect_err("no answer");
    assert_eq!((error.kind, server.bodies().len()), (ProviderErrorKind::Media, 2));
}

#[tokio::test]
async fn one_picture_that_is_refused_does_not_end_the_conversation_nor_hide_the_next() {
    for (status, words) in [
        (400, "Could not process image"),
        (400, "messages.0.content.1.image.source.base64: image exceeds 5 MB maximum: 5281812 bytes > 5242880 bytes"),
        (400, "Request contains an invalid argument."),
        (500, "Failed to load image or audio file"),
        (413, "payload too large"),
        (422, "odd"),
    ] {
        let server = started([refused(status, words), hello(), hello()]).await;
        let provider = provider(settings(&server));
        let conversation = with_picture();
        let why = format!("the provider refused with status {status}: {words}");
        let warning = format!("warning: what is not text was described in words to model `test-model`: {why}");
        assert_eq!(heard(&provider, &request(&conversation)).await, [warning, "text: Hello.".to_owned()]);
        assert_eq!(heard(&provider, &request(&conversation)).await, ["text: Hello."]);
        let [shown, told] = [MediaSupport::NONE, MediaSupport::ALL]
            .map(|media| body(provider.settings(), &request(&conversation), media));
        assert_eq!(server.bodies(), [shown.clone(), told, shown], "{words}");
    }
}

#[tokio::test]
async fn a_request_without_media_that_is_refused_is_sent_once() {
    let server = started([refused(400, "odd")]).await;
    let error = provider(settings(&server)).complete(&request(&question())).await.expect_err("no answer");
    assert_eq!((error.kind, server.bodies().len()), (ProviderErrorKind::InvalidRequest, 1));
}

#[tokio::test]
async fn trouble_that_has_nothing_to_do_with_pictures_hides_none() {
    for (status, kind) in [
        (401, ProviderErrorKind::Auth),
        (404, ProviderErrorKind::NotFound),
        (429, ProviderErrorKind::RateLimited),
        (500, ProviderErrorKind::Server),
    ] {
        let server = started(vec![refused(status, "no"); 3]).await;
        let provider = provider(settings(&server));
        let conversation = with_picture();
        let error = provider.complete(&request(&conversation)).await.expect_err("no answer");
        assert_eq!(error.kind, kind);
        let shown = body(provider.settings(), &request(&conversation), MediaSupport::NONE);
        assert!(server.bodies().iter().all(|body| *body == shown), "{status}");
    }
}

#[tokio::test]
async fn a_refusal_in_the_stream_leads_to_words_only_while_nothing_was_handed_on() {
    let frame = format!("data: {}\n\n", json!({"error": {"code": 500, "message": NO_PICTURES}}));
    let answers = [ModelAnswer::events(word("Hel") + &frame), ModelAnswer::events(frame), hello()];
    let server = started(answers).await;
    let provider = provider(settings(&server));
    let conversation = with_picture();
    let broken = format!("Media: the provider broke off its answer: {NO_PICTURES}");
    assert_eq!(heard(&provider, &request(&conversation)).await, ["text: Hel".to_owned(), broken]);
    let told = [format!("warning: {TOLD}"), "text: Hello.".to_owned()];
    assert_eq!(heard(&provider, &request(&conversation)).await, told);
}

#[tokio::test]
async fn a_tool_and_a_picture_may_both_be_refused() {
    let tool = || refused(400, "tools.0.function.parameters: no");
    let server = started([tool(), refused(500, NO_PICTURES), tool(), hello()]).await;
    let provider = provider(settings(&server));
    let conversation = with_picture();
    let tools = Toolset::new(["a", "b"].map(ToolDefinition::new));
    let reply = provider.complete(&request(&conversation).with_tools(&tools)).await.expect("an answer");
    let left_out = "tool `a` is left out: the provider refused with status 400: tools.0.function.parameters: no";
    assert_eq!(reply.warnings, [left_out, TOLD, left_out]);
    assert_eq!(server.bodies()[3]["tools"].as_array().map(Vec::len), Some(1));
}

#[tokio::test]
async fn a_host_that_knows_says_what_is_told_in_words_for_one_request_or_for_all() {
    let server = started([hello(), hello()]).await;
    let mut knowing = settings(&server);
    knowing.quirks.in_words = MediaSupport::PICTURES;
    let conversation = with_picture();
    let mut once = request(&conversation);
    once.in_words = MediaSupport::PICTURES;
    assert_eq!(heard(&provider(settings(&server)), &once).await, ["text: Hello."]);
    assert_eq!(heard(&provider(knowing), &request(&conversation)).await, ["text: Hello."]);
    let told = body(&settings(&server), &request(&conversation), MediaSupport::ALL);
    assert_eq!(server.bodies(), [told.clone(), told]);
}

#[tokio::test]
async fn a_recording_begins_with_the_refusal_whatever_was_known_before_and_is_heard_again() {
    let refusals = || [refused(500, NO_PICTURES), hello()];
    let server = started(refusals().into_iter().chain(refusals()).chain([hello()])).await;
    let provider = provider(settings(&server));
    let conversation = with_picture();
    let first = heard(&provider, &request(&conversation)).await;
    let recorder = Recorder::in_memory();
    let recorded = provider.with_recorder(recorder.clone());
    assert_eq!(heard(&recorded, &request(&conversation)).await, first);
    assert_eq!(heard(&recorded, &request(&conversation)).await, ["text: Hello."]);
    let [shown, told] =
        [MediaSupport::NONE, MediaSupport::ALL].map(|media| body(recorded.settings(), &request(&conversation), media));
    assert_eq!(server.bodies()[2..], [shown, told.clone(), told]);
    let again = Provider::replaying(settings(&server), recorder.recording());
    drop(server);
    assert_eq!(heard(&again, &request(&conversation)).await, first);
    assert_eq!(heard(&again, &request(&conversation)).await, ["text: Hello."]);
}
