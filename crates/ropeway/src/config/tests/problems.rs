//! What a broken file is told.

use std::path::Path;

use super::{parse, problems};
use crate::config::{Config, Secrets, ServerEntry};

/// One server with these lines.
fn server(lines: &str) -> String {
    format!("servers:\n  - alias: a\n    {}\n", lines.replace('\n', "\n    "))
}

#[test]
fn a_file_that_is_both_ours_and_another_clients_is_refused() {
    for (foreign, key) in [
        ("mcpServers: {x: {command: y}}", "`mcpServers`, which is another client's"),
        ("services: {mcp: []}", "`services.mcp`"),
    ] {
        assert_eq!(
            problems(&format!("{foreign}\nservers:\n  - {{alias: a, command: x}}\n")),
            [format!("ropeway.yaml:3:3: servers: found both `servers` and {key}, expected the servers in one of them")]
        );
    }
}

#[test]
fn an_unknown_key_does_not_hide_the_other_mistakes_of_its_server() {
    assert_eq!(
        problems(&server(
            "comand: x\nurl: 'ftp://h'\nstart: lasy\ntimeouts: {connect: soon, ilde: 5s}\nargs: [[], []]\nqqq: 1"
        )),
        [
            "ropeway.yaml:3:5: servers[0]: found the unknown key `comand` (did you mean `command`?)",
            "ropeway.yaml:4:10: servers[0].url: found `ftp://h`, expected a URL that starts with `http://` or `https://`",
            "ropeway.yaml:5:12: servers[0].start: found `lasy`, expected one of `eager`, `lazy` (did you mean `lazy`?)",
            "ropeway.yaml:6:25: servers[0].timeouts.connect: found `soon`, expected a length of time such as `30s`, `500ms` or `2m`, or a number of seconds",
            "ropeway.yaml:6:31: servers[0].timeouts: found the unknown key `ilde` (did you mean `idle`?)",
            "ropeway.yaml:7:12: servers[0].args[0]: found a list, expected a text",
            "ropeway.yaml:8:5: servers[0]: found the unknown key `qqq`, expected one of `alias`, `transport`, `command`, `args`, `env`, `env_file`, `inherit_env`, `cwd`, `url`, `headers`, `auth`, `tools`, `tool_allowlist`, `prefix`, `description_prefix`, `enabled`, `required`, `start`, `timeouts`, `limits`, `reconnect`, `resources`, `prompts`, `instructions`, `trust_hints`, `era`",
        ]
    );
    assert_eq!(
        problems("servers:\n  - {aliass: a, comand: x}\n"),
        [
            "ropeway.yaml:2:6: servers[0]: found the unknown key `aliass` (did you mean `alias`?)",
            "ropeway.yaml:2:17: servers[0]: found the unknown key `comand` (did you mean `command`?)",
        ]
    );
}

#[test]
fn every_mistake_is_told_with_its_place_and_the_nearest_right_word() {
    let cases = [
        ("servers:\n  - command: x\n", "ropeway.yaml:2:5: servers[0]: found no `alias`, expected one"),
        (
            "servers:\n  - {alias: a, command: x}\n  - {alias: a, command: y}\n",
            "ropeway.yaml:3:13: servers[1].alias: found the alias `a` a second time, expected one of its own; 2:13 has it already",
        ),
        (
            &server("command: x\ntransport: stdoi"),
            "ropeway.yaml:4:16: servers[0].transport: found `stdoi`, expected one of `stdio`, `sse`, `streamable-http` (did you mean `stdio`?)",
        ),
        (
            &server("transport: stdio"),
            "ropeway.yaml:2:5: servers[0]: found no `command`, expected the program that speaks `stdio`",
        ),
        (
            &server("transport: sse"),
            "ropeway.yaml:2:5: servers[0]: found no `url`, expected where the server listens, for `sse`",
        ),
        (
            &server("enabled: true"),
            "ropeway.yaml:2:5: servers[0]: found neither `command` nor `url`, expected one of them",
        ),
        (
            &server("command: x\nurl: http://y"),
            "ropeway.yaml:4:10: servers[0].url: found both `command` and `url`, expected one of them",
        ),
        (
            &server("url: wss://y/z"),
            "ropeway.yaml:3:10: servers[0].url: found `wss://y/z`, expected a URL that starts with `http://` or `https://` (did you mean `https://y/z`?)",
        ),
        (
            &server("url: example.com/mcp"),
            "ropeway.yaml:3:10: servers[0].url: found `example.com/mcp`, expected a URL that starts with `http://` or `https://` (did you mean `https://example.com/mcp`?)",
        ),
        (
            &server("url: localhost:80/mcp"),
            "ropeway.yaml:3:10: servers[0].url: found `localhost:80/mcp`, expected a URL that starts with `http://` or `https://` (did you mean `http://localhost:80/mcp`?)",
        ),
        (
            &server("commnd: x"),
            "ropeway.yaml:3:5: servers[0]: found the unknown key `commnd` (did you mean `command`?)",
        ),
        (
            &server("command: x\ntimeouts: {connect: soon}"),
            "ropeway.yaml:4:25: servers[0].timeouts.connect: found `soon`, expected a length of time such as `30s`, `500ms` or `2m`, or a number of seconds",
        ),
        (
            &server("command: x\nlimits: {message_bytes: lots}"),
            "ropeway.yaml:4:29: servers[0].limits.message_bytes: found `lots`, expected a number of bytes such as `64M` or `512K`",
        ),
        (
            &server("command: x\nlimits: {pages: -1}"),
            "ropeway.yaml:4:21: servers[0].limits.pages: found `-1`, expected a whole number",
        ),
        (
            &server("command: x\nrequired: yes"),
            "ropeway.yaml:4:15: servers[0].required: found `yes`, expected `true` or `false` (did you mean `true`?)",
        ),
        (
            &server("command: x\nreconnect: 5"),
            "ropeway.yaml:4:16: servers[0].reconnect: found `5`, expected `true`, `false` or a map",
        ),
        (
            &server("command: x\ntools: read"),
            "ropeway.yaml:4:12: servers[0].tools: found `read`, expected a list of globs or a map",
        ),
        (&server("command: x\nargs: -y"), "ropeway.yaml:4:11: servers[0].args: found a text, expected a list"),
        (&server("command: x\nargs: [[]]"), "ropeway.yaml:4:12: servers[0].args[0]: found a list, expected a text"),
        (&server("command: x\nenv: {A: }"), "ropeway.yaml:4:12: servers[0].env.A: found nothing, expected a text"),
        (
            &server("url: http://y\nauth: s3cr3t"),
            "ropeway.yaml:4:11: servers[0].auth: found a text, expected a map with one of `bearer`, `basic`, or `type: bearer` with `token`",
        ),
        (
            &server("url: http://y\nauth: {bearer: s3cr3t}\nheaders: {authorization: x}"),
            "ropeway.yaml:4:11: servers[0].auth: found both `auth` and a header `Authorization`, expected one of them",
        ),
        (
            &server("command: x\ntools: {allow: [a, '[b']}"),
            "ropeway.yaml:4:24: servers[0].tools.allow[1]: found `[b`, expected a glob (unclosed character class; missing ']')",
        ),
        (
            &server("command: x\nargs: ['${NAME']"),
            "ropeway.yaml:4:12: servers[0].args[0]: found `${` without a `}`, expected `${NAME}`, or `$$` for a dollar",
        ),
        (
            &server("command: x\nargs: ['${A B}']"),
            "ropeway.yaml:4:12: servers[0].args[0]: found `${A B}`, expected `${NAME}` or `${NAME:-default}`, or `$$` for a dollar (did you mean `${A_B}`?)",
        ),
        (
            &server("command: '${SHELL}'"),
            "ropeway.yaml:3:14: servers[0].command: found `${SHELL}`, expected a program without `${…}`: a command is run exactly as it is written",
        ),
        (
            "servers:\n  - {alias: 'my server', command: x}\n",
            "ropeway.yaml:2:13: servers[0].alias: found `my server`, expected letters, digits, `_`, `.` and `-`, at most 64 of them (did you mean `my-server`?)",
        ),
        (
            "enabled_servers: [githbu]\nservers:\n  - {alias: github, command: x}\n",
            "ropeway.yaml:1:19: enabled_servers[0]: found `githbu`, expected the alias of a server in this file (did you mean `github`?)",
        ),
        ("sevrers: []\n", "ropeway.yaml:1:1: found the unknown key `sevrers` (did you mean `servers`?)"),
        ("defaults: {prefix: x}\n", "ropeway.yaml:1:1: found no `servers`, expected a list of them"),
        (
            "defaults: {command: x}\nservers: []\n",
            "ropeway.yaml:1:12: defaults: found `command`, expected it at each server that needs it",
        ),
        (
            "defaults: {start: lasy}\nservers: []\n",
            "ropeway.yaml:1:19: defaults.start: found `lasy`, expected one of `eager`, `lazy` (did you mean `lazy`?)",
        ),
        (
            "collisions: last_wins\nservers: []\n",
            "ropeway.yaml:1:13: collisions: found `last_wins`, expected one of `error`, `last-wins`, `suffix` (did you mean `last-wins`?)",
        ),
        ("servers: 5\n", "ropeway.yaml:1:10: servers: found `5`, expected a list, each item with an `alias`"),
        ("servers:\n  - a\n", "ropeway.yaml:2:5: servers[0]: found `a`, expected a map"),
        (
            "- a\n",
            "ropeway.yaml:1:1: found a list, expected a map with one of `defaults`, `servers`, `enabled_servers`, `tool_allowlist`, `collisions`, `lock`, `secrets_file`, `chat`",
        ),
        (
            "servers: []\nservers: []\n",
            "ropeway.yaml:2:1: found the key `servers` a second time, expected it once; it is at 1:1 already",
        ),
        (
            "servers: []\n---\nservers: []\n",
            "ropeway.yaml:2:1: found a second document, expected one document in the file",
        ),
        (
            "servers: !secret x\n",
            "ropeway.yaml:1:10: found a tag, expected none: a text that begins with `!` needs quotes",
        ),
        (
            "secrets_file: nope.env\nservers: []\n",
            "ropeway.yaml:1:15: secrets_file: found `nope.env`, which could not be read: No such file or directory (os error 2), expected a file with lines of `NAME=value`",
        ),
        (
            &server("command: x\nenv_file: nope.env"),
            "ropeway.yaml:4:15: servers[0].env_file: found `nope.env`, which could not be read: No such file or directory (os error 2), expected a file with lines of `NAME=value`",
        ),
        (
            "secrets_file: /dev/zero\nservers: []\n",
            "ropeway.yaml:1:15: secrets_file: found `/dev/zero`, which could not be read: it is not a regular file, expected a file with lines of `NAME=value`",
        ),
        (
            &server("command: x\nenv_file: /dev/zero"),
            "ropeway.yaml:4:15: servers[0].env_file: found `/dev/zero`, which could not be read: it is not a regular file, expected a file with lines of `NAME=value`",
        ),
        (
            &server("command: x\nargs: ['${file:/dev/zero}']"),
            "ropeway.yaml:4:12: servers[0].args[0]: found `${file:/dev/zero}`, which could not be read: it is not a regular file, expected a file with a secret in it",
        ),
        ("", "ropeway.yaml: found nothing, expected a list of `servers`"),
        ("# only a comment\n", "ropeway.yaml: found nothing, expected a list of `servers`"),
    ];
    for (text, expected) in cases {
        assert_eq!(problems(text), [expected], "{text}");
    }
}

#[test]
fn no_mistake_puts_a_secret_into_an_error() {
    for lines in [
        "headers: 'Authorization: Bearer s3cret'",
        "headers: s3cret",
        "headers: {'Authorization: Bearer s3cret': x}",
        "headers: {Authorization Bearer s3cret: }",
        "url: http://h\nheaders: {'Authorization: Bearer s3cret': x}",
        "env: TOKEN=s3cret",
        "env: {DSN=s3cret: }",
        "env: {DSN=s3cret}",
        "command: x\nenv: {'DSN=s3cret': x}",
        "args: --token s3cret",
        "args: [{--token: s3cret, s3cret: 1}]",
        "auth: s3cret",
        "auth: {bearer: {s3cret: s3cret}}",
        "auth: {bearer s3cret: x}",
        "auth: {basic: s3cret}",
        "auth: {basic: {user: me, password: !s3cret}}",
        "tools: {preset: {search: s3cret}}",
        "tools: 'TOKEN=s3cret'",
        "url: [http://me:s3cret@h]",
        "url: wss://me:s3cret@h/mcp",
        "url: wss://me:un/der#s3cret@h/mcp",
        "url: http:/me:s3cret@h/mcp",
        "url: http:///me:s3cret@h/mcp",
        "url: me:s3cret@h/mcp",
        "url: h/mcp?s=s3cret",
        "url: 'h/mcp#s3cret'",
        "url: http://h\nauth: {bearer: '${TOKEN=s3cret}'}",
        "url: http://h\nauth: {bearer: '${TOKEN: s3cret}'}",
        "command: 'x --token s3cret ${A}'",
        "transport: wss://me:s3cret@h",
        "API_TOKEN=s3cret: x",
    ] {
        let problems = problems(&server(lines));
        assert!(!problems.is_empty() && !problems.concat().contains("s3cret"), "{lines}: {problems:?}");
    }
    for text in
        ["TOKEN=s3cret\nOTHER=s3cret\n", "servers: http://me:s3cret@h\n", "secrets_file: TOKEN=s3cret\nservers: []\n"]
    {
        let problems = problems(text);
        assert!(!problems.concat().contains("s3cret"), "{text}: {problems:?}");
    }
}

#[test]
fn a_url_that_is_none_is_shown_without_what_it_tells_of_somebody() {
    let expected = "ropeway.yaml:3:10: servers[0].url: found `wss://***@h/mcp?***`, expected a URL that starts with `http://` or `https://` (did you mean `https://***@h/mcp?***`?)";
    assert_eq!(problems(&server("url: wss://me:s3cret@h/mcp?token=s3cret")), [expected]);
}

#[test]
fn a_file_with_secrets_that_is_written_in_another_way_is_told_without_them() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ropeway.yaml");
    std::fs::write(&path, "secrets_file: secrets.yaml\nservers:\n  - {alias: a, command: x, env_file: secrets.yaml}\n")
        .unwrap();
    for (text, found) in [
        ("TOKEN=s3cret\nDSN=s3cret\n", "line 1: found a text, expected a map"),
        ("- s3cret\n", "line 1: found a list, expected a map"),
        ("TOKEN: [s3cret]\n", "line 1: TOKEN: found a list, expected a text"),
        ("{DSN=s3cret}\n", "line 1: DSN***: found nothing, expected a text"),
    ] {
        std::fs::write(folder.path().join("secrets.yaml"), text).unwrap();
        let error = Config::load(&path, &Secrets::none()).unwrap_err();
        let found = format!("`secrets.yaml`, which could not be read: {found}");
        let expected = [found.clone(), found];
        assert_eq!(error.problems.iter().map(|problem| problem.found.clone()).collect::<Vec<_>>(), expected, "{text}");
    }
}

#[test]
fn a_file_that_is_not_yaml_is_told_where() {
    for (text, place) in [
        ("servers: [\n", "ropeway.yaml:2:1: "),
        ("servers:\n\t- a\n", "ropeway.yaml:2:"),
        ("%PDF-1.7\n", "ropeway.yaml:"),
    ] {
        let problems = problems(text);
        assert!(problems.len() == 1 && problems[0].starts_with(place), "{problems:?}");
        assert!(problems[0].contains("found text that is not YAML: "), "{problems:?}");
    }
}

#[test]
fn ten_megabytes_of_yaml_are_refused_before_they_are_read() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ropeway.yaml");
    std::fs::write(&path, "servers: []\n".repeat(10 << 20).split_at(10 << 20).0).unwrap();
    let error = Config::load(&path, &Secrets::none()).unwrap_err();
    assert_eq!(error.to_string(), format!("{}: found a file of 10.0 MiB, expected at most 4 MiB", path.display()));
}

#[test]
fn a_file_that_is_not_there_or_not_text_is_told() {
    let error = Config::load(Path::new("nowhere/ropeway.yaml"), &Secrets::none()).unwrap_err();
    assert_eq!(error.to_string(), "could not read `nowhere/ropeway.yaml`");
    assert!(std::error::Error::source(&error).is_some());

    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ropeway.yaml");
    std::fs::write(&path, b"servers:\n  - \xff").unwrap();
    let error = Config::load(&path, &Secrets::none()).unwrap_err();
    assert_eq!(error.to_string(), format!("{}:2:5: found bytes that are not UTF-8, expected text", path.display()));
}

#[test]
fn anchors_that_explode_are_refused_at_the_line_that_goes_too_far() {
    let mut text = String::from("a0: &a0 [lol, lol, lol, lol, lol, lol, lol, lol, lol]\n");
    for level in 1..20 {
        let alias = format!("*a{}", level - 1);
        text.push_str(&format!("a{level}: &a{level} [{}]\n", [alias.as_str(); 9].join(", ")));
    }
    let problems = problems(&text);
    assert_eq!(problems.len(), 1);
    assert!(problems[0].starts_with("ropeway.yaml:5:"), "{problems:?}");
    assert!(
        problems[0].ends_with("found anchors and aliases that make the file grow past 4 MiB, expected fewer of them")
    );
    assert_eq!(
        super::problems("servers: &a\n  - *a\n"),
        ["ropeway.yaml:2:5: found an alias within its own anchor, expected one that ends"]
    );
}

#[test]
fn deep_nesting_is_refused() {
    for (open, close) in [("[", "]"), ("{a: ", "}")] {
        let text = format!("servers: {}{}\n", open.repeat(10_000), close.repeat(10_000));
        let problems = problems(&text);
        assert!(problems[0].contains("more than 100 lists and maps within each other"), "{problems:?}");
    }
    let json = format!("{{\"servers\": {}{}}}", "[".repeat(10_000), "]".repeat(10_000));
    assert!(Config::parse(&json, Path::new("x.json"), &Secrets::none()).is_err());
    let toml = format!("servers = {}{}", "[".repeat(10_000), "]".repeat(10_000));
    assert!(Config::parse(&toml, Path::new("x.toml"), &Secrets::none()).is_err());
}

#[test]
fn of_two_hundred_servers_all_fifty_broken_ones_are_named_at_once() {
    let mut text = String::from("servers:\n");
    for index in 0..200 {
        let key = if index % 4 == 0 { "comand" } else { "command" };
        text.push_str(&format!("  - alias: s{index}\n    {key}: x\n"));
    }
    let problems = problems(&text);
    let places: Vec<&str> = problems.iter().filter_map(|problem| problem.split(": found").next()).collect();
    let expected: Vec<String> =
        (0..200).step_by(4).map(|index| format!("ropeway.yaml:{}:5: servers[{index}]", index * 2 + 3)).collect();
    assert_eq!(places, expected);
    assert!(parse(&text.replace("comand", "command")).is_ok());
}

/// This many servers, one a line.
fn many_servers(count: usize) -> String {
    (0..count).map(|number| format!("- {{alias: server-{number}, command: x, enabled: false}}\n")).collect()
}

#[test]
fn settings_of_all_servers_are_bounded_once_every_server_has_them() {
    let globs: Vec<String> = (0..20_000).map(|number| format!("g{number}")).collect();
    let globs = globs.join(", ");
    let servers = many_servers(1000);
    let found = "found settings that grow past 16 MiB with 1000 servers, expected fewer of them";
    for (text, path) in [
        (format!("tool_allowlist: [{globs}]\nservers:\n{servers}"), "1:17: tool_allowlist"),
        (format!("defaults: {{tools: {{deny: [{globs}]}}}}\nservers:\n{servers}"), "1:11: defaults"),
        (format!("defaults: {{description_prefix: {}}}\nservers:\n{servers}", "x".repeat(1 << 20)), "1:11: defaults"),
        (
            format!("config:\n tool_allowlist: [{globs}]\n servers:\n {}", servers.replace('\n', "\n ")),
            "2:18: config.tool_allowlist",
        ),
    ] {
        assert_eq!(problems(&text), [format!("ropeway.yaml:{path}: {found}")]);
    }
    let text = format!("tool_allowlist: [a, b]\ndefaults: {{tools: {{deny: [c, d]}}}}\nservers:\n{servers}");
    let config = parse(&text).expect("a valid file");
    assert_eq!(config.servers.len(), 1000);
    let is_complete = |entry: &ServerEntry| entry.tools.allowlists == [["a", "b"]] && entry.tools.deny == ["c", "d"];
    assert!(config.servers.iter().all(is_complete));
}

#[test]
fn globs_are_bounded_in_length_and_number() {
    let long = "x".repeat(3 << 20);
    assert_eq!(
        problems(&server(&format!("command: x\ntools: ['{long}']"))),
        [format!(
            "ropeway.yaml:4:13: servers[0].tools[0]: found `{}…`, expected a glob of at most 1024 bytes",
            &long[..60]
        )]
    );
    let globs: Vec<String> = (0..20_100).map(|number| format!("g{number}")).collect();
    let lists = format!("command: x\ntools: [{}]\ntool_allowlist: [more]", globs.join(", "));
    let problems = problems(&server(&lists));
    assert_eq!(problems.len(), 1);
    assert!(
        problems[0]
            .ends_with("servers[0].tools[20000]: found `g20000`, expected at most 20000 different globs in a file"),
        "{problems:?}"
    );
}

#[test]
fn servers_and_names_of_servers_are_bounded_in_number() {
    let json: Vec<String> = (0..50_000).map(|number| format!(r#""s{number}": {{"command": "x"}}"#)).collect();
    let refusal = |text: &str| {
        let error = Config::parse(text, Path::new("mcp.json"), &Secrets::none()).expect_err("too many servers");
        error.to_string()
    };
    assert_eq!(
        refusal(&format!(r#"{{"mcpServers": {{{}}}}}"#, json.join(", "))),
        "mcp.json:1:16: found 50000 servers, expected at most 10000"
    );
    let servers = json[..6000].join(", ");
    let projects = ["p", "q"].map(|name| format!(r#""{name}": {{"mcpServers": {{{servers}}}}}"#));
    assert!(
        refusal(&format!(r#"{{"projects": {{{}}}}}"#, projects.join(", ")))
            .ends_with(": found 12000 servers, expected at most 10000")
    );
    assert_eq!(
        problems(&format!("servers:\n{}", many_servers(10_001))),
        ["ropeway.yaml:2:3: found 10001 servers, expected at most 10000"]
    );
    assert_eq!(
        problems(&format!("servers: [{{alias: a, command: x}}]\nenabled_servers: [{}]\n", "a, ".repeat(10_001))),
        ["ropeway.yaml:2:18: enabled_servers: found 10001 names, expected at most 10000"]
    );
}

#[test]
fn thousands_of_servers_of_another_client_get_an_alias_each() {
    // Two letters that an alias cannot have, so that all become `--`.
    let name = |number: u32| [number / 100, number % 100].map(|at| char::from_u32(0x4e00 + at).unwrap_or_default());
    let servers: Vec<String> = (0..4000)
        .map(|number| format!(r#""{}": {{"command": "x{number}"}}"#, name(number).iter().collect::<String>()))
        .collect();
    let text = format!(r#"{{"mcpServers": {{{}}}}}"#, servers.join(", "));
    let config = Config::parse(&text, Path::new("mcp.json"), &Secrets::none()).expect("a valid file");
    let aliases: Vec<&str> = config.servers.iter().map(|entry| entry.alias.as_str()).collect();
    let expected: Vec<String> =
        (1..=4000).map(|number| if number == 1 { "--".to_owned() } else { format!("---{number}") }).collect();
    assert_eq!(aliases, expected);
}

#[test]
fn only_the_first_of_many_unknown_servers_get_a_suggestion() {
    let names: Vec<String> = (0..5000).map(|number| format!("servr-{number}")).collect();
    let lists = [format!("[{}]", names.join(", ")), format!("{{{}: []}}", names.join(": [], "))];
    for (key, list) in ["enabled_servers", "tool_allowlist"].iter().zip(lists) {
        let error = parse(&format!("{key}: {list}\nservers:\n{}", many_servers(1000))).expect_err("unknown servers");
        assert!(error.truncated);
        assert_eq!(error.problems.len(), 100);
        let (with, without) = error.problems.split_at(20);
        assert_eq!(with[0].suggestion.as_deref(), Some("server-0"));
        assert!(with.iter().all(|problem| problem.suggestion.is_some()));
        assert!(without.iter().all(|problem| problem.suggestion.is_none()));
        assert!(error.to_string().ends_with("\nnowhere/ropeway.yaml: stopped after 100 problems"));
    }
}

#[test]
fn no_more_than_a_hundred_problems_are_told() {
    let keys = |count: usize| (0..count).map(|number| format!("key{number}: 1\n")).collect::<String>();
    let server_with = |count: usize| server(&format!("command: x\n{}", keys(count)));
    let error = parse(&server_with(100)).expect_err("unknown keys");
    assert_eq!((error.problems.len(), error.truncated), (100, false));

    let text = format!("servers: [{{alias: a, command: x}}]\n{}", keys(9000));
    let references = "'${', ".repeat(200_000);
    let arguments = server(&format!("command: x\nargs: [{references}]"));
    let servers = format!("servers:\n{}", "- {alias: a b, command: x, oops: 1}\n".repeat(9000));
    for text in [server_with(9000), text, arguments, servers] {
        let error = parse(&text).expect_err("many problems");
        assert_eq!((error.problems.len(), error.truncated), (100, true), "{}", &text[..60]);
        assert!(error.to_string().len() < 100_000, "{}", &text[..60]);
    }
}

#[test]
fn a_large_server_is_not_read_once_for_each_of_its_problems() {
    let args = "a, ".repeat(1_000_000);
    let keys: String = (0..50).map(|number| format!("key{number}: 1\n")).collect();
    let problems = problems(&server(&format!("{keys}args: [{args}]")));
    assert!((1..5).contains(&problems.len()), "{problems:?}");
    assert!(problems[0].contains("found the unknown key `key0`"), "{problems:?}");
}

#[test]
fn a_long_key_is_cut_in_the_path_of_a_problem() {
    let name = "x".repeat(1 << 20);
    let keys: String = (0..50).map(|number| format!(r#", "key{number}": 1"#)).collect();
    let text = format!(r#"{{"config": {{"servers": {{"{name}": {{"command": "x"{keys}}}}}}}}}"#);
    let error = Config::parse(&text, Path::new("x.json"), &Secrets::none()).expect_err("unknown keys");
    assert!(error.problems.len() >= 50, "{}", error.problems.len());
    assert!(error.to_string().len() < 100_000, "{}", error.to_string().len());
    assert!(error.problems.iter().any(|problem| problem.path == format!("config.servers.{}…", &name[..100])));
}
