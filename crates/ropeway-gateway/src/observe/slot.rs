//! A request's record while the request is dispatched.

use std::cell::RefCell;

use super::pending::PendingRecord;
use super::record::CallOutcome;

/// Holds a request's record until the request is in progress or answered.
pub(crate) struct RecordSlot(RefCell<Option<PendingRecord>>);

impl RecordSlot {
    pub(crate) fn new(record: PendingRecord) -> Self {
        Self(RefCell::new(Some(record)))
    }

    /// Changes the record, unless it was taken.
    pub(crate) fn note(&self, change: impl FnOnce(&mut PendingRecord)) {
        if let Some(record) = &mut *self.0.borrow_mut() {
            change(record);
        }
    }

    /// Reads the record, unless it was taken.
    pub(crate) fn read<T>(&self, read: impl FnOnce(&PendingRecord) -> T) -> Option<T> {
        self.0.borrow().as_ref().map(read)
    }

    /// Takes the record, because the request is in progress.
    pub(crate) fn take(&self) -> Option<PendingRecord> {
        self.0.borrow_mut().take()
    }

    /// Ends the record with a result, unless it was taken.
    pub(crate) fn finish(&self, bytes_out: usize) {
        if let Some(record) = self.take() {
            record.finish(CallOutcome::Ok, None, bytes_out);
        }
    }

    /// Ends the record with an error, unless it was taken.
    pub(crate) fn fail(&self, code: i64, bytes_out: usize) {
        if let Some(record) = self.take() {
            record.finish(CallOutcome::Error, Some(code), bytes_out);
        }
    }
}
