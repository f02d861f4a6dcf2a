//! Sources of secrets, and callbacks that misbehave.

use std::path::Path;
use std::time::{Duration, Instant};

use super::{known, parse_with};
use crate::{Config, Secrets, ServerSettings, Transport};

fn bearer(config: &Config) -> Option<String> {
    match &known(&config.servers[0]).transport {
        Transport::Http(server) => server.bearer.as_ref().map(|token| token.expose().to_owned()),
        other => panic!("{other:?}"),
    }
}

#[test]
fn secrets_from_code_take_precedence() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ropeway.yaml");
    std::fs::write(folder.path().join(".env"), "TOKEN=from-dotenv\n").unwrap();
    std::fs::write(folder.path().join("more"), "TOKEN=from-file\n").unwrap();
    let text = "secrets_file: more\nservers: [{alias: a, url: 'http://a/', auth: {bearer: '${TOKEN}'}}]";
    let token = |secrets: &Secrets| bearer(&Config::parse(text, &path, secrets).expect("a config"));
    let callback = |name: &str| (name == "TOKEN").then_some("from-callback");
    let environment = Secrets::from_map([("TOKEN", "from-environment")]);
    assert_eq!(token(&environment.clone().with_fn(callback).with("TOKEN", "from-code")).as_deref(), Some("from-code"));
    assert_eq!(token(&environment.clone().with_fn(callback)).as_deref(), Some("from-callback"));
    assert_eq!(token(&Secrets::from_fn(callback)).as_deref(), Some("from-callback"));
    assert_eq!(token(&environment.clone().with_fn(|_| None::<&str>)).as_deref(), Some("from-environment"));
    assert_eq!(token(&Secrets::none()).as_deref(), Some("from-dotenv"));
    std::fs::remove_file(folder.path().join(".env")).unwrap();
    assert_eq!(token(&Secrets::none()).as_deref(), Some("from-file"));
    let config = Config::parse(text, &path, &environment.with_fn(callback)).expect("a config");
    assert_eq!(known(&config.servers[0]).redactor.redact("a from-callback b"), "a *** b");
    assert!(!format!("{config:?}").contains("from-callback"));
}

#[test]
fn a_variable_can_name_the_file_of_a_secret() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ropeway.yaml");
    let secret = folder.path().join("token");
    std::fs::write(&secret, "from-secret-file\r\n").unwrap();
    std::fs::write(folder.path().join(".env"), "TOKEN=from-dotenv\n").unwrap();
    let text = "servers: [{alias: a, url: 'http://a/', auth: {bearer: '${TOKEN}'}}]";
    let file = |path: &Path| Secrets::from_map([("TOKEN_FILE", path.to_str().unwrap())]);
    let config = Config::parse(text, &path, &file(&secret)).expect("a config");
    assert_eq!(bearer(&config).as_deref(), Some("from-secret-file"));
    assert_eq!(known(&config.servers[0]).redactor.redact("a from-secret-file b"), "a *** b");
    let both = Secrets::from_map([("TOKEN_FILE", secret.to_str().unwrap()), ("TOKEN", "from-environment")]);
    let config = Config::parse(text, &path, &both).expect("a config");
    assert_eq!(bearer(&config).as_deref(), Some("from-environment"));
    let error = Config::parse(text, &path, &file(Path::new("/dev/zero"))).expect_err("a device").to_string();
    assert!(error.contains("could not read the file of `TOKEN_FILE`: not a regular file"), "{error}");
}

#[test]
fn a_panic_of_the_callback_is_an_error_with_the_variable() {
    let text = "servers:\n- {alias: a, url: 'http://a/', auth: {bearer: '${GOOD}'}}\n- {alias: b, command: x, args: ['${BAD}']}\nchat: {provider: anthropic, key: '${BAD}'}";
    let secrets = Secrets::none().with_fn(|name| if name == "BAD" { panic!("private words") } else { Some("good") });
    let error = parse_with(text, &secrets).expect_err("an error").to_string();
    let why = "could not resolve `${BAD}`: secrets callback panicked";
    let expected =
        format!("nowhere/ropeway.yaml:3:33: servers[1].args[0]: {why}\nnowhere/ropeway.yaml:4:34: chat.key: {why}");
    assert_eq!(error, expected);
}

#[test]
fn the_callback_is_not_called_for_unread_secrets() {
    let secrets = Secrets::unread().with_fn(|_| -> Option<&str> { panic!("it was asked") });
    let config = parse_with("servers: [{alias: a, command: x, args: ['${A}']}]", &secrets).expect("a config");
    assert_eq!(config.servers[0].settings, ServerSettings::Missing { secrets: vec!["A".into()] });
    assert_eq!(format!("{secrets:?}"), "Secrets { code: [], callback: true, environment: [], files: [] }");
}

#[test]
fn many_missing_secrets_are_collected_in_linear_time() {
    let start = Instant::now();
    let args: String = (0..100_000).map(|number| format!("'${{N{number}}}', ")).collect();
    let config = parse_with(&format!("servers: [{{alias: a, command: x, args: [{args}]}}]"), &Secrets::none());
    let config = config.expect("a config");
    let ServerSettings::Missing { secrets } = &config.servers[0].settings else { panic!("nothing is missing") };
    assert_eq!((secrets.len(), secrets[99_999].as_str()), (100_000, "N99999"));
    let env: Vec<String> = (0..100_000).map(|number| format!(r#""V{number}": "y""#)).collect();
    let text = format!(r#"{{"mcpServers": {{"a": {{"command": "x", "env": {{{}}}}}}}}}"#, env.join(", "));
    let config = Config::parse(&text, Path::new("nowhere/mcp.json"), &Secrets::none()).expect("a config");
    let Transport::Stdio(server) = &known(&config.servers[0]).transport else { panic!("no program") };
    assert_eq!((server.env.len(), server.env[99_999].0.as_str()), (100_000, "V99999"));
    assert!(start.elapsed() < Duration::from_secs(60), "{:?}", start.elapsed());
}
