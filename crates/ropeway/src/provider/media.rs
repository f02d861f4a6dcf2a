//! Media: what a model may be shown besides text, and what is told in words to one that cannot take it.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard};

use super::piece::Piece;
use crate::content::ContentPart;
use crate::message::{Conversation, Message};
use crate::sync::lock;

/// Kinds of what a model may be shown besides text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct MediaSupport {
    /// Pictures.
    pub pictures: bool,
    /// Sounds.
    pub sounds: bool,
    /// Documents: PDFs, and texts with a name where a dialect has a form of its own for them.
    pub documents: bool,
}

impl MediaSupport {
    /// None of them.
    pub const NONE: Self = Self { pictures: false, sounds: false, documents: false };
    /// All of them.
    pub const ALL: Self = Self { pictures: true, sounds: true, documents: true };
    /// Pictures only.
    pub const PICTURES: Self = Self { pictures: true, ..Self::NONE };
    /// Sounds only.
    pub const SOUNDS: Self = Self { sounds: true, ..Self::NONE };
    /// Documents only.
    pub const DOCUMENTS: Self = Self { documents: true, ..Self::NONE };

    /// These, and those of another.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self {
            pictures: self.pictures || other.pictures,
            sounds: self.sounds || other.sounds,
            documents: self.documents || other.documents,
        }
    }

    /// Are all of another's among these?
    pub fn holds(self, other: Self) -> bool {
        self.and(other) == self
    }

    /// What there is in a conversation. Texts with a name count only where they have a form of their own.
    pub(super) fn within(conversation: &Conversation, texts_too: bool) -> Self {
        let of = |parts: &[ContentPart]| {
            let found = parts.iter().map(|part| match part {
                ContentPart::Text(_) | ContentPart::ResourceLink(_) => Self::NONE,
                part => match Piece::of(part) {
                    Piece::Document { .. } if !texts_too => Self::NONE,
                    piece => Self::of(&piece),
                },
            });
            found.fold(Self::NONE, Self::and)
        };
        let found = conversation.messages.iter().map(|message| match message {
            Message::User(message) => of(&message.content),
            Message::Tool(message) => {
                message.results.iter().map(|result| of(&result.content)).fold(Self::NONE, Self::and)
            }
            Message::Assistant(_) => Self::NONE,
        });
        found.fold(Self::NONE, Self::and)
    }

    fn of(piece: &Piece<'_>) -> Self {
        match piece {
            Piece::Text(_) => Self::NONE,
            Piece::Image(_) => Self::PICTURES,
            Piece::Audio(_) => Self::SOUNDS,
            Piece::Pdf(_) | Piece::Document { .. } => Self::DOCUMENTS,
        }
    }

    /// A part in words, if it is one of these.
    fn in_words(self, part: &ContentPart) -> Option<ContentPart> {
        if self == Self::NONE || part.as_text().is_some() {
            return None;
        }
        let piece = Piece::of(part);
        let media = Self::of(&piece);
        (media != Self::NONE && self.holds(media)).then(|| ContentPart::text(piece.into_text()))
    }

    /// The part, in words if it is one of these.
    pub(super) fn told(self, part: Cow<'_, ContentPart>) -> Cow<'_, ContentPart> {
        self.in_words(&part).map_or(part, Cow::Owned)
    }

    /// The parts; those in words that are one of these.
    pub(super) fn all_told(self, parts: &[ContentPart]) -> Cow<'_, [ContentPart]> {
        let words: Vec<Option<ContentPart>> = parts.iter().map(|part| self.in_words(part)).collect();
        if words.iter().all(Option::is_none) {
            return Cow::Borrowed(parts);
        }
        parts.iter().zip(words).map(|(part, words)| words.unwrap_or_else(|| part.clone())).collect()
    }
}

impl fmt::Display for MediaSupport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = [(self.pictures, "pictures"), (self.sounds, "sounds"), (self.documents, "documents")];
        let names: Vec<&str> = names.into_iter().filter_map(|(is_there, name)| is_there.then_some(name)).collect();
        match names.split_last() {
            None => f.write_str("text"),
            Some((last, [])) => f.write_str(last),
            Some((last, others)) => write!(f, "{} or {last}", others.join(", ")),
        }
    }
}

/// What models were found not to take, by their names. Clones know the same.
#[derive(Clone, Debug, Default)]
pub(super) struct NotTaken(Arc<Mutex<HashMap<String, MediaSupport>>>);

impl NotTaken {
    /// What this model does not take, as far as is known.
    pub(super) fn by(&self, model: &str) -> MediaSupport {
        self.models().get(model).copied().unwrap_or_default()
    }

    /// Remembers that a model does not take these.
    pub(super) fn remember(&self, model: &str, media: MediaSupport) {
        if media != MediaSupport::NONE {
            let mut models = self.models();
            let known = models.entry(model.to_owned()).or_default();
            *known = known.and(media);
        }
    }

    fn models(&self) -> MutexGuard<'_, HashMap<String, MediaSupport>> {
        lock(&self.0)
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
    fn only_what_is_not_taken_is_told_in_words() {
        let parts = parts();
        for (media, told) in [
            (MediaSupport::NONE, [None, None, None, None]),
            (MediaSupport::PICTURES, [Some(PICTURE), None, None, None]),
            (MediaSupport::SOUNDS, [None, Some(SOUND), None, None]),
            (MediaSupport::DOCUMENTS, [None, None, Some(PDF), Some(NAMED)]),
            (MediaSupport::ALL, [Some(PICTURE), Some(SOUND), Some(PDF), Some(NAMED)]),
        ] {
            let mut expected = parts.clone();
            for (part, words) in expected[1..].iter_mut().zip(told) {
                if let Some(words) = words {
                    *part = ContentPart::text(words);
                }
            }
            assert_eq!(media.all_told(&parts), expected, "{media}");
            let one_by_one: Vec<_> = parts.iter().map(|part| media.told(Cow::Borrowed(part)).into_owned()).collect();
            assert_eq!(one_by_one, expected, "{media}");
        }
    }

    #[test]
    fn what_there_is_in_a_conversation_is_found_wherever_it_stands() {
        let said = |part: &ContentPart| Conversation::new().with(vec![part.clone()]);
        let parts = parts();
        let found: Vec<MediaSupport> = parts.iter().map(|part| MediaSupport::within(&said(part), false)).collect();
        assert_eq!(
            found,
            [
                MediaSupport::NONE,
                MediaSupport::PICTURES,
                MediaSupport::SOUNDS,
                MediaSupport::DOCUMENTS,
                MediaSupport::NONE,
                MediaSupport::NONE
            ]
        );
        assert_eq!(MediaSupport::within(&said(&parts[4]), true), MediaSupport::DOCUMENTS);
        let results =
            json!({"messages": [{"role": "tool", "results": [{"call": "a", "tool": "t", "content": parts}]}]});
        let results: Conversation = serde_json::from_value(results).expect("a conversation");
        assert_eq!(MediaSupport::within(&results, false), MediaSupport::ALL);
    }

    #[test]
    fn what_a_model_does_not_take_is_known_to_all_clones_and_of_that_model_only() {
        let known = NotTaken::default();
        known.clone().remember("a", MediaSupport::PICTURES);
        known.remember("a", MediaSupport::SOUNDS);
        known.remember("b", MediaSupport::NONE);
        assert_eq!(
            (known.by("a"), known.by("b")),
            (MediaSupport::PICTURES.and(MediaSupport::SOUNDS), MediaSupport::NONE)
        );
    }

    #[test]
    fn media_are_named_as_a_sentence_wants_them() {
        let shown = [
            MediaSupport::NONE,
            MediaSupport::SOUNDS,
            MediaSupport::PICTURES.and(MediaSupport::DOCUMENTS),
            MediaSupport::ALL,
        ]
        .map(|media| media.to_string());
        assert_eq!(shown, ["text", "sounds", "pictures or documents", "pictures, sounds or documents"]);
    }
}
