//! Media kinds in a request, and text descriptions for models that do not support them.

use std::borrow::Cow;
use std::fmt;

use super::prompt_part::PromptPart;
use ropeway_core::content::ContentPart;
use ropeway_core::message::{Conversation, Message};

/// A set of media kinds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct MediaKinds {
    /// PNG, JPEG, GIF and WebP images.
    pub images: bool,
    /// Audio clips.
    pub audio: bool,
    /// PDF files, and text documents where the dialect has its own form for them.
    pub documents: bool,
}

impl MediaKinds {
    /// The empty set.
    pub const NONE: Self = Self { images: false, audio: false, documents: false };
    /// Every kind.
    pub const ALL: Self = Self { images: true, audio: true, documents: true };
    /// Only images.
    pub const IMAGES: Self = Self { images: true, ..Self::NONE };
    /// Only audio.
    pub const AUDIO: Self = Self { audio: true, ..Self::NONE };
    /// Only documents.
    pub const DOCUMENTS: Self = Self { documents: true, ..Self::NONE };

    /// Returns the kinds that are in either set.
    #[must_use]
    pub fn union(self, other: Self) -> Self {
        Self {
            images: self.images || other.images,
            audio: self.audio || other.audio,
            documents: self.documents || other.documents,
        }
    }

    /// Returns `true` if this set contains every kind in `other`.
    pub fn contains(self, other: Self) -> bool {
        self.union(other) == self
    }

    /// Returns the kinds in a conversation. Text documents count only `with_text`.
    pub(super) fn in_conversation(conversation: &Conversation, with_text: bool) -> Self {
        let of = |parts: &[ContentPart]| {
            let found = parts.iter().map(|part| match part {
                ContentPart::Text { .. } | ContentPart::ResourceLink(_) => Self::NONE,
                part => match PromptPart::of(part) {
                    PromptPart::Document { .. } if !with_text => Self::NONE,
                    part => Self::of(&part),
                },
            });
            found.fold(Self::NONE, Self::union)
        };
        let found = conversation.messages.iter().map(|message| match message {
            Message::User { content } => of(content),
            Message::Tool { results } => results.iter().map(|result| of(&result.content)).fold(Self::NONE, Self::union),
            Message::Assistant(_) => Self::NONE,
        });
        found.fold(Self::NONE, Self::union)
    }

    fn of(part: &PromptPart<'_>) -> Self {
        match part {
            PromptPart::Text(_) => Self::NONE,
            PromptPart::Image(_) => Self::IMAGES,
            PromptPart::Audio(_) => Self::AUDIO,
            PromptPart::Pdf(_) | PromptPart::Document { .. } => Self::DOCUMENTS,
        }
    }

    /// Returns the description for a part whose kind is in this set.
    fn description(self, part: &ContentPart) -> Option<ContentPart> {
        if self == Self::NONE || part.as_text().is_some() {
            return None;
        }
        let part = PromptPart::of(part);
        let media = Self::of(&part);
        (media != Self::NONE && self.contains(media)).then(|| ContentPart::text(part.into_text()))
    }

    /// Replaces a part by its description if its kind is in this set.
    pub(super) fn describe(self, part: Cow<'_, ContentPart>) -> Cow<'_, ContentPart> {
        self.description(&part).map_or(part, Cow::Owned)
    }

    /// Replaces the parts whose kind is in this set with their descriptions.
    pub(super) fn describe_all(self, parts: &[ContentPart]) -> Cow<'_, [ContentPart]> {
        let descriptions: Vec<Option<ContentPart>> = parts.iter().map(|part| self.description(part)).collect();
        if descriptions.iter().all(Option::is_none) {
            return Cow::Borrowed(parts);
        }
        parts.iter().zip(descriptions).map(|(part, text)| text.unwrap_or_else(|| part.clone())).collect()
    }
}

impl fmt::Display for MediaKinds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = [(self.images, "images"), (self.audio, "audio"), (self.documents, "documents")];
        let names: Vec<&str> = names.into_iter().filter_map(|(is_set, name)| is_set.then_some(name)).collect();
        match names.split_last() {
            None => f.write_str("text"),
            Some((last, [])) => f.write_str(last),
            Some((last, others)) => write!(f, "{} or {last}", others.join(", ")),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn parts() -> Vec<ContentPart> {
        let parts = json!([
            {"type": "text", "text": "hi"},
            {"type": "image", "data": "iVBORw0KGgoAAAANSUhEUg==", "mimeType": "image/png"},
            {"type": "audio", "data": "AAAA", "mimeType": "audio/wav"},
            {"type": "resource", "resource": {"uri": "file:///a.pdf", "mimeType": "application/pdf", "blob": "JVBERi0x"}},
            {"type": "resource", "resource": {"uri": "file:///b", "text": "hello"}},
            {"type": "resource_link", "uri": "file:///c", "name": "c"},
        ]);
        serde_json::from_value(parts).expect("parts")
    }

    const PICTURE: &str = "[image, image/png, 16 bytes: it cannot be shown here]";
    const SOUND: &str = "[sound, audio/wav, 3 bytes: it cannot be shown here]";
    const PDF: &str = "[document `file:///a.pdf`, application/pdf, 6 bytes: it cannot be shown here]";
    const NAMED: &str = "[file:///b]\nhello";

    #[test]
    fn only_the_given_kinds_are_described() {
        let parts = parts();
        for (media, told) in [
            (MediaKinds::NONE, [None, None, None, None]),
            (MediaKinds::IMAGES, [Some(PICTURE), None, None, None]),
            (MediaKinds::AUDIO, [None, Some(SOUND), None, None]),
            (MediaKinds::DOCUMENTS, [None, None, Some(PDF), Some(NAMED)]),
            (MediaKinds::ALL, [Some(PICTURE), Some(SOUND), Some(PDF), Some(NAMED)]),
        ] {
            let mut expected = parts.clone();
            for (part, words) in expected[1..].iter_mut().zip(told) {
                if let Some(words) = words {
                    *part = ContentPart::text(words);
                }
            }
            assert_eq!(media.describe_all(&parts), expected, "{media}");
            let one_by_one: Vec<_> =
                parts.iter().map(|part| media.describe(Cow::Borrowed(part)).into_owned()).collect();
            assert_eq!(one_by_one, expected, "{media}");
        }
    }

    #[test]
    fn media_are_found_in_messages_and_results() {
        let said = |part: &ContentPart| Conversation::new().with(vec![part.clone()]);
        let parts = parts();
        let found: Vec<MediaKinds> = parts.iter().map(|part| MediaKinds::in_conversation(&said(part), false)).collect();
        assert_eq!(
            found,
            [
                MediaKinds::NONE,
                MediaKinds::IMAGES,
                MediaKinds::AUDIO,
                MediaKinds::DOCUMENTS,
                MediaKinds::NONE,
                MediaKinds::NONE
            ]
        );
        assert_eq!(MediaKinds::in_conversation(&said(&parts[4]), true), MediaKinds::DOCUMENTS);
        let results =
            json!({"messages": [{"role": "tool", "results": [{"call": "a", "tool": "t", "content": parts}]}]});
        let results: Conversation = serde_json::from_value(results).expect("a conversation");
        assert_eq!(MediaKinds::in_conversation(&results, false), MediaKinds::ALL);
    }

    #[test]
    fn media_kinds_are_listed_in_messages() {
        let shown =
            [MediaKinds::NONE, MediaKinds::AUDIO, MediaKinds::IMAGES.union(MediaKinds::DOCUMENTS), MediaKinds::ALL]
                .map(|media| media.to_string());
        assert_eq!(shown, ["text", "audio", "images or documents", "images, audio or documents"]);
    }
}
