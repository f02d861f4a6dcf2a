//! A server of an agent: one connection as a source of tools.
