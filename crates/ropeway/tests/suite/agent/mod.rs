//! An agent from the outside: what tools, models, providers and hosts do to it, and what it remembers of it.

mod approvals;
mod cancels;
mod changes;
mod controls;
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
mod whole;
