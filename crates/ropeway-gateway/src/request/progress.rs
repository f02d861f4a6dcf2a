//! A server's progress on its way to a client: forwarded under the client's token, or withheld while the call is parked.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Mutex;

use serde_json::value::RawValue;

use crate::client::notification::notification;
use crate::client::outbound::{Frame, FrameKind};
use ropeway_core::sync::lock;

/// Maximum number and size of the notifications that are kept for one parked call. Newer ones replace older ones.
const MAX_KEPT: usize = 64;
const MAX_KEPT_BYTES: usize = 64 << 10;

/// A progress notification's params, without the token in the request to the server.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ServerProgress {
    before_token: Box<str>,
    after_token: Box<str>,
}

impl ServerProgress {
    /// Reads params with their token in this range. Returns `None` if the range is invalid.
    pub(crate) fn new(params: &str, token: Range<usize>) -> Option<Self> {
        let (before_token, after_token) = (params.get(..token.start)?.into(), params.get(token.end..)?.into());
        Some(Self { before_token, after_token })
    }

    /// Writes the notification with the token from the client's request.
    pub(crate) fn frame(&self, token: &RawValue) -> Frame {
        let params = format!("{}{}{}", self.before_token, token.get(), self.after_token);
        Frame::new(FrameKind::Progress, notification("notifications/progress", &params))
    }

    fn len(&self) -> usize {
        self.before_token.len() + self.after_token.len()
    }
}

/// Progress that waits for a call's retry: the answered request's token is no longer valid, so the client would ignore
/// it.
#[derive(Debug, Default)]
pub(crate) struct WithheldProgress(Mutex<Option<VecDeque<ServerProgress>>>);

impl WithheldProgress {
    /// Withholds progress until [`release`](Self::release).
    pub(crate) fn hold(&self) {
        lock(&self.0).get_or_insert_default();
    }

    /// Keeps a notification, or returns it if progress is not withheld.
    pub(crate) fn keep(&self, progress: ServerProgress) -> Option<ServerProgress> {
        let mut held = lock(&self.0);
        let Some(kept) = held.as_mut() else { return Some(progress) };
        kept.push_back(progress);
        while kept.len() > MAX_KEPT || kept.iter().map(ServerProgress::len).sum::<usize>() > MAX_KEPT_BYTES {
            kept.pop_front();
        }
        None
    }

    /// Returns the kept notifications, oldest first. Later ones are not withheld.
    pub(crate) fn release(&self) -> VecDeque<ServerProgress> {
        lock(&self.0).take().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn progress(text: &str) -> ServerProgress {
        let params = format!(r#"{{"progressToken":7,"message":"{text}"}}"#);
        ServerProgress::new(&params, 17..18).expect("params")
    }

    #[test]
    fn progress_has_the_token_of_the_client() {
        let token = RawValue::from_string(r#""mine""#.to_owned()).expect("a token");
        let frame = progress("x").frame(&token);
        let text = String::from_utf8(frame.text.to_vec()).expect("text");
        assert!(text.contains(r#""params":{"progressToken":"mine","message":"x"}"#), "{text}");
        assert_eq!(ServerProgress::new("{}", 1..9), None);
    }

    #[test]
    fn withheld_progress_is_bounded_and_keeps_the_newest() {
        let withheld = WithheldProgress::default();
        assert_eq!(withheld.keep(progress("first")), Some(progress("first")));
        withheld.hold();
        for number in 0..MAX_KEPT + 6 {
            assert_eq!(withheld.keep(progress(&number.to_string())), None);
        }
        let kept = withheld.release();
        assert_eq!((kept.len(), &kept[0]), (MAX_KEPT, &progress("6")));
        withheld.hold();
        for size in [100, MAX_KEPT_BYTES / 2, MAX_KEPT_BYTES / 2] {
            assert_eq!(withheld.keep(progress(&"x".repeat(size))), None);
        }
        assert_eq!(withheld.release().len(), 1);
        assert_eq!(withheld.keep(progress("later")), Some(progress("later")));
    }
}
