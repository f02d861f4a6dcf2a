//! Ropeway from the outside: its layers, and what it does with real processes, sockets and servers.

mod calls;
mod connection;
mod eras;
mod faults;
mod hasty;
mod layers;
mod real;
mod scene;
mod scripted;
