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
    pub fate: Fate,
}

/// What became of the tool that did not get the name that it wanted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Fate {
    /// It cannot be called.
    Dropped,
    /// It has another name.
    Renamed(String),
}

impl fmt::Display for Collision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, kept, other, fate } = self;
        write!(f, "{} and {} have the same name `{name}`: ", Whose(kept), Whose(other))?;
        match fate {
            Fate::Dropped if kept == other => f.write_str("only the later one can be called"),
            Fate::Dropped => write!(f, "only {} can be called", Whose(kept)),
            Fate::Renamed(new) => write!(f, "{} is called `{new}` instead", Whose(other)),
        }
    }
}

/// A tool as the reader of a warning knows it.
struct Whose<'a>(&'a Origin);

impl fmt::Display for Whose<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Origin::Local => f.write_str("a local tool"),
            Origin::Server { server, tool } => write!(f, "tool `{tool}` of server `{server}`"),
        }
    }
}
