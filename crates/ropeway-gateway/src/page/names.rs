//! Which server each tool in a profile belongs to, for the web page.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::client::principal::Principal;
use crate::shared::{GatewayShared, permitted};
use ropeway_core::tool::Alias;

/// A tool's server, and the server's own name for it.
#[derive(Serialize)]
pub(crate) struct ToolOwner {
    server: Alias,
    tool: Box<str>,
}

/// Returns the owners of the tools that a principal sees in a profile, by the names that clients use. `None` if the principal may
/// not select the profile.
pub(crate) fn tool_names(
    shared: &GatewayShared,
    principal: &Principal,
    profile: &str,
) -> Option<BTreeMap<Box<str>, ToolOwner>> {
    let router = shared.routers().get(profile).filter(|_| principal.allows_profile(profile))?;
    let router = permitted(router, principal);
    let owner = |name: &str| {
        let route = router.tool(name)?;
        Some((name.into(), ToolOwner { server: route.server.clone(), tool: route.own_name.clone() }))
    };
    Some(router.tool_entries().iter().filter_map(|entry| owner(&entry.name)).collect())
}
