//! The logs of the gateway, key for key.

use super::values::record;

record! {
    /// The audit log of the gateway: one line of JSON for each request of a client.
    #[derive(Eq)]
    #[schemars(rename = "GatewayAudit")]
    pub struct RawAudit {
        /// The file, relative to this one, or `stderr`. A file that does not exist is created with mode 0600; after SIGHUP, it is opened
        /// again. Defaults to `stderr`. Example: `/var/log/ropeway/audit.jsonl`.
        #[schemars(length(min = 1))]
        pub file: Option<String>,
        /// Whether lines contain the arguments of calls. Known secrets, and values of names such as `password`, are redacted. Defaults to
        /// `false`.
        pub arguments: Option<bool>,
    }
}

record! {
    /// The access log of the gateway: one line of JSON for each HTTP request.
    #[derive(Eq)]
    #[schemars(rename = "GatewayAccessLog")]
    pub struct RawAccessLog {
        /// The file, relative to this one, or `stderr`. A file that does not exist is created with mode 0600; after SIGHUP, it is opened
        /// again. Defaults to `stderr`. Example: `/var/log/ropeway/access.jsonl`.
        #[schemars(length(min = 1))]
        pub file: Option<String>,
    }
}
