//! Measures redacting text without secrets, compared with one `memchr` pass over the same text.
//!
//! Prints one JSON line: milliseconds, and the ratio for each kind of text.

use std::borrow::Cow;
use std::hint::black_box;
use std::time::Instant;

use ropeway::secret::{Redactor, Secret};
use serde_json::{Map, Value, json};

/// Text size in bytes.
const TEXT: usize = 10_000_000;

/// Number of runs per side; the fastest counts.
const TURNS: usize = 15;

/// Typical secrets: two tokens, a password, a hexadecimal key.
const SECRETS: [&str; 4] = [
    "ghp_R4nd0mT0kenOfGithubWith36Letters12",
    "sk-ant-api03-Zk3jd93kdk39dkKDke93kdkeJDKE93kdjf93jdkKDJE93jd-kdje93",
    "correct-Horse7battery",
    "9f8b1c2d3e4f5a6b7c8d9e0f1a2b3c4d",
];

fn main() {
    let secrets = SECRETS.map(Secret::from);
    let mask = Redactor::new(&secrets);
    let mut report = Map::new();
    for (kind, line) in [("log", log_line as fn(usize) -> String), ("json", json_line), ("json_in_json", nested_line)] {
        let text = text(line);
        let (mut pass, mut redaction) = (f64::MAX, f64::MAX);
        // Interleaved, so that both sides see the same load.
        for _ in 0..TURNS {
            let started = Instant::now();
            black_box(memchr::memchr(0, black_box(text.as_bytes())));
            pass = pass.min(started.elapsed().as_secs_f64());
            let started = Instant::now();
            let is_as_it_was = matches!(mask.redact(black_box(&text)), Cow::Borrowed(_));
            redaction = redaction.min(started.elapsed().as_secs_f64());
            assert!(is_as_it_was, "the text has no secret");
        }
        report.insert(format!("{kind}_memchr_ms"), json!(pass * 1000.0));
        report.insert(format!("{kind}_redaction_ms"), json!(redaction * 1000.0));
        report.insert(format!("{kind}_ratio"), json!(redaction / pass));
    }
    println!("{}", Value::Object(report));
}

fn text(line: fn(usize) -> String) -> String {
    let mut text = String::with_capacity(TEXT + 1000);
    for number in 0.. {
        text.push_str(&line(number));
        if text.len() >= TEXT {
            break;
        }
    }
    text
}

fn log_line(number: usize) -> String {
    let (second, milli, id) = (number % 60, number % 1000, number * 7919 % 100_003);
    format!(
        "2026-11-16T06:07:{second:02}.{milli:03}Z INFO api: request id={id} path=/api/v1/items/{milli} took {second} ms\n"
    )
}

fn json_line(number: usize) -> String {
    let note = "He said \"hello\" and left.\nThen it was 50% off & more.";
    json!({"id": number, "name": format!("item {number}"), "tags": ["red", "green"], "note": note}).to_string() + "\n"
}

fn nested_line(number: usize) -> String {
    json!({"level": "info", "data": json_line(number)}).to_string() + "\n"
}
