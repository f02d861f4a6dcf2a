//! The queue between a turn and its reader: never blocks the turn, and stays small without a reader.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::task::{Context, Poll, Waker};

use super::step::Step;
use ropeway_core::sync::lock;
use ropeway_core::tool::CallId;

/// With more unread steps, text is appended to the same reply's last text even with reasoning in between, and vice versa: a
/// model that alternates single characters of both would otherwise cost hundreds of bytes for each.
const MAX_UNMERGED: usize = 1024;

/// Creates a queue. The reader's end yields `None` once every [`StepSender`] is dropped and the queue is empty.
pub(super) fn channel() -> (StepSender, StepReceiver) {
    let queue = Arc::new(Mutex::new(StepQueue::default()));
    let sender = StepSender(Arc::new(SenderGuard(queue.clone())));
    (sender, StepReceiver(queue))
}

/// Appends steps to a queue. Cheap to clone; the queue ends with the last clone.
#[derive(Clone, Debug)]
pub(super) struct StepSender(Arc<SenderGuard>);

/// A [`StepSender`] that does not keep the queue open.
#[derive(Clone, Debug)]
pub(super) struct WeakStepSender(Weak<SenderGuard>);

/// Takes steps from a queue. Dropping it discards unread steps and all later ones.
#[derive(Debug)]
pub(super) struct StepReceiver(Arc<Mutex<StepQueue>>);

/// Ends the queue when the last sender is dropped.
#[derive(Debug)]
struct SenderGuard(Arc<Mutex<StepQueue>>);

/// The unread steps, and the positions that new ones may be merged into.
///
/// Shared by the senders, which belong to the turn's task, and by one receiver, which the [`Turn`](super::turn::Turn) owns.
/// Senders append and merge, the receiver takes. A std mutex suffices: every operation is short and free of `.await`, and
/// the waker is called after the lock is released. The queue is open, ended or unread. It ends with the last sender, after
/// which the receiver takes the remaining steps and then yields `None`. Dropping the receiver discards the unread steps,
/// outside the lock, and turns later sends into no-ops. A [`WeakStepSender`] does not keep the queue open, so an abandoned
/// call cannot delay the turn's end.
#[derive(Debug, Default)]
struct StepQueue {
    steps: VecDeque<Step>,
    /// Number of steps taken so far. Positions count from the first step, so they stay valid.
    taken: usize,
    /// Each call's unread progress position.
    progress: HashMap<CallId, usize>,
    /// The positions of the current reply's last text and last reasoning.
    text: Option<usize>,
    reasoning: Option<usize>,
    /// All senders were dropped.
    is_ended: bool,
    /// The reader was dropped.
    is_unread: bool,
    waker: Option<Waker>,
}

impl StepSender {
    pub(super) fn send(&self, step: Step) {
        let mut queue = lock(&self.0.0);
        queue.push(step);
        wake(queue);
    }

    pub(super) fn downgrade(&self) -> WeakStepSender {
        WeakStepSender(Arc::downgrade(&self.0))
    }
}

impl WeakStepSender {
    pub(super) fn upgrade(&self) -> Option<StepSender> {
        self.0.upgrade().map(StepSender)
    }
}

impl StepReceiver {
    /// Returns the next step, or `None` after the last one.
    pub(super) fn poll_recv(&mut self, cx: &mut Context<'_>) -> Poll<Option<Step>> {
        // Yields to other tasks even if the queue never runs dry.
        let turn = std::task::ready!(tokio::task::coop::poll_proceed(cx));
        let mut queue = lock(&self.0);
        match queue.pop() {
            Some(step) => {
                turn.made_progress();
                Poll::Ready(Some(step))
            }
            None if queue.is_ended => Poll::Ready(None),
            None => {
                queue.waker = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }
}

impl Drop for StepReceiver {
    fn drop(&mut self) {
        let mut queue = lock(&self.0);
        let unread = std::mem::take(&mut *queue);
        queue.is_unread = true;
        // Freed without the lock, so that senders do not wait.
        drop(queue);
        drop(unread);
    }
}

impl Drop for SenderGuard {
    fn drop(&mut self) {
        let mut queue = lock(&self.0);
        queue.is_ended = true;
        wake(queue);
    }
}

/// Wakes the reader after releasing the lock.
fn wake(mut queue: MutexGuard<'_, StepQueue>) {
    let waker = queue.waker.take();
    drop(queue);
    if let Some(waker) = waker {
        waker.wake();
    }
}

impl StepQueue {
    fn push(&mut self, step: Step) {
        if self.is_unread {
            return;
        }
        let end = self.taken + self.steps.len();
        match &step {
            Step::CallProgress { call, .. } => {
                if let Some(waiting) = self.progress.get(call).copied().and_then(|at| self.at(at)) {
                    *waiting = step;
                    return;
                }
                self.progress.insert(call.clone(), end);
            }
            Step::Text { text } => {
                let at = self.merges_into(self.text, self.reasoning);
                if let Some(Step::Text { text: waiting }) = at.and_then(|at| self.at(at)) {
                    return waiting.push_str(text);
                }
                self.text = Some(end);
            }
            Step::Reasoning { text } => {
                let at = self.merges_into(self.reasoning, self.text);
                if let Some(Step::Reasoning { text: waiting }) = at.and_then(|at| self.at(at)) {
                    return waiting.push_str(text);
                }
                self.reasoning = Some(end);
            }
            step => {
                if let Step::CallStarted { call, .. } | Step::CallFinished { call, .. } = step {
                    // Several calls may have the same id: later progress belongs to another call.
                    self.progress.remove(call);
                }
                (self.text, self.reasoning) = (None, None);
            }
        }
        self.steps.push_back(step);
    }

    /// Returns the position that more text of one kind may be appended to, given the last positions of both kinds.
    fn merges_into(&self, own: Option<usize>, other: Option<usize>) -> Option<usize> {
        own.filter(|own| other.is_none_or(|other| other < *own) || self.steps.len() >= MAX_UNMERGED)
    }

    /// Returns the step at a position, unless it was taken.
    fn at(&mut self, position: usize) -> Option<&mut Step> {
        self.steps.get_mut(position.checked_sub(self.taken)?)
    }

    fn pop(&mut self) -> Option<Step> {
        let step = self.steps.pop_front()?;
        if let Step::CallProgress { call, .. } = &step
            && self.progress.get(call) == Some(&self.taken)
        {
            self.progress.remove(call);
        }
        self.taken += 1;
        if self.steps.is_empty() {
            // Release a burst's memory.
            self.steps.shrink_to(MAX_UNMERGED);
        }
        Some(step)
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use super::*;
    use ropeway_core::message::CallArguments;
    use ropeway_core::tool::{Origin, Progress};

    fn text(text: &str) -> Step {
        Step::Text { text: text.to_owned() }
    }

    fn reasoning(text: &str) -> Step {
        Step::Reasoning { text: text.to_owned() }
    }

    fn progress(call: &str, done: f64) -> Step {
        let progress = Progress { progress: done, total: None, message: None };
        Step::CallProgress { call: CallId(call.to_owned()), progress }
    }

    fn started(call: &str) -> Step {
        let arguments = CallArguments::Object(serde_json::Map::new());
        Step::CallStarted {
            call: CallId(call.to_owned()),
            tool: "t".to_owned(),
            origin: Origin::Local,
            arguments,
            summary: None,
        }
    }

    fn warning() -> Step {
        Step::Warning { message: "odd".to_owned() }
    }

    /// Returns the steps that a reader sees after all steps were sent.
    fn read_late(steps: impl IntoIterator<Item = Step>) -> Vec<String> {
        let (sender, receiver) = channel();
        steps.into_iter().for_each(|step| sender.send(step));
        let mut queue = lock(&receiver.0);
        std::iter::from_fn(|| queue.pop()).map(|step| short(&step)).collect()
    }

    fn short(step: &Step) -> String {
        match step {
            Step::Text { text } => format!("text {text}"),
            Step::Reasoning { text } => format!("reasoning {text}"),
            Step::CallProgress { call, progress } => format!("progress {} {}", call.0, progress.progress),
            Step::CallStarted { call, .. } => format!("started {}", call.0),
            _ => "other".to_owned(),
        }
    }

    #[test]
    fn a_late_reader_sees_only_the_newest_progress_of_each_call() {
        let steps = [
            started("a"),
            progress("a", 1.0),
            started("b"),
            progress("b", 1.0),
            progress("a", 2.0),
            warning(),
            progress("b", 5.0),
            progress("a", 3.0),
            warning(),
        ];
        let seen = ["started a", "progress a 3", "started b", "progress b 5", "other", "other"];
        assert_eq!(read_late(steps), seen);
    }

    #[test]
    fn progress_of_two_calls_with_one_id_is_not_merged() {
        let steps = [started("a"), progress("a", 1.0), started("a"), progress("a", 7.0), progress("a", 8.0)];
        assert_eq!(read_late(steps), ["started a", "progress a 1", "started a", "progress a 8"]);
    }

    #[test]
    fn adjacent_text_is_merged_in_order() {
        let steps = [text("a"), text("b"), reasoning("c"), reasoning("d"), text("e"), warning(), text("f"), text("g")];
        assert_eq!(read_late(steps), ["text ab", "reasoning cd", "text e", "other", "text fg"]);
    }

    #[test]
    fn alternating_text_and_reasoning_stays_bounded() {
        let (sender, receiver) = channel();
        for _ in 0..100_000 {
            sender.send(text("t"));
            sender.send(reasoning("r"));
        }
        let mut queue = lock(&receiver.0);
        assert_eq!(queue.steps.len(), MAX_UNMERGED);
        let lengths = std::iter::from_fn(|| queue.pop()).map(|step| match step {
            Step::Text { text } => (text.len(), 0),
            Step::Reasoning { text } => (0, text.len()),
            _ => (0, 0),
        });
        assert_eq!(lengths.fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1)), (100_000, 100_000));
    }

    #[tokio::test]
    async fn a_reader_that_keeps_up_sees_every_step() {
        let (sender, mut receiver) = channel();
        let weak = sender.downgrade();
        let reader = tokio::spawn(async move {
            let mut seen = Vec::new();
            while let Some(step) = poll_fn(|cx| receiver.poll_recv(cx)).await {
                seen.push(short(&step));
            }
            seen
        });
        for number in 0..5 {
            weak.upgrade().expect("the turn goes on").send(progress("a", f64::from(number)));
            tokio::task::yield_now().await;
        }
        drop(sender);
        assert!(weak.upgrade().is_none());
        assert_eq!(reader.await.expect("it ends"), (0..5).map(|at| format!("progress a {at}")).collect::<Vec<_>>());
    }

    #[test]
    fn steps_without_a_reader_are_discarded() {
        let (sender, receiver) = channel();
        sender.send(text("a"));
        let queue = receiver.0.clone();
        drop(receiver);
        sender.send(text("b"));
        assert!(lock(&queue).steps.is_empty());
    }
}
