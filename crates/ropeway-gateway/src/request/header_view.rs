//! The HTTP request headers that the protocol defines.

/// The protocol's headers in an HTTP request.
pub(crate) struct HeaderView<'a> {
    /// `MCP-Protocol-Version`.
    pub(crate) version: Option<&'a str>,
    /// `Mcp-Method`.
    pub(crate) method: Option<&'a str>,
    /// `Mcp-Name`.
    pub(crate) name: Option<&'a str>,
    /// `Mcp-Session-Id`.
    pub(crate) session: Option<&'a str>,
    /// Returns another header's value.
    pub(crate) get: &'a (dyn Fn(&str) -> Option<String> + Sync),
}
