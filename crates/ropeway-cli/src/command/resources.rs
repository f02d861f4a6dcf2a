//! `ropeway resources`: what the servers have to read.

use anstyle::Style;
use ropeway::mcp::{Resource, ResourceTemplate};
use ropeway::tool::Alias;
use serde_json::json;

use super::{Setting, print, print_json};
use crate::each::{Each, each};
use crate::failure::{Exit, Failure};
use crate::server::ServerOptions;
use crate::session::Session;
use crate::table::{Cell, Overflow, Table};
use crate::text::{size, terminal_width};

const FAINT: Style = Style::new().dimmed();

/// List the resources of the servers
#[derive(Debug, clap::Args)]
pub(super) struct Resources {
    /// Only the resources of this server
    #[arg(value_name = "SERVER")]
    name: Option<String>,
    #[command(flatten)]
    server: ServerOptions,
}

/// What one server has to read.
struct Found {
    resources: Vec<Resource>,
    templates: Vec<ResourceTemplate>,
}

impl Resources {
    pub(super) async fn run(self, setting: Setting) -> Result<Exit, Failure> {
        let servers = self.server.servers()?.awake().maybe_only(self.name.as_deref())?;
        Session::with(servers, &setting, async |session| {
            let found = each(session, "listing the resources of", async |server| {
                let (resources, templates) = (server.list_resources().await?, server.list_resource_templates().await?);
                Ok(Found { resources, templates })
            });
            let found = found.await?;
            match setting.json {
                true => print_json(&json(&found))?,
                false => print(&list(&found))?,
            }
            Ok(found.exit())
        })
        .await
    }
}

fn json(found: &Each<Found>) -> serde_json::Value {
    found.json(|found| json!({"resources": found.resources, "templates": found.templates}))
}

fn list(found: &Each<Found>) -> String {
    let mut table = Table::new(&["URI", "TYPE", "SIZE", "SERVER", "NAME"], Overflow::Cut);
    let mut count = 0;
    for (server, found) in found.there() {
        for resource in &found.resources {
            count += 1;
            table.row(row(&resource.uri, resource.mime_type.as_deref(), resource.size, server, &resource.name));
        }
        for template in &found.templates {
            count += 1;
            table.row(row(&template.uri_template, template.mime_type.as_deref(), None, server, &template.name));
        }
    }
    let mut text = match count {
        0 => "No server has resources.\n".to_owned(),
        _ => table.render(terminal_width(&std::io::stdout()), 0),
    };
    text.push_str(&found.absent());
    text
}

fn row(uri: &str, kind: Option<&str>, bytes: Option<u64>, server: &Alias, name: &str) -> [Cell; 5] {
    let bytes = bytes.and_then(|bytes| usize::try_from(bytes).ok()).map(size);
    [
        Cell::new(uri),
        Cell::new(kind.unwrap_or("-")).styled(FAINT),
        Cell::new(bytes.as_deref().unwrap_or("-")).styled(FAINT),
        Cell::new(server.as_str()).styled(FAINT),
        Cell::new(name),
    ]
}
