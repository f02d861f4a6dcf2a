//! The logs of the gateway, key for key.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The audit log of the gateway: one line of JSON for each request of a client.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "GatewayAudit")]
#[non_exhaustive]
pub struct RawAudit {
    /// The file, relative to this one, or `stderr`. A file that does not exist is created with mode 0600; after SIGHUP, it is opened
    /// again. Defaults to `stderr`. Example: `/var/log/ropeway/audit.jsonl`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1))]
    pub file: Option<String>,
    /// Whether lines contain the arguments of calls. Known secrets, and values of names such as `password`, are redacted. Defaults to
    /// `false`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub arguments: Option<bool>,
}

/// The access log of the gateway: one line of JSON for each HTTP request.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "GatewayAccessLog")]
#[non_exhaustive]
pub struct RawAccessLog {
    /// The file, relative to this one, or `stderr`. A file that does not exist is created with mode 0600; after SIGHUP, it is opened
    /// again. Defaults to `stderr`. Example: `/var/log/ropeway/access.jsonl`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1))]
    pub file: Option<String>,
}
