//! Servers that need a sign-in, their authorization server, and gateways in front of them, for the web page test.

use std::fs;
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use serde_json::{Value, json};

use crate::background::Background;
use crate::gateway::{self, Gateway};
use crate::{paths, servers};

/// Maximum time from the start of a server to its first connection.
const START: Duration = Duration::from_secs(30);

/// An authorization server (oidc-provider), two protected servers, and two gateways: one for all clients, one that requires keys.
#[derive(Debug)]
pub struct ProtectedServers {
    issuer: Background,
    sdk: Background,
    /// A gateway as a protected server, and the gateways with the page.
    gateways: Vec<Gateway>,
    /// The URLs and keys, for the test's script.
    pub description: Value,
}

impl ProtectedServers {
    /// Starts them all. `keys` is the key file for the gateway that requires keys, and `key` and `restricted` are keys in it.
    pub fn start(ropeway: &Path, keys: &Path, key: &str, restricted: &str) -> Result<Self> {
        let [issuer_port, web_port, sdk_port] = free_ports()?;
        let url = |port: u16| format!("http://127.0.0.1:{port}");
        let (issuer_url, web, sdk_url) =
            (url(issuer_port), format!("{}/mcp", url(web_port)), format!("{}/mcp", url(sdk_port)));
        let script = |path: &str| {
            let mut node = Command::new(servers::node());
            node.arg(paths::servers().join(path));
            node
        };
        let issuer = Background::start(script("auth/oidc.mjs").arg(issuer_port.to_string()).arg(&web))?;
        wait_for(issuer_port)?;
        let sdk = Background::start(script("npm/protected_server.mjs").arg(sdk_port.to_string()).arg(&issuer_url))?;
        wait_for(sdk_port)?;
        let demo = json!([{ "alias": "demo", "command": ropeway, "args": ["demo-server"] }]);
        let jwt = json!({ "issuer": issuer_url, "audience": web, "scopes": ["mcp"] });
        let upstream = json!({ "servers": demo, "gateway": { "auth": { "jwt": jwt } } });
        let open = json!({ "servers": [
            { "alias": "web", "url": web, "auth": "oauth" },
            { "alias": "sdk", "url": sdk_url },
        ] });
        let keyed = json!({
            "servers": [
                { "alias": "web", "url": web },
                { "alias": "sdk", "url": sdk_url },
                { "alias": "mail", "url": sdk_url, "auth": { "oauth": { "per_principal": true } } },
            ],
            "gateway": { "auth": { "keys_file": keys }, "profiles": { "coding": { "servers": ["web"] } } },
        });
        let start = |name: &str, config: &Value, port: u16| {
            let config = gateway::write_config(name, config)?;
            // The last run's tokens.
            let _ = fs::remove_dir_all(config.with_extension("home"));
            Gateway::start(ropeway, &config, &format!("127.0.0.1:{port}"))
        };
        let gateways = vec![
            start("page-upstream", &upstream, web_port)?,
            start("page-sign-in", &open, 0)?,
            start("page-sign-in-keys", &keyed, 0)?,
        ];
        let page = |at: usize| gateways[at].url.trim_end_matches("/mcp").to_owned();
        let description = json!({
            "issuer": issuer_url, "url": page(1), "keyed": { "url": page(2), "key": key, "restricted": restricted },
        });
        Ok(Self { issuer, sdk, gateways, description })
    }

    /// Ends them all, those in front first.
    pub fn stop(self) -> Result<()> {
        self.gateways.into_iter().rev().try_for_each(|gateway| gateway.program.stop())?;
        self.sdk.stop()?;
        self.issuer.stop()
    }
}

/// Returns free ports on this machine.
fn free_ports<const N: usize>() -> Result<[u16; N]> {
    // All at once, so that they differ.
    let listeners = [(); N].map(|()| TcpListener::bind("127.0.0.1:0"));
    let mut ports = [0; N];
    for (port, listener) in ports.iter_mut().zip(listeners) {
        *port = listener?.local_addr()?.port();
    }
    Ok(ports)
}

/// Waits until a port accepts connections.
fn wait_for(port: u16) -> Result<()> {
    let end = Instant::now() + START;
    while TcpStream::connect(("127.0.0.1", port)).is_err() {
        if Instant::now() > end {
            bail!("no server listens on port {port} after {START:?}");
        }
        thread::sleep(Duration::from_millis(50));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn free_ports_differ() {
        let [one, two, three] = free_ports().expect("ports");
        assert!(one != two && two != three && one != three && one > 0);
    }
}
