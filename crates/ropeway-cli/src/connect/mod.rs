//! Connections: which servers a command uses, connecting to them, and advice when that fails.

pub(crate) mod advice;
pub(crate) mod arrival;
pub(crate) mod client_servers;
pub(crate) mod command_context;
pub(crate) mod deadline;
pub(crate) mod failure_memory;
pub(crate) mod fan_out;
pub(crate) mod filtered;
pub(crate) mod gateway_client;
pub(crate) mod gateway_files;
pub(crate) mod gateway_process;
pub(crate) mod likely_servers;
pub(crate) mod listing_cache;
pub(crate) mod lockfile;
pub(crate) mod readiness;
pub(crate) mod running_gateway;
pub(crate) mod selector;
pub(crate) mod server_options;
pub(crate) mod servers;
pub(crate) mod session;
pub(crate) mod source_files;
pub(crate) mod tool_call;
pub(crate) mod trace_variable;
pub(crate) mod waiting;
