//! The headers of an HTTP request that the protocol defines.

/// The headers of the protocol in an HTTP request.
pub(crate) struct HeaderView<'a> {
    /// `MCP-Protocol-Version`.
    pub(crate) version: Option<&'a str>,
    /// `Mcp-Method`.
    pub(crate) method: Option<&'a str>,
    /// `Mcp-Name`.
    pub(crate) name: Option<&'a str>,
    /// `Mcp-Session-Id`.
    pub(crate) session: Option<&'a str>,
    /// Returns the value of another header.
    pub(crate) get: &'a (dyn Fn(&str) -> Option<String> + Sync),
}
