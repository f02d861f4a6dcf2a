//! Snapshots of the commands around the configuration file.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use crate::client_files::copy_clients;
use crate::snapshot::{keep, keep_after};

/// A file with every kind of mistake, one of them far to the right in a long line, one next to a secret.
const BROKEN: &str = "\
servers:
  - alias: files
    transport: stdoi
    command: npx
  - alias: files
    comand: npx
  - {alias: web, url: 'https://example.com/mcp', headers: {Authorization: Bearer s3cret-s3cret}, timeouts: {connect: soon}}
";

/// Servers in every state.
const MANY: &str = "\
servers:
  - {alias: clock, command: ropeway, args: [demo-server]}
  - {alias: gone, command: /no/such/program}
  - {alias: github, url: 'https://example.com/mcp', auth: {bearer: '${GITHUB_TOKEN}'}}
  - {alias: old, command: old-server, enabled: false}
  - {alias: web, url: 'http://127.0.0.1:1/mcp'}
";

/// Names that do not exist.
const UNMATCHED: &str = "\
servers:
  - alias: clock
    command: ropeway
    args: [demo-server]
    tools:
      allow: [calculate, chrat, 'stat*']
      deny: ['rm_*']
      preset:
        time: {zoen: UTC}
  - alias: gone
    command: /no/such/program
    tools: [anything]
";

/// A file with comments.
const COMMENTED: &str = "\
servers:
  # The clock.
  - alias: time
    command: uvx
    args: [mcp-server-time]
";

fn file(temp_home: &Path, text: &str) {
    let text = text.replace("command: ropeway", &format!("command: {}", temp_home.join("ropeway").display()));
    std::fs::write(temp_home.join("ropeway.yaml"), text).expect("a file");
}

#[test]
fn snapshots_of_the_configuration() {
    keep("config-path", "ropeway config path");
    keep_after("config-path-used", "ropeway config path", &|temp_home| file(temp_home, COMMENTED));
    keep_after("config-check", "ropeway config check", &|temp_home| file(temp_home, MANY));
    keep_after("config-check-connect", "ropeway config check --connect", &|temp_home| file(temp_home, MANY));
    keep_after("config-check-unmatched", "ropeway config check --connect", &|temp_home| file(temp_home, UNMATCHED));
    keep_after("config-check-problems", "ropeway config check", &|temp_home| file(temp_home, BROKEN));
    keep_after("config-check-json", "ropeway config check --json", &|temp_home| file(temp_home, BROKEN));
    keep_after("doctor-many", "ropeway doctor", &|temp_home| file(temp_home, MANY));
    keep_after("doctor-problems", "ropeway doctor", &|temp_home| file(temp_home, BROKEN));
}

/// Creates package runners, which may not be installed.
fn runners(temp_home: &Path) {
    std::fs::create_dir(temp_home.join("bin")).expect("a folder");
    for name in ["npx", "uvx"] {
        let path = temp_home.join("bin").join(name);
        std::fs::write(&path, "#!/bin/sh\n").expect("a file");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).expect("permissions");
    }
}

#[test]
fn snapshots_of_changes_to_the_configuration() {
    keep_after("add", "ropeway add time -- uvx mcp-server-time", &runners);
    keep_after("add-another", "ropeway add files --lazy -- npx -y server", &|temp_home| {
        runners(temp_home);
        file(temp_home, COMMENTED);
    });
    keep("add-no-such-program", "ropeway add mine -- no-such-program");
    keep("add-secret", "ropeway add github --url https://example.com/mcp --bearer s3cret-s3cret");
    keep_after("add-taken", "ropeway add time -- uvx mcp-server-time", &|temp_home| file(temp_home, COMMENTED));
    keep_after("remove", "ropeway remove time", &|temp_home| file(temp_home, COMMENTED));
    keep_after("remove-unknown", "ropeway remove tmie", &|temp_home| file(temp_home, COMMENTED));
}

#[test]
fn snapshots_of_the_servers_of_other_clients() {
    keep("import-nothing", "ropeway import");
    keep_after("import", "ropeway import --secrets", &copy_clients);
    keep_after("import-dry-run", "ropeway import --dry-run", &copy_clients);
    keep_after("import-broken", "ropeway import --from cursor --from zed", &|temp_home| {
        copy_clients(temp_home);
        std::fs::write(temp_home.join(".cursor/mcp.json"), "{\"mcpServers\": {\n  oops\n}").expect("a file");
    });
}
