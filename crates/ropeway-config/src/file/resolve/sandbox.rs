//! Resolves sandboxes.

use super::resolver::{Resolver, key};
use crate::file::node::PathStep;
use crate::file::raw::{RawSandbox, RawServer};
use crate::settings::{Sandbox, SandboxPath, SandboxSummary};

impl Resolver<'_> {
    pub(super) fn sandbox(&mut self, raw: &RawServer) -> Option<Sandbox> {
        let written = raw.sandbox.as_ref().and_then(RawSandbox::summary)?;
        let SandboxSummary { mode, read, write, network, unix_sockets, memory, processes, files } = written;
        for (name, limit) in [("memory", memory), ("processes", processes), ("files", files)] {
            if limit == Some(0) {
                self.mismatch(&[key("sandbox"), key(name)], "`0`", "a positive number", None::<String>);
            }
        }
        let (read, write) = (self.sandbox_paths("read", read), self.sandbox_paths("write", write));
        Some(Sandbox { mode, read, write, network, unix_sockets, memory, processes, files, launcher: None })
    }

    fn sandbox_paths(&mut self, name: &str, written: Vec<String>) -> Vec<SandboxPath> {
        let mut paths = Vec::new();
        for (index, written) in (0..).zip(written) {
            let at = [key("sandbox"), key(name), PathStep::Index(index)];
            let text = self.text(&at, &written);
            // A path with a missing secret is incomplete.
            if text.trim().is_empty() && self.missing.names.is_empty() {
                self.problem(&at, "path is empty");
            }
            if text.contains('\0') {
                self.problem(&at, "path contains a NUL character");
            }
            let path = self.path(&text);
            // The launcher runs in the server's working directory.
            let path = std::path::absolute(&path).unwrap_or(path);
            paths.push(SandboxPath { path, text: written });
        }
        paths
    }
}
