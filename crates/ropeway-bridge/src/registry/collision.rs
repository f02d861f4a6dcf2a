//! Name collisions between tools.

use std::fmt;

use serde::{Serialize, Serializer};

use ropeway_core::tool::Origin;

/// Two tools with the same name, and how the collision was resolved.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Collision {
    /// The name that both tools have.
    pub name: String,
    /// Origin of the tool that keeps the name.
    pub kept: Origin,
    /// Origin of the other tool.
    pub other: Origin,
    /// The other tool's new name; `None` if it cannot be called.
    #[serde(rename = "fate", serialize_with = "fate")]
    pub renamed_to: Option<String>,
}

/// Writes `{"renamed": "…"}` or `"dropped"`.
fn fate<S: Serializer>(renamed_to: &Option<String>, serializer: S) -> Result<S::Ok, S::Error> {
    match renamed_to {
        Some(name) => serializer.collect_map([("renamed", name)]),
        None => serializer.serialize_str("dropped"),
    }
}

impl fmt::Display for Collision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, kept, other, renamed_to } = self;
        write!(f, "{} and {} have the same name `{}`: ", ToolLabel(kept), ToolLabel(other), without_mcp_prefix(name))?;
        match renamed_to {
            None if kept == other => f.write_str("only one of them can be called"),
            None => write!(f, "only {} can be called", ToolLabel(kept)),
            Some(new) => {
                write!(f, "{} is called `{}` instead", ToolLabel(other), without_mcp_prefix(new))
            }
        }
    }
}

/// Removes the default prefix, for messages.
fn without_mcp_prefix(name: &str) -> &str {
    name.strip_prefix("mcp_").filter(|rest| !rest.is_empty()).unwrap_or(name)
}

/// Displays a tool in a message.
struct ToolLabel<'a>(&'a Origin);

impl fmt::Display for ToolLabel<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Origin::Local => f.write_str("a local tool"),
            Origin::Server { server, tool } => write!(f, "tool `{tool}` of server `{server}`"),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn of(server: &str) -> Origin {
        Origin::Server { server: server.into(), tool: "go".into() }
    }

    fn collision(kept: Origin, other: Origin, renamed_to: Option<&str>) -> Collision {
        Collision { name: "x".to_owned(), kept, other, renamed_to: renamed_to.map(str::to_owned) }
    }

    #[test]
    fn a_collision_names_both_tools_and_its_outcome() {
        let sentences = [
            (
                collision(of("a"), of("b"), None),
                "tool `go` of server `a` and tool `go` of server `b` have the same name `x`: only tool `go` of server `a` \
                 can be called",
            ),
            (
                collision(of("a"), of("b"), Some("x_2")),
                "tool `go` of server `a` and tool `go` of server `b` have the same name `x`: tool `go` of server `b` is \
                 called `x_2` instead",
            ),
            (
                collision(Origin::Local, Origin::Local, None),
                "a local tool and a local tool have the same name `x`: only one of them can be called",
            ),
        ];
        for (collision, sentence) in sentences {
            assert_eq!(collision.to_string(), sentence);
        }
        let prefixed = Collision { name: "mcp_a_x".to_owned(), ..collision(of("a"), of("b"), Some("mcp_a_x_2")) };
        let words = prefixed.to_string();
        assert!(words.contains("`a_x`") && words.contains("`a_x_2`") && !words.contains("mcp_"), "{words}");
    }

    #[test]
    fn a_collision_serializes_as_an_object() {
        assert_eq!(
            serde_json::to_value(collision(of("a"), Origin::Local, Some("x_2"))).expect("JSON"),
            json!({"name": "x", "kept": {"server": "a", "tool": "go"}, "other": "local", "fate": {"renamed": "x_2"}})
        );
    }
}
