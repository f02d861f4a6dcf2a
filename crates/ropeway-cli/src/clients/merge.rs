//! The servers of many files as one list: each once, and no two under one name.

use std::path::Path;

use ropeway::config::raw::{RawServer, RawTools, RawTransport, Short};
use ropeway::config::{Config, ConfigProblem, ForeignServer, Secrets, edit, review};

use super::Found;
use crate::secrets::literal::{self, ExtractedSecret, SecretNames};

/// The servers of many files.
#[derive(Debug, Default)]
pub(crate) struct Merged {
    pub(crate) servers: Vec<MergedServer>,
    /// Servers whose names our file has already; they are left alone.
    pub(crate) known: Vec<MergedServer>,
    /// What a person should know.
    pub(crate) notes: Vec<String>,
}

/// One server, and where it comes from.
#[derive(Debug)]
pub(crate) struct MergedServer {
    /// As it is written in our file.
    pub(crate) server: RawServer,
    /// What is said above it.
    pub(crate) comments: Vec<String>,
    /// The secrets that were written out in the other file.
    pub(crate) taken: Vec<ExtractedSecret>,
    /// As it was read, but for its name.
    read: RawServer,
    pub(super) title: &'static str,
}

/// The file that the servers go to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ours<'a> {
    pub(crate) path: &'a Path,
    /// The names of the servers that are in it already.
    pub(crate) known: &'a [String],
    /// Where the values of references come from.
    pub(crate) secrets: &'a Secrets,
}

/// Puts the servers of all files together. What would make no sense in our file is left out, and told.
pub(crate) fn merge(found: &[Found], ours: Ours<'_>, only: &[String], names: &mut SecretNames) -> Merged {
    let mut merging = Merging { ours, names, servers: Vec::new(), notes: Vec::new() };
    for file in found {
        let Ok(foreign) = &file.servers else { continue };
        merging.notes.extend(foreign.warnings.iter().map(|warning| format!("{}: {warning}", file.title())));
        let wanted = |server: &&ForeignServer| only.is_empty() || only.contains(&server.server.alias);
        foreign.servers.iter().filter(wanted).for_each(|server| merging.take(file, server));
    }
    merging.end()
}

/// A merge on its way.
struct Merging<'a> {
    ours: Ours<'a>,
    names: &'a mut SecretNames,
    servers: Vec<MergedServer>,
    notes: Vec<String>,
}

impl Merging<'_> {
    fn take(&mut self, file: &Found, server: &ForeignServer) {
        let (wanted, title) = (&server.server.alias, file.title());
        let read = meaning(&server.server);
        if let Some(same) = self.servers.iter_mut().find(|other| other.read == read) {
            if same.server.alias != *wanted {
                self.notes
                    .push(format!("`{wanted}` of {title} is the same as `{}`, and taken once", same.server.alias));
            } else if same.title != title {
                same.comments[0].push_str(&format!(", {title}"));
            }
            return;
        }
        let Some(usable) = self.usable(&server.server, title) else { return };
        let alias = self.alias(wanted, file);
        let mut ours = called(&alias, &usable);
        if is_nothing(ours.tools.as_ref()) {
            ours.tools = None;
        }
        let taken = if self.is_known(&ours) { Vec::new() } else { literal::extract(&mut ours, self.names) };
        let comments = std::iter::once(format!("from {title}")).chain(server.notes.clone()).collect();
        self.servers.push(MergedServer { server: ours, comments, taken, read, title });
    }

    fn is_known(&self, server: &RawServer) -> bool {
        self.ours.known.contains(&server.alias)
    }

    /// The server as it makes sense in our file, if it does: one that is odd must not keep the others out.
    fn usable(&mut self, server: &RawServer, title: &str) -> Option<RawServer> {
        let alias = &server.alias;
        // What is there already is not written again.
        if self.is_known(server) && !self.servers.iter().any(|other| other.server.alias == *alias) {
            return Some(server.clone());
        }
        let mut server = server.clone();
        let mut problems = problems(&server, self.ours);
        if let Some(at) = problems.iter().position(|problem| problem.path.ends_with(".env_file")) {
            let ConfigProblem { found, .. } = problems.remove(at);
            self.notes.push(format!("the `env_file` of `{alias}` of {title} is left out: {found}"));
            server.env_file = None;
        }
        let Some(problem) = problems.first() else { return Some(server) };
        let ConfigProblem { path, found, expected, .. } = problem;
        let key = path.split_once("].").map(|(_, key)| format!("`{key}` is ")).unwrap_or_default();
        self.notes.push(format!("`{alias}` of {title} is left out: {key}{found}, expected {expected}"));
        None
    }

    /// A name that is not taken yet.
    fn alias(&mut self, wanted: &str, file: &Found) -> String {
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
            self.notes.push(format!(
                "`{wanted}` of {title} is not the same as that of {other}, and is called `{alias}` here"
            ));
        }
        alias
    }

    fn end(mut self) -> Merged {
        let known = self.ours.known;
        let (here, servers): (Vec<_>, Vec<_>) =
            self.servers.into_iter().partition(|server| known.contains(&server.server.alias));
        if !here.is_empty() {
            let names: Vec<String> = here.iter().map(|server| format!("`{}`", server.server.alias)).collect();
            self.notes.push(format!("in the file already, and left alone: {}", names.join(", ")));
        }
        Merged { servers, known: here, notes: self.notes }
    }
}

/// What is wrong with a server that would stand alone in a file. A server that cannot be reviewed is not usable, even if the
/// variables of this process would make it so.
fn problems(server: &RawServer, Ours { path, secrets, .. }: Ours<'_>) -> Vec<ConfigProblem> {
    let text = edit::write([(server, &[][..])]);
    let error = review(&text, path).err().or_else(|| Config::parse(&text, path, secrets).err());
    error.map(|error| error.problems).unwrap_or_default()
}

/// What a server is, whatever it is called. What clients write down though it goes without saying does not count.
fn meaning(server: &RawServer) -> RawServer {
    let mut meaning = called("", server);
    if meaning.transport != Some(RawTransport::Sse) {
        meaning.transport = None;
    }
    if is_nothing(meaning.tools.as_ref()) {
        meaning.tools = None;
    }
    if meaning.enabled == Some(true) {
        meaning.enabled = None;
    }
    meaning
}

fn is_nothing(tools: Option<&Short<Vec<String>, RawTools>>) -> bool {
    match tools {
        None => true,
        Some(Short::Short(_)) => false,
        Some(Short::Full(tools)) => *tools == RawTools::default(),
    }
}

/// The server under another name.
fn called(alias: &str, server: &RawServer) -> RawServer {
    let mut server = server.clone();
    alias.clone_into(&mut server.alias);
    server
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use ropeway::config::read_foreign;

    use super::*;
    use crate::clients::Client;

    fn file(client: Client, servers: &str) -> Found {
        let path = Path::new("/x/mcp.json");
        let text = format!("{{\"mcpServers\": {{{servers}}}}}");
        Found {
            client: Some(client),
            path: path.to_owned(),
            servers: Ok(read_foreign(&text, path).expect("servers")),
            project: None,
        }
    }

    fn aliases(merged: &Merged) -> Vec<(&str, &str)> {
        merged.servers.iter().map(|one| (one.server.alias.as_str(), one.comments[0].as_str())).collect()
    }

    /// The file of ours that has these servers.
    fn ours(known: &[String]) -> Ours<'_> {
        static SECRETS: std::sync::LazyLock<Secrets> = std::sync::LazyLock::new(Secrets::none);
        Ours { path: Path::new("/x/ropeway.yaml"), known, secrets: &SECRETS }
    }

    const GIT: &str = r#""git": {"command": "git-server"}"#;
    const OTHER_GIT: &str = r#""git": {"command": "git-server", "args": ["--fast"]}"#;

    #[test]
    fn a_server_that_several_clients_know_is_taken_once() {
        let same = r#""Versions": {"command": "git-server"}"#;
        let wordy =
            r#""git": {"type": "stdio", "command": "git-server", "env": {}, "disabled": false, "disabledTools": []}"#;
        let found = [
            file(Client::Cursor, wordy),
            file(Client::Windsurf, GIT),
            file(Client::Cursor, GIT),
            file(Client::ClaudeCode, same),
        ];
        let merged = merge(&found, ours(&[]), &[], &mut SecretNames::default());
        assert_eq!(aliases(&merged), [("git", "from Cursor, Windsurf")]);
        assert_eq!(merged.notes, ["`Versions` of Claude Code is the same as `git`, and taken once"]);
    }

    #[test]
    fn a_name_with_other_settings_gets_the_name_of_its_client() {
        let third = r#""git": {"command": "third"}, "git-cursor": {"command": "x"}"#;
        let found = [file(Client::ClaudeDesktop, GIT), file(Client::Cursor, OTHER_GIT), file(Client::Cursor, third)];
        let merged = merge(&found, ours(&[]), &[], &mut SecretNames::default());
        let names: Vec<&str> = aliases(&merged).into_iter().map(|(alias, _)| alias).collect();
        assert_eq!(names, ["git", "git-cursor", "git-2", "git-cursor-cursor"]);
        assert_eq!(
            merged.notes[0],
            "`git` of Cursor is not the same as that of Claude Desktop, and is called `git-cursor` here"
        );
    }

    #[test]
    fn what_is_in_the_file_already_is_left_alone_however_often_it_is_imported() {
        let found = [file(Client::ClaudeDesktop, GIT), file(Client::Cursor, OTHER_GIT)];
        let known = ["git".to_owned(), "git-cursor".to_owned()];
        let merged = merge(&found, ours(&known), &[], &mut SecretNames::default());
        assert_eq!(aliases(&merged), []);
        assert_eq!(merged.notes, ["in the file already, and left alone: `git`, `git-cursor`"]);
        let merged = merge(&found, ours(&known[..1]), &[], &mut SecretNames::default());
        assert_eq!(aliases(&merged), [("git-cursor", "from Cursor")]);
    }

    #[test]
    fn only_those_that_are_named_are_taken() {
        let found = [file(Client::Cursor, &format!("{GIT}, \"web\": {{\"url\": \"http://h/\"}}"))];
        let merged = merge(&found, ours(&[]), &["web".to_owned()], &mut SecretNames::default());
        assert_eq!(aliases(&merged), [("web", "from Cursor")]);
    }

    #[test]
    fn a_server_that_makes_no_sense_here_is_left_out_and_the_others_are_taken() {
        let odd = r#""odd": {"command": "${TOOLS:-/opt}/bin/srv"}, "far": {"url": "example.com/mcp"}"#;
        let without = r#""without": {"command": "x", "envFile": "/no/such/file"}"#;
        let found = [file(Client::ClaudeCode, &format!("{odd}, {GIT}")), file(Client::Cursor, without)];
        let merged = merge(&found, ours(&[]), &[], &mut SecretNames::default());
        assert_eq!(aliases(&merged), [("git", "from Claude Code"), ("without", "from Cursor")]);
        assert_eq!(merged.servers[1].server.env_file, None);
        assert_eq!(
            merged.notes,
            [
                "`odd` of Claude Code is left out: `command` is `${TOOLS:-/opt}/bin/srv`, expected a program without \
                 `${…}`: a command is run exactly as it is written",
                "`far` of Claude Code is left out: `url` is `example.com/mcp`, expected a URL that starts with \
                 `http://` or `https://`",
                "the `env_file` of `without` of Cursor is left out: `/no/such/file`, which could not be read: \
                 No such file or directory (os error 2)",
            ]
        );
        // What somebody has corrected by hand is in the file, and no longer told.
        let known = ["odd".to_owned(), "far".to_owned(), "without".to_owned()];
        let merged = merge(&found, ours(&known), &[], &mut SecretNames::default());
        assert_eq!(merged.notes, ["in the file already, and left alone: `odd`, `far`, `without`"]);
    }

    #[test]
    fn a_server_that_cannot_be_reviewed_is_left_out_whatever_variables_say() {
        let secrets = Secrets::none().with("WHERE", "http://127.0.0.1/").with("FINE", "x");
        let hidden =
            r#""hidden": {"command": "sh", "env": {"N": "${FINE:-\u0000}"}}, "far": {"url": "${WHERE:-nourl}"}"#;
        let found = [file(Client::ClaudeCode, &format!("{hidden}, {GIT}"))];
        let merged = merge(&found, Ours { secrets: &secrets, ..ours(&[]) }, &[], &mut SecretNames::default());
        assert_eq!(aliases(&merged), [("git", "from Claude Code")]);
        for (note, name) in merged.notes.iter().zip(["hidden", "far"]) {
            assert!(note.starts_with(&format!("`{name}` of Claude Code is left out: ")), "{note}");
        }
        assert_eq!(merged.notes.len(), 2);
    }
}
