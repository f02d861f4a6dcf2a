//! Ropeway from the outside: its layers, and its behaviour with real processes, sockets and servers.

mod agent;
mod bounds;
mod bridge;
mod calls;
mod connection;
mod eras;
mod event_log;
mod exact;
mod faults;
mod faults_http;
mod faults_stdio;
mod front_door;
mod fuzz;
#[cfg(feature = "gateway")]
mod gateway;
mod handlers;
mod hasty;
mod layers;
mod lists;
mod log;
mod manifest;
mod notification_stream;
mod oauth;
mod oauth_store;
mod provider;
mod real;
mod registry;
mod resources;
mod scene;
mod scripted;
mod secrets;
mod sent;
mod slow_start;
mod sources;
mod specification;
mod traces;
