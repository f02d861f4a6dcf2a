//! Merges servers from several files, without duplicates.

use std::path::Path;

use ropeway_config::raw::{RawServer, RawShorthand, RawText, RawTools, RawTransport};
use ropeway_config::{Config, ConfigProblem, ForeignServer, ListenAddress, Secrets, edit, review};

use super::discover::ClientFile;
use super::entry::{local_gateway_port, starts_gateway};
use crate::secrets::literal::{self, ExtractedSecret, SecretNames};

/// The merged servers.
#[derive(Debug, Default)]
pub(crate) struct Merged {
    pub(crate) servers: Vec<MergedServer>,
    /// Servers whose names the target file already has.
    pub(crate) known: Vec<MergedServer>,
    /// Notes for the user.
    pub(crate) notes: Vec<String>,
}

/// A server and its origin.
#[derive(Debug)]
pub(crate) struct MergedServer {
    /// The server as written to the target file.
    pub(crate) server: RawServer,
    /// The comments above it.
    pub(crate) comments: Vec<String>,
    /// Literal secrets from the other file.
    pub(crate) taken: Vec<ExtractedSecret>,
    /// The normalized server, for comparison.
    read: RawServer,
    pub(super) title: &'static str,
}

/// The file that receives the servers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ImportTarget<'a> {
    pub(crate) path: &'a Path,
    /// Its existing servers' names.
    pub(crate) known: &'a [String],
    /// Resolves references.
    pub(crate) secrets: &'a Secrets,
}

impl Merged {
    /// Returns a configuration file with the servers.
    pub(crate) fn text(&self) -> String {
        edit::write(self.servers.iter().map(|one| (&one.server, one.comments.as_slice())))
    }
}

/// Merges the servers from all files. Invalid servers are skipped with a note. Literal secrets are replaced by references
/// to variables with these names; without names, they are kept.
pub(crate) fn merge<'a>(
    found: impl IntoIterator<Item = &'a ClientFile>,
    ours: ImportTarget<'_>,
    only: &[String],
    names: Option<&mut SecretNames>,
) -> Merged {
    let mut merging = Merger { ours, names, servers: Vec::new(), notes: Vec::new() };
    for file in found {
        let Ok(foreign) = &file.servers else { continue };
        merging.notes.extend(foreign.warnings.iter().map(|warning| format!("{}: {warning}", file.title())));
        let wanted = |server: &&ForeignServer| only.is_empty() || only.contains(&server.server.alias);
        for server in foreign.servers.iter().filter(wanted) {
            // A gateway that lists this file's servers would become its own server.
            if only.is_empty() && is_gateway(&server.server) {
                let (alias, title) = (&server.server.alias, file.title());
                let words = format!("skipped `{alias}` of {title}: it is a Ropeway gateway");
                merging.notes.push(format!("{words}; use `--only {alias}` to import it"));
            } else {
                merging.take(file, server);
            }
        }
    }
    merging.end()
}

/// A merge in progress.
struct Merger<'a> {
    ours: ImportTarget<'a>,
    names: Option<&'a mut SecretNames>,
    servers: Vec<MergedServer>,
    notes: Vec<String>,
}

impl Merger<'_> {
    fn take(&mut self, file: &ClientFile, server: &ForeignServer) {
        let (wanted, title) = (&server.server.alias, file.title());
        let read = normalized(&server.server);
        if let Some(same) = self.servers.iter_mut().find(|other| other.read == read) {
            if same.server.alias != *wanted {
                self.notes.push(format!("skipped `{wanted}` of {title}: same as `{}`", same.server.alias));
            } else if same.title != title {
                same.comments[0].push_str(&format!(", {title}"));
            }
            return;
        }
        let Some(usable) = self.usable(&server.server, title) else { return };
        let alias = self.alias(wanted, file);
        let mut ours = renamed(&alias, &usable);
        if is_default(ours.tools.as_ref()) {
            ours.tools = None;
        }
        if ours.command.is_some() && ours.cwd.is_none() {
            ours.cwd = self.directory_elsewhere(file);
        }
        let taken = match (self.is_known(&ours), self.names.as_deref_mut()) {
            (false, Some(names)) => literal::extract(&mut ours, names),
            _ => Vec::new(),
        };
        let comments = std::iter::once(format!("from {title}")).chain(server.notes.clone()).collect();
        self.servers.push(MergedServer { server: ours, comments, taken, read, title });
    }

    /// Returns the directory that a file's servers run in, unless it is the target file's directory.
    fn directory_elsewhere(&self, file: &ClientFile) -> Option<String> {
        let target = std::path::absolute(self.ours.path).ok()?;
        let directory = file.directory.as_deref().filter(|directory| target.parent() != Some(directory))?;
        Some(directory.to_string_lossy().into_owned())
    }

    fn is_known(&self, server: &RawServer) -> bool {
        self.ours.known.contains(&server.alias)
    }

    /// Returns the server in a form that is valid in the target file, if possible.
    fn usable(&mut self, server: &RawServer, title: &str) -> Option<RawServer> {
        let alias = &server.alias;
        // Existing servers are not written again.
        if self.is_known(server) && !self.servers.iter().any(|other| other.server.alias == *alias) {
            return Some(server.clone());
        }
        let mut server = server.clone();
        let mut problems = problems(&server, self.ours);
        if let Some(at) = problems.iter().position(|problem| problem.path.ends_with(".env_file")) {
            let ConfigProblem { found, .. } = problems.remove(at);
            self.notes.push(format!("skipped the `env_file` of `{alias}` of {title}: {found}"));
            server.env_file = None;
        }
        let Some(problem) = problems.first() else { return Some(server) };
        let ConfigProblem { path, found, expected, .. } = problem;
        let reason = match path.split_once("].") {
            _ if expected.is_empty() => found.clone(),
            Some((_, key)) => format!("`{key}` is {found}, expected {expected}"),
            None => format!("{found}, expected {expected}"),
        };
        self.notes.push(format!("skipped `{alias}` of {title}: {reason}"));
        None
    }

    /// Returns an unused name.
    fn alias(&mut self, wanted: &str, file: &ClientFile) -> String {
        let taken = |alias: &str| self.servers.iter().find(|other| other.server.alias == alias);
        let Some(other) = taken(wanted) else { return wanted.to_owned() };
        let mut alias = file.client.map_or(wanted.to_owned(), |client| format!("{wanted}-{}", client.word()));
        let mut number = 2;
        while taken(&alias).is_some() {
            alias = format!("{wanted}-{number}");
            number += 1;
        }
        if !self.ours.known.contains(&alias) {
            let (title, other) = (file.title(), other.title);
            self.notes.push(format!("renamed `{wanted}` of {title} to `{alias}`: differs from the one of {other}"));
        }
        alias
    }

    fn end(mut self) -> Merged {
        let known = self.ours.known;
        let (here, servers): (Vec<_>, Vec<_>) =
            self.servers.into_iter().partition(|server| known.contains(&server.server.alias));
        if !here.is_empty() {
            let names: Vec<String> = here.iter().map(|server| format!("`{}`", server.server.alias)).collect();
            self.notes.push(format!("already in the file, not changed: {}", names.join(", ")));
        }
        Merged { servers, known: here, notes: self.notes }
    }
}

/// Returns `true` if a server is a Ropeway gateway.
fn is_gateway(server: &RawServer) -> bool {
    let starts = |command: &str| server.args.iter().any(|argument| starts_gateway(command, Some(&argument.0)));
    let default_port = match ListenAddress::default() {
        ListenAddress::Tcp(address) => Some(address.port()),
        _ => None,
    };
    let is_default_port = |url: &RawText| local_gateway_port(&url.0).is_some_and(|port| Some(port) == default_port);
    server.command.as_deref().is_some_and(starts) || server.url.as_ref().is_some_and(is_default_port)
}

/// Returns a server's problems in a separate file. A server that cannot be reviewed is invalid, even if this process's
/// variables would make it valid.
fn problems(server: &RawServer, ImportTarget { path, secrets, .. }: ImportTarget<'_>) -> Vec<ConfigProblem> {
    let text = edit::write([(server, &[][..])]);
    let error = review(&text, path).err().or_else(|| Config::parse(&text, path, secrets).err());
    error.map(|error| error.problems).unwrap_or_default()
}

/// Normalizes a server for comparison: without its name and without default values.
fn normalized(server: &RawServer) -> RawServer {
    let mut normalized = renamed("", server);
    if normalized.transport != Some(RawTransport::Sse) {
        normalized.transport = None;
    }
    if is_default(normalized.tools.as_ref()) {
        normalized.tools = None;
    }
    if normalized.enabled == Some(true) {
        normalized.enabled = None;
    }
    normalized
}

fn is_default(tools: Option<&RawShorthand<Vec<String>, RawTools>>) -> bool {
    match tools {
        None => true,
        Some(RawShorthand::Short(_)) => false,
        Some(RawShorthand::Full(tools)) => *tools == RawTools::default(),
    }
}

/// Returns the server with another name.
fn renamed(alias: &str, server: &RawServer) -> RawServer {
    let mut server = server.clone();
    alias.clone_into(&mut server.alias);
    server
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use ropeway_config::read_foreign;

    use super::*;
    use crate::clients::Client;

    fn file(client: Client, servers: &str) -> ClientFile {
        let path = Path::new("/x/mcp.json");
        let text = format!("{{\"mcpServers\": {{{servers}}}}}");
        ClientFile {
            client: Some(client),
            path: path.to_owned(),
            servers: Ok(read_foreign(&text, path).expect("servers")),
            project: None,
            directory: None,
        }
    }

    fn aliases(merged: &Merged) -> Vec<(&str, &str)> {
        merged.servers.iter().map(|one| (one.server.alias.as_str(), one.comments[0].as_str())).collect()
    }

    /// Returns a target file with these servers.
    fn ours(known: &[String]) -> ImportTarget<'_> {
        static SECRETS: std::sync::LazyLock<Secrets> = std::sync::LazyLock::new(Secrets::none);
        ImportTarget { path: Path::new("/x/ropeway.yaml"), known, secrets: &SECRETS }
    }

    const GIT: &str = r#""git": {"command": "git-server"}"#;
    const OTHER_GIT: &str = r#""git": {"command": "git-server", "args": ["--fast"]}"#;

    #[test]
    fn a_server_of_several_clients_is_imported_once() {
        let same = r#""Versions": {"command": "git-server"}"#;
        let wordy =
            r#""git": {"type": "stdio", "command": "git-server", "env": {}, "disabled": false, "disabledTools": []}"#;
        let found = [
            file(Client::Cursor, wordy),
            file(Client::Windsurf, GIT),
            file(Client::Cursor, GIT),
            file(Client::ClaudeCode, same),
        ];
        let merged = merge(&found, ours(&[]), &[], Some(&mut SecretNames::default()));
        assert_eq!(aliases(&merged), [("git", "from Cursor, Windsurf")]);
        assert_eq!(merged.notes, ["skipped `Versions` of Claude Code: same as `git`"]);
    }

    #[test]
    fn a_server_with_other_settings_is_renamed_after_its_client() {
        let third = r#""git": {"command": "third"}, "git-cursor": {"command": "x"}"#;
        let found = [file(Client::ClaudeDesktop, GIT), file(Client::Cursor, OTHER_GIT), file(Client::Cursor, third)];
        let merged = merge(&found, ours(&[]), &[], Some(&mut SecretNames::default()));
        let names: Vec<&str> = aliases(&merged).into_iter().map(|(alias, _)| alias).collect();
        assert_eq!(names, ["git", "git-cursor", "git-2", "git-cursor-cursor"]);
        assert_eq!(merged.notes[0], "renamed `git` of Cursor to `git-cursor`: differs from the one of Claude Desktop");
    }

    #[test]
    fn ropeway_gateways_are_skipped() {
        let servers = r#""ropeway": {"command": "/usr/bin/ropeway", "args": ["serve", "--stdio"]},
            "http": {"url": "http://127.0.0.1:8931/mcp"}, "other": {"url": "http://127.0.0.1:9000/mcp"},
            "demo": {"command": "ropeway", "args": ["demo-server"]}"#;
        let merged = merge(&[file(Client::Zed, servers)], ours(&[]), &[], Some(&mut SecretNames::default()));
        assert_eq!(aliases(&merged), [("other", "from Zed"), ("demo", "from Zed")]);
        let note =
            |name: &str| format!("skipped `{name}` of Zed: it is a Ropeway gateway; use `--only {name}` to import it");
        assert_eq!(merged.notes, ["ropeway", "http"].map(note));
        let only = ["ropeway".to_owned()];
        let merged = merge(&[file(Client::Zed, servers)], ours(&[]), &only, Some(&mut SecretNames::default()));
        assert_eq!(aliases(&merged), [("ropeway", "from Zed")]);
    }

    #[test]
    fn existing_servers_are_not_changed() {
        let found = [file(Client::ClaudeDesktop, GIT), file(Client::Cursor, OTHER_GIT)];
        let known = ["git".to_owned(), "git-cursor".to_owned()];
        let merged = merge(&found, ours(&known), &[], Some(&mut SecretNames::default()));
        assert_eq!(aliases(&merged), []);
        assert_eq!(merged.notes, ["already in the file, not changed: `git`, `git-cursor`"]);
        let merged = merge(&found, ours(&known[..1]), &[], Some(&mut SecretNames::default()));
        assert_eq!(aliases(&merged), [("git-cursor", "from Cursor")]);
    }

    #[test]
    fn only_named_servers_are_imported() {
        let found = [file(Client::Cursor, &format!("{GIT}, \"web\": {{\"url\": \"http://h/\"}}"))];
        let merged = merge(&found, ours(&[]), &["web".to_owned()], Some(&mut SecretNames::default()));
        assert_eq!(aliases(&merged), [("web", "from Cursor")]);
    }

    #[test]
    fn an_invalid_server_is_skipped_and_the_others_are_imported() {
        let odd = r#""odd": {"command": "${TOOLS:-/opt}/bin/srv"}, "far": {"url": "example.com/mcp"}"#;
        let without = r#""without": {"command": "x", "envFile": "/no/such/file"}"#;
        let found = [file(Client::ClaudeCode, &format!("{odd}, {GIT}")), file(Client::Cursor, without)];
        let merged = merge(&found, ours(&[]), &[], Some(&mut SecretNames::default()));
        assert_eq!(aliases(&merged), [("git", "from Claude Code"), ("without", "from Cursor")]);
        assert_eq!(merged.servers[1].server.env_file, None);
        assert_eq!(
            merged.notes,
            [
                "skipped `odd` of Claude Code: `command` is `${TOOLS:-/opt}/bin/srv`, expected a program without \
                 `${…}` references",
                "skipped `far` of Claude Code: `url` is `example.com/mcp`, expected a URL that starts with \
                 `http://` or `https://`",
                "skipped the `env_file` of `without` of Cursor: could not read `/no/such/file`: \
                 No such file or directory (os error 2)",
            ]
        );
        // Servers that were corrected by hand cause no note.
        let known = ["odd".to_owned(), "far".to_owned(), "without".to_owned()];
        let merged = merge(&found, ours(&known), &[], Some(&mut SecretNames::default()));
        assert_eq!(merged.notes, ["already in the file, not changed: `odd`, `far`, `without`"]);
    }

    #[test]
    fn a_server_without_command_and_url_is_skipped_with_a_whole_sentence() {
        let found = [file(Client::Cursor, r#""none": {"args": ["x"]}"#)];
        let merged = merge(&found, ours(&[]), &[], Some(&mut SecretNames::default()));
        assert_eq!(merged.notes, ["skipped `none` of Cursor: missing key `command` or `url`"]);
    }

    #[test]
    fn a_server_that_cannot_be_reviewed_is_skipped() {
        let secrets = Secrets::none().with("WHERE", "http://127.0.0.1/").with("FINE", "x");
        let hidden =
            r#""hidden": {"command": "sh", "env": {"N": "${FINE:-\u0000}"}}, "far": {"url": "${WHERE:-nourl}"}"#;
        let found = [file(Client::ClaudeCode, &format!("{hidden}, {GIT}"))];
        let merged =
            merge(&found, ImportTarget { secrets: &secrets, ..ours(&[]) }, &[], Some(&mut SecretNames::default()));
        assert_eq!(aliases(&merged), [("git", "from Claude Code")]);
        for (note, name) in merged.notes.iter().zip(["hidden", "far"]) {
            assert!(note.starts_with(&format!("skipped `{name}` of Claude Code: ")), "{note}");
        }
        assert_eq!(merged.notes.len(), 2);
    }
}
