//! Models without support for images, audio or documents get text descriptions.

use ropeway::content::ContentPart;
use ropeway::lowering::Toolset;
use ropeway::message::{AssistantMessage, AssistantPart, Conversation, Dialect, ToolCall, ToolResult};
use ropeway::provider::{ChatRequest, MediaKinds, Provider, ProviderErrorKind, ProviderSettings, Recorder, ReplyEvent};
use ropeway::testing::{ModelAnswer, ModelServer, ScriptedReply};
use ropeway::tool::ToolDefinition;
use ropeway_providers::encode;
use serde_json::{Value, json};

use super::{end, question, request, rest, settings, word};

/// The error of llama.cpp, sent with status 500.
const NO_PICTURES: &str =
    "image input is not supported - hint: if this is unexpected, you may need to provide the mmproj";

const TOLD: &str = "model `test-model` does not support images: sent text descriptions instead";

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

/// A conversation with all media, from the user and from a tool.
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

/// Encodes a request with some media described.
fn body(settings: &ProviderSettings, request: &ChatRequest<'_>, described_media: MediaKinds) -> Value {
    let mut request = request.clone();
    request.described_media = described_media;
    let encoded = encode(settings, &request).expect("a request");
    serde_json::from_slice(&encoded.request.body).expect("JSON")
}

/// Returns the warnings and text of a reply, and how it ended.
async fn outcome(provider: &Provider, request: &ChatRequest<'_>) -> Vec<String> {
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
async fn unsupported_media_are_described_in_every_dialect() {
    let conversation = everything();
    let request = request(&conversation);
    for dialect in Dialect::ALL {
        for status in [400, 404, 415, 422, 500] {
            let server = started([refused(status, NO_PICTURES), ScriptedReply::text("Hello.").answer(dialect)]).await;
            let settings = ProviderSettings::new(dialect).with_base_url(server.url());
            let reply = provider(settings.clone()).complete(&request).await.expect("a reply");
            assert_eq!((reply.message.to_text(), reply.warnings), ("Hello.".to_owned(), vec![TOLD.to_owned()]));
            let [shown, told] = [MediaKinds::NONE, MediaKinds::ALL].map(|media| body(&settings, &request, media));
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
fn a_chat_with_described_media_is_plain_text() {
    let conversation = everything();
    let body = body(&ProviderSettings::new(Dialect::Chat), &request(&conversation), MediaKinds::ALL);
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
async fn unsupported_media_are_remembered_by_all_clones() {
    let server = started([refused(500, NO_PICTURES), hello(), hello(), hello()]).await;
    let provider = provider(settings(&server));
    let conversation = with_picture();
    let request = request(&conversation);
    assert_eq!(outcome(&provider.clone(), &request).await, [format!("warning: {TOLD}"), "text: Hello.".to_owned()]);
    assert_eq!(outcome(&provider, &request).await, ["text: Hello."]);
    let other = ChatRequest::new("other-model", &conversation);
    assert_eq!(outcome(&provider, &other).await, ["text: Hello."]);
    let [shown, told] = [MediaKinds::NONE, MediaKinds::IMAGES].map(|media| body(provider.settings(), &request, media));
    let others = body(provider.settings(), &other, MediaKinds::NONE);
    assert_eq!(server.bodies(), [shown, told.clone(), told, others]);
}

#[tokio::test]
async fn a_model_without_audio_may_support_images() {
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
        provider.complete(&request(conversation)).await.expect("a reply");
    }
    let body =
        |conversation: &Conversation, media: MediaKinds| body(provider.settings(), &request(conversation), media);
    let sounds = [body(&sound, MediaKinds::NONE), body(&sound, MediaKinds::ALL)];
    let (shown, told) = (body(&picture, MediaKinds::NONE), body(&picture, MediaKinds::ALL));
    assert_eq!(server.bodies(), [&sounds[..], &[shown.clone(), shown, told.clone(), told]].concat());
}

#[tokio::test]
async fn a_repeated_rejection_is_an_error() {
    let server = started(vec![refused(500, NO_PICTURES); 4]).await;
    let provider = provider(settings(&server));
    let conversation = with_picture();
    let error = provider.complete(&request(&conversation)).await.expect_err("no answer");
    assert!(error.is_unsupported_media() && !error.is_retryable());
    assert_eq!(error.to_string(), format!("the provider returned HTTP 500: {NO_PICTURES}"));
    assert_eq!(server.bodies().len(), 2);
    // Nothing is remembered: the image was not the reason.
    provider.complete(&request(&conversation)).await.expect_err("no answer");
    let [shown, told] =
        [MediaKinds::NONE, MediaKinds::ALL].map(|media| body(provider.settings(), &request(&conversation), media));
    assert_eq!(server.bodies(), [shown.clone(), told.clone(), shown, told]);
}

#[tokio::test]
async fn a_rejection_of_described_media_is_not_retried() {
    let server = started([refused(500, NO_PICTURES), refused(500, NO_PICTURES)]).await;
    let error = provider(settings(&server)).complete(&request(&question())).await.expect_err("no answer");
    assert_eq!((error.kind, server.bodies().len()), (ProviderErrorKind::Media, 1));
    let conversation = with_picture();
    let mut described_media = request(&conversation);
    described_media.described_media = MediaKinds::IMAGES;
    let error = provider(settings(&server)).complete(&described_media).await.expect_err("no answer");
    assert_eq!((error.kind, server.bodies().len()), (ProviderErrorKind::Media, 2));
}

#[tokio::test]
async fn one_rejected_image_does_not_disable_the_next() {
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
        let why = format!("the provider returned HTTP {status}: {words}");
        let warning = format!("warning: sent text descriptions instead of media to model `test-model`: {why}");
        assert_eq!(outcome(&provider, &request(&conversation)).await, [warning, "text: Hello.".to_owned()]);
        assert_eq!(outcome(&provider, &request(&conversation)).await, ["text: Hello."]);
        let [shown, told] =
            [MediaKinds::NONE, MediaKinds::ALL].map(|media| body(provider.settings(), &request(&conversation), media));
        assert_eq!(server.bodies(), [shown.clone(), told, shown], "{words}");
    }
}

#[tokio::test]
async fn a_rejected_request_without_media_is_sent_once() {
    let server = started([refused(400, "odd")]).await;
    let error = provider(settings(&server)).complete(&request(&question())).await.expect_err("no answer");
    assert_eq!((error.kind, server.bodies().len()), (ProviderErrorKind::InvalidRequest, 1));
}

#[tokio::test]
async fn unrelated_errors_do_not_describe_media() {
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
        let shown = body(provider.settings(), &request(&conversation), MediaKinds::NONE);
        assert!(server.bodies().iter().all(|body| *body == shown), "{status}");
    }
}

#[tokio::test]
async fn a_rejection_within_the_stream_is_retried_before_content() {
    let frame = format!("data: {}\n\n", json!({"error": {"code": 500, "message": NO_PICTURES}}));
    let answers = [ModelAnswer::events(word("Hel") + &frame), ModelAnswer::events(frame), hello()];
    let server = started(answers).await;
    let provider = provider(settings(&server));
    let conversation = with_picture();
    let broken = format!("Media: the provider ended the reply: {NO_PICTURES}");
    assert_eq!(outcome(&provider, &request(&conversation)).await, ["text: Hel".to_owned(), broken]);
    let told = [format!("warning: {TOLD}"), "text: Hello.".to_owned()];
    assert_eq!(outcome(&provider, &request(&conversation)).await, told);
}

#[tokio::test]
async fn a_tool_and_an_image_may_both_be_rejected() {
    let tool = || refused(400, "tools.0.function.parameters: no");
    let server = started([tool(), refused(500, NO_PICTURES), tool(), hello()]).await;
    let provider = provider(settings(&server));
    let conversation = with_picture();
    let tools = Toolset::new(["a", "b"].map(ToolDefinition::new));
    let reply = provider.complete(&request(&conversation).with_tools(&tools)).await.expect("a reply");
    let left_out = "left out tool `a`: the provider returned HTTP 400: tools.0.function.parameters: no";
    assert_eq!(reply.warnings, [left_out, TOLD, left_out]);
    assert_eq!(server.bodies()[3]["tools"].as_array().map(Vec::len), Some(1));
}

#[tokio::test]
async fn media_can_be_described_by_setting_or_request() {
    let server = started([hello(), hello()]).await;
    let mut knowing = settings(&server);
    knowing.quirks.described_media = MediaKinds::IMAGES;
    let conversation = with_picture();
    let mut once = request(&conversation);
    once.described_media = MediaKinds::IMAGES;
    assert_eq!(outcome(&provider(settings(&server)), &once).await, ["text: Hello."]);
    assert_eq!(outcome(&provider(knowing), &request(&conversation)).await, ["text: Hello."]);
    let told = body(&settings(&server), &request(&conversation), MediaKinds::ALL);
    assert_eq!(server.bodies(), [told.clone(), told]);
}

#[tokio::test]
async fn a_recording_includes_the_rejection_of_media() {
    let refusals = || [refused(500, NO_PICTURES), hello()];
    let server = started(refusals().into_iter().chain(refusals()).chain([hello()])).await;
    let provider = provider(settings(&server));
    let conversation = with_picture();
    let first = outcome(&provider, &request(&conversation)).await;
    let recorder = Recorder::in_memory();
    let recorded = provider.with_recorder(recorder.clone());
    assert_eq!(outcome(&recorded, &request(&conversation)).await, first);
    assert_eq!(outcome(&recorded, &request(&conversation)).await, ["text: Hello."]);
    let [shown, told] =
        [MediaKinds::NONE, MediaKinds::ALL].map(|media| body(recorded.settings(), &request(&conversation), media));
    assert_eq!(server.bodies()[2..], [shown, told.clone(), told]);
    let again = Provider::replaying(settings(&server), recorder.recording());
    drop(server);
    assert_eq!(outcome(&again, &request(&conversation)).await, first);
    assert_eq!(outcome(&again, &request(&conversation)).await, ["text: Hello."]);
}
