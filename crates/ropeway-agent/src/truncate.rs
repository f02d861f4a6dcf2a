//! Truncation: cutting a tool's output to a budget.

use std::borrow::Cow;

use super::budget::OutputBudget;
use super::remainder::Remainder;
use super::rendered::{BinaryData, RenderedPart, cut_position, rendered_len};
use ropeway_core::content::{ContentPart, EmbeddedResource, ResourceContents};

/// Maximum number of parts in a result. Even an empty part costs tokens.
const MAX_PARTS: usize = 1000;

/// Returns `true` if the whole output is within the budget.
pub(super) fn fits(content: &[ContentPart], budget: OutputBudget) -> bool {
    let mut room = Room::new(budget);
    content.iter().all(|part| matches!(room.admit(part), Admission::Whole))
}

/// Returns as much of an output as the budget allows, with notices about the rest. Copies nothing if everything fits.
///
/// Text is cut between two characters, and all text after the cut is omitted. Binary data is never cut: a notice replaces data
/// that exceeds the budget, and smaller data after it may still be included.
pub(super) fn truncate<'a>(
    content: &'a [ContentPart],
    budget: OutputBudget,
    remainder: &Remainder,
) -> Cow<'a, [ContentPart]> {
    if fits(content, budget) {
        return Cow::Borrowed(content);
    }
    let mut room = Room::new(budget);
    let mut shown = Vec::new();
    let mut is_cut = false;
    // The part's offset in the rendered output.
    let mut start = 0;
    for (number, part) in (1..).zip(content) {
        match room.admit(part) {
            Admission::Whole => shown.push(part.clone()),
            Admission::Notice(data) => shown.push(ContentPart::text(data.line(&remainder.data_notice(number)))),
            Admission::Cut { head, body, at } => {
                is_cut = true;
                let notice = remainder.text_notice(start + head.len() + at, rendered_len(content)).unwrap_or_default();
                shown.push(cut(part, &head, &body[..at], &notice));
            }
            Admission::Omitted if is_cut => {}
            Admission::Omitted => {
                is_cut = true;
                shown.extend(remainder.text_notice(start, rendered_len(content)).map(ContentPart::text));
            }
        }
        if room.parts == 0 && is_cut {
            break;
        }
        if !is_cut {
            start += RenderedPart::new(part).len() + 1;
        }
    }
    Cow::Owned(shown)
}

/// Returns the binary data that the budget omits, with its part number, from 1.
pub(super) fn omitted_data(
    content: &[ContentPart],
    budget: OutputBudget,
) -> impl Iterator<Item = (usize, BinaryData<'_>)> {
    let mut room = Room::new(budget);
    (1..).zip(content).filter_map(move |(number, part)| match room.admit(part) {
        Admission::Notice(data) => Some((number, data)),
        // Data with a text MIME type may be rendered as text, which is stored with the remaining text.
        Admission::Omitted => match RenderedPart::new(part) {
            RenderedPart::Binary(data) => Some((number, data)),
            RenderedPart::Text { .. } => None,
        },
        Admission::Whole | Admission::Cut { .. } => None,
    })
}

/// Returns how much of a budget an output uses.
pub(super) fn usage(content: &[ContentPart], budget: OutputBudget) -> OutputBudget {
    let mut room = Room::new(budget);
    for part in content {
        room.admit(part);
        if room.parts == 0 {
            break;
        }
    }
    OutputBudget { text_bytes: room.shown, blob_bytes: budget.blob_bytes - room.blob }
}

/// A budget's unused part.
struct Room {
    text: usize,
    blob: usize,
    parts: usize,
    is_cut: bool,
    /// Text bytes admitted so far.
    shown: usize,
}

/// How much of a part is sent to the model.
enum Admission<'a> {
    Whole,
    Cut {
        head: Cow<'a, str>,
        body: Cow<'a, str>,
        at: usize,
    },
    /// A notice that replaces binary data.
    Notice(BinaryData<'a>),
    Omitted,
}

impl Room {
    fn new(budget: OutputBudget) -> Self {
        Self { text: budget.text_bytes, blob: budget.blob_bytes, parts: MAX_PARTS, is_cut: false, shown: 0 }
    }

    /// Admits as much of a part as fits, and takes its room.
    fn admit<'a>(&mut self, part: &'a ContentPart) -> Admission<'a> {
        let before = self.text;
        let admission = if self.parts == 0 { Admission::Omitted } else { self.admit_bytes(part) };
        match &admission {
            Admission::Whole | Admission::Notice(_) => {
                self.parts -= 1;
                self.shown += before - self.text;
            }
            // `read_more` continues here, so no text after it is shown.
            Admission::Cut { head, at, .. } => {
                self.parts -= 1;
                self.shown += head.len() + at;
                (self.text, self.is_cut) = (0, true);
            }
            Admission::Omitted => (self.text, self.is_cut) = (0, true),
        }
        admission
    }

    fn admit_bytes<'a>(&mut self, part: &'a ContentPart) -> Admission<'a> {
        match BinaryData::of(part) {
            Some(data) if !data.has_text_type() => return self.admit_data(data),
            // Decodes base64 only if it must.
            Some(data) if !self.is_cut && data.request_bytes() <= self.text => {
                self.text -= data.request_bytes();
                return Admission::Whole;
            }
            _ => {}
        }
        match RenderedPart::new(part) {
            RenderedPart::Binary(data) => self.admit_data(data),
            RenderedPart::Text { .. } if self.is_cut => Admission::Omitted,
            RenderedPart::Text { head, body } => match self.text.checked_sub(head.len()) {
                Some(room) if body.len() <= room => {
                    self.text = room - body.len();
                    Admission::Whole
                }
                Some(room) => match cut_position(&body, room) {
                    0 => Admission::Omitted,
                    at => Admission::Cut { head, body, at },
                },
                None => Admission::Omitted,
            },
        }
    }

    fn admit_data<'a>(&mut self, data: BinaryData<'a>) -> Admission<'a> {
        match self.blob.checked_sub(data.request_bytes()) {
            Some(left) => {
                self.blob = left;
                Admission::Whole
            }
            None => Admission::Notice(data),
        }
    }
}

/// Returns a part's beginning, followed by the notice.
fn cut(part: &ContentPart, head: &str, body: &str, notice: &str) -> ContentPart {
    let line_break = if body.ends_with('\n') { "" } else { "\n" };
    match part {
        ContentPart::Text { extra, .. } => {
            ContentPart::Text { text: format!("{body}{line_break}{notice}"), extra: extra.clone() }
        }
        // Cloned field by field: the contents may be large.
        ContentPart::Resource(EmbeddedResource { uri, mime_type, contents: _, resource_extra, extra }) => {
            ContentPart::Resource(EmbeddedResource {
                uri: uri.clone(),
                mime_type: mime_type.clone(),
                contents: ResourceContents::Text(format!("{body}{line_break}{notice}")),
                resource_extra: resource_extra.clone(),
                extra: extra.clone(),
            })
        }
        _ => ContentPart::text(format!("{head}{body}{line_break}{notice}")),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::budgets::OutputBudgets;
    use crate::remainder::StoredOutput;
    use ropeway_core::content::Blob;

    fn text_bytes(text_bytes: usize) -> OutputBudget {
        OutputBudget::default().with_text_bytes(text_bytes)
    }

    fn blob_bytes(blob_bytes: usize) -> OutputBudget {
        OutputBudget::default().with_blob_bytes(blob_bytes)
    }

    fn texts<const N: usize>(texts: [&str; N]) -> [ContentPart; N] {
        texts.map(ContentPart::text)
    }

    fn resource(contents: ResourceContents) -> ContentPart {
        let block = json!({"type": "resource", "annotations": {"priority": 1}, "resource": {"uri": "a:b", "mimeType": "text/x", "text": ""}});
        match serde_json::from_value(block).expect("a part") {
            ContentPart::Resource(resource) => ContentPart::Resource(EmbeddedResource { contents, ..resource }),
            other => panic!("{other:?}"),
        }
    }

    fn dropped(content: &[ContentPart], budget: OutputBudget) -> Vec<ContentPart> {
        truncate(content, budget, &Remainder::Dropped).into_owned()
    }

    #[test]
    fn an_output_that_fits_is_not_copied() {
        let image = ContentPart::Image(Blob::new("image/png", b"abc"));
        let whole = [ContentPart::text("abcde"), image, ContentPart::text("fghij")];
        // `image/png` has nine bytes.
        let exact = OutputBudget { text_bytes: 10, blob_bytes: 4 + 9 };
        assert!(matches!(truncate(&whole, exact, &Remainder::Dropped), Cow::Borrowed(_)));
        let nothing = OutputBudget { text_bytes: 0, blob_bytes: 0 };
        assert!(matches!(truncate(&[], nothing, &Remainder::Dropped), Cow::Borrowed([])));
        assert!(matches!(truncate(&texts([""]), nothing, &Remainder::Dropped), Cow::Borrowed(_)));
    }

    #[test]
    fn parts_share_the_budget_and_text_after_the_cut_is_omitted() {
        let content = texts(["abcde", "fghij", "klmno"]);
        assert_eq!(dropped(&content, text_bytes(7)), texts(["abcde", "fg\n[9 of 17 bytes omitted]"]));
        assert_eq!(dropped(&content, text_bytes(5)), texts(["abcde", "[11 of 17 bytes omitted]"]));
        assert_eq!(dropped(&content, text_bytes(0)), texts(["[17 of 17 bytes omitted]"]));
    }

    #[test]
    fn a_truncation_notice_names_the_stored_output() {
        let content = [ContentPart::text("x".repeat(91_000))];
        let stored = StoredOutput::new("o3");
        let said = |remainder| match &truncate(&content, OutputBudget::default(), &remainder)[..] {
            [ContentPart::Text { text, .. }] => text[50_000..].to_owned(),
            other => panic!("{} parts", other.len()),
        };
        assert_eq!(said(Remainder::Dropped), "\n[41,000 of 91,000 bytes omitted]");
        assert_eq!(
            said(Remainder::Stored(stored)),
            "\n[41,000 of 91,000 bytes omitted; call `read_more` with output \"o3\" and from 50000 to continue]"
        );
        assert_eq!(said(Remainder::Lost), "\n[41,000 of 91,000 bytes omitted and could not be stored]");
    }

    #[test]
    fn text_is_cut_between_characters() {
        let text = "aé€𐍈".repeat(3);
        for room in 0..text.len() {
            let cut = text.floor_char_boundary(room);
            let line = format!("[{} of {} bytes omitted]", text.len() - cut, text.len());
            let expected = if cut == 0 { line } else { format!("{}\n{line}", &text[..cut]) };
            assert_eq!(dropped(&texts([&text]), text_bytes(room)), texts([&expected]), "{room}");
        }
    }

    #[test]
    fn a_cut_resource_keeps_its_uri_and_metadata() {
        let whole = resource(ResourceContents::Text("abcdefghij".to_owned()));
        // `[a:b]` and its line break have six bytes.
        let cut = resource(ResourceContents::Text("abcd\n[6 of 16 bytes omitted]".to_owned()));
        assert_eq!(dropped(std::slice::from_ref(&whole), text_bytes(10)), [cut]);
        assert_eq!(dropped(std::slice::from_ref(&whole), text_bytes(6)), texts(["[16 of 16 bytes omitted]"]));
        assert!(fits(&[whole], text_bytes(16)));
    }

    #[test]
    fn data_with_a_text_type_counts_as_text() {
        let blob = Blob::new("text/x", b"abcdefghij");
        let whole = resource(ResourceContents::Blob(blob.base64.to_string()));
        let cut = resource(ResourceContents::Text("abcd\n[6 of 16 bytes omitted]".to_owned()));
        assert_eq!(dropped(std::slice::from_ref(&whole), OutputBudget { text_bytes: 10, blob_bytes: 0 }), [cut]);
        assert!(fits(&[whole], OutputBudget { text_bytes: 16, blob_bytes: 0 }));
        let drawing = ContentPart::Image(Blob::new("image/svg+xml", b"<svg></svg>"));
        let expected = "[image/svg+xml]\n<svg>\n[6 of 27 bytes omitted]";
        assert_eq!(dropped(&[drawing], text_bytes(21)), texts([expected]));
    }

    #[test]
    fn a_long_resource_link_is_cut_as_text() {
        let link = json!({"type": "resource_link", "uri": "a:b", "description": "x".repeat(100)});
        let link: ContentPart = serde_json::from_value(link).expect("a part");
        assert_eq!(dropped(&[link], text_bytes(20)), texts(["[resource a:b: xxxxx\n[96 of 116 bytes omitted]"]));
    }

    #[test]
    fn data_is_never_cut_and_smaller_data_after_it_is_shown() {
        let picture = |bytes: usize| ContentPart::Image(Blob::new("image/png", &vec![7; bytes]));
        let large = resource(ResourceContents::Blob("A".repeat(8000)));
        let large = match large {
            ContentPart::Resource(part) => {
                ContentPart::Resource(EmbeddedResource { mime_type: Some("application/zip".to_owned()), ..part })
            }
            other => other,
        };
        let content = [picture(3000), large, picture(30), ContentPart::text("a")];
        let expected = [
            ContentPart::text("[image, image/png, 3.0 kB: too large to show]"),
            ContentPart::text("[data `a:b`, application/zip, 6.0 kB: too large to show]"),
            picture(30),
            ContentPart::text("a"),
        ];
        assert_eq!(dropped(&content, blob_bytes(1000)), expected);
        assert_eq!(omitted_data(&content, blob_bytes(1000)).map(|(number, _)| number).collect::<Vec<_>>(), [1, 2]);
    }

    #[test]
    fn images_after_a_cut_text_are_shown() {
        let picture = ContentPart::Image(Blob::new("image/png", b"abc"));
        let content = [ContentPart::text("abcdef"), picture.clone(), ContentPart::text("")];
        let expected = [ContentPart::text("abc\n[32 of 35 bytes omitted]"), picture];
        assert_eq!(dropped(&content, text_bytes(3)), expected);
    }

    #[test]
    fn a_million_empty_parts_become_a_thousand_and_a_notice() {
        let content = vec![ContentPart::text(""); 1_000_000];
        let shown = dropped(&content, OutputBudget::default());
        assert_eq!(shown.len(), 1001);
        assert_eq!(shown[1000], ContentPart::text("[998,999 of 999,999 bytes omitted]"));
        assert!(fits(&content[..1000], OutputBudget::default()));
        assert_eq!(
            dropped(&content[..1001], OutputBudget::default()).len(),
            1000,
            "omitted empty parts need no notice"
        );
    }

    #[test]
    fn the_first_glob_that_matches_applies() {
        let budgets = OutputBudgets::default()
            .with_tool("mcp_fs_read", text_bytes(1))
            .with_tool("mcp_fs_*", text_bytes(2))
            .with_tool("mcp_*", text_bytes(3))
            .with_default(text_bytes(4))
            .with_tool("[", text_bytes(5));
        let of = |tool| budgets.of(tool).text_bytes;
        assert_eq!(["mcp_fs_read", "mcp_fs_write", "mcp_git_log", "add"].map(of), [1, 2, 3, 4]);
        assert_eq!(budgets.invalid.iter().map(|(pattern, _)| pattern.as_str()).collect::<Vec<_>>(), ["["]);
    }

    #[test]
    fn large_results_share_the_budget_and_small_ones_stay_whole() {
        let budgets = OutputBudgets::default().with_round(text_bytes(100));
        let content = |length: usize| texts([&"x".repeat(length)]);
        let (small, middle, large) = (content(10), content(40), content(1000));
        let of = |outputs: &[&[ContentPart]]| -> Vec<Option<usize>> {
            let outputs: Vec<_> = outputs.iter().map(|content| (*content, text_bytes(100))).collect();
            budgets.of_round(&outputs).into_iter().map(|room| room.map(|room| room.text_bytes)).collect()
        };
        assert_eq!(of(&[]), [None; 0]);
        assert_eq!(of(&[&large]), [None], "it is cut to its own budget already");
        assert_eq!(of(&[&small, &middle, &middle, &small]), [None; 4], "it is just enough");
        assert_eq!(of(&[&large, &small, &middle]), [Some(50), None, None]);
        assert_eq!(of(&[&large, &small, &large]), [Some(45), None, Some(45)]);
        assert_eq!(of(&[&large[..]; 200]), [Some(0); 200]);
    }

    #[test]
    fn data_of_a_step_is_admitted_in_the_order_of_the_results() {
        let budgets = OutputBudgets::default().with_round(blob_bytes(150));
        let picture = |bytes: usize| [ContentPart::Image(Blob::new("image/png", &vec![7; bytes]))];
        // 80 base64 bytes and nine for the MIME type.
        let (large, small) = (picture(60), picture(3));
        let outputs = [&large, &large, &small, &small].map(|content| (&content[..], blob_bytes(100)));
        assert_eq!(budgets.of_round(&outputs), [None, Some(blob_bytes(61)), None, None]);
    }

    /// Returns a truncated output's text, and the remainder's offset in its notice.
    fn read(shown: &[ContentPart]) -> (String, Option<usize>) {
        let whole: Vec<String> = shown
            .iter()
            .map(|part| match RenderedPart::new(part) {
                RenderedPart::Text { head, body } => format!("{head}{body}"),
                RenderedPart::Binary(data) => data.line(""),
            })
            .collect();
        let whole = whole.join("\n");
        match whole.split_once(" bytes omitted; call `read_more` with output \"o1\" and from ") {
            None => (whole, None),
            Some((text, from)) => {
                let (text, _) = text.rsplit_once('[').expect("a line");
                (text.to_owned(), from.split_once(' ').and_then(|(from, _)| from.parse().ok()))
            }
        }
    }

    proptest! {
        #[test]
        fn the_shown_text_and_the_rest_are_the_whole_output(
            parts in prop::collection::vec(("[a-é€\n]{0,12}", 0u8..4), 0..8), room in 0usize..80,
        ) {
            let content: Vec<ContentPart> = parts
                .iter()
                .map(|(text, kind)| match kind {
                    0 => resource(ResourceContents::Text(text.clone())),
                    1 => resource(ResourceContents::Blob(Blob::new("text/x", text.as_bytes()).base64.to_string())),
                    _ => ContentPart::text(text.clone()),
                })
                .collect();
            let (whole, none) = read(&content);
            prop_assert_eq!((whole.len(), none), (rendered_len(&content), None));
            let stored = StoredOutput::new("o1");
            let (text, from) = read(&truncate(&content, text_bytes(room), &Remainder::Stored(stored)));
            match from {
                None => prop_assert_eq!(text, whole),
                // The notice is on a separate line.
                Some(from) => {
                    let shown = text.strip_suffix('\n').unwrap_or(&text);
                    prop_assert!(whole.starts_with(shown) && from >= shown.len() && from <= shown.len() + 1, "{text:?} {from}");
                }
            }
        }
    }
}
