//! Tests of Markdown rendering.

use super::*;
use crate::terminal::text::columns;

/// Renders a text without attributes, with its markers kept.
fn kept(text: &str, width: usize) -> String {
    trimmed(&rendered(&mut Markdown::new(true), &[text], width))
}

/// Renders a text for a terminal with colours and strips the colours.
fn shown(text: &str, width: usize) -> String {
    let styled = rendered(&mut Markdown::new(false), &[text], width);
    trimmed(&anstream::adapter::strip_str(&styled).to_string())
}

fn rendered(markdown: &mut Markdown, pieces: &[&str], width: usize) -> String {
    let text: String = pieces.iter().map(|piece| markdown.push(piece, width)).collect();
    text + &markdown.end()
}

fn trimmed(text: &str) -> String {
    let lines: Vec<String> =
        anstream::adapter::strip_str(text).to_string().lines().map(|line| line.trim_end().to_owned()).collect();
    lines.join("\n")
}

const DOCUMENT: &str = "\
# A title with `code`

Some *emphasis*, **strong words**, ***both***, ~~gone~~ and a [link](https://example.com \"title\"), then <https://x.org>.
2 * 3 * 4, snake_case_name, `a * b`, *args and **kwargs, \\*escaped\\*, ![an image](pic.png), [ ] and [x](

> A quote that is long enough to wrap at forty columns at least.
> > deeper
> - item in a quote
>   going on

1. First
2. Second item with many words that have to wrap somewhere
   - nested 日本語の文章はここで折り返される必要があります
     - deeper still 👩‍👩‍👧‍👦 family
   continued

   another paragraph
10. Tenth

```rust
fn main() { println!(\"**not bold** and a line that is far longer than forty columns, never wrapped\"); }
\tindented

```

| Name | Value | Notes |
|:-----|------:|:-----:|
| `a`  | 1     | **x** |
| bb   | 22    | a longer note with words |

***
Plain end with an unclosed `tick and **marker
~~~
an unclosed fence
";

#[test]
fn every_kind_of_block_is_rendered() {
    let expected = "\
A title with code

Some emphasis, strong words, both, gone and a link (https://example.com), then <https://x.org>.";
    assert!(shown(DOCUMENT, 110).starts_with(expected), "{}", shown(DOCUMENT, 110));
    let blocks = "> a\n> - b\n>\n> c\n\n1. one\n   - two\n     three\n\n   four\n\n---\n";
    assert_eq!(
        shown(blocks, 20),
        "│ a\n│ • b\n│\n│ c\n\n1. one\n   • two\n     three\n\n   four\n\n────────────────────"
    );
    assert_eq!(shown("- a\n- b\n  1. c\n- [x] d", 20), "• a\n• b\n  1. c\n• [x] d");
    assert_eq!(shown("- - a\n- > b\n  > c", 20), "• • a\n• │ b\n  │ c");
    assert_eq!(shown("one\ntwo\n\n\n\nthree", 20), "one\ntwo\n\nthree");
}

#[test]
fn words_and_prefixes_wrap_at_every_width() {
    let text = "> - one two three four five six";
    assert_eq!(shown(text, 20), "│ • one two three\n│   four five six");
    assert_eq!(shown("1. aaa bbb ccc ddd", 12), "1. aaa bbb\n   ccc ddd");
    for width in [20, 40, 80, 200] {
        let prose: String = DOCUMENT.replace("```rust", "").replace("```", "");
        for line in shown(prose.split("fn main").next().expect("a start"), width).lines() {
            let longest = line.split(' ').map(columns).max().unwrap_or(0);
            assert!(columns(line) <= width || longest + 8 > width, "{width}: {line}");
        }
    }
}

#[test]
fn code_is_never_wrapped_or_parsed() {
    let code = "```\n**x** `y` [a](b)   word word word word word word\n\n    # no heading\n```";
    assert_eq!(shown(code, 20), code);
    assert_eq!(shown("````\n```\n````\n# after", 20), "````\n```\n````\nafter");
    assert_eq!(shown("> ```\n> a\n>\n> b\nafter", 20), "│ ```\n│ a\n│\n│ b\nafter");
    assert_eq!(shown("- a\n\n  ```\n  x\n  ```\n- b", 20), "• a\n\n  ```\n  x\n  ```\n• b");
    assert_eq!(shown("    let *a* = *b;\n\ntext", 10), "    let *a* = *b;\n\ntext");
    assert_eq!(shown("```inline``` code", 20), "inline code");
}

#[test]
fn tables_fit_the_width_or_are_shown_as_text() {
    let table = "| Name | Value |\n|---|--:|\n| a | 1 |\n| `b\\|c` | **22** |\n\nafter";
    assert_eq!(shown(table, 40), "Name │ Value\n─────┼──────\na    │     1\nb|c  │    22\n\nafter");
    let wide = "| A | B |\n|---|---|\n| one two three four | x |";
    assert_eq!(
        shown(wide, 16),
        "A            │ B\n─────────────┼──\none two      │ x\nthree four   │",
        "{}",
        shown(wide, 16)
    );
    let many = "| aaaaaaaa | bbbbbbbb | cccccccc |\n|---|---|---|\n| 1 | 2 | 3 |";
    assert_eq!(shown(many, 20), "| aaaaaaaa |\nbbbbbbbb | cccccccc\n|\n|---|---|---|\n| 1 | 2 | 3 |");
    assert_eq!(shown("| no table |\nafter", 40), "| no table |\nafter");
    assert_eq!(shown("| a |\n| b |\n| c |", 40), "| a |\n| b |\n| c |");
    assert_eq!(shown("Here:\n| a | b |\n|---|---|\n| 1 | 2 | 3 |", 40), "Here:\n| a | b |\n|---|---|\n| 1 | 2 | 3 |");
}

#[test]
fn unmatched_markers_are_text() {
    for text in [
        "*args and **kwargs",
        "2 * 3 * 4",
        "2*3*4 and 2**3**4",
        "snake_case_name",
        "a ` tick",
        "[x](",
        "[x](not closed",
        "[x] (y)",
        "![",
        "**",
        "#hashtag",
        "1.5 is a number",
        "`` a ` b",
        "a\\b",
        "~one~",
        "--option",
    ] {
        assert_eq!(shown(text, 80), text);
    }
    assert_eq!(shown("**a *b** c*", 80), "a b c");
    assert_eq!(shown("***a** b*", 80), "a b");
    assert_eq!(shown("**Note**s and 日本**強調**語", 80), "Notes and 日本強調語");
    assert_eq!(shown("`` a ` b ``", 80), "a ` b");
    assert_eq!(shown("[https://a.b](https://a.b) [](c)", 80), "https://a.b c");
}

#[test]
fn markers_are_kept_without_colours() {
    let text = "# Title\n\n**bold** *it* `code` [a](b)\n- x";
    assert_eq!(kept(text, 80), "# Title\n\n**bold** *it* `code` a (b)\n• x");
}

#[test]
fn attributes_are_reset_after_every_word() {
    let mut markdown = Markdown::new(false);
    assert_eq!(markdown.push("a **bold word** b", 80), "a \u{1b}[1mbold\u{1b}[0m \u{1b}[1mword\u{1b}[0m ");
    assert_eq!(markdown.push("\n```\nlet x", 80), "b\n\u{1b}[2m```\u{1b}[0m\n\u{1b}[36mlet \u{1b}[0m");
}

#[test]
fn every_word_of_faint_text_is_faint() {
    let text = Markdown::faint(false).push("a **b** ", 80);
    assert_eq!(text, "\u{1b}[2ma\u{1b}[0m \u{1b}[1m\u{1b}[2mb\u{1b}[0m ");
    assert_eq!(Markdown::faint(true).push("> a ", 80), "\u{1b}[2m│ \u{1b}[0m\u{1b}[2ma\u{1b}[0m ");
}

#[test]
fn words_are_written_as_soon_as_they_end() {
    let mut markdown = Markdown::new(false);
    assert_eq!(markdown.push("It was a dark ", 80), "It was a dark ");
    assert_eq!(markdown.push("nig", 80), "");
    assert_eq!(markdown.push("ht.\n", 80), "night.\n");
    assert_eq!(markdown.push("- an it", 80), "• an ");
    assert_eq!(markdown.push("em *held ", 80), "item ");
    assert_eq!(anstream::adapter::strip_str(&markdown.push("back* now ", 80)).to_string(), "held back now ");
    assert_eq!(markdown.end(), "\n");
    assert!(markdown.is_at_start() && markdown.end().is_empty());
}

#[test]
fn a_new_width_applies_to_later_text() {
    let mut markdown = Markdown::new(false);
    let text = markdown.push("one two three four ", 20) + &markdown.push("five six seven eight ", 10) + &markdown.end();
    assert_eq!(trimmed(&text), "one two three four\nfive six\nseven\neight");
}

/// Splits a text into pieces of fixed and random lengths.
fn cuts(text: &str) -> Vec<Vec<String>> {
    let chars: Vec<char> = text.chars().collect();
    let fixed =
        [1, 2, 3, 5, 7, 16, 64].map(|length| chars.chunks(length).map(|piece| piece.iter().collect()).collect());
    let mut seed = 0x2545_f491_4f6c_dd1d_u64;
    let random = (0..20).map(|_| {
        let mut pieces = Vec::new();
        let mut rest = &chars[..];
        while !rest.is_empty() {
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            let (piece, more) = rest.split_at((seed as usize % 12).min(rest.len()));
            pieces.push(piece.iter().collect());
            rest = more;
        }
        pieces
    });
    fixed.into_iter().chain(random).collect()
}

#[test]
fn the_output_does_not_depend_on_how_the_text_is_split() {
    for width in [20, 40, 80, 200] {
        for keeps_markers in [false, true] {
            let whole = rendered(&mut Markdown::new(keeps_markers), &[DOCUMENT], width);
            for pieces in cuts(DOCUMENT) {
                let pieces: Vec<&str> = pieces.iter().map(String::as_str).collect();
                assert_eq!(rendered(&mut Markdown::new(keeps_markers), &pieces, width), whole);
            }
        }
    }
}

/// Returns random text of special characters.
fn scrambled(mut seed: u64, length: usize) -> String {
    let alphabet: Vec<char> = "ab 1.*_~`[]()!\\#>-+|:\n\n\t日👍\u{301}".chars().collect();
    let mut next = || {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        seed as usize
    };
    (0..length).map(|_| alphabet[next() % alphabet.len()]).collect()
}

#[test]
fn no_letter_is_lost_or_doubled() {
    for seed in 1..400_u64 {
        let text = scrambled(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15), 300);
        for keeps_markers in [false, true] {
            let whole = rendered(&mut Markdown::new(keeps_markers), &[&text], 40);
            let letters =
                |text: &str| text.chars().filter(|c| matches!(c, 'a' | 'b' | '日' | '👍')).collect::<String>();
            let plain = anstream::adapter::strip_str(&whole).to_string();
            // Link titles are not shown; this text has none.
            assert_eq!(letters(&plain), letters(&text), "{text:?} → {plain:?}");
            assert!(whole.is_empty() || whole.ends_with('\n'), "{text:?} → {whole:?}");
            let pieces: Vec<String> = text.chars().map(String::from).collect();
            let pieces: Vec<&str> = pieces.iter().map(String::as_str).collect();
            assert_eq!(rendered(&mut Markdown::new(keeps_markers), &pieces, 40), whole, "{text:?}");
        }
    }
}

#[test]
fn hostile_text_takes_linear_time_and_bounded_memory() {
    let texts = [
        "a".repeat(1_000_000),
        "a ".repeat(100_000),
        ">".repeat(200_000),
        "> ".repeat(10_000) + "x",
        "*a ".repeat(60_000),
        "**".repeat(100_000),
        "*a_".repeat(60_000),
        "[".repeat(200_000),
        "[a](".repeat(50_000),
        "](".repeat(100_000),
        "`".repeat(200_000),
        (1..400).map(|count| "`".repeat(count) + "x").collect::<String>().repeat(3),
        "- ".repeat(100_000),
        "- \n".repeat(60_000),
        "```\n".repeat(50_000),
        "~~~\n".to_owned() + &" ".repeat(200_000),
        "|".repeat(200_000),
        "| a | b |\n|---|---|\n".to_owned() + &"| x | y |\n".repeat(40_000),
        "| a\n".repeat(50_000),
        "1. ".repeat(60_000),
        "#".repeat(200_000),
        "\\".repeat(200_000),
        "\n".repeat(200_000),
        "日".repeat(60_000),
        "e\u{301}".repeat(60_000),
        "👩\u{200d}".repeat(30_000),
        (0..500).map(|depth| " ".repeat(depth) + "- x\n").collect::<String>().repeat(8),
    ];
    for text in texts {
        let head: String = text.chars().take(12).collect();
        let began = std::time::Instant::now();
        let mut markdown = Markdown::new(false);
        let mut written = 0;
        let mut most = 0;
        for piece in text.as_bytes().chunks(1 << 16) {
            // A piece may split a character; the rest is also hostile text.
            let piece = String::from_utf8_lossy(piece);
            written += markdown.push(&piece, 80).len();
            most = most.max(format!("{markdown:?}").len());
        }
        written += markdown.end().len();
        assert!(most < 4 << 20, "{head:?} holds {most} bytes");
        assert!(written < text.len() * 40 + 100, "{head:?} became {written} bytes");
        assert!(began.elapsed().as_secs() < 30, "{head:?} took {:?}", began.elapsed());
    }
}
