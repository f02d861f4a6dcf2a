//! Serves the tools, prompts and resources of all servers of a configuration to MCP clients.

#![allow(dead_code, reason = "the listeners are the only users")]

mod accept;
mod event_stream;
mod limits;
mod line_io;
mod origin;
mod outbound;
