//! The official filesystem server behind a gateway: without arguments, it may use only the roots of its client.

use ropeway::config::{Config, ServerConfig, ServerEntry};
use ropeway::gateway::Gateway;
use ropeway::testing::{Script, ScriptedServer};
use serde_json::{Value, json};

use crate::fast_config::until;
use crate::gateway::kit::{GatewayKit, Pipe, entry, request};
use crate::scene::{Scene, scene};

/// A client on a pipe that has one root.
struct RootsClient {
    pipe: Pipe,
    root: String,
}

impl RootsClient {
    async fn connect(kit: &GatewayKit, root: String) -> Self {
        let mut pipe = Pipe::open(kit);
        let info = json!({"name": "kit", "version": "0"});
        let capabilities = json!({"roots": {"listChanged": true}});
        let params = json!({"protocolVersion": "2025-11-25", "capabilities": capabilities, "clientInfo": info});
        pipe.send(&request(0, "initialize", params)).await;
        let mut client = Self { pipe, root };
        client.response(0).await;
        client.pipe.send(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"})).await;
        client
    }

    /// Waits for a response, and answers requests for roots meanwhile.
    async fn response(&mut self, id: u64) -> Value {
        loop {
            let message = self.pipe.receive().await;
            if message["method"] == "roots/list" {
                let roots = json!({"roots": [{"uri": format!("file://{}", self.root), "name": "project"}]});
                self.pipe.send(&json!({"jsonrpc": "2.0", "id": message["id"], "result": roots})).await;
            } else if message["id"] == id {
                return message;
            }
        }
    }

    /// Returns the folders that the server may use for this client.
    async fn allowed(&mut self, id: u64) -> String {
        let params = json!({"name": "files_list_allowed_directories", "arguments": {}});
        self.pipe.send(&request(id, "tools/call", params)).await;
        self.response(id).await["result"]["content"][0]["text"].as_str().expect("text").to_owned()
    }
}

/// Makes a folder, and returns its path without links.
fn folder(scene: &Scene, name: &str) -> String {
    let path = scene.directory().join(name);
    std::fs::create_dir(&path).expect("a folder");
    path.canonicalize().expect("a folder").to_string_lossy().into_owned()
}

#[test]
fn the_filesystem_server_uses_the_roots_of_each_client() {
    scene(|scene| async move {
        let mut server = scene.server("filesystem");
        // Without the allowed folder.
        server.args.pop();
        let scripted = ScriptedServer::new(Script::default());
        let files = ServerEntry::new(ServerConfig::new("files", server));
        let config = Config::default().with_server(files).with_server(entry("other", &scripted));
        let kit = GatewayKit::launch(scripted, Gateway::builder(config)).await;
        let (first_root, second_root) = (folder(&scene, "first"), folder(&scene, "second"));
        let mut first = RootsClient::connect(&kit, first_root.clone()).await;
        assert_eq!(first.allowed(1).await, format!("Allowed directories:\n{first_root}"));
        assert_eq!(kit.gateway.status().isolated, 0, "a lone client shares the process");
        let mut second = RootsClient::connect(&kit, second_root.clone()).await;
        assert_eq!(second.allowed(1).await, format!("Allowed directories:\n{second_root}"));
        assert_eq!(first.allowed(2).await, format!("Allowed directories:\n{first_root}"));
        assert_eq!(kit.gateway.status().isolated, 1);
        let other_root = folder(&scene, "other");
        first.root.clone_from(&other_root);
        first.pipe.send(&json!({"jsonrpc": "2.0", "method": "notifications/roots/list_changed"})).await;
        assert_eq!(first.allowed(3).await, format!("Allowed directories:\n{other_root}"));
        drop((first, second));
        until("the end of the second process", || kit.gateway.status().isolated == 0).await;
        kit.stop().await;
    });
}
