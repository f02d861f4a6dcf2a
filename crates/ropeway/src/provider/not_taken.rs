//! Refusals of media: the words of providers whose model takes no pictures, sounds or documents.
//!
//! What is found here is remembered of the model, so it is only what cannot be said of one bad picture. A refusal that is missed
//! costs no more than one request each time.

use super::MediaSupport;

/// Whole phrases, without quotes.
const PHRASES: [(&str, MediaSupport); 25] = [
    // vLLM
    ("not a multimodal model", MediaSupport::ALL),
    ("at most 0 image", MediaSupport::PICTURES),
    ("at most 0 audio", MediaSupport::SOUNDS),
    // others
    ("not a multi-modal model", MediaSupport::ALL),
    ("not a vision model", MediaSupport::PICTURES),
    ("not a vision-language model", MediaSupport::PICTURES),
    ("not a vision-capable model", MediaSupport::PICTURES),
    // OpenAI
    ("image_url is only supported by certain models", MediaSupport::PICTURES),
    ("input_audio is only supported by certain models", MediaSupport::SOUNDS),
    ("file is only supported by certain models", MediaSupport::DOCUMENTS),
    ("invalid value: image_url", MediaSupport::PICTURES),
    ("invalid value: input_image", MediaSupport::PICTURES),
    ("invalid value: input_audio", MediaSupport::SOUNDS),
    ("invalid value: input_file", MediaSupport::DOCUMENTS),
    ("content blocks are expected to be either text or image_url", MediaSupport::SOUNDS),
    // DeepSeek, and all whose server is written in Rust
    ("unknown variant image_url", MediaSupport::PICTURES),
    ("unknown variant image,", MediaSupport::PICTURES),
    ("unknown variant input_image", MediaSupport::PICTURES),
    ("unknown variant input_audio", MediaSupport::SOUNDS),
    ("unknown variant file,", MediaSupport::DOCUMENTS),
    ("unknown variant document,", MediaSupport::DOCUMENTS),
    // Ollama
    ("missing data required for image input", MediaSupport::PICTURES),
    // Groq: a message is a list of parts only where there is more than text
    ("content must be a string", MediaSupport::ALL),
    ("content should be a string", MediaSupport::ALL),
    ("content : value must be a string", MediaSupport::ALL),
];

/// Words between a medium and what is said of it: `image inputs are not supported`.
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

/// Words that come between a verb and its medium: `does not support the image content block`.
const FILLERS: [&str; 6] = ["the", "any", "a", "an", "input", "inputs"];

/// The media that a model does not take, by the words of a refusal; `None` if it is about something else.
pub(super) fn not_taken(words: &str) -> Option<MediaSupport> {
    let text: String = words.chars().filter(|c| !matches!(c, '\'' | '"' | '`' | '’' | '‘')).collect();
    // OpenRouter says what nobody can do instead of who cannot do it.
    let text = text.to_ascii_lowercase().replace("no endpoints found that support", "does not support");
    let phrases = PHRASES.iter().filter(|(phrase, _)| text.contains(phrase)).map(|(_, media)| *media);
    let words: Vec<&str> = text.split_whitespace().flat_map(parted).collect();
    let sentences = (0..words.len()).filter_map(|at| before(&words[at..]).or_else(|| behind(&words[at..])));
    phrases.chain(sentences).reduce(MediaSupport::and)
}

/// A word, and the mark behind it that ends a part of a sentence.
fn parted(word: &str) -> impl Iterator<Item = &str> {
    let word = word.trim_start_matches(['(', '[', '{', '<']);
    let bare = word.trim_end_matches(['.', ',', ';', ':', '!', ')', ']', '}', '>']);
    [bare, &word[bare.len()..]].into_iter().filter(|part| !part.is_empty())
}

/// Words that begin with `not support images`.
fn before(words: &[&str]) -> Option<MediaSupport> {
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
    // Of a model that does not support image formats, URLs, generation or search we know nothing.
    let ends = rest.first().is_none_or(|next| {
        QUALIFIERS.contains(next)
            || matches!(*next, "and" | "or" | "yet" | "-")
            || !next.starts_with(char::is_alphanumeric)
    });
    medium(noun).filter(|_| ends)
}

/// Words that begin with `image inputs are not supported`.
fn behind(words: &[&str]) -> Option<MediaSupport> {
    let (noun, rest) = words.split_first()?;
    let media = medium(noun)?;
    let qualified = rest.iter().take_while(|word| QUALIFIERS.contains(word)).count();
    // One picture may not be supported for what it is.
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

/// The medium that a word names.
fn medium(word: &str) -> Option<MediaSupport> {
    Some(match word {
        "image" | "images" | "picture" | "pictures" | "vision" | "image_url" | "input_image" => MediaSupport::PICTURES,
        "audio" | "audios" | "sound" | "sounds" | "input_audio" => MediaSupport::SOUNDS,
        "pdf" | "pdfs" | "document" | "documents" | "file" | "files" | "input_file" => MediaSupport::DOCUMENTS,
        "multimodal" | "multi-modal" | "multimodality" => MediaSupport::ALL,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_model_that_takes_no_media_is_known_by_the_words_of_its_server() {
        for (words, media) in [
            // llama.cpp
            (
                "image input is not supported - hint: if this is unexpected, you may need to provide the mmproj",
                MediaSupport::PICTURES,
            ),
            (
                "audio input is not supported - hint: if this is unexpected, you may need to provide the mmproj",
                MediaSupport::SOUNDS,
            ),
            // vLLM
            ("Qwen/Qwen3-8B is not a multimodal model", MediaSupport::ALL),
            ("/models/llama is not a multimodal model None", MediaSupport::ALL),
            ("At most 0 image(s) may be provided in one request.", MediaSupport::PICTURES),
            ("At most 0 image(s) may be provided in one prompt. Set `--limit-mm-per-prompt`", MediaSupport::PICTURES),
            ("At most 0 audio(s) may be provided in one request.", MediaSupport::SOUNDS),
            // OpenAI
            ("Invalid content type. image_url is only supported by certain models.", MediaSupport::PICTURES),
            ("Invalid content type. input_audio is only supported by certain models.", MediaSupport::SOUNDS),
            ("Invalid value: 'input_image'. Supported values are: 'input_text'.", MediaSupport::PICTURES),
            ("This model does not support image inputs.", MediaSupport::PICTURES),
            ("This model does not support image", MediaSupport::PICTURES),
            ("This model does not support file content types.", MediaSupport::DOCUMENTS),
            ("content blocks are expected to be either text or image_url type", MediaSupport::SOUNDS),
            // OpenRouter
            ("No endpoints found that support image input", MediaSupport::PICTURES),
            ("No endpoints found that support input audio", MediaSupport::SOUNDS),
            // DeepSeek
            (
                "Failed to deserialize the JSON body into the target type: messages[1]: unknown variant `image_url`, expected `text` at line 1 column 99",
                MediaSupport::PICTURES,
            ),
            // Mistral
            ("Image input is not enabled for this model", MediaSupport::PICTURES),
            // Groq
            (
                "'messages.1' : for 'role:user' the following must be satisfied[('messages.1.content' : value must be a string)]",
                MediaSupport::ALL,
            ),
            ("messages[1].content must be a string", MediaSupport::ALL),
            // Ollama
            ("this model is missing data required for image input", MediaSupport::PICTURES),
            (
                "this model does not support image input (ref: b8bd630e-4a39-4b57-82af-9158ee9d5703)",
                MediaSupport::PICTURES,
            ),
            // LM Studio
            ("Model does not support images. Please use a model that does.", MediaSupport::PICTURES),
            // Volcengine
            ("Model do not support image input.", MediaSupport::PICTURES),
            // xAI
            ("Image inputs are not supported by this model.", MediaSupport::PICTURES),
            // Gemini
            ("Image input modality is not enabled for models/gemma-3-1b-it", MediaSupport::PICTURES),
            ("Audio input modality is not enabled for models/gemma-3-27b-it", MediaSupport::SOUNDS),
            // Anthropic and Bedrock
            ("'some-model' does not support PDF input.", MediaSupport::DOCUMENTS),
            (
                "This model doesn't support the image content block that you provided. Remove it and try again.",
                MediaSupport::PICTURES,
            ),
            ("This model doesn't support documents. Try again with a different model.", MediaSupport::DOCUMENTS),
            // gateways
            ("glm-5 is not a vision model", MediaSupport::PICTURES),
            ("vision is not supported", MediaSupport::PICTURES),
            ("The type `image_url` is not supported by this model", MediaSupport::PICTURES),
            ("does not support multimodal input", MediaSupport::ALL),
            ("images are not supported, and audio is not supported", MediaSupport::PICTURES.and(MediaSupport::SOUNDS)),
        ] {
            assert_eq!(not_taken(words).unwrap_or_default(), media, "{words}");
        }
    }

    #[test]
    fn words_about_one_picture_or_something_else_say_nothing_of_the_model() {
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
            assert_eq!(not_taken(words), None, "{words}");
        }
    }

    proptest::proptest! {
        #[test]
        fn no_words_make_it_panic(words in "([ .,:(]|not|support|images?|input|é|are|supported|the|'){0,40}") {
            not_taken(&words);
        }
    }
}
