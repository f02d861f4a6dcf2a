//! Which media a model supports, learned from its provider's errors.
//!
//! A result is remembered for the model, so only messages that cannot be about a single broken image count. A message that is not
//! recognised costs one more request each time.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use super::media_kinds::MediaKinds;
use ropeway_core::sync::lock;

/// The media that models were found not to support, by model name. Clones share their entries.
#[derive(Clone, Debug, Default)]
pub(super) struct UnsupportedMedia(Arc<Mutex<HashMap<String, MediaKinds>>>);

impl UnsupportedMedia {
    /// Returns the media that this model is known not to support.
    pub(super) fn of_model(&self, model: &str) -> MediaKinds {
        lock(&self.0).get(model).copied().unwrap_or_default()
    }

    pub(super) fn insert(&self, model: &str, media: MediaKinds) {
        if media != MediaKinds::NONE {
            let mut models = lock(&self.0);
            let known = models.entry(model.to_owned()).or_default();
            *known = known.union(media);
        }
    }
}

/// Phrases from known servers, without quotation marks.
const PHRASES: [(&str, MediaKinds); 25] = [
    // vLLM
    ("not a multimodal model", MediaKinds::ALL),
    ("at most 0 image", MediaKinds::IMAGES),
    ("at most 0 audio", MediaKinds::AUDIO),
    // other servers
    ("not a multi-modal model", MediaKinds::ALL),
    ("not a vision model", MediaKinds::IMAGES),
    ("not a vision-language model", MediaKinds::IMAGES),
    ("not a vision-capable model", MediaKinds::IMAGES),
    // OpenAI
    ("image_url is only supported by certain models", MediaKinds::IMAGES),
    ("input_audio is only supported by certain models", MediaKinds::AUDIO),
    ("file is only supported by certain models", MediaKinds::DOCUMENTS),
    ("invalid value: image_url", MediaKinds::IMAGES),
    ("invalid value: input_image", MediaKinds::IMAGES),
    ("invalid value: input_audio", MediaKinds::AUDIO),
    ("invalid value: input_file", MediaKinds::DOCUMENTS),
    ("content blocks are expected to be either text or image_url", MediaKinds::AUDIO),
    // DeepSeek, and other servers that use serde
    ("unknown variant image_url", MediaKinds::IMAGES),
    ("unknown variant image,", MediaKinds::IMAGES),
    ("unknown variant input_image", MediaKinds::IMAGES),
    ("unknown variant input_audio", MediaKinds::AUDIO),
    ("unknown variant file,", MediaKinds::DOCUMENTS),
    ("unknown variant document,", MediaKinds::DOCUMENTS),
    // Ollama
    ("missing data required for image input", MediaKinds::IMAGES),
    // Groq; a message is a list of parts only if it has media
    ("content must be a string", MediaKinds::ALL),
    ("content should be a string", MediaKinds::ALL),
    ("content : value must be a string", MediaKinds::ALL),
];

/// Words after a noun that belong to it: `image inputs are not supported`.
const QUALIFIERS: [&str; 14] = [
    "input",
    "inputs",
    "content",
    "contents",
    "modality",
    "modalities",
    "part",
    "parts",
    "block",
    "blocks",
    "attachment",
    "attachments",
    "understanding",
    "message",
];

/// Words between a verb and its noun: `does not support the image content block`.
const FILLERS: [&str; 6] = ["the", "any", "a", "an", "input", "inputs"];

/// Returns the media that a model does not support according to an error message, or `None` if it is about something else.
pub(super) fn unsupported_media(message: &str) -> Option<MediaKinds> {
    let text: String = message.chars().filter(|c| !matches!(c, '\'' | '"' | '`' | '’' | '‘')).collect();
    // OpenRouter.
    let text = text.to_ascii_lowercase().replace("no endpoints found that support", "does not support");
    let phrases = PHRASES.iter().filter(|(phrase, _)| text.contains(phrase)).map(|(_, media)| *media);
    let words: Vec<&str> = text.split_whitespace().flat_map(split_punctuation).collect();
    let sentences = (0..words.len()).filter_map(|at| verb_first(&words[at..]).or_else(|| noun_first(&words[at..])));
    phrases.chain(sentences).reduce(MediaKinds::union)
}

/// Splits a word from the punctuation after it.
fn split_punctuation(word: &str) -> impl Iterator<Item = &str> {
    let word = word.trim_start_matches(['(', '[', '{', '<']);
    let bare = word.trim_end_matches(['.', ',', ';', ':', '!', ')', ']', '}', '>']);
    [bare, &word[bare.len()..]].into_iter().filter(|part| !part.is_empty())
}

/// Matches words that start with `not support images`.
fn verb_first(words: &[&str]) -> Option<MediaKinds> {
    let (denial, rest) = words.split_first()?;
    let (verb, rest) = rest.split_first()?;
    if !matches!(*denial, "not" | "doesnt" | "dont" | "cannot" | "cant") {
        return None;
    }
    if !matches!(*verb, "support" | "accept" | "allow" | "handle") {
        return None;
    }
    let skipped = rest.iter().take_while(|word| FILLERS.contains(word)).count();
    let (noun, rest) = rest[skipped..].split_first()?;
    // "image formats", "image URLs" or "image generation" say nothing about image input.
    let ends = rest.first().is_none_or(|next| {
        QUALIFIERS.contains(next)
            || matches!(*next, "and" | "or" | "yet" | "-")
            || !next.starts_with(char::is_alphanumeric)
    });
    media_of(noun).filter(|_| ends)
}

/// Matches words that start with `image inputs are not supported`.
fn noun_first(words: &[&str]) -> Option<MediaKinds> {
    let (noun, rest) = words.split_first()?;
    let media = media_of(noun)?;
    let qualified = rest.iter().take_while(|word| QUALIFIERS.contains(word)).count();
    // "the image is not supported" is about one image.
    if qualified == 0 && matches!(*noun, "image" | "picture" | "pdf" | "document" | "file" | "sound") {
        return None;
    }
    let rest = &rest[qualified..];
    let rest = rest.strip_prefix(&["is"]).or(rest.strip_prefix(&["are"])).unwrap_or(rest);
    let denied = match rest {
        ["not" | "isnt" | "arent", "currently" | "yet", verb, ..] | ["not" | "isnt" | "arent", verb, ..] => *verb,
        ["unsupported", ..] => "supported",
        ["disabled", ..] => "enabled",
        _ => return None,
    };
    matches!(denied, "supported" | "enabled" | "allowed" | "available" | "accepted").then_some(media)
}

/// Returns the media that a noun refers to.
fn media_of(word: &str) -> Option<MediaKinds> {
    Some(match word {
        "image" | "images" | "picture" | "pictures" | "vision" | "image_url" | "input_image" => MediaKinds::IMAGES,
        "audio" | "audios" | "sound" | "sounds" | "input_audio" => MediaKinds::AUDIO,
        "pdf" | "pdfs" | "document" | "documents" | "file" | "files" | "input_file" => MediaKinds::DOCUMENTS,
        "multimodal" | "multi-modal" | "multimodality" => MediaKinds::ALL,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_of_servers_reveal_unsupported_media() {
        for (words, media) in [
            // llama.cpp
            (
                "image input is not supported - hint: if this is unexpected, you may need to provide the mmproj",
                MediaKinds::IMAGES,
            ),
            (
                "audio input is not supported - hint: if this is unexpected, you may need to provide the mmproj",
                MediaKinds::AUDIO,
            ),
            // vLLM
            ("Qwen/Qwen3-8B is not a multimodal model", MediaKinds::ALL),
            ("/models/llama is not a multimodal model None", MediaKinds::ALL),
            ("At most 0 image(s) may be provided in one request.", MediaKinds::IMAGES),
            ("At most 0 image(s) may be provided in one prompt. Set `--limit-mm-per-prompt`", MediaKinds::IMAGES),
            ("At most 0 audio(s) may be provided in one request.", MediaKinds::AUDIO),
            // OpenAI
            ("Invalid content type. image_url is only supported by certain models.", MediaKinds::IMAGES),
            ("Invalid content type. input_audio is only supported by certain models.", MediaKinds::AUDIO),
            ("Invalid value: 'input_image'. Supported values are: 'input_text'.", MediaKinds::IMAGES),
            ("This model does not support image inputs.", MediaKinds::IMAGES),
            ("This model does not support image", MediaKinds::IMAGES),
            ("This model does not support file content types.", MediaKinds::DOCUMENTS),
            ("content blocks are expected to be either text or image_url type", MediaKinds::AUDIO),
            // OpenRouter
            ("No endpoints found that support image input", MediaKinds::IMAGES),
            ("No endpoints found that support input audio", MediaKinds::AUDIO),
            // DeepSeek
            (
                "Failed to deserialize the JSON body into the target type: messages[1]: unknown variant `image_url`, expected `text` at line 1 column 99",
                MediaKinds::IMAGES,
            ),
            // Mistral
            ("Image input is not enabled for this model", MediaKinds::IMAGES),
            // Groq
            (
                "'messages.1' : for 'role:user' the following must be satisfied[('messages.1.content' : value must be a string)]",
                MediaKinds::ALL,
            ),
            ("messages[1].content must be a string", MediaKinds::ALL),
            // Ollama
            ("this model is missing data required for image input", MediaKinds::IMAGES),
            ("this model does not support image input (ref: b8bd630e-4a39-4b57-82af-9158ee9d5703)", MediaKinds::IMAGES),
            // LM Studio
            ("Model does not support images. Please use a model that does.", MediaKinds::IMAGES),
            // Volcengine
            ("Model do not support image input.", MediaKinds::IMAGES),
            // xAI
            ("Image inputs are not supported by this model.", MediaKinds::IMAGES),
            // Gemini
            ("Image input modality is not enabled for models/gemma-3-1b-it", MediaKinds::IMAGES),
            ("Audio input modality is not enabled for models/gemma-3-27b-it", MediaKinds::AUDIO),
            // Anthropic and Bedrock
            ("'some-model' does not support PDF input.", MediaKinds::DOCUMENTS),
            (
                "This model doesn't support the image content block that you provided. Remove it and try again.",
                MediaKinds::IMAGES,
            ),
            ("This model doesn't support documents. Try again with a different model.", MediaKinds::DOCUMENTS),
            // gateways
            ("glm-5 is not a vision model", MediaKinds::IMAGES),
            ("vision is not supported", MediaKinds::IMAGES),
            ("The type `image_url` is not supported by this model", MediaKinds::IMAGES),
            ("does not support multimodal input", MediaKinds::ALL),
            ("images are not supported, and audio is not supported", MediaKinds::IMAGES.union(MediaKinds::AUDIO)),
        ] {
            assert_eq!(unsupported_media(words).unwrap_or_default(), media, "{words}");
        }
    }

    #[test]
    fn messages_about_one_image_are_ignored() {
        for words in [
            "Could not process image",
            "messages.0.content.5.image.source.base64: image exceeds 5 MB maximum: 5281812 bytes > 5242880 bytes",
            "messages.1.content.0.image.source.base64: invalid base64 data",
            "messages.1.content.1.image.source.base64.data: At least one of the image dimensions exceed max allowed size: 8000 pixels",
            "The image data you provided does not represent a valid image. Please check your input and try again.",
            "You uploaded an unsupported image. Please make sure your image has of one the following formats: ['png', 'jpeg', 'gif', 'webp'].",
            "Unable to process input image. Please retry or report",
            "Provided image is not valid",
            "Unsupported MIME type: image/bmp",
            "image/bmp is not supported",
            "This model does not support image/bmp",
            "this model does not support image format bmp",
            "the image format is not supported",
            "the file is not supported",
            "The PDF specified was not valid.",
            "image URLs are not supported, use base64",
            "This model does not support image generation",
            "This model does not support file search",
            "This model does not support audio output",
            "No endpoints found that support tool use. Try disabling \"get_time\".",
            "No endpoints found that support the requested output modalities: image, text",
            "At most 5 image(s) may be provided in one request.",
            "Failed to load image or audio file",
            "temperature is only supported by certain models",
            "does not support tools",
            "system messages are not supported",
            "messages: text content blocks must be non-empty",
            "not support",
            "image",
            "",
        ] {
            assert_eq!(unsupported_media(words), None, "{words}");
        }
    }

    #[test]
    fn clones_share_the_unsupported_media_of_each_model() {
        let known = UnsupportedMedia::default();
        known.clone().insert("a", MediaKinds::IMAGES);
        known.insert("a", MediaKinds::AUDIO);
        known.insert("b", MediaKinds::NONE);
        assert_eq!(
            (known.of_model("a"), known.of_model("b")),
            (MediaKinds::IMAGES.union(MediaKinds::AUDIO), MediaKinds::NONE)
        );
    }

    proptest::proptest! {
        #[test]
        fn no_message_makes_it_panic(words in "([ .,:(]|not|support|images?|input|é|are|supported|the|'){0,40}") {
            unsupported_media(&words);
        }
    }
}
