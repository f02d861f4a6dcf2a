//! Ropeway from the outside: its layers, and what it does with real processes, sockets and servers.

mod agent;
mod bridge;
mod calls;
mod connection;
mod eras;
mod event_log;
mod faults;
mod faults_http;
mod faults_stdio;
mod fuzz;
mod handlers;
mod hasty;
mod layers;
mod lists;
mod log;
mod provider;
mod real;
mod registry;
mod resources;
mod scene;
mod scripted;
mod secrets;
mod sent;
mod specification;
mod traces;
