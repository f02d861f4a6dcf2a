//! The servers of many files as one list: each once, and no two under one name.

use ropeway::config::raw::RawServer;

use super::Found;
use crate::literal::{self, Names, Taken};

/// The servers of many files.
#[derive(Debug, Default)]
pub(crate) struct Merged {
    pub(crate) servers: Vec<MergedServer>,
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
    pub(crate) taken: Vec<Taken>,
    /// As it was read, but for its name.
    read: RawServer,
    title: &'static str,
}

/// Puts the servers of all files together. Those whose names are in `known` are in our file already.
pub(crate) fn merge(found: &[Found], known: &[String], only: &[String], names: &mut Names) -> Merged {
    let mut merged = Merged::default();
    let mut here = Vec::new();
    for file in found {
        let Ok(foreign) = &file.servers else { continue };
        merged.notes.extend(foreign.warnings.iter().map(|warning| format!("{}: {warning}", file.title())));
        for server in &foreign.servers {
            let wanted = &server.server.alias;
            if !only.is_empty() && !only.contains(wanted) {
                continue;
            }
            let read = called("", &server.server);
            let same = merged.servers.iter_mut().chain(&mut here).find(|other: &&mut MergedServer| other.read == read);
            if let Some(same) = same {
                if same.server.alias != *wanted {
                    let (title, alias) = (file.title(), &same.server.alias);
                    merged.notes.push(format!("`{wanted}` of {title} is the same as `{alias}`, and taken once"));
                } else if same.title != file.title() {
                    same.comments[0].push_str(&format!(", {}", file.title()));
                }
                continue;
            }
            let taken = |alias: &str| {
                merged.servers.iter().chain(&here).find(|other| other.server.alias == alias).map(|other| other.title)
            };
            let mut alias = wanted.clone();
            if let Some(other) = taken(wanted) {
                alias = file.client.map_or(wanted.clone(), |client| format!("{wanted}-{}", client.word()));
                let mut number = 2;
                while taken(&alias).is_some() {
                    alias = format!("{wanted}-{number}");
                    number += 1;
                }
                let title = file.title();
                merged.notes.push(format!(
                    "`{wanted}` of {title} is not the same as that of {other}, and is called `{alias}` here"
                ));
            }
            let mut ours = called(&alias, &server.server);
            let is_known = known.contains(&ours.alias);
            let taken = if is_known { Vec::new() } else { literal::take_out(&mut ours, names) };
            let comments = std::iter::once(format!("from {}", file.title())).chain(server.notes.clone()).collect();
            let server = MergedServer { server: ours, comments, taken, read, title: file.title() };
            match is_known {
                true => {
                    let note =
                        format!("`{}` of {} is in the file already, and left alone", server.server.alias, server.title);
                    merged.notes.push(note);
                    here.push(server);
                }
                false => merged.servers.push(server),
            }
        }
    }
    merged
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
        Found { client: Some(client), path: path.to_owned(), servers: Ok(read_foreign(&text, path).expect("servers")) }
    }

    fn aliases(merged: &Merged) -> Vec<(&str, &str)> {
        merged.servers.iter().map(|one| (one.server.alias.as_str(), one.comments[0].as_str())).collect()
    }

    const GIT: &str = r#""git": {"command": "git-server"}"#;
    const OTHER_GIT: &str = r#""git": {"command": "git-server", "args": ["--fast"]}"#;

    #[test]
    fn a_server_that_several_clients_know_is_taken_once() {
        let same = r#""Versions": {"command": "git-server"}"#;
        let found = [file(Client::Cursor, GIT), file(Client::Windsurf, GIT), file(Client::ClaudeCode, same)];
        let merged = merge(&found, &[], &[], &mut Names::default());
        assert_eq!(aliases(&merged), [("git", "from Cursor, Windsurf")]);
        assert_eq!(merged.notes, ["`Versions` of Claude Code is the same as `git`, and taken once"]);
    }

    #[test]
    fn a_name_with_other_settings_gets_the_name_of_its_client() {
        let third = r#""git": {"command": "third"}, "git-cursor": {"command": "x"}"#;
        let found = [file(Client::ClaudeDesktop, GIT), file(Client::Cursor, OTHER_GIT), file(Client::Cursor, third)];
        let merged = merge(&found, &[], &[], &mut Names::default());
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
        let merged = merge(&found, &known, &[], &mut Names::default());
        assert_eq!(aliases(&merged), []);
        assert_eq!(merged.notes[0], "`git` of Claude Desktop is in the file already, and left alone");
        let merged = merge(&found, &known[..1], &[], &mut Names::default());
        assert_eq!(aliases(&merged), [("git-cursor", "from Cursor")]);
    }

    #[test]
    fn only_those_that_are_named_are_taken() {
        let found = [file(Client::Cursor, &format!("{GIT}, \"web\": {{\"url\": \"http://h/\"}}"))];
        let merged = merge(&found, &[], &["web".to_owned()], &mut Names::default());
        assert_eq!(aliases(&merged), [("web", "from Cursor")]);
    }
}
