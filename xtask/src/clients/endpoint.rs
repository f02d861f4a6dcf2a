//! What a client connects to.

use serde_json::{Value, json};

/// What a client connects to.
#[derive(Clone, Debug, PartialEq)]
pub enum Endpoint {
    Url { url: String, key: Option<String> },
    Command(Vec<String>),
}

impl Endpoint {
    pub fn to_json(&self) -> Value {
        match self {
            Self::Url { url, key: None } => json!({ "url": url }),
            Self::Url { url, key: Some(key) } => {
                json!({ "url": url, "headers": { "Authorization": format!("Bearer {key}") } })
            }
            Self::Command(words) => json!({ "command": words }),
        }
    }
}
