//! The scripted server as a program: `scripted-server [--http PORT] [SCRIPT | @FILE]`.

use std::process::exit;

use ropeway_testing::{HttpScriptedServer, Script, serve_stdio};

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let mut arguments: Vec<String> = std::env::args().skip(1).collect();
    let port = match arguments.first().map(String::as_str) {
        Some("--http") if arguments.len() >= 2 => {
            let port = arguments.drain(..2).nth(1).and_then(|port| port.parse().ok());
            Some(port.unwrap_or_else(|| usage("the port is not a number")))
        }
        _ => None,
    };
    let script = script(arguments.first().map(String::as_str));
    let Some(port) = port else {
        exit(serve_stdio(script).await);
    };
    let lifetime = std::time::Duration::from_millis(script.process.lifetime_ms);
    match HttpScriptedServer::start_process(port, script).await {
        Ok(server) => {
            println!("{}", server.url());
            tokio::time::sleep(lifetime).await;
        }
        Err(error) => {
            eprintln!("scripted-server: could not listen on port {port}: {error}");
            exit(1);
        }
    }
}

fn script(argument: Option<&str>) -> Script {
    let text = match argument {
        None => return Script::default(),
        Some(argument) => match argument.strip_prefix('@') {
            Some(path) => std::fs::read_to_string(path).unwrap_or_else(|error| usage(&format!("`{path}`: {error}"))),
            None => argument.to_owned(),
        },
    };
    serde_json::from_str(&text).unwrap_or_else(|error| usage(&format!("invalid script: {error}")))
}

fn usage(problem: &str) -> ! {
    eprintln!("scripted-server: {problem}\nusage: scripted-server [--http PORT] [SCRIPT | @FILE]");
    exit(2);
}
