//! A budget: how much of a tool's output reaches the model, and what is said of the rest.

use std::borrow::Cow;

use super::read_more::{LAST_LINE, READ_MORE};
use super::spill::Kept;
use super::written::{Data, Written, cut_at, thousands, written_len};
use crate::config::Glob;
use crate::content::{ContentPart, EmbeddedResource, ResourceContents, TextContent};

/// A result has at most this many parts: each costs something, also an empty one.
const MOST_PARTS: usize = 1000;

/// A page of a kept output is at least this long, however small the budget is: pages of nothing lead nowhere.
const SMALLEST_PAGE: usize = 1000;

/// How much of a result reaches the model. Lines that tell of the rest are not counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutputBudget {
    /// The bytes of text that all parts have together, with the addresses of resources.
    pub text_bytes: usize,
    /// The bytes of base64 that all pictures, sounds and other data have together, with what they are called.
    pub blob_bytes: usize,
}

impl Default for OutputBudget {
    /// 50,000 bytes of text, 5 MiB of base64.
    fn default() -> Self {
        Self { text_bytes: 50_000, blob_bytes: 5 << 20 }
    }
}

impl OutputBudget {
    /// Another limit for text.
    #[must_use]
    pub fn with_text_bytes(self, text_bytes: usize) -> Self {
        Self { text_bytes, ..self }
    }

    /// Another limit for data.
    #[must_use]
    pub fn with_blob_bytes(self, blob_bytes: usize) -> Self {
        Self { blob_bytes, ..self }
    }
}

/// The budgets of an agent: that of each tool, and that of all results of one step together.
#[derive(Clone, Debug)]
pub struct OutputBudgets {
    default: OutputBudget,
    by_tool: Vec<(Glob, OutputBudget)>,
    round: OutputBudget,
    /// Patterns that are none, each with what is wrong with it.
    pub(super) broken: Vec<(String, String)>,
}

impl Default for OutputBudgets {
    /// The default budget for every tool; together 200,000 bytes of text and 20 MiB of base64.
    fn default() -> Self {
        let round = OutputBudget { text_bytes: 200_000, blob_bytes: 20 << 20 };
        Self { default: OutputBudget::default(), by_tool: Vec::new(), round, broken: Vec::new() }
    }
}

impl OutputBudgets {
    /// The default budgets.
    pub fn new() -> Self {
        Self::default()
    }

    /// The budget of every tool that has none of its own.
    #[must_use]
    pub fn with_default(self, budget: OutputBudget) -> Self {
        Self { default: budget, ..self }
    }

    /// The budget of the tools whose names match the glob. The first glob that matches decides.
    #[must_use]
    pub fn with_tool(mut self, pattern: &str, budget: OutputBudget) -> Self {
        match Glob::new(pattern) {
            Ok(glob) => self.by_tool.push((glob, budget)),
            Err(error) => self.broken.push((pattern.to_owned(), error.to_string())),
        }
        self
    }

    /// What all results of one step may bring together, so that forty at once do not fill the model's window.
    #[must_use]
    pub fn with_round(self, budget: OutputBudget) -> Self {
        Self { round: budget, ..self }
    }

    /// The budget of a tool. That of `read_more` always has room for one page.
    pub(super) fn of(&self, tool: &str) -> OutputBudget {
        if tool == READ_MORE {
            return self.default.with_text_bytes(self.page() + LAST_LINE);
        }
        let own = self.by_tool.iter().find(|(glob, _)| glob.matches(tool));
        own.map_or(self.default, |(_, budget)| *budget)
    }

    /// How long a page of a kept output is.
    pub(super) fn page(&self) -> usize {
        self.default.text_bytes.saturating_sub(LAST_LINE).max(SMALLEST_PAGE)
    }

    /// How much room each output of one step has beside the others, given with its own budget; `None` if it stays as it is.
    /// Where their text is too much together, small outputs stay whole and the large ones share the rest evenly; data is
    /// taken in the order of the outputs.
    pub(super) fn of_round(&self, outputs: &[(&[ContentPart], OutputBudget)]) -> Vec<Option<OutputBudget>> {
        let wanted: Vec<OutputBudget> = outputs.iter().map(|(content, own)| taken(content, *own)).collect();
        let texts = wanted.iter().map(|wanted| wanted.text_bytes).collect();
        let level = level(texts, self.round.text_bytes).unwrap_or(usize::MAX);
        let mut blob_room = self.round.blob_bytes;
        let room = |((content, own), wanted): (&(&[ContentPart], OutputBudget), &OutputBudget)| {
            let mut room = own.with_blob_bytes(own.blob_bytes.min(blob_room));
            if wanted.text_bytes > level {
                room.text_bytes = level;
            }
            blob_room -= taken(content, room).blob_bytes;
            (wanted.text_bytes > room.text_bytes || wanted.blob_bytes > room.blob_bytes).then_some(room)
        };
        outputs.iter().zip(&wanted).map(room).collect()
    }
}

/// How much each may have so that all have no more than the room; `None` if there is enough for all.
fn level(mut wanted: Vec<usize>, mut room: usize) -> Option<usize> {
    wanted.sort_unstable();
    for (sharers, wanted) in (1..=wanted.len()).rev().zip(&wanted) {
        let share = room / sharers;
        if *wanted > share {
            return Some(share);
        }
        room -= wanted;
    }
    None
}

/// What has become of that which does not reach the model.
#[derive(Clone, Debug)]
pub(super) enum Rest {
    /// Nobody keeps it.
    Dropped,
    /// It can be read on.
    Kept(Kept),
    /// It should have been kept, and could not be.
    Lost,
}

/// Does all of it reach the model?
pub(super) fn fits(content: &[ContentPart], budget: OutputBudget) -> bool {
    let mut room = Room::of(budget);
    content.iter().all(|part| matches!(room.share(part), Share::Whole))
}

/// As much of an output as the budget has room for, and lines that tell of the rest. Nothing is copied if all of it fits.
///
/// Text is cut between two characters, and all text behind the cut is left out. Base64 is never cut: data for which there
/// is no room is replaced by a line, and data behind it that is smaller may still be there.
pub(super) fn fit<'a>(content: &'a [ContentPart], budget: OutputBudget, rest: &Rest) -> Cow<'a, [ContentPart]> {
    if fits(content, budget) {
        return Cow::Borrowed(content);
    }
    let mut room = Room::of(budget);
    let mut shown = Vec::new();
    let mut is_cut = false;
    // Where the part begins in the output as it is written down.
    let mut start = 0;
    for (number, part) in (1..).zip(content) {
        match room.share(part) {
            Share::Whole => shown.push(part.clone()),
            Share::Line(data) => shown.push(ContentPart::text(data.line(&rest.of_data(number)))),
            Share::Cut { head, body, at } => {
                is_cut = true;
                let line = rest.line(start + head.len() + at, written_len(content)).unwrap_or_default();
                shown.push(cut(part, &head, &body[..at], &line));
            }
            Share::Left if is_cut => {}
            Share::Left => {
                is_cut = true;
                shown.extend(rest.line(start, written_len(content)).map(ContentPart::text));
            }
        }
        if room.parts == 0 && is_cut {
            break;
        }
        if !is_cut {
            start += Written::of(part).len() + 1;
        }
    }
    Cow::Owned(shown)
}

/// The parts of an output that are data and do not reach the model, each with its number, from 1.
pub(super) fn data_left_out(content: &[ContentPart], budget: OutputBudget) -> impl Iterator<Item = (usize, Data<'_>)> {
    let mut room = Room::of(budget);
    (1..).zip(content).filter_map(move |(number, part)| match room.share(part) {
        Share::Line(data) => Some((number, data)),
        // What is called text may be told as text, and then it is in the text that is kept.
        Share::Left => Some((number, Data::of(part).filter(|_| matches!(Written::of(part), Written::Data(_)))?)),
        Share::Whole | Share::Cut { .. } => None,
    })
}

impl Rest {
    /// A line about the text from some byte on, if there is any.
    fn line(&self, from: usize, of: usize) -> Option<String> {
        let missing = of.checked_sub(from).filter(|missing| *missing > 0)?;
        let (missing, of) = (thousands(missing), thousands(of));
        Some(match self {
            Self::Dropped => format!("[{missing} of {of} bytes are left out]"),
            Self::Kept(kept) => {
                let name = kept.name();
                format!(
                    "[{missing} of {of} bytes are left out; call `{READ_MORE}` with output \"{name}\" and from {from} for the rest]"
                )
            }
            Self::Lost => format!("[{missing} of {of} bytes are left out, and could not be kept]"),
        })
    }

    /// What is said of data.
    fn of_data(&self, part: usize) -> String {
        let too_large = ": it is too large to be shown";
        match self {
            Self::Dropped => too_large.to_owned(),
            Self::Kept(kept) => match kept.file(part) {
                Some(file) => format!("{too_large}, and kept as `{file}`"),
                None if kept.keeps_data() => format!("{too_large}, and could not be kept"),
                None => too_large.to_owned(),
            },
            Self::Lost => format!("{too_large}, and could not be kept"),
        }
    }
}

/// What is left of a budget.
struct Room {
    text: usize,
    blob: usize,
    parts: usize,
    is_cut: bool,
    /// The bytes of text that were taken.
    shown: usize,
}

/// How much of a part there is room for.
enum Share<'a> {
    Whole,
    Cut { head: Cow<'a, str>, body: Cow<'a, str>, at: usize },
    Line(Data<'a>),
    Left,
}

impl Room {
    fn of(budget: OutputBudget) -> Self {
        Self { text: budget.text_bytes, blob: budget.blob_bytes, parts: MOST_PARTS, is_cut: false, shown: 0 }
    }

    /// Takes the room for a part.
    fn share<'a>(&mut self, part: &'a ContentPart) -> Share<'a> {
        let before = self.text;
        let share = match self.parts {
            0 => Share::Left,
            _ => self.share_of_bytes(part),
        };
        match &share {
            Share::Whole | Share::Line(_) => {
                self.parts -= 1;
                self.shown += before - self.text;
            }
            // What is read on begins here, so no text behind it is shown.
            Share::Cut { head, at, .. } => {
                self.parts -= 1;
                self.shown += head.len() + at;
                (self.text, self.is_cut) = (0, true);
            }
            Share::Left => (self.text, self.is_cut) = (0, true),
        }
        share
    }

    fn share_of_bytes<'a>(&mut self, part: &'a ContentPart) -> Share<'a> {
        match Data::of(part) {
            Some(data) if !data.is_called_text() => return self.share_of_data(data),
            // Decoded only where that must be.
            Some(data) if !self.is_cut && data.weight() <= self.text => {
                self.text -= data.weight();
                return Share::Whole;
            }
            _ => {}
        }
        match Written::of(part) {
            Written::Data(data) => self.share_of_data(data),
            Written::Text { .. } if self.is_cut => Share::Left,
            Written::Text { head, body } => match self.text.checked_sub(head.len()) {
                Some(room) if body.len() <= room => {
                    self.text = room - body.len();
                    Share::Whole
                }
                Some(room) => match cut_at(&body, room) {
                    0 => Share::Left,
                    at => Share::Cut { head, body, at },
                },
                None => Share::Left,
            },
        }
    }

    fn share_of_data<'a>(&mut self, data: Data<'a>) -> Share<'a> {
        match self.blob.checked_sub(data.weight()) {
            Some(left) => {
                self.blob = left;
                Share::Whole
            }
            None => Share::Line(data),
        }
    }
}

/// How much of a budget an output takes.
fn taken(content: &[ContentPart], budget: OutputBudget) -> OutputBudget {
    let mut room = Room::of(budget);
    for part in content {
        room.share(part);
        if room.parts == 0 {
            break;
        }
    }
    OutputBudget { text_bytes: room.shown, blob_bytes: budget.blob_bytes - room.blob }
}

/// A part that ends in a line about the rest.
fn cut(part: &ContentPart, head: &str, body: &str, line: &str) -> ContentPart {
    let line_break = if body.ends_with('\n') { "" } else { "\n" };
    match part {
        ContentPart::Text(TextContent { extra, .. }) => {
            ContentPart::Text(TextContent { text: format!("{body}{line_break}{line}"), extra: extra.clone() })
        }
        // Field by field: the contents are what must not be copied.
        ContentPart::Resource(EmbeddedResource { uri, mime_type, contents: _, resource_extra, extra }) => {
            ContentPart::Resource(EmbeddedResource {
                uri: uri.clone(),
                mime_type: mime_type.clone(),
                contents: ResourceContents::Text(format!("{body}{line_break}{line}")),
                resource_extra: resource_extra.clone(),
                extra: extra.clone(),
            })
        }
        _ => ContentPart::text(format!("{head}{body}{line_break}{line}")),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::content::Blob;

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
        fit(content, budget, &Rest::Dropped).into_owned()
    }

    #[test]
    fn what_fits_is_not_copied() {
        let image = ContentPart::Image(Blob::new("image/png", b"abc"));
        let whole = [ContentPart::text("abcde"), image, ContentPart::text("fghij")];
        // Nine bytes are `image/png`.
        let exact = OutputBudget { text_bytes: 10, blob_bytes: 4 + 9 };
        assert!(matches!(fit(&whole, exact, &Rest::Dropped), Cow::Borrowed(_)));
        let nothing = OutputBudget { text_bytes: 0, blob_bytes: 0 };
        assert!(matches!(fit(&[], nothing, &Rest::Dropped), Cow::Borrowed([])));
        assert!(matches!(fit(&texts([""]), nothing, &Rest::Dropped), Cow::Borrowed(_)));
    }

    #[test]
    fn parts_share_the_budget_and_all_text_behind_the_cut_is_left_out() {
        let content = texts(["abcde", "fghij", "klmno"]);
        assert_eq!(dropped(&content, text_bytes(7)), texts(["abcde", "fg\n[9 of 17 bytes are left out]"]));
        assert_eq!(dropped(&content, text_bytes(5)), texts(["abcde", "[11 of 17 bytes are left out]"]));
        assert_eq!(dropped(&content, text_bytes(0)), texts(["[17 of 17 bytes are left out]"]));
    }

    #[test]
    fn a_cut_output_says_where_the_rest_is() {
        let content = [ContentPart::text("x".repeat(91_000))];
        let kept = Kept::new("o3");
        let said = |rest| match &fit(&content, OutputBudget::default(), &rest)[..] {
            [ContentPart::Text(part)] => part.text[50_000..].to_owned(),
            other => panic!("{} parts", other.len()),
        };
        assert_eq!(said(Rest::Dropped), "\n[41,000 of 91,000 bytes are left out]");
        assert_eq!(
            said(Rest::Kept(kept)),
            "\n[41,000 of 91,000 bytes are left out; call `read_more` with output \"o3\" and from 50000 for the rest]"
        );
        assert_eq!(said(Rest::Lost), "\n[41,000 of 91,000 bytes are left out, and could not be kept]");
    }

    #[test]
    fn text_is_cut_between_characters() {
        let text = "aé€𐍈".repeat(3);
        for room in 0..text.len() {
            let cut = text.floor_char_boundary(room);
            let line = format!("[{} of {} bytes are left out]", text.len() - cut, text.len());
            let expected = if cut == 0 { line } else { format!("{}\n{line}", &text[..cut]) };
            assert_eq!(dropped(&texts([&text]), text_bytes(room)), texts([&expected]), "{room}");
        }
    }

    #[test]
    fn a_cut_resource_keeps_its_address_and_everything_else() {
        let whole = resource(ResourceContents::Text("abcdefghij".to_owned()));
        // Six bytes are `[a:b]` and its line break.
        let cut = resource(ResourceContents::Text("abcd\n[6 of 16 bytes are left out]".to_owned()));
        assert_eq!(dropped(std::slice::from_ref(&whole), text_bytes(10)), [cut]);
        assert_eq!(dropped(std::slice::from_ref(&whole), text_bytes(6)), texts(["[16 of 16 bytes are left out]"]));
        assert!(fits(&[whole], text_bytes(16)));
    }

    #[test]
    fn data_that_is_shown_as_text_counts_as_text() {
        let blob = Blob::new("text/x", b"abcdefghij");
        let whole = resource(ResourceContents::Blob(blob.base64.to_string()));
        let cut = resource(ResourceContents::Text("abcd\n[6 of 16 bytes are left out]".to_owned()));
        assert_eq!(dropped(std::slice::from_ref(&whole), OutputBudget { text_bytes: 10, blob_bytes: 0 }), [cut]);
        assert!(fits(&[whole], OutputBudget { text_bytes: 16, blob_bytes: 0 }));
        let drawing = ContentPart::Image(Blob::new("image/svg+xml", b"<svg></svg>"));
        let expected = "[image/svg+xml]\n<svg>\n[6 of 27 bytes are left out]";
        assert_eq!(dropped(&[drawing], text_bytes(21)), texts([expected]));
    }

    #[test]
    fn a_link_with_too_many_words_is_cut_as_text() {
        let link = json!({"type": "resource_link", "uri": "a:b", "description": "x".repeat(100)});
        let link: ContentPart = serde_json::from_value(link).expect("a part");
        assert_eq!(dropped(&[link], text_bytes(20)), texts(["[resource a:b: xxxxx\n[96 of 116 bytes are left out]"]));
    }

    #[test]
    fn data_is_never_cut_and_smaller_data_behind_it_is_shown() {
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
            ContentPart::text("[image, image/png, 3.0 kB: it is too large to be shown]"),
            ContentPart::text("[data `a:b`, application/zip, 6.0 kB: it is too large to be shown]"),
            picture(30),
            ContentPart::text("a"),
        ];
        assert_eq!(dropped(&content, blob_bytes(1000)), expected);
        assert_eq!(data_left_out(&content, blob_bytes(1000)).map(|(number, _)| number).collect::<Vec<_>>(), [1, 2]);
    }

    #[test]
    fn pictures_behind_a_cut_text_are_shown() {
        let picture = ContentPart::Image(Blob::new("image/png", b"abc"));
        let content = [ContentPart::text("abcdef"), picture.clone(), ContentPart::text("")];
        let expected = [ContentPart::text("abc\n[32 of 35 bytes are left out]"), picture];
        assert_eq!(dropped(&content, text_bytes(3)), expected);
    }

    #[test]
    fn a_million_empty_parts_become_a_thousand_and_a_line() {
        let content = vec![ContentPart::text(""); 1_000_000];
        let shown = dropped(&content, OutputBudget::default());
        assert_eq!(shown.len(), 1001);
        assert_eq!(shown[1000], ContentPart::text("[998,999 of 999,999 bytes are left out]"));
        assert!(fits(&content[..1000], OutputBudget::default()));
        assert_eq!(
            dropped(&content[..1001], OutputBudget::default()).len(),
            1000,
            "nothing is left out that can be told"
        );
    }

    #[test]
    fn the_first_glob_that_matches_decides() {
        let budgets = OutputBudgets::new()
            .with_tool("mcp_fs_read", text_bytes(1))
            .with_tool("mcp_fs_*", text_bytes(2))
            .with_tool("mcp_*", text_bytes(3))
            .with_default(text_bytes(4))
            .with_tool("[", text_bytes(5));
        let of = |tool| budgets.of(tool).text_bytes;
        assert_eq!(["mcp_fs_read", "mcp_fs_write", "mcp_git_log", "add"].map(of), [1, 2, 3, 4]);
        assert_eq!(budgets.broken.iter().map(|(pattern, _)| pattern.as_str()).collect::<Vec<_>>(), ["["]);
    }

    #[test]
    fn results_that_are_too_much_together_share_evenly_and_small_ones_stay_whole() {
        let budgets = OutputBudgets::new().with_round(text_bytes(100));
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
    fn data_of_a_step_is_taken_in_the_order_of_the_results() {
        let budgets = OutputBudgets::new().with_round(blob_bytes(150));
        let picture = |bytes: usize| [ContentPart::Image(Blob::new("image/png", &vec![7; bytes]))];
        // 80 of base64 and nine of its type.
        let (large, small) = (picture(60), picture(3));
        let outputs = [&large, &large, &small, &small].map(|content| (&content[..], blob_bytes(100)));
        assert_eq!(budgets.of_round(&outputs), [None, Some(blob_bytes(61)), None, None]);
    }

    /// The text of a fitted output, and what its line says of the rest.
    fn read(shown: &[ContentPart]) -> (String, Option<usize>) {
        let whole: Vec<String> = shown
            .iter()
            .map(|part| match Written::of(part) {
                Written::Text { head, body } => format!("{head}{body}"),
                Written::Data(data) => data.line(""),
            })
            .collect();
        let whole = whole.join("\n");
        match whole.split_once(" bytes are left out; call `read_more` with output \"o1\" and from ") {
            None => (whole, None),
            Some((text, from)) => {
                let (text, _) = text.rsplit_once('[').expect("a line");
                (text.to_owned(), from.split_once(' ').and_then(|(from, _)| from.parse().ok()))
            }
        }
    }

    proptest! {
        #[test]
        fn what_is_shown_and_what_is_read_on_are_the_whole(
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
            prop_assert_eq!((whole.len(), none), (written_len(&content), None));
            let kept = Kept::new("o1");
            let (text, from) = read(&fit(&content, text_bytes(room), &Rest::Kept(kept)));
            match from {
                None => prop_assert_eq!(text, whole),
                // The line about the rest is a line of its own.
                Some(from) => {
                    let shown = text.strip_suffix('\n').unwrap_or(&text);
                    prop_assert!(whole.starts_with(shown) && from >= shown.len() && from <= shown.len() + 1, "{text:?} {from}");
                }
            }
        }
    }
}
