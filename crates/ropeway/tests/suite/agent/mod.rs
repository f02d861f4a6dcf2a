//! Agents against misbehaving tools, models, providers and servers, and under control of a host.

mod approvals;
mod cancellation;
mod changes;
mod controls;
mod end_to_end;
mod history;
mod host_calls;
mod images;
mod kit;
mod limits;
mod models;
mod providers;
mod rounds;
mod sampling;
mod servers;
mod sources;
mod tools;
