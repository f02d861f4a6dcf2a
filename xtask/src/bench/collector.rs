//! A collector that accepts spans and metrics over OTLP, and drops them.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use anyhow::{Context, Result};

/// The response to every export.
const ACCEPTED: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Type: application/x-protobuf\r\nContent-Length: 0\r\n\r\n";

/// A collector on a free port. Dropping it closes the port.
#[derive(Debug)]
pub(super) struct Collector {
    address: std::net::SocketAddr,
    is_closed: Arc<AtomicBool>,
}

impl Collector {
    /// Starts a collector, and sets the variables with which a program sends it one trace in ten, and metrics.
    pub(super) fn start(program: &mut Command) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let (address, is_closed) = (listener.local_addr()?, Arc::new(AtomicBool::new(false)));
        program.env("OTEL_EXPORTER_OTLP_ENDPOINT", format!("http://{address}"));
        program.envs([("OTEL_TRACES_SAMPLER", "traceidratio"), ("OTEL_TRACES_SAMPLER_ARG", "0.1")]);
        let closed = is_closed.clone();
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                if closed.load(Ordering::Relaxed) {
                    return;
                }
                // A connection that breaks ends its own thread only.
                thread::spawn(move || accept(stream));
            }
        });
        Ok(Self { address, is_closed })
    }
}

impl Drop for Collector {
    fn drop(&mut self) {
        self.is_closed.store(true, Ordering::Relaxed);
        // Wakes the thread that waits for connections.
        let _ = TcpStream::connect(self.address);
    }
}

/// Answers one connection's exports.
fn accept(stream: TcpStream) -> Result<()> {
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    loop {
        let mut length = 0;
        loop {
            line.clear();
            if reader.read_line(&mut line)? == 0 {
                return Ok(());
            }
            if line.trim().is_empty() {
                break;
            }
            if let Some((name, value)) = line.split_once(':')
                && name.eq_ignore_ascii_case("content-length")
            {
                length = value.trim().parse().context("a length that is not a number")?;
            }
        }
        std::io::copy(&mut reader.by_ref().take(length), &mut std::io::sink())?;
        reader.get_mut().write_all(ACCEPTED)?;
    }
}
