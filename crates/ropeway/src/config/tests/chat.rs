//! What is said of a chat, and what it means.

use std::path::Path;

use super::{parse, parse_with, problems};
use crate::config::{ChatSettings, Config, MissingSecretsError, ProviderName, Secret, Secrets, ToolApproval};
use crate::message::ReasoningEffort;

/// A chat of which everything is said.
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
fn every_key_of_a_chat_has_its_meaning() {
    let config = parse_with(WHOLE, &secrets()).unwrap();
    assert_eq!((config.chat, config.warnings), (Some(whole()), Vec::new()));
    let json = r#"{
        // Whoever likes JSON better.
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
fn a_file_need_not_have_a_chat_nor_say_anything_of_it() {
    assert_eq!(parse("servers: []\n").unwrap().chat, None);
    assert_eq!(parse("servers: []\nchat:\n").unwrap().chat, None);
    assert_eq!(parse("servers: []\nchat: {}\n").unwrap().chat, Some(ChatSettings::default()));
}

#[test]
fn a_key_that_is_not_set_is_told_and_left_out_and_no_server_is_skipped() {
    let text = format!("{WHOLE}servers:\n  - {{alias: a, command: x}}\n");
    let told = ["the key of `chat` is left out: secret `MY_KEY` is not set"].map(str::to_owned);
    let missing = MissingSecretsError { key: vec!["MY_KEY".into()], ..MissingSecretsError::default() };
    let without = ChatSettings { key: None, missing, warnings: told.to_vec(), ..whole() };
    for unset in [Secrets::none(), Secrets::from_map([("MY_KEY", " \n")])] {
        let config = parse_with(&text, &unset).unwrap();
        assert_eq!(config.chat, Some(without.clone()));
        assert_eq!(config.warnings, told);
        super::known(&config.servers[0]);
    }
}

#[test]
fn the_line_break_at_the_end_of_a_key_is_none_of_it() {
    let config = parse_with(WHOLE, &Secrets::from_map([("MY_KEY", " sk-12345678\r\n")])).unwrap();
    assert_eq!(config.chat, Some(whole()));
}

#[test]
fn a_key_of_which_it_is_not_said_whose_it_is_is_told() {
    let config = parse("chat: {key: sk-12345678}\n").unwrap();
    let told = "the key of `chat` is not used: neither `provider` nor `base_url` says whose it is";
    assert_eq!(config.warnings, [told]);
}

#[test]
fn a_chat_of_which_it_is_not_known_where_it_goes_keeps_its_rules_and_not_its_key() {
    let text = "chat: {base_url: 'https://${HOST}/${PART}', key: sk-12345678, system: s, max_steps: 3, tools: {deny: ['*']}}\n";
    let config = parse(text).unwrap();
    let told = ["it is not known where `chat` goes: secrets `HOST`, `PART` are not set"].map(str::to_owned);
    let expected = ChatSettings {
        missing: MissingSecretsError { base_url: vec!["HOST".into(), "PART".into()], ..MissingSecretsError::default() },
        system: Some("s".into()),
        max_steps: Some(3),
        tools: ToolApproval { deny: vec!["*".into()], ..ToolApproval::default() },
        warnings: told.to_vec(),
        ..ChatSettings::default()
    };
    assert_eq!((config.chat, config.warnings), (Some(expected), told.to_vec()));
}

#[test]
fn the_mistakes_of_a_chat_are_told_with_their_places_and_the_nearest_right_words() {
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
            "ropeway.yaml:2:3: chat: found the unknown key `provder` (did you mean `provider`?)",
            "ropeway.yaml:3:13: chat.provider: found `antropic`, expected one of `anthropic`, `claude`, `openai`, `responses`, `gemini`, `google`, `chat`, `openrouter`, `mistral`, `groq`, `deepseek`, `xai`, `ollama`, `lmstudio`, `llamacpp`, `vllm` (did you mean `anthropic`?)",
            "ropeway.yaml:4:10: chat.model: found an empty name, expected a model",
            "ropeway.yaml:5:13: chat.base_url: found `localhost:8080/v1`, expected a URL that starts with `http://` or `https://` (did you mean `http://localhost:8080/v1`?)",
            "ropeway.yaml:6:8: chat.key: found a list, expected a text",
            "ropeway.yaml:7:15: chat.max_tokens: found `0`, expected at least 1",
            "ropeway.yaml:8:16: chat.temperature: found `3`, expected a number from 0 to 2",
            "ropeway.yaml:9:11: chat.effort: found `hihg`, expected one of `off`, `minimal`, `low`, `medium`, `high`, `max` (did you mean `high`?)",
            "ropeway.yaml:10:14: chat.max_steps: found `-1`, expected a whole number",
            "ropeway.yaml:11:19: chat.tools.allow[0]: found `[a`, expected a glob (unclosed character class; missing ']')",
            "ropeway.yaml:11:26: chat.tools: found the unknown key `dney` (did you mean `deny`?)",
        ]
    );
    assert_eq!(
        problems("chat: true\nservers: []\n"),
        [
            "ropeway.yaml:1:7: chat: found `true`, expected a map with one of `provider`, `model`, `base_url`, `key`, `system`, `max_tokens`, `temperature`, `effort`, `max_steps`, `tools`"
        ]
    );
    assert_eq!(
        problems("chta: {}\nservers: []\n"),
        ["ropeway.yaml:1:1: found the unknown key `chta` (did you mean `chat`?)"]
    );
}

#[test]
fn no_secret_of_a_chat_is_told_with_a_mistake() {
    for text in ["chat: {base_url: 'ftp://ada:pass-w0rd@h/?x=t0ken-t0ken'}\n", "chat: {key: \"s3cret-s3cret\\nx\"}\n"] {
        let told = problems(text).concat();
        assert!(!told.contains("pass-w0rd") && !told.contains("t0ken") && !told.contains("s3cret"), "{told}");
    }
}

#[test]
fn the_file_of_another_client_has_no_chat() {
    let text = r#"{"mcpServers": {"a": {"command": "x"}}, "chat": {"provider": "whatever"}}"#;
    let error = Config::parse(text, Path::new("nowhere/mcp.json"), &secrets()).unwrap_err().to_string();
    let found = "1:41: found `chat`, which has no effect in a file of another client";
    assert_eq!(error, format!("nowhere/mcp.json:{found}, expected it in a `ropeway.yaml`"));
}

#[test]
fn the_schema_takes_the_chats_that_we_take_and_refuses_those_that_we_refuse() {
    let schema = jsonschema::validator_for(&crate::config::json_schema()).unwrap();
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
fn a_server_is_added_to_a_file_that_has_only_a_chat_and_the_chat_stays() {
    let mut server = crate::config::raw::RawServer::new("a");
    server.command = Some("x".into());
    let text = crate::config::edit::add("chat:\n  provider: claude # mine\n", &server).unwrap();
    assert_eq!(text, "chat:\n  provider: claude # mine\nservers:\n  - alias: a\n    command: x\n");
    let config = parse(&text).unwrap();
    assert_eq!(config.chat.and_then(|chat| chat.provider), Some(ProviderName::Anthropic));
}
