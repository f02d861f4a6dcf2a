//! Options of every command, aliases and variables of the terminal.

use ropeway_testing::Script;
use serde_json::{Map, Value, json};

use crate::chat_terminal::Window;
use crate::temp_home::{TempHome, entry};
use crate::{Ropeway, Run};

#[test]
fn a_configuration_file_is_named_before_or_behind_the_command() {
    let temp_home = TempHome::new();
    let servers = json!({"servers": [entry("only-here", &Script::default())]});
    temp_home.write("other.yaml", &servers.to_string());
    for typed in [
        "--config other.yaml tools --names",
        "-c other.yaml tools --names",
        "tools -c other.yaml --names",
        "--config=other.yaml list --names",
        "ls --names --config other.yaml",
    ] {
        let names = temp_home.run(typed).expect(0).stdout;
        assert!(names.starts_with("only-here."), "{typed}: {names}");
    }
    assert!(temp_home.run("--config other.yaml").expect(0).stdout.contains("only-here"));
    assert!(temp_home.run("-c other.yaml call echo message=hi").expect(0).stdout.starts_with("hi"));
    let both = temp_home.run("-c other.yaml tools --stdio cat").expect(2).stderr;
    assert!(both.contains("cannot be used with"), "{both}");
    let unknown = temp_home.run("-c other.yaml completions bash").expect(2).stderr;
    assert!(unknown.contains("unexpected argument '-c'"), "{unknown}");
    temp_home.run("import --dry-run --config new.yaml").expect(0);
}

/// Returns the tool list with these variables and options.
fn tools(variables: &[(&str, &str)], options: &[&str]) -> String {
    let ropeway = Ropeway::new(&[&["tools"], options].concat()).with(|command| {
        command.envs(variables.iter().copied());
    });
    ropeway.run().expect(0).stdout
}

#[test]
fn colour_is_chosen_by_the_option_and_then_by_variables() {
    let is_coloured = |variables: &[(&str, &str)], options: &[&str]| tools(variables, options).contains('\u{1b}');
    for (variables, options, expected) in [
        (&[][..], &[][..], false),
        (&[], &["--color", "always"], true),
        (&[("FORCE_COLOR", "1")], &[], true),
        (&[("CLICOLOR_FORCE", "1")], &[], true),
        (&[("FORCE_COLOR", "1"), ("NO_COLOR", "1")], &[], false),
        (&[("NO_COLOR", "1")], &["--color=always"], true),
        (&[("FORCE_COLOR", "1")], &["--color=never"], false),
        (&[("FORCE_COLOR", "1")], &["--json"], false),
    ] {
        assert_eq!(is_coloured(variables, options), expected, "{variables:?} {options:?}");
    }
    let help = |options: &[&str]| Ropeway::new(&[options, &["--help"]].concat()).run().expect(0).stdout;
    assert!(help(&["--color=always"]).contains('\u{1b}') && !help(&[]).contains('\u{1b}'));
}

#[test]
fn a_tool_keeps_its_own_argument_for_colours() {
    let tool = json!({"name": "draw", "inputSchema": {"type": "object", "properties": {"color": {"type": "string"}}}});
    let temp_home =
        TempHome::with(&[entry("s", &Script::default().tool(tool, json!({"content": [], "isError": false})))]);
    temp_home.run("call draw --color red --json").expect(0);
    temp_home.run("call draw --color=red").expect(0);
    let unknown = temp_home.run("call echo message=x --color red").expect(2).stderr;
    assert!(unknown.contains("tool `s.echo` has no argument `color`"), "{unknown}");
}

#[test]
fn without_utf8_output_has_plain_characters() {
    let temp_home = TempHome::with(&[
        entry("good", &Script::default()),
        json!({"alias": "bad", "command": "/no/such/program"}),
        json!({"alias": "off", "command": "x", "enabled": false}),
    ]);
    let run = |locale: &str, typed: &[&str]| {
        let ropeway = temp_home.ropeway(typed).with(|command| {
            command.env("LC_ALL", locale);
        });
        ropeway.run()
    };
    for typed in [&["health"][..], &["tools"], &["doctor"]] {
        let (plain, usual) = (run("C", typed), run("C.UTF-8", typed));
        assert!(plain.stdout.is_ascii() && plain.stderr.is_ascii(), "{typed:?}: {}", plain.stdout);
        assert!(!usual.stdout.is_ascii(), "{typed:?}: {}", usual.stdout);
    }
    // Results stay as they are.
    assert!(run("C", &["call", "good.echo", "message=● é"]).expect(0).stdout.starts_with("● é"));
}

/// Creates a place with a tool, a resource and prompts whose output is longer than a screen.
fn long() -> TempHome {
    let long = (0..100).map(|line| format!("line {line}\n")).collect::<String>();
    let tool = json!({"name": "long", "inputSchema": {"type": "object"}});
    let script = Script::default().tool(tool, json!({"content": [{"type": "text", "text": long}]}));
    let temp_home = TempHome::with(&[entry("s", &script)]);
    temp_home.write("pager.sh", "cat > paged; echo paged\n");
    temp_home
}

#[test]
fn results_longer_than_the_screen_are_paged_unless_an_option_forbids_it() {
    let temp_home = long();
    let shown = |typed: &[&str]| {
        let pager = format!("sh {}", temp_home.path().join("pager.sh").display());
        let ropeway = temp_home.ropeway(typed).with(|command| {
            command.env("ROPEWAY_PAGER", pager);
        });
        let mut window = Window::open(ropeway);
        let text = window.rest();
        assert_eq!(window.end().code, Some(0), "{text}");
        text
    };
    assert_eq!(shown(&["call", "long"]).trim(), "paged");
    let paged = std::fs::read_to_string(temp_home.path().join("paged")).expect("a text");
    assert!(paged.starts_with("line 0\n") && paged.ends_with("line 99\n"), "{paged}");
    for typed in [&["call", "long", "--no-pager"][..], &["--no-pager", "call", "long"]] {
        assert!(shown(typed).contains("line 50"), "{typed:?}");
    }
}

#[test]
fn man_pages_are_printed_or_written_to_a_new_directory() {
    assert!(Run::of(&["man"]).expect(0).stdout.contains(".TH ropeway 1"));
    let temp_home = TempHome::new();
    temp_home.run("man new/man1").expect(0);
    for page in ["ropeway.1", "ropeway-call.1", "ropeway-config-check.1"] {
        assert!(temp_home.path().join("new/man1").join(page).is_file(), "{page}");
    }
    temp_home.write("file", "");
    let failed = temp_home.run("man file").expect(2).stderr;
    assert!(failed.starts_with("error: could not write man pages to `file`\n"), "{failed}");
}

#[test]
fn a_picture_is_saved_where_the_user_wants_it() {
    let temp_home = TempHome::new();
    temp_home.run("call chart values=1,2 --save pictures/one.png").expect(0);
    let file = std::fs::read(temp_home.path().join("pictures/one.png")).expect("the file");
    assert!(file.starts_with(b"\x89PNG"));
    let run = temp_home.run("call calculate expression=1+1 --save two.txt").expect(0);
    assert!(run.stderr.ends_with("nothing to save: no binary content\n"), "{}", run.stderr);
    assert!(!temp_home.path().join("two.txt").exists());
}

#[test]
fn a_file_or_standard_input_is_the_value_of_an_argument() {
    let temp_home = TempHome::with(&[entry("s", &Script::default())]);
    temp_home.write("note.txt", "from a file\n");
    assert!(temp_home.run("call echo message=@note.txt").expect(0).stdout.starts_with("from a file\n"));
    assert!(temp_home.run("call echo --message @note.txt").expect(0).stdout.starts_with("from a file\n"));
    assert!(temp_home.run("call echo message=@@ada").expect(0).stdout.starts_with("@ada"));
    let missing = temp_home.run("call echo message=@ada").expect(2).stderr;
    assert!(missing.starts_with("error: could not read `ada` for argument `message`\n"), "{missing}");
    let ropeway = temp_home.ropeway(&["call", "echo", "message=@-"]).with(|command| {
        command.stdin(std::fs::File::open(temp_home.path().join("note.txt")).expect("a file"));
    });
    assert!(ropeway.run().expect(0).stdout.starts_with("from a file\n"));
    let hint = temp_home.run("call echo message:hi").expect(2).stderr;
    assert!(hint.ends_with("\n  use `message=hi`\n"), "{hint}");
}

#[test]
fn a_nested_name_is_a_field_of_an_argument() {
    let person = json!({"type": "object", "properties": {"name": {"type": "string"}, "age": {"type": "integer"}},
        "additionalProperties": false});
    let properties: Map<String, Value> = [("customer".to_owned(), person)].into_iter().collect();
    let tool = json!({"name": "order", "inputSchema": {"type": "object", "properties": properties}});
    let answer = json!({"content": [{"type": "text", "text": "ordered"}]});
    let temp_home = TempHome::with(&[entry("s", &Script::default().tool(tool, answer))]);
    assert!(temp_home.run("call order customer.name=Ada customer.age=36").expect(0).stdout.starts_with("ordered"));
    temp_home.run("call order --customer.name Ada").expect(0);
    let wrong = temp_home.run("call order customer.age=old").expect(2).stderr;
    assert!(wrong.contains("invalid value `old` for argument `customer.age`: expected `integer`"), "{wrong}");
    temp_home.run("call order customer.nmae=Ada").expect(2);
}
