//! `ropeway key`: keys of gateway clients, from their making to their revocation.

use std::os::unix::fs::PermissionsExt as _;

use serde_json::{Value, json};

use crate::serve::{MODERN, Serving, entry, text_of};
use crate::temp_home::TempHome;

/// Creates a place whose gateway needs keys.
fn keyed(servers: &[Value], gateway: Value) -> TempHome {
    let temp_home = TempHome::new();
    let mut gateway = gateway;
    gateway["auth"] = json!({"keys_file": "keys.json"});
    temp_home.write("ropeway.yaml", &json!({"gateway": gateway, "servers": servers}).to_string());
    temp_home
}

/// Makes a key.
fn new_key(temp_home: &TempHome, more: &str) -> String {
    temp_home.run(&format!("key new {more}")).expect(0).stdout.trim().to_owned()
}

fn status(response: &str) -> u16 {
    response.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or_else(|| panic!("{response}"))
}

/// Calls the calculator with a key.
fn calculate(serving: &Serving, key: Option<&str>) -> String {
    let bearer = key.map(|key| format!("Bearer {key}"));
    let mut headers = vec![("MCP-Protocol-Version", MODERN), ("Mcp-Method", "tools/call"), ("Mcp-Name", "calculate")];
    headers.extend(bearer.as_deref().map(|bearer| ("Authorization", bearer)));
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": MODERN, "io.modelcontextprotocol/clientCapabilities": {},
    });
    let params = json!({"name": "calculate", "arguments": {"expression": "6*7"}, "_meta": meta});
    text_of(serving.send(&headers, &json!({"jsonrpc": "2.0", "id": 9, "method": "tools/call", "params": params})))
}

#[test]
fn a_key_is_made_used_limited_and_revoked() {
    let temp_home = keyed(&[entry("demo")], json!({}));
    let alice = new_key(&temp_home, "alice --expires 30d");
    let ci = new_key(&temp_home, "ci --rate 2/h --tools calculate");
    let serving = Serving::in_place(&temp_home, &[]);
    assert_eq!(status(&calculate(&serving, None)), 401);
    assert_eq!(status(&calculate(&serving, Some("rw_00000000_x"))), 401);
    let answer = calculate(&serving, Some(&alice));
    assert!(status(&answer) == 200 && answer.contains("42"), "{answer}");
    for _ in 0..2 {
        assert_eq!(status(&calculate(&serving, Some(&ci))), 200);
    }
    let limited = calculate(&serving, Some(&ci));
    assert!(status(&limited) == 429 && limited.to_lowercase().contains("\r\nretry-after: "), "{limited}");
    assert!(limited.contains("\"id\":9") && limited.contains("retryAfterMs"), "{limited}");
    // A key that is made while the gateway runs works at once, and a revoked one does not.
    let bob = new_key(&temp_home, "bob");
    assert_eq!(status(&calculate(&serving, Some(&bob))), 200);
    temp_home.run("key revoke alice").expect(0);
    assert_eq!(status(&calculate(&serving, Some(&alice))), 401);
    assert_eq!(status(&calculate(&serving, Some(&bob))), 200);
    let run = serving.end().expect(0);
    for key in [&alice, &ci, &bob] {
        assert!(!run.stderr.contains(key.as_str()), "a key is never logged: {}", run.stderr);
    }
}

#[test]
fn a_key_is_printed_once_and_stored_as_a_digest() {
    let temp_home = keyed(&[], json!({}));
    let run = temp_home.run("key new alice").expect(0);
    let key = run.stdout.trim();
    assert!(key.starts_with("rw_") && key.len() == 55 && run.stdout.lines().count() == 1, "{}", run.stdout);
    assert!(run.stderr.contains("added key `alice` (id ") && !run.stderr.contains(key), "{}", run.stderr);
    let file = temp_home.path().join("keys.json");
    assert_eq!(std::fs::metadata(&file).expect("a file").permissions().mode() & 0o777, 0o600);
    assert!(!std::fs::read_to_string(&file).expect("a file").contains(&key[12..]));
    for command in ["key list", "key list --json", "key revoke alice --json"] {
        let run = temp_home.run(command).expect(0);
        assert!(run.stdout.contains("alice") && !run.stdout.contains(&key[12..]), "{}", run.stdout);
    }
    assert_eq!(temp_home.run("key list").expect(0).stdout, "no keys\n");
}

#[test]
fn a_key_is_described_as_json() {
    let temp_home = keyed(&[entry("demo")], json!({"profiles": {"coding": {}}}));
    let made = temp_home
        .run("key new ci --expires 1h --profile coding --tools a --tools b.* --rate 5/s --calls 3 --json")
        .expect(0)
        .json();
    assert!(made["key"].as_str().is_some_and(|key| key.starts_with("rw_")), "{made}");
    let listed = temp_home.run("key list --json").expect(0).json();
    let key = &listed["keys"][0];
    assert_eq!(
        (&key["name"], &key["profiles"], &key["tools"]),
        (&json!("ci"), &json!(["coding"]), &json!(["a", "b.*"]))
    );
    assert_eq!((&key["limits"], &key["expired"]), (&json!({"rate": "5/s", "calls": 3}), &json!(false)));
    assert_eq!(key["id"], made["id"]);
    let revoked = temp_home.run(&format!("key revoke {} --json", made["id"].as_str().expect("an id"))).expect(0).json();
    assert_eq!(revoked["revoked"][0]["name"], "ci");
}

#[test]
fn a_key_becomes_an_operator_and_an_ordinary_client_again() {
    let temp_home = keyed(&[entry("demo")], json!({}));
    let alice = new_key(&temp_home, "alice");
    let ops = new_key(&temp_home, "ops --operator");
    let serving = Serving::in_place(&temp_home, &[]);
    let top = |key: &str| {
        let top = temp_home.ropeway(&["top", &serving.url, "--once", "--json"]);
        top.with(|command| {
            command.env("ROPEWAY_KEY", key);
        })
        .run()
    };
    top(&ops).expect(0);
    let wrong = top("wrong").expect(4);
    assert!(wrong.stderr.contains("rejects the key"), "{}", wrong.stderr);
    let events = |key: &str| {
        let events = temp_home.ropeway(&["events", &serving.url, "--timeout", "2s"]);
        events
            .with(|command| {
                command.env("ROPEWAY_KEY", key);
            })
            .run()
    };
    assert_eq!(events(&ops).expect(0).stderr, "following the events of the running gateway\n");
    assert!(events(&alice).expect(4).stderr.contains("need the key of an operator"));
    let refused = top(&alice).expect(4);
    assert!(refused.stderr.contains("`ropeway key new NAME --operator`"), "{}", refused.stderr);
    let changed = temp_home.run("key set alice --operator").expect(0);
    assert!(changed.stdout.starts_with("key `alice` (id ") && changed.stdout.ends_with(") is an operator\n"));
    top(&alice).expect(0);
    let listed = temp_home.run("key list --json").expect(0).json();
    assert_eq!((&listed["keys"][0]["operator"], &listed["keys"][1]["operator"]), (&json!(true), &json!(true)));
    assert!(temp_home.run("key list").expect(0).stdout.contains("operator"));
    let changed = temp_home.run("key set alice --no-operator --json").expect(0).json();
    assert_eq!(changed["changed"][0]["operator"], false);
    top(&alice).expect(4);
    assert!(temp_home.run("key set alise --operator").expect(2).stderr.contains("did you mean `alice`?"));
    temp_home.run("key set alice").expect(2);
    temp_home.run("key set alice --operator --no-operator").expect(2);
    serving.end().expect(0);
}

#[test]
fn mistakes_are_explained() {
    let temp_home = keyed(&[entry("demo")], json!({"profiles": {"coding": {}}}));
    let fails = |command: &str, words: &str| {
        let run = temp_home.run(command).expect(2);
        assert!(run.stderr.contains(words), "{command}: {}", run.stderr);
    };
    fails("key list", "try `ropeway key new NAME --file ");
    fails("serve --listen 127.0.0.1:0", "try `ropeway key new NAME --file ");
    new_key(&temp_home, "alice");
    fails("key new alice", "a key named `alice` already exists");
    fails("key new 'a b'", "is not a name of up to 64 letters");
    fails("key new bob --tools '{'", "glob of key `bob`");
    fails("key new bob --profile codin", "unknown profile or server `codin`");
    fails("key new bob --rate 10", "expected a rate such as `10/s`");
    fails("key new bob --expires soon", "expected a duration greater than zero");
    fails("key revoke alise", "did you mean `alice`?");
    let file = temp_home.path().join("keys.json");
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o666)).expect("a mode");
    fails("key list", "try `chmod 600 ");
    fails("serve --listen 127.0.0.1:0", "other users can change `");
    std::fs::write(&file, "{").expect("a file");
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).expect("a mode");
    fails("serve --listen 127.0.0.1:0", "is not a valid key file");
    let plain = TempHome::with(&[entry("demo")]);
    let run = plain.run("key new alice").expect(2);
    assert!(run.stderr.contains("`gateway.auth.keys_file` is not set"), "{}", run.stderr);
    plain.run("key new alice --file keys.json").expect(0);
}

#[test]
fn other_machines_may_be_served_with_keys() {
    let temp_home = keyed(&[entry("demo")], json!({}));
    let key = new_key(&temp_home, "alice");
    let serving = Serving::start(temp_home.ropeway(&["serve", "--listen", "0.0.0.0:0", "--json"]));
    assert!(serving.url.starts_with("http://0.0.0.0:"), "{}", serving.url);
    let port = serving.address().rsplit(':').next().expect("a port").to_owned();
    let local = Serving { url: format!("http://127.0.0.1:{port}/mcp"), ..serving };
    assert_eq!(status(&calculate(&local, None)), 401);
    assert_eq!(status(&calculate(&local, Some(&key))), 200);
    local.end().expect(0);
}

#[test]
fn rights_and_rates_of_the_configuration_are_reloaded() {
    let temp_home = keyed(&[entry("demo")], json!({}));
    let key = new_key(&temp_home, "alice");
    let serving = Serving::in_place(&temp_home, &[]);
    assert_eq!(status(&calculate(&serving, Some(&key))), 200);
    let gateway = json!({"auth": {"keys_file": "keys.json"}, "limits": {"rate": "1/h"}});
    temp_home.write("ropeway.yaml", &json!({"gateway": gateway, "servers": [entry("demo")]}).to_string());
    let until = std::time::Instant::now() + crate::serve::PATIENCE;
    while status(&calculate(&serving, Some(&key))) != 429 {
        assert!(std::time::Instant::now() < until, "the rate was not applied");
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
    // Without authentication, the gateway needs a restart.
    temp_home.write("ropeway.yaml", &json!({"servers": [entry("demo")]}).to_string());
    std::thread::sleep(std::time::Duration::from_secs(2));
    assert_eq!(status(&calculate(&serving, None)), 401);
    let run = serving.end().expect(0);
    assert!(run.stderr.contains("`gateway.auth` changed; restart the gateway to apply it"), "{}", run.stderr);
}
