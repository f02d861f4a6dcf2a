//! Servers and clients for Ropeway's tests and benchmarks: the servers' payloads, and the contestants' cases.

pub mod agent_case;
pub mod baseline;
pub mod bench_case;
pub mod event_reader;
pub mod http_client;
pub mod message_stream;
pub mod meter;
pub mod payloads;
pub mod process_tree;
pub mod recorded_tools;
pub mod runner;
pub mod script;
