//! Problems of invalid files.

use std::path::Path;

use super::{parse, problems};
use crate::{Config, Secrets, ServerEntry};

/// Returns a file with one server and these lines.
fn server(lines: &str) -> String {
    format!("servers:\n  - alias: a\n    {}\n", lines.replace('\n', "\n    "))
}

#[test]
fn a_file_with_native_and_foreign_servers_is_an_error() {
    for (foreign, key) in
        [("mcpServers: {x: {command: y}}", "`mcpServers` of another client"), ("services: {mcp: []}", "`services.mcp`")]
    {
        assert_eq!(
            problems(&format!("{foreign}\nservers:\n  - {{alias: a, command: x}}\n")),
            [format!("ropeway.yaml:3:3: servers: `servers` conflicts with {key}; keep one of them")]
        );
    }
}

#[test]
fn an_unknown_key_does_not_hide_other_problems() {
    assert_eq!(
        problems(&server(
            "comand: x\nurl: 'ftp://h'\nstart: lasy\ntimeouts: {connect: soon, ilde: 5s}\nargs: [[], []]\nqqq: 1"
        )),
        [
            "ropeway.yaml:3:5: servers[0]: unknown key `comand` (did you mean `command`?)",
            "ropeway.yaml:4:10: servers[0].url: expected a URL that starts with `http://` or `https://`, found `ftp://h`",
            "ropeway.yaml:5:12: servers[0].start: expected one of `eager`, `lazy`, found `lasy` (did you mean `lazy`?)",
            "ropeway.yaml:6:25: servers[0].timeouts.connect: expected a duration such as `30s`, `500ms` or `2m`, or a number of seconds, found `soon`",
            "ropeway.yaml:6:31: servers[0].timeouts: unknown key `ilde` (did you mean `idle`?)",
            "ropeway.yaml:7:12: servers[0].args[0]: expected a string, found a list",
            "ropeway.yaml:8:5: servers[0]: unknown key `qqq`, expected one of `alias`, `transport`, `command`, `args`, `env`, `env_file`, `inherit_env`, `cwd`, `sandbox`, `url`, `headers`, `auth`, `tools`, `tool_allowlist`, `prefix`, `description_prefix`, `enabled`, `required`, `start`, `timeouts`, `limits`, `reconnect`, `resources`, `prompts`, `instructions`, `trust_hints`, `era`, `isolation`",
        ]
    );
    assert_eq!(
        problems("servers:\n  - {aliass: a, comand: x}\n"),
        [
            "ropeway.yaml:2:6: servers[0]: unknown key `aliass` (did you mean `alias`?)",
            "ropeway.yaml:2:17: servers[0]: unknown key `comand` (did you mean `command`?)",
        ]
    );
}

#[test]
fn problems_have_positions_and_suggestions() {
    let cases = [
        ("servers:\n  - command: x\n", "ropeway.yaml:2:5: servers[0]: missing key `alias`"),
        (
            "servers:\n  - {alias: a, command: x}\n  - {alias: a, command: y}\n",
            "ropeway.yaml:3:13: servers[1].alias: duplicate alias `a` (first used at 2:13)",
        ),
        (
            &server("command: x\ntransport: stdoi"),
            "ropeway.yaml:4:16: servers[0].transport: expected one of `stdio`, `sse`, `streamable-http`, found `stdoi` (did you mean `stdio`?)",
        ),
        (
            &server("transport: stdio"),
            "ropeway.yaml:2:5: servers[0]: missing key `command`, required by transport `stdio`",
        ),
        (&server("transport: sse"), "ropeway.yaml:2:5: servers[0]: missing key `url`, required by transport `sse`"),
        (&server("enabled: true"), "ropeway.yaml:2:5: servers[0]: missing key `command` or `url`"),
        (
            &server("command: x\nurl: http://y"),
            "ropeway.yaml:4:10: servers[0].url: `url` conflicts with `command`; keep one of them",
        ),
        (
            &server("url: wss://y/z"),
            "ropeway.yaml:3:10: servers[0].url: expected a URL that starts with `http://` or `https://`, found `wss://y/z` (did you mean `https://y/z`?)",
        ),
        (
            &server("url: example.com/mcp"),
            "ropeway.yaml:3:10: servers[0].url: expected a URL that starts with `http://` or `https://`, found `example.com/mcp` (did you mean `https://example.com/mcp`?)",
        ),
        (
            &server("url: localhost:80/mcp"),
            "ropeway.yaml:3:10: servers[0].url: expected a URL that starts with `http://` or `https://`, found `localhost:80/mcp` (did you mean `http://localhost:80/mcp`?)",
        ),
        (&server("commnd: x"), "ropeway.yaml:3:5: servers[0]: unknown key `commnd` (did you mean `command`?)"),
        (
            &server("command: x\ntimeouts: {connect: soon}"),
            "ropeway.yaml:4:25: servers[0].timeouts.connect: expected a duration such as `30s`, `500ms` or `2m`, or a number of seconds, found `soon`",
        ),
        (
            &server("command: x\nlimits: {message_bytes: lots}"),
            "ropeway.yaml:4:29: servers[0].limits.message_bytes: expected a number of bytes such as `64M` or `512K`, found `lots`",
        ),
        (
            &server("command: x\nlimits: {pages: -1}"),
            "ropeway.yaml:4:21: servers[0].limits.pages: expected a non-negative integer, found `-1`",
        ),
        (
            &server("command: x\nrequired: yes"),
            "ropeway.yaml:4:15: servers[0].required: expected `true` or `false`, found `yes` (did you mean `true`?)",
        ),
        (
            &server("command: x\nreconnect: 5"),
            "ropeway.yaml:4:16: servers[0].reconnect: expected `true`, `false` or a map, found `5`",
        ),
        (
            &server("command: x\ntools: read"),
            "ropeway.yaml:4:12: servers[0].tools: expected a list of globs or a map, found `read`",
        ),
        (&server("command: x\nargs: -y"), "ropeway.yaml:4:11: servers[0].args: expected a list, found a string"),
        (&server("command: x\nargs: [[]]"), "ropeway.yaml:4:12: servers[0].args[0]: expected a string, found a list"),
        (
            &server("command: x\nenv: {A: ~}"),
            "ropeway.yaml:4:14: servers[0].env.A: expected a string, found no value: `~` without quotes is null",
        ),
        (&server("command: x\nenv: {A: }"), "ropeway.yaml:4:12: servers[0].env.A: expected a string, found no value"),
        (
            &server("url: http://y\nauth: s3cr3t"),
            "ropeway.yaml:4:11: servers[0].auth: expected `oauth`, or a map with one of `bearer`, `basic`, `oauth`, `command`, or `type: bearer` with `token`, found a string",
        ),
        (
            &server("url: http://y\nauth: {bearer: s3cr3t}\nheaders: {authorization: x}"),
            "ropeway.yaml:4:11: servers[0].auth: `auth` conflicts with the header `Authorization`; keep one of them",
        ),
        (
            &server("command: x\ntools: {allow: [a, '[b']}"),
            "ropeway.yaml:4:24: servers[0].tools.allow[1]: expected a valid glob (unclosed character class; missing ']'), found `[b`",
        ),
        (
            &server("command: x\nargs: ['${NAME']"),
            "ropeway.yaml:4:12: servers[0].args[0]: missing `}` after `${` (write `$$` for a dollar sign)",
        ),
        (
            &server("command: x\nargs: ['${A B}']"),
            "ropeway.yaml:4:12: servers[0].args[0]: expected `${NAME}`, `${NAME:-default}`, or `$$` for a dollar sign, found `${A B}` (did you mean `${A_B}`?)",
        ),
        (
            &server("command: '${SHELL}'"),
            "ropeway.yaml:3:14: servers[0].command: expected a program without `${…}` references, found `${SHELL}`",
        ),
        (
            "servers:\n  - {alias: 'my server', command: x}\n",
            "ropeway.yaml:2:13: servers[0].alias: expected up to 64 letters, digits, `_`, `.` and `-`, found `my server` (did you mean `my-server`?)",
        ),
        (
            "enabled_servers: [githbu]\nservers:\n  - {alias: github, command: x}\n",
            "ropeway.yaml:1:19: enabled_servers[0]: unknown server `githbu` (did you mean `github`?)",
        ),
        ("sevrers: []\n", "ropeway.yaml:1:1: unknown key `sevrers` (did you mean `servers`?)"),
        ("defaults: {prefix: x}\n", "ropeway.yaml:1:1: missing key `servers`"),
        (
            "defaults: {command: x}\nservers: []\n",
            "ropeway.yaml:1:12: defaults: `command` is not allowed here; set it for each server",
        ),
        (
            "defaults: {start: lasy}\nservers: []\n",
            "ropeway.yaml:1:19: defaults.start: expected one of `eager`, `lazy`, found `lasy` (did you mean `lazy`?)",
        ),
        (
            "collisions: last_wins\nservers: []\n",
            "ropeway.yaml:1:13: collisions: expected one of `error`, `last-wins`, `suffix`, found `last_wins` (did you mean `last-wins`?)",
        ),
        ("servers: 5\n", "ropeway.yaml:1:10: servers: expected a list of maps, found `5`"),
        ("servers:\n  - a\n", "ropeway.yaml:2:5: servers[0]: expected a map, found `a`"),
        (
            "- a\n",
            "ropeway.yaml:1:1: expected a map with one of `defaults`, `servers`, `enabled_servers`, `tool_allowlist`, `collisions`, `lock`, `secrets_file`, `chat`, `gateway`, found a list",
        ),
        ("servers: []\nservers: []\n", "ropeway.yaml:2:1: duplicate key `servers` (first used at 1:1)"),
        ("servers: []\n---\nservers: []\n", "ropeway.yaml:2:1: file has more than one YAML document"),
        ("servers: !secret x\n", "ropeway.yaml:1:10: unknown YAML tag; quote a string that starts with `!`"),
        (
            "secrets_file: nope.env\nservers: []\n",
            "ropeway.yaml:1:15: secrets_file: could not read `nope.env`: No such file or directory (os error 2)",
        ),
        (
            &server("command: x\nenv_file: nope.env"),
            "ropeway.yaml:4:15: servers[0].env_file: could not read `nope.env`: No such file or directory (os error 2)",
        ),
        (
            "secrets_file: /dev/zero\nservers: []\n",
            "ropeway.yaml:1:15: secrets_file: could not read `/dev/zero`: not a regular file",
        ),
        (
            &server("command: x\nenv_file: /dev/zero"),
            "ropeway.yaml:4:15: servers[0].env_file: could not read `/dev/zero`: not a regular file",
        ),
        (
            &server("command: x\nargs: ['${file:/dev/zero}']"),
            "ropeway.yaml:4:12: servers[0].args[0]: could not read `${file:/dev/zero}`: not a regular file",
        ),
        ("", "ropeway.yaml: file is empty, expected a list of `servers`"),
        ("# only a comment\n", "ropeway.yaml: file is empty, expected a list of `servers`"),
    ];
    for (text, expected) in cases {
        assert_eq!(problems(text), [expected], "{text}");
    }
}

#[test]
fn problems_do_not_contain_secrets() {
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
fn an_invalid_url_is_shown_without_credentials_and_query() {
    let expected = "ropeway.yaml:3:10: servers[0].url: expected a URL that starts with `http://` or `https://`, found `wss://***@h/mcp?***` (did you mean `https://***@h/mcp?***`?)";
    assert_eq!(problems(&server("url: wss://me:s3cret@h/mcp?token=s3cret")), [expected]);
}

#[test]
fn problems_of_a_secrets_file_do_not_contain_its_values() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ropeway.yaml");
    std::fs::write(&path, "secrets_file: secrets.yaml\nservers:\n  - {alias: a, command: x, env_file: secrets.yaml}\n")
        .unwrap();
    for (text, found) in [
        ("TOKEN=s3cret\nDSN=s3cret\n", "line 1: expected a map, found a string"),
        ("- s3cret\n", "line 1: expected a map, found a list"),
        ("TOKEN: [s3cret]\n", "line 1: TOKEN: expected a string, found a list"),
        ("{DSN=s3cret}\n", "line 1: DSN***: expected a string, found no value"),
    ] {
        std::fs::write(folder.path().join("secrets.yaml"), text).unwrap();
        let error = Config::load(&path, &Secrets::none()).unwrap_err();
        let found = format!("could not read `secrets.yaml`: {found}");
        let expected = [found.clone(), found];
        assert_eq!(error.problems.iter().map(|problem| problem.found.clone()).collect::<Vec<_>>(), expected, "{text}");
    }
}

#[test]
fn invalid_yaml_is_reported_with_its_position() {
    for (text, place) in [
        ("servers: [\n", "ropeway.yaml:2:1: "),
        ("servers:\n\t- a\n", "ropeway.yaml:2:"),
        ("%PDF-1.7\n", "ropeway.yaml:"),
    ] {
        let problems = problems(text);
        assert!(problems.len() == 1 && problems[0].starts_with(place), "{problems:?}");
        assert!(problems[0].contains("invalid YAML: "), "{problems:?}");
    }
}

#[test]
fn a_file_over_the_size_limit_is_rejected_before_parsing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ropeway.yaml");
    std::fs::write(&path, "servers: []\n".repeat(10 << 20).split_at(10 << 20).0).unwrap();
    let error = Config::load(&path, &Secrets::none()).unwrap_err();
    assert_eq!(error.to_string(), format!("{}: file is too large: 10.0 MiB (maximum: 4 MiB)", path.display()));
}

#[test]
fn missing_and_binary_files_are_reported() {
    let error = Config::load(Path::new("nowhere/ropeway.yaml"), &Secrets::none()).unwrap_err();
    assert_eq!(error.to_string(), "could not read `nowhere/ropeway.yaml`");
    assert!(std::error::Error::source(&error).is_some());

    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ropeway.yaml");
    std::fs::write(&path, b"servers:\n  - \xff").unwrap();
    let error = Config::load(&path, &Secrets::none()).unwrap_err();
    assert_eq!(error.to_string(), format!("{}:2:5: file is not valid UTF-8", path.display()));
}

#[test]
fn exponential_aliases_are_rejected_where_they_exceed_the_limit() {
    let mut text = String::from("a0: &a0 [lol, lol, lol, lol, lol, lol, lol, lol, lol]\n");
    for level in 1..20 {
        let alias = format!("*a{}", level - 1);
        text.push_str(&format!("a{level}: &a{level} [{}]\n", [alias.as_str(); 9].join(", ")));
    }
    let problems = problems(&text);
    assert_eq!(problems.len(), 1);
    assert!(problems[0].starts_with("ropeway.yaml:5:"), "{problems:?}");
    assert!(problems[0].ends_with("aliases expand the file by more than 4 MiB"));
    assert_eq!(
        super::problems("servers: &a\n  - *a\n"),
        ["ropeway.yaml:2:5: alias refers to a value that contains it"]
    );
}

#[test]
fn deep_nesting_is_rejected() {
    for (open, close) in [("[", "]"), ("{a: ", "}")] {
        let text = format!("servers: {}{}\n", open.repeat(10_000), close.repeat(10_000));
        let problems = problems(&text);
        assert!(problems[0].contains("lists and maps are nested more than 100 levels deep"), "{problems:?}");
    }
    let json = format!("{{\"servers\": {}{}}}", "[".repeat(10_000), "]".repeat(10_000));
    assert!(Config::parse(&json, Path::new("x.json"), &Secrets::none()).is_err());
    let toml = format!("servers = {}{}", "[".repeat(10_000), "]".repeat(10_000));
    assert!(Config::parse(&toml, Path::new("x.toml"), &Secrets::none()).is_err());
}

#[test]
fn all_invalid_servers_are_reported_at_once() {
    let mut text = String::from("servers:\n");
    for index in 0..200 {
        let key = if index % 4 == 0 { "comand" } else { "command" };
        text.push_str(&format!("  - alias: s{index}\n    {key}: x\n"));
    }
    let problems = problems(&text);
    let places: Vec<&str> = problems.iter().filter_map(|problem| problem.split(": unknown").next()).collect();
    let expected: Vec<String> =
        (0..200).step_by(4).map(|index| format!("ropeway.yaml:{}:5: servers[{index}]", index * 2 + 3)).collect();
    assert_eq!(places, expected);
    assert!(parse(&text.replace("comand", "command")).is_ok());
}

/// Returns this many servers, one per line.
fn many_servers(count: usize) -> String {
    (0..count).map(|number| format!("- {{alias: server-{number}, command: x, enabled: false}}\n")).collect()
}

#[test]
fn settings_copied_to_all_servers_are_limited() {
    let globs: Vec<String> = (0..20_000).map(|number| format!("g{number}")).collect();
    let globs = globs.join(", ");
    let servers = many_servers(1000);
    let found = "settings exceed 16 MiB when copied to 1000 servers";
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
fn the_length_and_number_of_globs_is_limited() {
    let long = "x".repeat(3 << 20);
    assert_eq!(
        problems(&server(&format!("command: x\ntools: ['{long}']"))),
        [format!(
            "ropeway.yaml:4:13: servers[0].tools[0]: expected a glob of at most 1024 bytes, found `{}…`",
            &long[..60]
        )]
    );
    let globs: Vec<String> = (0..20_100).map(|number| format!("g{number}")).collect();
    let lists = format!("command: x\ntools: [{}]\ntool_allowlist: [more]", globs.join(", "));
    let problems = problems(&server(&lists));
    assert_eq!(problems.len(), 1);
    assert!(
        problems[0]
            .ends_with("servers[0].tools[20000]: expected at most 20000 different globs in a file, found `g20000`"),
        "{problems:?}"
    );
}

#[test]
fn the_number_of_servers_and_names_is_limited() {
    let json: Vec<String> = (0..50_000).map(|number| format!(r#""s{number}": {{"command": "x"}}"#)).collect();
    let refusal = |text: &str| {
        let error = Config::parse(text, Path::new("mcp.json"), &Secrets::none()).expect_err("too many servers");
        error.to_string()
    };
    assert_eq!(
        refusal(&format!(r#"{{"mcpServers": {{{}}}}}"#, json.join(", "))),
        "mcp.json:1:16: too many servers: 50000 (maximum: 10000)"
    );
    let servers = json[..6000].join(", ");
    let projects = ["p", "q"].map(|name| format!(r#""{name}": {{"mcpServers": {{{servers}}}}}"#));
    assert!(
        refusal(&format!(r#"{{"projects": {{{}}}}}"#, projects.join(", ")))
            .ends_with(": too many servers: 12000 (maximum: 10000)")
    );
    assert_eq!(
        problems(&format!("servers:\n{}", many_servers(10_001))),
        ["ropeway.yaml:2:3: too many servers: 10001 (maximum: 10000)"]
    );
    assert_eq!(
        problems(&format!("servers: [{{alias: a, command: x}}]\nenabled_servers: [{}]\n", "a, ".repeat(10_001))),
        ["ropeway.yaml:2:18: enabled_servers: too many names: 10001 (maximum: 10000)"]
    );
}

#[test]
fn thousands_of_foreign_servers_get_unique_aliases() {
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
fn at_most_a_hundred_problems_are_reported() {
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
fn a_large_server_is_not_decoded_once_per_problem() {
    let args = "a, ".repeat(1_000_000);
    let keys: String = (0..50).map(|number| format!("key{number}: 1\n")).collect();
    let problems = problems(&server(&format!("{keys}args: [{args}]")));
    assert!((1..5).contains(&problems.len()), "{problems:?}");
    assert!(problems[0].contains("unknown key `key0`"), "{problems:?}");
}

#[test]
fn a_long_key_is_truncated_in_paths() {
    let name = "x".repeat(1 << 20);
    let keys: String = (0..50).map(|number| format!(r#", "key{number}": 1"#)).collect();
    let text = format!(r#"{{"config": {{"servers": {{"{name}": {{"command": "x"{keys}}}}}}}}}"#);
    let error = Config::parse(&text, Path::new("x.json"), &Secrets::none()).expect_err("unknown keys");
    assert!(error.problems.len() >= 50, "{}", error.problems.len());
    assert!(error.to_string().len() < 100_000, "{}", error.to_string().len());
    assert!(error.problems.iter().any(|problem| problem.path == format!("config.servers.{}…", &name[..100])));
}
