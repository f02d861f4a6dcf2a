//! `ropeway resources`: lists resources.

use anstyle::Style;
use ropeway_core::tool::Alias;
use ropeway_mcp::{Resource, ResourceTemplate};
use serde_json::json;

use crate::connect::advice::status_line;
use crate::connect::command_context::CommandContext;
use crate::connect::fan_out::{Replies, fan_out};
use crate::connect::listing_cache::{ListedEntry, ListingCache, ListingKind};
use crate::connect::server_options::ServerOptions;
use crate::connect::session::Session;
use crate::connect::waiting::Waiting;
use crate::failure::{Exit, Failure};
use crate::terminal::status_icon::StatusIcon;
use crate::terminal::style::faint;
use crate::terminal::text::{clean, clean_line, columns, counted, size, width, wrap};

const FAINT: Style = Style::new().dimmed();

/// List resources
#[derive(Debug, clap::Args)]
pub(super) struct Resources {
    /// Only list resources of these servers
    #[arg(value_name = "SERVER")]
    names: Vec<String>,
    #[command(flatten)]
    server: ServerOptions,
}

/// One server's resources.
struct ServerResources {
    resources: Vec<Resource>,
    templates: Vec<ResourceTemplate>,
}

impl Resources {
    pub(super) async fn run(self, context: CommandContext) -> Result<Exit, Failure> {
        let servers = self.server.servers(&context)?.lists_servers().eager().only_these(&self.names)?;
        // Servers that are named are needed.
        let waiting = if self.names.is_empty() { Waiting::UnlessFailed } else { Waiting::ForAll };
        let servers = servers.waiting(waiting);
        let cache = ListingCache::new(ListingKind::Resources, &servers);
        Session::with_list(servers, &context, async |session| {
            let found = fan_out(session, "listing the resources of", async |server| {
                let (resources, templates) = (server.list_resources().await?, server.list_resource_templates().await?);
                Ok(ServerResources { resources, templates })
            });
            let found = found.await?;
            for (server, found) in found.answered() {
                let name = |it: &Resource| ListedEntry::new(&it.uri, Some(it.title.as_deref().unwrap_or(&it.name)));
                cache.store(server, found.resources.iter().map(name));
            }
            context.print_long(&json(&found), || list(&found, session.single().is_some(), width()))?;
            Ok(found.exit())
        })
        .await
    }
}

fn json(found: &Replies<ServerResources>) -> serde_json::Value {
    found.json(|found| json!({"resources": found.resources, "templates": found.templates}))
}

fn list(found: &Replies<ServerResources>, whole: bool, width: usize) -> String {
    let server = |(server, found): (&Alias, &ServerResources)| {
        let resources = found.resources.iter().map(|it| Entry::of_resource(it).show(whole, width));
        let templates = found.templates.iter().map(|it| Entry::of_template(it).show(whole, width));
        let entries: String = resources.chain(templates).collect();
        match entries.as_str() {
            "" => None,
            _ => Some(status_line(StatusIcon::Good, server, &count(found), "") + &entries),
        }
    };
    let servers: Vec<String> = found.answered().filter_map(server).collect();
    let text = if servers.is_empty() { found.none_text("resources") } else { servers.join("\n") };
    text + &found.problems_text()
}

fn count(found: &ServerResources) -> String {
    let some = |count: usize, what: &str| (count > 0).then(|| counted(count, what));
    let parts = [some(found.resources.len(), "resource"), some(found.templates.len(), "template")];
    parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

/// A resource or a resource template.
struct Entry<'a> {
    uri: &'a str,
    /// Name, type and size.
    about: Vec<String>,
    description: Option<&'a str>,
}

impl<'a> Entry<'a> {
    fn of_resource(resource: &'a Resource) -> Self {
        let bytes = resource.size.and_then(|bytes| usize::try_from(bytes).ok()).map(size);
        let about = about(&resource.uri, &resource.name, resource.mime_type.as_deref());
        Self { uri: &resource.uri, about: about.chain(bytes).collect(), description: resource.description.as_deref() }
    }

    fn of_template(template: &'a ResourceTemplate) -> Self {
        let about = about(&template.uri_template, &template.name, template.mime_type.as_deref());
        Self { uri: &template.uri_template, about: about.collect(), description: template.description.as_deref() }
    }

    /// Formats the entry. The URI is never cut.
    fn show(&self, whole: bool, width: usize) -> String {
        let (uri, about) = (clean_line(self.uri), clean_line(&self.about.join(" · ")));
        let mut text = format!("  {uri}");
        text.push_str(&match columns(&uri) + columns(&about) + 4 {
            _ if about.is_empty() => "\n".to_owned(),
            together if together <= width => format!("  {FAINT}{about}{FAINT:#}\n"),
            _ => format!("\n{}", faint(&wrap(&about, width, 6))),
        });
        if let Some(description) = self.description.filter(|_| whole) {
            text.push_str(&wrap(&clean(description), width, 6));
        }
        text
    }
}

/// Returns name and type. A name that the URI ends with is omitted.
fn about(uri: &str, name: &str, kind: Option<&str>) -> impl Iterator<Item = String> {
    let name = Some(name).filter(|name| !name.is_empty() && !uri.ends_with(name));
    [name, kind].into_iter().flatten().map(str::to_owned).collect::<Vec<_>>().into_iter()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_resource_is_shown_with_its_whole_address() {
        let entry = Entry {
            uri: "file:///a/very/long/path",
            about: vec!["a\u{1b}[2J".into(), "1 KB".into()],
            description: Some("What it is."),
        };
        let shown = |whole, width| anstream::adapter::strip_str(&entry.show(whole, width)).to_string();
        assert_eq!(shown(false, 80), "  file:///a/very/long/path  a · 1 KB\n");
        assert_eq!(shown(true, 20), "  file:///a/very/long/path\n      a · 1 KB\n      What it is.\n");
    }

    #[test]
    fn a_name_is_not_repeated() {
        assert_eq!(about("x://docs/a.md", "a.md", Some("text/markdown")).collect::<Vec<_>>(), ["text/markdown"]);
        assert_eq!(about("x://docs/1", "First", None).collect::<Vec<_>>(), ["First"]);
    }
}
