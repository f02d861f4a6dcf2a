//! Shortcuts for hosts that keep their tools themselves.

use std::sync::Arc;

use super::{Bridge, StartError};
use crate::checked::CheckedTool;
use crate::config::Config;
use crate::registry::Registry;
use crate::tool::Tool;

/// Connects to all servers and gives their tools beside the bridge that holds them.
pub async fn connect_and_discover(config: Config) -> Result<(Bridge, Vec<Arc<dyn Tool>>), StartError> {
    let bridge = Bridge::new(config)?;
    bridge.start().await?;
    let tools = bridge.tools().registry.tools().map(CheckedTool::tool).collect();
    Ok((bridge, tools))
}

/// Connects to all servers and adds their tools to those of the host; where names are equal, the servers' win.
///
/// The tools work for as long as the bridge lives.
pub async fn discover_and_register(config: Config, tools: &mut Registry) -> Result<Bridge, StartError> {
    let (bridge, found) = connect_and_discover(config).await?;
    for tool in found {
        if let Some(collision) = tools.register(tool) {
            bridge.inner.roof.warn(None, collision.to_string());
        }
    }
    Ok(bridge)
}
