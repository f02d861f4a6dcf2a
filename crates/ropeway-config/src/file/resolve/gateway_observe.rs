//! Resolves the gateway log settings.

use super::resolver::{Resolver, key};
use crate::file::raw::{RawAccessLog, RawAudit};
use crate::settings::{AuditSettings, LogTarget};

/// Names standard error in place of a path.
const STDERR: &str = "stderr";

impl Resolver<'_> {
    pub(super) fn audit(&mut self, raw: Option<&RawAudit>) -> Option<AuditSettings> {
        let RawAudit { file, arguments } = raw?;
        let file = self.log_target("audit", file.as_deref());
        Some(AuditSettings { file, arguments: arguments.unwrap_or(false) })
    }

    pub(super) fn access_log(&mut self, raw: Option<&RawAccessLog>) -> Option<LogTarget> {
        raw.map(|raw| self.log_target("access_log", raw.file.as_deref()))
    }

    fn log_target(&mut self, log: &str, written: Option<&str>) -> LogTarget {
        match written {
            None | Some(STDERR) => LogTarget::Stderr,
            Some(path) if path.trim().is_empty() => {
                self.problem(&[key(log), key("file")], "file is empty (try `stderr`)");
                LogTarget::Stderr
            }
            Some(path) => LogTarget::File(self.path(path)),
        }
    }
}
