//! Fuzz targets: one function per parser for untrusted input.
//!
//! Each [`Target`] takes any bytes and asserts its parser's properties: the same result for any split into chunks,
//! lossless round trips, bounded work. It panics if a property does not hold.
//!
//! `tests/suite/fuzz.rs` runs every target over its corpus in `fuzz/corpus/` and over mutations of it. `cargo xtask
//! fuzz` runs them for longer, under libFuzzer if cargo-fuzz is available.

mod chunks;
mod client;
mod config;
mod input;
mod mutator;
mod protocol;
mod provider;
mod schema;
mod secret;
mod web;

pub use self::mutator::Mutator;

/// A function that checks one parser with any input.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Target {
    /// The target's name, which is also its directory in `fuzz/corpus/`.
    pub name: &'static str,
    /// Checks one input. Panics if a property does not hold.
    pub run: fn(&[u8]),
    /// The format's tokens, which mutations insert.
    pub tokens: &'static [&'static str],
}

impl Target {
    const fn new(name: &'static str, run: fn(&[u8]), tokens: &'static [&'static str]) -> Self {
        Self { name, run, tokens }
    }

    /// Returns the target with this name.
    pub fn named(name: &str) -> Option<&'static Self> {
        TARGETS.iter().find(|target| target.name == name)
    }
}

/// All targets, sorted by name.
pub const TARGETS: &[Target] = &[
    Target::new("anthropic", provider::anthropic, provider::ANTHROPIC),
    Target::new("cast", schema::cast_value, schema::TOKENS),
    Target::new(
        "challenge",
        web::challenge,
        &[
            "Bearer ",
            "DPoP ",
            "Basic ",
            "error=",
            "scope=\"",
            "resource_metadata=",
            "\"",
            "\\",
            "=",
            "==",
            ", ",
            "https://",
        ],
    ),
    Target::new("chat", provider::chat, provider::CHAT),
    Target::new("client_message", client::message, client::TOKENS),
    Target::new("config_json", config::json_file, config::TOKENS),
    Target::new("config_toml", config::toml_file, config::TOKENS),
    Target::new("config_yaml", config::yaml_file, config::TOKENS),
    Target::new("conversation", provider::conversation, provider::CONVERSATION),
    Target::new("dotenv", config::dotenv, &["export ", "=", "\"", "'", "\\n", "#", "$", "${", "}", "\r\n", "\u{feff}"]),
    Target::new("frame", protocol::frame, protocol::TOKENS),
    Target::new("gemini", provider::gemini, provider::GEMINI),
    Target::new("header_params", protocol::header_params, schema::TOKENS),
    Target::new("lines", protocol::lines, protocol::TOKENS),
    Target::new("list", protocol::list, protocol::TOKENS),
    Target::new("lowering", schema::lowering, schema::TOKENS),
    Target::new("memory", protocol::memory, protocol::TOKENS),
    Target::new("recording", provider::recording, provider::RECORDING),
    Target::new("redact", secret::redact, secret::TOKENS),
    Target::new(
        "reference",
        config::reference,
        &["${", "}", "$$", "$", ":-", "env:", "input:", "file:", "userHome", "/"],
    ),
    Target::new("responses", provider::responses, provider::RESPONSES),
    Target::new(
        "retry_after",
        web::retry_after,
        &["Sun, 06 Nov 1994 08:49:37 GMT", "1e", ".", "-", "inf", "NaN", "\t"],
    ),
    Target::new("scan_object", client::scan, client::TOKENS),
    Target::new("signs", secret::signs, secret::TOKENS),
    Target::new(
        "sse",
        web::sse,
        &["data: ", "data:", "event: ", "id: ", "retry: ", ": ", "\n\n", "\r", "\r\n", "\u{feff}", "\0"],
    ),
    Target::new("tool_output", protocol::tool_output, protocol::TOKENS),
    Target::new("validate", schema::validate, schema::TOKENS),
];
