//! `ropeway read`: reads a resource.

use std::path::PathBuf;

use ropeway_core::content::{ContentPart, EmbeddedResource};
use ropeway_core::tool::{Alias, CallError};
use ropeway_mcp::{Mcp, ResourceTemplate};
use serde_json::{Value, json};

use crate::connect::command_context::CommandContext;
use crate::connect::fan_out::fan_out;
use crate::connect::server_options::ServerOptions;
use crate::connect::session::Session;
use crate::connect::trace_variable::call_context;
use crate::connect::waiting::Waiting;
use crate::failure::{Exit, Failure};
use crate::output::exact_output::{TextMode, exact_parts};
use crate::output::json_output::SavedParts;
use crate::output::print::{json_text, print_bytes, print_paged_unredacted, print_unredacted, say};
use crate::output::render_result::{SaveFolder, decode_text, nothing_saved, render_parts};

/// Read a resource
#[derive(Debug, clap::Args)]
#[command(override_usage = "ropeway read [OPTIONS] [SERVER] <URI>")]
pub(super) struct Read {
    /// URI of the resource, optionally after the name of its server
    #[arg(value_name = "URI", required = true, num_args = 1..=2)]
    words: Vec<String>,
    /// Save binary contents to this directory; a path with an extension is the file
    #[arg(long, value_name = "PATH")]
    save: Option<PathBuf>,
    /// Print text byte for byte, even on a terminal; a binary resource is written to a pipe or file as is
    #[arg(long, conflicts_with = "json")]
    raw: bool,
    #[command(flatten)]
    server: ServerOptions,
}

impl Read {
    pub(super) async fn run(self, context: CommandContext) -> Result<Exit, Failure> {
        let (name, uri) = match &self.words[..] {
            [name, uri] => (Some(name.as_str()), uri.as_str()),
            [uri, ..] => (None, uri.as_str()),
            [] => (None, ""),
        };
        let servers = self.server.servers(&context)?.eager().maybe_only(name)?.waiting(Waiting::UnlessFailed);
        Session::with(servers, &context, async |session| {
            let (alias, server) = owner(session, uri).await?;
            let cx = call_context();
            let contents = match session.step("reading from", &alias, server.read_resource_with(uri, &cx)).await? {
                Ok(contents) => contents,
                Err(error) => return Err(read_failure(session, &alias, &server, uri, error).await?),
            };
            let parts: Vec<ContentPart> = contents.into_iter().map(ContentPart::Resource).collect();
            let folder = self.save.as_deref().map(|path| SaveFolder::for_parts(path, alias.as_str(), &parts));
            if context.json {
                let saved = folder.map(|folder| SavedParts::save(&parts, &folder)).transpose()?.unwrap_or_default();
                let contents: Vec<Value> =
                    saved.parts(&parts).into_iter().map(|mut part| part["resource"].take()).collect();
                let mut document = json!({"server": alias, "contents": contents});
                let paths: Vec<String> = saved.paths().collect();
                if !paths.is_empty() {
                    document["saved"] = json!(paths);
                }
                print_unredacted(&json_text(&document)?)?;
                paths.iter().for_each(|path| say(&format!("saved {path}\n")));
                return Ok(Exit::Done);
            }
            let is_shown = folder.is_none();
            let parts: Vec<ContentPart> =
                parts.into_iter().map(|part| if is_shown { decode_text(part) } else { part }).collect();
            let mode = TextMode::new(self.raw);
            let notes = if mode == TextMode::Clean {
                let shown = render_parts(parts.iter(), folder.as_ref())?;
                print_paged_unredacted(&context.pager, &bare(&parts).unwrap_or(shown.text))?;
                shown.notes
            } else {
                let output = exact_parts(&parts, mode, folder.as_ref())?;
                print_bytes(&output.bytes)?;
                output.notes
            };
            let unused = folder.as_ref().and_then(|_| nothing_saved(&parts));
            notes.iter().chain(&unused).for_each(|note| say(&format!("{note}\n")));
            Ok(Exit::Done)
        })
        .await
    }
}

/// Returns the failure for a read. A resource that the server does not list is unknown, as if no server lists
/// it.
async fn read_failure(
    session: &Session,
    alias: &Alias,
    server: &Mcp,
    uri: &str,
    error: CallError,
) -> Result<Failure, Failure> {
    if !matches!(error, CallError::Refused { .. }) {
        return Ok(error.into());
    }
    // A server that cannot list its resources does not know this one either.
    let known = session.step("listing the resources of", alias, matches(server, uri)).await?;
    Ok(if known.is_ok_and(|(_, is_known)| is_known) {
        error.into()
    } else {
        Failure::usage(format!("server `{alias}` has no resource `{uri}`"))
            .caused_by(&error)
            .hint("try `ropeway resources` to list the available ones")
    })
}

/// Returns whether a server lists a resource, and whether it does or has a matching template.
async fn matches(server: &Mcp, uri: &str) -> Result<(bool, bool), CallError> {
    let exact = server.list_resources().await?.iter().any(|resource| resource.uri == uri);
    let like = |template: &ResourceTemplate| fits(&template.uri_template, uri);
    Ok((exact, exact || server.list_resource_templates().await?.iter().any(like)))
}

/// A single text is printed without its URI.
fn bare(parts: &[ContentPart]) -> Option<String> {
    use ropeway_core::content::ResourceContents;
    match parts {
        [ContentPart::Resource(EmbeddedResource { contents: ResourceContents::Text(text), .. })] => {
            let text = crate::terminal::text::clean(text);
            Some(if text.ends_with('\n') { text } else { text + "\n" })
        }
        _ => None,
    }
}

/// Returns a resource's server: the only one, the one that lists it, or the one with a matching template.
async fn owner(session: &Session, uri: &str) -> Result<(Alias, Mcp), Failure> {
    let listed = match session.single() {
        Some(alias) => vec![(alias.clone(), true)],
        None => listed(session, uri).await?,
    };
    let exact: Vec<&Alias> = listed.iter().filter(|(_, exact)| *exact).map(|(alias, _)| alias).collect();
    let alike: Vec<&Alias> = listed.iter().map(|(alias, _)| alias).collect();
    match if exact.is_empty() { &alike[..] } else { &exact[..] } {
        [alias] => {
            let server =
                session.server(alias).ok_or_else(|| Failure::usage(format!("server `{alias}` was removed")))?;
            Ok(((*alias).clone(), server))
        }
        [] => {
            let failure = Failure::usage(format!("no server lists `{uri}`"));
            let failure = failure.hint("try `ropeway read SERVER URI` for a resource that is not listed");
            Err(session.advice.add_unavailable(failure, &session.bridge.statuses()))
        }
        several => {
            let names: Vec<&str> = several.iter().map(|alias| alias.as_str()).collect();
            let failure = Failure::usage(format!("resource `{uri}` is ambiguous"));
            Err(failure.hint(format!("name one of the servers before it: {}", names.join(", "))))
        }
    }
}

/// Returns the servers that list a resource (`true`) or have a matching template (`false`).
async fn listed(session: &Session, uri: &str) -> Result<Vec<(Alias, bool)>, Failure> {
    let found = fan_out(session, "asking", async |server| matches(&server, uri).await).await?;
    if found.exit() == Exit::Timeout && !found.answered().any(|(_, (exact, _))| *exact) {
        return Err(session.timeout_failure("asking"));
    }
    Ok(found.answered().filter(|(_, (_, like))| *like).map(|(alias, (exact, _))| (alias.clone(), *exact)).collect())
}

/// Returns `true` if a URI starts like a template.
fn fits(template: &str, uri: &str) -> bool {
    let start = template.split('{').next().unwrap_or_default();
    start.contains(':') && uri.starts_with(start)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_template_matches_by_its_prefix() {
        assert!(fits("demo://text/{id}", "demo://text/1"));
        assert!(!fits("demo://text/{id}", "demo://blob/1"));
        assert!(!fits("{+uri}", "demo://blob/1"));
    }
}
