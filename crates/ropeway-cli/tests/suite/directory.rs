//! The working directory of servers: that of the file that names them.

use std::path::Path;

use crate::client_files::Home;

/// A server script that appends its directory to the file `places` in the home folder.
fn script(home: &Home) -> String {
    let ropeway = env!("CARGO_BIN_EXE_ropeway");
    format!("pwd >> {}\nexec {ropeway} demo-server\n", home.path("places").display())
}

/// Returns the directories of the servers that were started, and forgets them.
fn places(home: &Home) -> Vec<String> {
    let text = home.read("places");
    std::fs::remove_file(home.path("places")).expect("a file");
    let root = std::fs::canonicalize(home.path("")).expect("a folder");
    let below = |temp_home: &str| Path::new(temp_home).strip_prefix(&root).map(|path| path.display().to_string());
    text.lines().map(|temp_home| below(temp_home).unwrap_or_else(|_| temp_home.to_owned())).collect()
}

/// Runs a command in a folder below the home folder.
fn run_in(home: &Home, folder: &str, arguments: &[&str]) -> crate::Run {
    std::fs::create_dir_all(home.path(folder)).expect("a folder");
    let command = home.command(arguments).with(|command| {
        command.current_dir(home.path(folder));
    });
    command.run()
}

#[test]
fn a_server_runs_in_the_directory_of_its_file_from_everywhere() {
    let home = Home::with_config("servers: [{alias: s, command: sh, args: [server.sh]}]\n");
    home.write("work/server.sh", &script(&home));
    let file = home.path("work/ropeway.yaml").display().to_string();
    run_in(&home, "work", &["tools", "s"]).expect(0);
    run_in(&home, "work/sub/deep", &["tools", "s"]).expect(0);
    run_in(&home, "elsewhere", &["tools", "s", "--config", &file]).expect(0);
    run_in(&home, "work/sub", &["tools", "s", "--config", "../ropeway.yaml"]).expect(0);
    assert_eq!(places(&home), ["work"; 4]);
}

#[test]
fn a_relative_cwd_starts_at_the_directory_of_the_file() {
    let home = Home::with_config("servers: [{alias: s, command: sh, args: [server.sh], cwd: data}]\n");
    home.write("work/data/server.sh", &script(&home));
    run_in(&home, "work/sub", &["call", "s.calculate", "expression=1+1"]).expect(0);
    assert_eq!(places(&home), ["work/data"]);
    let run = run_in(&home, "work/sub", &["doctor", "s"]).expect(0);
    assert!(run.stdout.contains(&format!("runs in `{}`", home.path("work/data").display())), "{}", run.stdout);
}

#[test]
fn a_folder_that_a_person_stands_in_cannot_replace_their_own_servers() {
    let home = Home::new();
    home.write(".config/ropeway/ropeway.yaml", "servers: [{alias: s, command: sh, args: [server.sh]}]\n");
    home.write(".config/ropeway/server.sh", &script(&home));
    home.write("clone/server.sh", &format!("touch {}\n{}", home.path("owned").display(), script(&home)));
    run_in(&home, "clone", &["tools", "s"]).expect(0);
    assert_eq!(places(&home), [".config/ropeway"]);
    assert!(!home.path("owned").exists());
}

#[test]
fn a_server_of_the_command_line_runs_in_the_current_directory() {
    let home = Home::with_config("servers: []\n");
    home.write("work/sub/server.sh", &script(&home));
    run_in(&home, "work/sub", &["tools", "--stdio", "sh server.sh"]).expect(0);
    run_in(&home, "work", &["tools", "--stdio", "sh server.sh", "--cwd", "sub"]).expect(0);
    assert_eq!(places(&home), ["work/sub"; 2]);
}

#[test]
fn servers_of_other_clients_run_in_their_project() {
    let home = Home::new();
    let entry = "{\"s\": {\"command\": \"sh\", \"args\": [\"server.sh\"]}}";
    home.write("work/.vscode/mcp.json", &format!("{{\"servers\": {entry}}}"));
    home.write("work/.mcp.json", &format!("{{\"mcpServers\": {entry}}}"));
    home.write("work/server.sh", &script(&home));
    for file in ["../.vscode/mcp.json", "../.mcp.json"] {
        run_in(&home, "work/sub", &["tools", "s", "--config", file]).expect(0);
    }
    // An import into a file of another directory keeps the directory.
    run_in(&home, "work", &["import", "--global"]).expect(0);
    run_in(&home, "elsewhere", &["tools", "s"]).expect(0);
    assert_eq!(places(&home), ["work"; 3]);
    run_in(&home, "work", &["import", "--to", "ropeway.yaml"]).expect(0);
    assert!(!home.read("work/ropeway.yaml").contains("cwd"));
}

#[test]
fn a_package_runner_of_the_user_does_not_run_in_a_project() {
    let home = Home::new();
    home.write("work/mcp-server-time/package.json", "{}");
    home.write("work/server.sh", "");
    run_in(&home, "work", &["add", "time", "--global", "--", "npx", "-y", "mcp-server-time"]).expect(0);
    run_in(&home, "work", &["add", "own", "--global", "--", "sh", "server.sh"]).expect(0);
    let file = home.read(".config/ropeway/ropeway.yaml");
    let (time, own) = file.split_once("alias: own").expect("both entries");
    assert!(!time.contains("cwd") && own.contains("cwd"), "{file}");
}

#[test]
fn a_working_directory_that_does_not_exist_is_named() {
    let home =
        Home::with_config("servers: [{alias: s, command: cat, cwd: no/such}, {alias: f, command: cat, cwd: f}]\n");
    home.write("work/f", "");
    let folder = home.path("work");
    let missing = format!("working directory `{}` does not exist", folder.join("no/such").display());
    let file = format!("working directory `{}` is not a directory", folder.join("f").display());
    for (server, problem, fix) in [
        ("s", missing, "create the directory, or correct `cwd`"),
        ("f", file, "`cwd` is a file; set it to a directory"),
    ] {
        let run = home.run(&["tools", server]).expect(3);
        assert!(run.stderr.contains(&format!("server `{server}` is unavailable")), "{}", run.stderr);
        assert!(run.stderr.contains(&problem) && run.stderr.contains(fix), "{}", run.stderr);
    }
}
