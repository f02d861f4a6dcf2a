//! The reference server for the official conformance suite's server scenarios, in both protocol eras.
//!
//! `conformance-server [--era legacy|modern|both] [--listen ADDRESS | --stdio]`. Over HTTP it prints its URL as the first
//! line; port 0 selects a free one.

#![allow(unreachable_pub, reason = "in a program, `pub` means visible outside of the file")]

mod call;
mod content;
mod dispatch;
mod http;
mod legacy;
mod modern;
mod questions;
mod rounds;
mod server;
mod stdio;
mod task_methods;
mod tasks;
mod tools;
mod wire;

use anyhow::{Context, Result, bail};

use crate::server::{Eras, Server};

#[tokio::main]
async fn main() -> Result<()> {
    let (mut eras, mut address, mut stdio) = (Eras::Both, "127.0.0.1:0".to_owned(), false);
    let mut args = std::env::args().skip(1);
    while let Some(flag) = args.next() {
        let mut value = || args.next().with_context(|| format!("`{flag}` needs a value"));
        match flag.as_str() {
            "--era" => {
                eras = match value()?.as_str() {
                    "legacy" => Eras::Legacy,
                    "modern" => Eras::Modern,
                    "both" => Eras::Both,
                    other => bail!("unknown era `{other}`; try legacy, modern or both"),
                }
            }
            "--listen" => address = value()?,
            "--stdio" => stdio = true,
            _ => bail!("unknown flag `{flag}`"),
        }
    }
    let server = Server::new(eras);
    if stdio { stdio::serve(server).await } else { http::serve(server, &address).await }
}
