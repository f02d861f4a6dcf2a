//! OAuth and token commands of servers.

use std::path::Path;
use std::time::Duration;

use super::{known, parse};
use crate::raw::RawServer;
use crate::{
    ClientAuthMethod, Config, HttpServer, IdentityProvider, JwtAlgorithm, OAuthGrant, OAuthSettings, PrivateKey,
    ServerAuth, TokenCommand, TokenSource, Transport, edit, review,
};

fn with_auth(auth: &str) -> String {
    format!("servers:\n- alias: a\n  url: https://a.example/mcp\n  auth: {auth}\n")
}

fn http(config: &Config) -> HttpServer {
    match &known(&config.servers[0]).transport {
        Transport::Http(server) => server.clone(),
        other => panic!("{other:?}"),
    }
}

fn auth(text: &str) -> ServerAuth {
    http(&parse(&with_auth(text)).unwrap()).auth.expect("settings")
}

#[test]
fn oauth_is_a_word_or_a_map() {
    assert_eq!(auth("oauth"), ServerAuth::oauth());
    assert_eq!(auth("{oauth: {}}"), ServerAuth::oauth());
    let text = "{oauth: {client_id: me, client_secret: s3cret-s3cret, token_endpoint_auth: client_secret_post, \
                scopes: [a, 'b:c'], issuer: 'https://i.example', redirect_port: 8123, dpop: true, \
                client_metadata_url: 'https://c.example/client.json', allow_private: [auth.internal], account: work, \
                per_principal: true, \
                private_key: {pem: PEM-PEM, algorithm: ES256, key_id: k1}}}";
    let expected = OAuthSettings::new()
        .with_client_id("me")
        .with_client_secret("s3cret-s3cret")
        .with_token_endpoint_auth(ClientAuthMethod::ClientSecretPost)
        .with_scopes(["a", "b:c"])
        .with_issuer("https://i.example")
        .with_redirect_port(8123)
        .with_dpop(true)
        .with_client_metadata_url("https://c.example/client.json")
        .with_allow_private(["auth.internal"])
        .with_account("work")
        .with_per_principal(true)
        .with_private_key(PrivateKey::new("PEM-PEM").with_algorithm(JwtAlgorithm::Es256).with_key_id("k1"));
    assert_eq!(auth(text), expected.into());
    let config = parse(&with_auth(text)).unwrap();
    assert_eq!(known(&config.servers[0]).secrets().redact("s3cret-s3cret PEM-PEM me"), "*** *** me");
}

#[test]
fn grants_without_a_person_are_read() {
    let text = "{oauth: {grant: client_credentials, client_id: ci, client_secret: s3cret}}";
    let expected = OAuthSettings::new().with_client_id("ci").with_client_secret("s3cret");
    assert_eq!(auth(text), expected.with_grant(OAuthGrant::ClientCredentials).into());
    let text = "{oauth: {grant: workload_identity, assertion: {file: token}}}";
    let assertion = TokenSource::File("nowhere/token".into());
    assert_eq!(auth(text), OAuthSettings::new().with_grant(OAuthGrant::WorkloadIdentity { assertion }).into());
    let text = "{oauth: {grant: enterprise_managed, identity_provider: {issuer: 'https://idp.example', client_id: c, \
                id_token: {command: [idp, token], timeout: 5s}}}}";
    let command = TokenCommand::new("idp", ["token"]).with_timeout(Duration::from_secs(5));
    let idp = IdentityProvider::new("https://idp.example", TokenSource::Command(command)).with_client_id("c");
    assert_eq!(auth(text), OAuthSettings::new().with_grant(OAuthGrant::EnterpriseManaged(idp)).into());
}

#[test]
fn a_token_command_is_a_list_with_optional_settings() {
    assert_eq!(auth("{command: [vault, read, 7]}"), TokenCommand::new("vault", ["read", "7"]).into());
    let expected = TokenCommand::new("vault", ["x"]).with_env("A", "b").with_cwd("nowhere/bin");
    let text = "{command: [vault, x], env: {A: b}, cwd: bin, timeout: 2m}";
    assert_eq!(auth(text), expected.with_timeout(Duration::from_secs(120)).into());
}

#[test]
fn invalid_settings_are_reported_at_their_place() {
    for (text, expected) in [
        ("s3cret", "4:9: servers[0].auth: expected `oauth`, or a map with one of"),
        ("{oauth: {}, bearer: x}", "4:9: servers[0].auth: expected `oauth`, or a map"),
        ("{oauth: {}, command: [x]}", "4:9: servers[0].auth: expected either `oauth` or `command`, not both"),
        ("{env: {A: b}}", "4:9: servers[0].auth: expected a `command` for `env`, `cwd` and `timeout`"),
        ("{oauth: {}, timeout: 3s}", "4:9: servers[0].auth: expected a `command` for"),
        ("{command: []}", "servers[0].auth.command: command is empty"),
        ("{command: ['${X}']}", "servers[0].auth.command[0]: expected a program without `${…}` references"),
        ("{command: [x], timeout: 0s}", "servers[0].auth.timeout: expected a duration of more than zero"),
        ("{command: [x], env: {'A=': b}}", "invalid variable name"),
        ("{oauth: {clientid: x}}", "servers[0].auth.oauth: unknown key (did you mean `client_id`?)"),
        (
            "{oauth: {issuer: 'http://i.example'}}",
            "servers[0].auth.oauth.issuer: expected a URL that starts with `https://`",
        ),
        ("{oauth: {scopes: ['a b']}}", "servers[0].auth.oauth.scopes[0]: expected a scope without spaces"),
        ("{oauth: {redirect_port: 0}}", "servers[0].auth.oauth.redirect_port: expected a port from 1 to 65535"),
        ("{oauth: {redirect_port: 70000}}", "servers[0].auth.oauth.redirect_port"),
        ("{oauth: {grant: client_credentials, client_id: x}}", "missing key `client_secret` or `private_key`"),
        ("{oauth: {grant: client_credentials, client_secret: s3cret}}", "missing key `client_id`, required by"),
        ("{oauth: {grant: workload_identity}}", "missing key `assertion`, required by `grant: workload_identity`"),
        ("{oauth: {account: ' '}}", "servers[0].auth.oauth.account: account is empty"),
        (
            "{oauth: {grant: client_credentials, client_id: x, client_secret: s3cret, account: y}}",
            "`account` has no effect without `grant: authorization_code`",
        ),
        ("{oauth: {assertion: s3cret}}", "`assertion` has no effect without `grant: workload_identity`"),
        (
            "{oauth: {grant: workload_identity, assertion: {file: x, command: [y]}}}",
            "auth.oauth.assertion: expected a token",
        ),
        ("{oauth: {grant: enterprise_managed, identity_provider: {id_token: s3cret}}}", "expected either `issuer` or"),
        ("{oauth: {private_key: {key_id: x}}}", "servers[0].auth.oauth.private_key: missing key `pem`"),
        (
            "{oauth: {private_key: {pem: s3cret, algorithm: HS256}}}",
            "private_key.algorithm: expected a signature algorithm",
        ),
        ("oauth\n  headers: {Authorization: s3cret}", "`auth` conflicts with the header `Authorization`"),
    ] {
        let error = parse(&with_auth(text)).expect_err(text).to_string();
        assert!(error.contains(expected), "{text}\n{error}");
        assert!(!error.contains("s3cret"), "{error}");
    }
}

#[test]
fn a_review_lists_token_commands_as_programs_that_run() {
    let text = with_auth(
        "{command: [vault, read, --token, literal-s3cret, '${VAULT}'], env: {PATH: '${P}', A_KEY: literal-s3cret}, cwd: bin}",
    );
    let shown = review(&text, Path::new("nowhere/ropeway.yaml")).expect("a review");
    let [command] = &shown.servers[0].token_commands[..] else { panic!("{shown:?}") };
    assert_eq!(
        (&command.command[..3], command.cwd.as_deref()),
        (&["vault", "read", "--token"].map(String::from)[..], Some("bin"))
    );
    assert_eq!(command.command[4], "${VAULT}");
    assert_eq!(shown.variables, ["P", "VAULT"]);
    // The command receives them, not the server.
    assert!(shown.servers[0].receives.is_empty(), "{shown:?}");
    assert!(shown.servers[0].settings.iter().any(|(key, text)| key == "warning" && text.contains("PATH")), "{shown:?}");
    assert!(!format!("{shown:?}").contains("literal-s3cret"), "{shown:?}");
}

#[test]
fn a_review_lists_oauth_settings_without_secrets() {
    let text = with_auth(
        "{oauth: {grant: workload_identity, client_id: '${ID}', client_secret: literal-s3cret, issuer: 'https://i.example', \
         assertion: {command: [idp, '${SECRET}']}}}",
    );
    let shown = review(&text, Path::new("nowhere/ropeway.yaml")).expect("a review");
    let server = &shown.servers[0];
    let (_, settings) = server.settings.iter().find(|(key, _)| key == "auth").expect("settings");
    assert!(settings.contains("https://i.example") && settings.contains("${ID}"), "{settings}");
    assert_eq!(server.token_commands[0].command, ["idp", "${SECRET}"]);
    assert_eq!(server.receives.iter().map(ToString::to_string).collect::<Vec<_>>(), ["$ID"]);
    assert_eq!(shown.variables, ["ID", "SECRET"]);
    assert!(!format!("{shown:?}").contains("literal-s3cret"), "{shown:?}");
    let shown = review(&with_auth("oauth"), Path::new("nowhere/ropeway.yaml")).expect("a review");
    assert_eq!(shown.servers[0].settings, [("auth".to_owned(), "oauth".to_owned())]);
    let text = with_auth("{oauth: {grant: workload_identity, assertion: {file: /run/token}}}");
    assert_eq!(review(&text, Path::new("nowhere/ropeway.yaml")).expect("a review").files, ["/run/token"]);
}

#[test]
fn a_review_does_not_hide_a_secret_that_a_command_gets_as_well() {
    let text = with_auth(
        "{oauth: {grant: workload_identity, client_id: x, client_secret: '${SECRET}', \
         assertion: {command: ['true', '${SECRET}', '${OTHER}'], env: {A: '${SECRET}'}}}}",
    );
    let shown = review(&text, Path::new("nowhere/ropeway.yaml")).expect("a review");
    assert_eq!(shown.servers[0].receives.iter().map(ToString::to_string).collect::<Vec<_>>(), ["$SECRET"]);
}

#[test]
fn every_form_survives_writing_and_reading() {
    for text in [
        "oauth",
        "{oauth: {client_id: x, scopes: [a]}}",
        "{oauth: {grant: workload_identity, assertion: '${TOKEN}'}}",
        "{oauth: {grant: workload_identity, assertion: {file: token}}}",
        "{oauth: {grant: enterprise_managed, identity_provider: {token_endpoint: 'https://i.example/t', id_token: {command: [x]}}}}",
        "{command: [vault, read], env: {A: b}, timeout: 5s}",
    ] {
        let servers = edit::servers_of(&with_auth(text)).expect("servers");
        let json = serde_json::to_value(&servers).expect("JSON");
        assert_eq!(serde_json::from_value::<Vec<RawServer>>(json.clone()).expect("servers"), servers, "{json}");
        let written = edit::add("", &servers[0]).expect("a file");
        assert_eq!(edit::servers_of(&written).expect("servers"), servers, "{written}");
    }
}

#[test]
fn other_clients_and_manifests_keep_it() {
    let text = r#"{"mcpServers": {"a": {"url": "https://a.example/mcp", "auth": "oauth"},
        "b": {"url": "https://b.example/mcp", "auth": {"oauth": {"client_id": "x"}}}}}"#;
    let config = Config::parse(text, Path::new("nowhere/.mcp.json"), &crate::Secrets::none()).unwrap();
    assert_eq!(http(&config).auth, Some(ServerAuth::oauth()));
    let text =
        "config:\n  servers:\n  - {alias: a, connection: {url: 'https://a.example/mcp', auth: {command: [x]}}}\n";
    assert_eq!(http(&parse(text).unwrap()).auth, Some(TokenCommand::new("x", [""; 0]).into()));
}
