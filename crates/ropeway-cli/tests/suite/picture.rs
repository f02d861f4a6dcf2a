//! The picture in the README: the real output of commands, with colours.

use std::fmt::Write as _;
use std::path::Path;

use crate::Ropeway;
use crate::terminal::Terminal;

/// The commands in the picture.
const COMMANDS: [&str; 4] = [
    "ropeway tools",
    "ropeway call calculate expression='2^10 / 3'",
    "ropeway call statistics values='[3, 1, 4, 1, 5]'",
    "ropeway call chrat values='[3, 1, 4]'",
];

/// Columns of the terminal, and the size of a character cell.
const COLUMNS: usize = 80;
const CELL_WIDTH: f64 = 8.43;
const LINE_HEIGHT: f64 = 19.0;
const MARGIN: f64 = 20.0;

#[test]
fn the_picture_in_the_readme_matches_the_output() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/terminal.svg");
    let picture = draw(&screen());
    if std::env::var_os("UPDATE_PICTURE").is_some() {
        std::fs::write(&path, &picture).expect("the picture can be written");
    }
    let kept = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(kept == picture, "run `UPDATE_PICTURE=1 cargo test -p ropeway-cli picture` and look at docs/terminal.svg");
}

/// Returns the terminal content after all commands.
fn screen() -> String {
    let mut screen = String::new();
    for typed in COMMANDS {
        let words = shlex::split(typed).expect("words of a shell");
        let arguments: Vec<&str> = words[1..].iter().map(String::as_str).collect();
        let window = Terminal { columns: COLUMNS as u16, coloured: true };
        let shown = window.show(Ropeway::new(&arguments)).text;
        if !screen.is_empty() {
            screen.push('\n');
        }
        writeln!(screen, "\u{1b}[32m$\u{1b}[0m {typed}").expect("a string grows");
        screen.push_str(&shown);
    }
    screen
}

fn draw(screen: &str) -> String {
    let lines: Vec<&str> = screen.lines().collect();
    let width = COLUMNS as f64 * CELL_WIDTH + 2.0 * MARGIN;
    let height = lines.len() as f64 * LINE_HEIGHT + 2.0 * MARGIN;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width:.0} {height:.0}\" width=\"{width:.0}\" \
         height=\"{height:.0}\" role=\"img\" aria-label=\"A terminal with the output of ropeway\">\n\
         <style>\n\
         text {{ font: 14px ui-monospace, SFMono-Regular, Menlo, Consolas, \"DejaVu Sans Mono\", monospace; \
         white-space: pre; fill: #d6deeb }}\n\
         .bold {{ font-weight: bold; fill: #ffffff }} .faint {{ fill: #8b98b0 }} .cyan {{ fill: #7fdbca }} \
         .red {{ fill: #ff6b6b }} .green {{ fill: #9ece6a }}\n\
         </style>\n\
         <rect width=\"100%\" height=\"100%\" rx=\"10\" fill=\"#101828\"/>\n"
    );
    let mut classes = Vec::new();
    for (row, line) in lines.iter().enumerate() {
        let y = MARGIN + (row as f64 + 0.75) * LINE_HEIGHT;
        let line = draw_line(line, &mut classes);
        if !line.is_empty() {
            writeln!(svg, "<text x=\"{MARGIN}\" y=\"{y:.1}\" xml:space=\"preserve\">{line}</text>")
                .expect("a string grows");
        }
    }
    svg.push_str("</svg>\n");
    svg
}

/// Renders one line with a span per colour. Attributes carry over to the next line.
fn draw_line(line: &str, classes: &mut Vec<&'static str>) -> String {
    let mut drawn = String::new();
    for (at, piece) in line.split("\u{1b}[").enumerate() {
        let text = match piece.split_once('m') {
            Some((codes, text)) if at > 0 => {
                codes.split(';').for_each(|code| switch(code, classes));
                text
            }
            _ => piece,
        };
        let text = text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
        match (text.is_empty(), classes.is_empty()) {
            (true, _) => {}
            (false, true) => drawn.push_str(&text),
            (false, false) => {
                write!(drawn, "<tspan class=\"{}\">{text}</tspan>", classes.join(" ")).expect("a string grows");
            }
        }
    }
    drawn
}

fn switch(code: &str, classes: &mut Vec<&'static str>) {
    match code {
        "" | "0" => classes.clear(),
        "1" => classes.push("bold"),
        "2" => classes.push("faint"),
        "31" => classes.push("red"),
        "32" => classes.push("green"),
        "36" => classes.push("cyan"),
        other => panic!("the picture knows no colour {other}"),
    }
}
