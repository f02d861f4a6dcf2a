//! An answer as this dialect streams it.

use std::sync::Arc;

use crate::lowering::Lowered;
use crate::message::Speaker;
use crate::provider::draft::Draft;
use crate::provider::{ProviderError, Reply, ReplyEvent};

/// Reads an answer.
#[derive(Debug)]
pub(crate) struct Decoder {
    draft: Draft,
}

impl Decoder {
    pub(crate) fn new(speaker: Speaker, lowered: Arc<Lowered>) -> Self {
        Self { draft: Draft::new(speaker, lowered) }
    }

    pub(crate) fn frame(&mut self, _data: &[u8], _events: &mut Vec<ReplyEvent>) -> Result<(), ProviderError> {
        Ok(())
    }

    pub(crate) fn is_over(&self) -> bool {
        false
    }

    pub(crate) fn end(&mut self, events: &mut Vec<ReplyEvent>) -> Result<Reply, ProviderError> {
        Ok(self.draft.finish(events))
    }
}

impl Decoder {
    pub(crate) fn continuation(&mut self) -> Option<String> {
        None
    }
}
