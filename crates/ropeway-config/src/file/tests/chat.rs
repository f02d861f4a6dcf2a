//! The chat settings.

use std::path::Path;

use super::{parse, parse_with, problems};
use crate::{ChatSettings, Config, MissingChatSecrets, ProviderName, Secret, Secrets, ToolApproval};
use ropeway_core::message::ReasoningEffort;

/// Chat settings with every key.
const WHOLE: &str = r#"
chat:
  provider: claude
  model: some-model
  base_url: http://127.0.0.1:8080/${VERSION:-v1}
  key: ${MY_KEY}
  system: Be brief, for $5 or ${less}.
  max_tokens: 4096
  temperature: 0.2
  effort: high
  max_steps: 30
  tools: {allow: ["mcp_fs_read*"], ask: ["mcp_fs_*"], deny: ["*_delete*"]}
"#;

fn whole() -> ChatSettings {
    ChatSettings {
        provider: Some(ProviderName::Anthropic),
        model: Some("some-model".into()),
        base_url: Some("http://127.0.0.1:8080/v1".into()),
        key: Some(Secret::new("sk-12345678")),
        system: Some("Be brief, for $5 or ${less}.".into()),
        max_tokens: Some(4096),
        temperature: Some(0.2),
        effort: Some(ReasoningEffort::High),
        max_steps: Some(30),
        tools: ToolApproval {
            allow: vec!["mcp_fs_read*".into()],
            ask: vec!["mcp_fs_*".into()],
            deny: vec!["*_delete*".into()],
        },
        ..ChatSettings::default()
    }
}

fn secrets() -> Secrets {
    Secrets::from_map([("MY_KEY", "sk-12345678")])
}

#[test]
fn every_chat_key_is_resolved() {
    let config = parse_with(WHOLE, &secrets()).unwrap();
    assert_eq!((config.chat, config.warnings), (Some(whole()), Vec::new()));
    let json = r#"{
        // JSON with comments.
        "chat": {"provider": "openai", "temperature": 1, "effort": "off", "tools": {}},
        "servers": [],
    }"#;
    let config = Config::parse(json, Path::new("nowhere/ropeway.jsonc"), &secrets()).unwrap();
    let expected = ChatSettings {
        provider: Some(ProviderName::OpenAi),
        temperature: Some(1.0),
        effort: Some(ReasoningEffort::Off),
        ..ChatSettings::default()
    };
    assert_eq!(config.chat, Some(expected));
}

#[test]
fn chat_settings_are_optional() {
    assert_eq!(parse("servers: []\n").unwrap().chat, None);
    assert_eq!(parse("servers: []\nchat:\n").unwrap().chat, None);
    assert_eq!(parse("servers: []\nchat: {}\n").unwrap().chat, Some(ChatSettings::default()));
}

#[test]
fn an_unset_key_is_a_warning_and_affects_no_server() {
    let text = format!("{WHOLE}servers:\n  - {{alias: a, command: x}}\n");
    let told = ["ignored `chat.key`: secret `MY_KEY` is not set"].map(str::to_owned);
    let missing = MissingChatSecrets { key: vec!["MY_KEY".into()], ..MissingChatSecrets::default() };
    let without = ChatSettings { key: None, missing, warnings: told.to_vec(), ..whole() };
    for unset in [Secrets::none(), Secrets::from_map([("MY_KEY", " \n")])] {
        let config = parse_with(&text, &unset).unwrap();
        assert_eq!(config.chat, Some(without.clone()));
        assert_eq!(config.warnings, told);
        super::known(&config.servers[0]);
    }
}

#[test]
fn whitespace_around_a_key_is_trimmed() {
    let config = parse_with(WHOLE, &Secrets::from_map([("MY_KEY", " sk-12345678\r\n")])).unwrap();
    assert_eq!(config.chat, Some(whole()));
}

#[test]
fn a_key_without_provider_or_base_url_is_a_warning() {
    let config = parse("chat: {key: sk-12345678}\n").unwrap();
    let told = "ignored `chat.key`: set `provider` or `base_url` to use it";
    assert_eq!(config.warnings, [told]);
}

#[test]
fn an_unresolved_base_url_drops_the_key_and_keeps_the_rules() {
    let text = "chat: {base_url: 'https://${HOST}/${PART}', key: sk-12345678, system: s, max_steps: 3, tools: {deny: ['*']}}\n";
    let config = parse(text).unwrap();
    let told = ["ignored `chat.base_url`: secrets `HOST`, `PART` are not set"].map(str::to_owned);
    let expected = ChatSettings {
        missing: MissingChatSecrets { base_url: vec!["HOST".into(), "PART".into()], ..MissingChatSecrets::default() },
        system: Some("s".into()),
        max_steps: Some(3),
        tools: ToolApproval { deny: vec!["*".into()], ..ToolApproval::default() },
        warnings: told.to_vec(),
        ..ChatSettings::default()
    };
    assert_eq!((config.chat, config.warnings), (Some(expected), told.to_vec()));
}

#[test]
fn chat_problems_have_positions_and_suggestions() {
    let text = r#"chat:
  provder: x
  provider: antropic
  model: ""
  base_url: localhost:8080/v1
  key: [sk-12345678]
  max_tokens: 0
  temperature: 3
  effort: hihg
  max_steps: -1
  tools: {allow: ["[a"], dney: []}
"#;
    assert_eq!(
        problems(text),
        [
            "ropeway.yaml:2:3: chat: unknown key `provder` (did you mean `provider`?)",
            "ropeway.yaml:3:13: chat.provider: expected one of `anthropic`, `claude`, `openai`, `responses`, `gemini`, `google`, `chat`, `openrouter`, `mistral`, `groq`, `deepseek`, `xai`, `ollama`, `lmstudio`, `llamacpp`, `vllm`, found `antropic` (did you mean `anthropic`?)",
            "ropeway.yaml:4:10: chat.model: model is empty",
            "ropeway.yaml:5:13: chat.base_url: expected a URL that starts with `http://` or `https://`, found `localhost:8080/v1` (did you mean `http://localhost:8080/v1`?)",
            "ropeway.yaml:6:8: chat.key: expected a string, found a list",
            "ropeway.yaml:7:15: chat.max_tokens: expected at least 1, found `0`",
            "ropeway.yaml:8:16: chat.temperature: expected a number from 0 to 2, found `3`",
            "ropeway.yaml:9:11: chat.effort: expected one of `off`, `minimal`, `low`, `medium`, `high`, `max`, found `hihg` (did you mean `high`?)",
            "ropeway.yaml:10:14: chat.max_steps: expected a non-negative integer, found `-1`",
            "ropeway.yaml:11:19: chat.tools.allow[0]: expected a valid glob (unclosed character class; missing ']'), found `[a`",
            "ropeway.yaml:11:26: chat.tools: unknown key `dney` (did you mean `deny`?)",
        ]
    );
    assert_eq!(
        problems("chat: true\nservers: []\n"),
        [
            "ropeway.yaml:1:7: chat: expected a map with one of `provider`, `model`, `base_url`, `key`, `system`, `max_tokens`, `temperature`, `effort`, `max_steps`, `tools`, found `true`"
        ]
    );
    assert_eq!(problems("chta: {}\nservers: []\n"), ["ropeway.yaml:1:1: unknown key `chta` (did you mean `chat`?)"]);
}

#[test]
fn chat_problems_do_not_contain_secrets() {
    for text in ["chat: {base_url: 'ftp://ada:pass-w0rd@h/?x=t0ken-t0ken'}\n", "chat: {key: \"s3cret-s3cret\\nx\"}\n"] {
        let told = problems(text).concat();
        assert!(!told.contains("pass-w0rd") && !told.contains("t0ken") && !told.contains("s3cret"), "{told}");
    }
}

#[test]
fn chat_settings_in_another_clients_file_are_an_error() {
    let text = r#"{"mcpServers": {"a": {"command": "x"}}, "chat": {"provider": "whatever"}}"#;
    let error = Config::parse(text, Path::new("nowhere/mcp.json"), &secrets()).unwrap_err().to_string();
    assert_eq!(error, "nowhere/mcp.json:1:41: `chat` is only supported in a `ropeway.yaml`");
}

#[test]
fn the_schema_accepts_the_same_chat_settings_as_the_parser() {
    let schema = jsonschema::validator_for(&crate::json_schema()).unwrap();
    let check = |chat: &str, good: bool| {
        let text = format!(r#"{{"chat": {chat}, "servers": []}}"#);
        assert_eq!(schema.is_valid(&serde_json::from_str(&text).unwrap()), good, "{chat}");
        assert_eq!(parse(&text).is_ok(), good, "{chat}");
    };
    check(r#"{"provider": "google", "model": "m", "base_url": "http://a/v1", "key": "k", "system": "s"}"#, true);
    check(r#"{"max_tokens": 1, "temperature": 0.5, "effort": "max", "max_steps": 3, "tools": {"ask": ["*"]}}"#, true);
    for chat in [
        r#"{"provider": "x"}"#,
        r#"{"model": ""}"#,
        r#"{"max_tokens": 0}"#,
        r#"{"temperature": -1}"#,
        r#"{"effort": "huge"}"#,
        r#"{"tools": ["*"]}"#,
        r#"{"tool": {}}"#,
    ] {
        check(chat, false);
    }
}

#[test]
fn adding_a_server_preserves_chat_settings() {
    let mut server = crate::raw::RawServer::new("a");
    server.command = Some("x".into());
    let text = crate::edit::add("chat:\n  provider: claude # mine\n", &server).unwrap();
    assert_eq!(text, "chat:\n  provider: claude # mine\nservers:\n  - alias: a\n    command: x\n");
    let config = parse(&text).unwrap();
    assert_eq!(config.chat.and_then(|chat| chat.provider), Some(ProviderName::Anthropic));
}
