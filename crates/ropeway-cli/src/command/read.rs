//! `ropeway read`: one resource.

use std::path::PathBuf;

use ropeway::content::{ContentPart, EmbeddedResource};
use ropeway::mcp::Mcp;
use ropeway::tool::{Alias, CallContext};
use serde_json::{Value, json};

use super::{Setting, json_text, print_answer, say};
use crate::answer::{Folder, show_parts};
use crate::each::each;
use crate::failure::{Exit, Failure};
use crate::server::ServerOptions;
use crate::session::Session;

/// Read a resource
#[derive(Debug, clap::Args)]
#[command(override_usage = "ropeway read [OPTIONS] [SERVER] <URI>")]
pub(super) struct Read {
    /// The resource, as `ropeway resources` shows it, or as an answer links to it; the server may be named before it
    #[arg(value_name = "URI", required = true, num_args = 1..=2)]
    words: Vec<String>,
    /// Keep what is not text in this folder
    #[arg(long, value_name = "DIR")]
    save: Option<PathBuf>,
    #[command(flatten)]
    server: ServerOptions,
}

impl Read {
    pub(super) async fn run(self, setting: Setting) -> Result<Exit, Failure> {
        let (name, uri) = match &self.words[..] {
            [name, uri] => (Some(name.as_str()), uri.as_str()),
            [uri, ..] => (None, uri.as_str()),
            [] => (None, ""),
        };
        let servers = self.server.servers()?.awake().maybe_only(name)?;
        Session::with(servers, &setting, async |session| {
            let (alias, server) = owner(session, uri).await?;
            let cx = CallContext::default();
            let contents = session.step("reading from", &alias, server.read_resource(uri, &cx)).await??;
            let folder = self.save.as_deref().map(|path| Folder::new(path, alias.as_str()));
            let parts: Vec<ContentPart> = contents.into_iter().map(ContentPart::Resource).collect();
            if setting.json {
                let resources: Vec<Value> = parts.iter().map(|part| json!(part)["resource"].take()).collect();
                print_answer(&json_text(&json!({"server": alias, "contents": resources}))?)?;
            }
            let shown = show_parts(&mut parts.iter(), folder.as_ref())?;
            if !setting.json {
                print_answer(&bare(&parts).unwrap_or(shown.text))?;
                shown.notes.iter().for_each(|note| say(&format!("{note}\n")));
            }
            Ok(Exit::Done)
        })
        .await
    }
}

/// One text alone needs no heading: whoever asked knows its name.
fn bare(parts: &[ContentPart]) -> Option<String> {
    use ropeway::content::ResourceContents;
    match parts {
        [ContentPart::Resource(EmbeddedResource { contents: ResourceContents::Text(text), .. })] => {
            let text = crate::text::clean(text);
            Some(if text.ends_with('\n') { text } else { text + "\n" })
        }
        _ => None,
    }
}

/// The server of a resource: the only one there is, or the one that lists it.
async fn owner(session: &Session, uri: &str) -> Result<(Alias, Mcp), Failure> {
    let there: Vec<(Alias, Mcp)> = {
        let verdicts = session.listing().verdicts;
        let server = |verdict: ropeway::registry::Verdict| {
            let server = session.server(&verdict.server).filter(Mcp::is_connected)?;
            Some((verdict.server, server))
        };
        verdicts.into_iter().filter_map(server).collect()
    };
    if let [only] = &there[..] {
        return Ok(only.clone());
    }
    let listed = each(session, "looking for it at", async |server| server.list_resources().await).await?;
    let owners: Vec<&Alias> = listed
        .there()
        .filter(|(_, resources)| resources.iter().any(|resource| resource.uri == uri))
        .map(|(alias, _)| alias)
        .collect();
    match owners[..] {
        [owner] => Ok(there.into_iter().find(|(alias, _)| alias == owner).ok_or_else(|| nobody(uri))?),
        [] => Err(nobody(uri)),
        _ => {
            let names: Vec<&str> = owners.into_iter().map(Alias::as_str).collect();
            let failure = Failure::usage(format!("several servers have `{uri}`"));
            Err(failure.hint(format!("say which one before it: {}", names.join(", "))))
        }
    }
}

fn nobody(uri: &str) -> Failure {
    let failure = Failure::usage(format!("no server lists `{uri}`"));
    failure.hint("name the server before it, if it is one that an answer links to")
}
