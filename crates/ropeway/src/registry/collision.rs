//! A collision: two tools that wanted one name.

use std::fmt;

use serde::Serialize;

use crate::tool::Origin;

/// Two tools that wanted one name, and what was done about it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Collision {
    /// The name.
    pub name: String,
    /// Where the tool comes from that has the name.
    pub kept: Origin,
    /// Where the other one comes from.
    pub other: Origin,
    /// What became of the other one.
    #[serde(rename = "fate")]
    pub outcome: CollisionOutcome,
}

/// What became of the tool that did not get the name that it wanted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum CollisionOutcome {
    /// It cannot be called.
    Dropped,
    /// It has another name.
    Renamed(String),
}

impl fmt::Display for Collision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, kept, other, outcome } = self;
        write!(f, "{} and {} have the same name `{}`: ", ToolLabel(kept), ToolLabel(other), without_mcp_prefix(name))?;
        match outcome {
            CollisionOutcome::Dropped if kept == other => f.write_str("only one of them can be called"),
            CollisionOutcome::Dropped => write!(f, "only {} can be called", ToolLabel(kept)),
            CollisionOutcome::Renamed(new) => {
                write!(f, "{} is called `{}` instead", ToolLabel(other), without_mcp_prefix(new))
            }
        }
    }
}

/// A name without the prefix that only models need.
fn without_mcp_prefix(name: &str) -> &str {
    name.strip_prefix("mcp_").filter(|rest| !rest.is_empty()).unwrap_or(name)
}

/// A tool as the reader of a warning knows it.
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

    fn collision(kept: Origin, other: Origin, outcome: CollisionOutcome) -> Collision {
        Collision { name: "x".to_owned(), kept, other, outcome }
    }

    #[test]
    fn a_collision_names_both_servers_and_says_what_was_done() {
        let sentences = [
            (
                collision(of("a"), of("b"), CollisionOutcome::Dropped),
                "tool `go` of server `a` and tool `go` of server `b` have the same name `x`: only tool `go` of server `a` \
                 can be called",
            ),
            (
                collision(of("a"), of("b"), CollisionOutcome::Renamed("x_2".to_owned())),
                "tool `go` of server `a` and tool `go` of server `b` have the same name `x`: tool `go` of server `b` is \
                 called `x_2` instead",
            ),
            (
                collision(Origin::Local, Origin::Local, CollisionOutcome::Dropped),
                "a local tool and a local tool have the same name `x`: only one of them can be called",
            ),
        ];
        for (collision, sentence) in sentences {
            assert_eq!(collision.to_string(), sentence);
        }
        let prefixed = Collision {
            name: "mcp_a_x".to_owned(),
            ..collision(of("a"), of("b"), CollisionOutcome::Renamed("mcp_a_x_2".to_owned()))
        };
        let words = prefixed.to_string();
        assert!(words.contains("`a_x`") && words.contains("`a_x_2`") && !words.contains("mcp_"), "{words}");
    }

    #[test]
    fn a_collision_is_a_record() {
        assert_eq!(
            serde_json::to_value(collision(of("a"), Origin::Local, CollisionOutcome::Renamed("x_2".to_owned())))
                .expect("JSON"),
            json!({"name": "x", "kept": {"server": "a", "tool": "go"}, "other": "local", "fate": {"renamed": "x_2"}})
        );
    }
}
