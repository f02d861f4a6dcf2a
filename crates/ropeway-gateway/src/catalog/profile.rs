//! Profiles: selections of servers and tools, each at its own address.

use std::collections::HashMap;
use std::sync::Arc;

use ropeway_config::{GatewaySettings, PrefixMode, ProfileSettings, ToolSettings};
use ropeway_core::tool::Alias;

/// The profile name for `/mcp`.
pub(crate) const DEFAULT_PROFILE: &str = "default";

/// The profile that a client selects: the path after `/mcp`, as in `/mcp/NAME`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Selector {
    /// The profile at `/mcp`.
    All,
    /// A profile or a server.
    Named(String),
}

impl Selector {
    /// Returns the profile's name.
    pub(crate) fn name(&self) -> &str {
        match self {
            Self::All => DEFAULT_PROFILE,
            Self::Named(name) => name,
        }
    }
}

/// A selection of servers and tools.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Profile {
    pub(crate) name: Arc<str>,
    /// The servers, in configuration order. Some may not be connected.
    pub(crate) servers: Vec<Alias>,
    pub(crate) prefix: PrefixMode,
    /// Filters and overrides, applied after each server's own.
    pub(crate) tools: ToolSettings,
    /// Whether clients see two tools that find and call the others.
    pub(crate) search: bool,
}

impl Profile {
    fn new(settings: &ProfileSettings, prefix: PrefixMode, aliases: &[Alias]) -> Self {
        let is_selected = |alias: &&Alias| settings.servers.as_ref().is_none_or(|servers| servers.contains(alias));
        Self {
            name: settings.name.as_str().into(),
            servers: aliases.iter().filter(is_selected).cloned().collect(),
            prefix: settings.prefix.unwrap_or(prefix),
            tools: settings.tools.clone(),
            search: settings.search,
        }
    }

    /// Returns one server's profile, with the server's own names.
    fn of_server(alias: &Alias) -> Self {
        let settings = ProfileSettings::new(alias.as_str()).with_prefix(PrefixMode::Never);
        Self::new(&settings, PrefixMode::Never, std::slice::from_ref(alias))
    }

    /// Returns `true` if names get their server's prefix. Depends on the configuration only, so that a name does not
    /// change when a server connects or disconnects.
    pub(crate) fn is_prefixed(&self) -> bool {
        match self.prefix {
            PrefixMode::Auto => self.servers.len() > 1,
            PrefixMode::Always => true,
            PrefixMode::Never => false,
        }
    }

    /// Returns the profile's server, if it has only one and exposes it under its own names.
    pub(crate) fn transparent(&self) -> Option<&Alias> {
        match &self.servers[..] {
            [only] if !self.is_prefixed() => Some(only),
            _ => None,
        }
    }
}

/// A configuration's profiles: the configured profiles, one for all servers, and one for each server.
#[derive(Clone, Debug, Default)]
pub(crate) struct Profiles(HashMap<Arc<str>, Arc<Profile>>);

impl Profiles {
    /// Creates the profiles. `aliases` are the servers that are not disabled, in configuration order.
    pub(crate) fn new(settings: &GatewaySettings, aliases: &[Alias]) -> Self {
        let default = Profile::new(&ProfileSettings::new(DEFAULT_PROFILE), settings.prefix, aliases);
        let servers = aliases.iter().map(Profile::of_server);
        let configured = settings.profiles.iter().map(|profile| Profile::new(profile, settings.prefix, aliases));
        // Later profiles replace earlier ones with the same name.
        let all = servers.chain([default]).chain(configured);
        Self(all.map(|profile| (profile.name.clone(), Arc::new(profile))).collect())
    }

    /// Returns a profile, or a server's profile.
    pub(crate) fn get(&self, name: &str) -> Option<&Arc<Profile>> {
        self.0.get(name)
    }

    /// Returns all profile names.
    pub(crate) fn names(&self) -> impl Iterator<Item = &Arc<str>> {
        self.0.keys()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_selects_a_profile_or_a_server() {
        let settings = GatewaySettings::default()
            .with_profile(ProfileSettings::new("coding").with_servers(vec!["git".into(), "files".into()]))
            .with_profile(ProfileSettings::new("one").with_servers(vec!["git".into()]).with_search(true));
        let profiles = Profiles::new(&settings, &["files".into(), "git".into(), "web".into()]);
        let servers = |name: &str| profiles.get(name).map(|profile| profile.servers.clone());
        let aliases = |names: &[&str]| Some(names.iter().map(|name| Alias::from(*name)).collect::<Vec<_>>());
        assert_eq!(servers(Selector::All.name()), aliases(&["files", "git", "web"]));
        // The configuration defines the order.
        assert_eq!(servers("coding"), aliases(&["files", "git"]));
        assert_eq!(servers("web"), aliases(&["web"]));
        assert_eq!(servers("other"), None);
        assert_eq!(profiles.get("web").and_then(|profile| profile.transparent()), Some(&"web".into()));
        assert_eq!(profiles.get("coding").and_then(|profile| profile.transparent()), None);
        assert!(profiles.get("one").is_some_and(|profile| profile.search));
    }

    #[test]
    fn a_configured_default_profile_replaces_the_one_of_all_servers() {
        let one = ProfileSettings::new(DEFAULT_PROFILE).with_servers(vec!["b".into()]).with_prefix(PrefixMode::Always);
        let settings = GatewaySettings::default().with_profile(one);
        let profiles = Profiles::new(&settings, &["a".into(), "b".into()]);
        let default = profiles.get(Selector::All.name()).expect("a profile");
        assert_eq!((&default.servers[..], default.is_prefixed()), (&["b".into()][..], true));
    }

    #[test]
    fn prefixes_depend_on_the_number_of_configured_servers() {
        let is_prefixed = |prefix, aliases: &[Alias]| {
            let profiles = Profiles::new(&GatewaySettings::default().with_prefix(prefix), aliases);
            profiles.get(DEFAULT_PROFILE).is_some_and(|profile| profile.is_prefixed())
        };
        let (one, two) = (["a".into()], ["a".into(), "b".into()]);
        assert_eq!((is_prefixed(PrefixMode::Auto, &one), is_prefixed(PrefixMode::Auto, &two)), (false, true));
        assert_eq!((is_prefixed(PrefixMode::Always, &one), is_prefixed(PrefixMode::Always, &two)), (true, true));
        assert_eq!((is_prefixed(PrefixMode::Never, &one), is_prefixed(PrefixMode::Never, &two)), (false, false));
    }
}
