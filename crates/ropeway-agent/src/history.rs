//! History: the conversation, the context before it, and the calls that have no result yet.

use std::sync::{Arc, Mutex, MutexGuard};

use super::context::AgentContext;
use ropeway_core::message::{AssistantMessage, Conversation, Message, ToolCall, ToolResult};
use ropeway_core::sync::lock;

/// The result for a call that is still running.
const UNFINISHED: &str = "no result: the call has not finished";

/// The result for a call whose turn ended without one.
const INTERRUPTED: &str = "no result: the turn was interrupted";

/// An agent's conversation.
#[derive(Debug, Default)]
pub(super) struct History(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// The conversation as it is sent, including context.
    sent: Arc<Conversation>,
    /// The system prompt without context.
    system: Option<String>,
    /// Whether the first message in `sent` is context.
    has_context: bool,
    /// The last reply's calls, with their results so far.
    pending: Vec<(ToolCall, Option<ToolResult>)>,
}

impl History {
    pub(super) fn new(conversation: Conversation) -> Self {
        let history = Self::default();
        history.replace(conversation);
        history
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.0)
    }

    /// Returns the conversation to send. While the value is held, changes to the history copy it.
    pub(super) fn conversation(&self) -> Arc<Conversation> {
        self.state().sent.clone()
    }

    /// Returns the conversation without context. Calls without a result get one that says so.
    pub(super) fn snapshot(&self) -> Conversation {
        let state = self.state();
        let messages = state.sent.messages[usize::from(state.has_context)..].to_vec();
        let mut conversation = Conversation { system: state.system.clone(), messages };
        if !state.pending.is_empty() {
            let result = |(call, result): &(ToolCall, Option<ToolResult>)| {
                result.clone().unwrap_or_else(|| ToolResult::error(call, UNFINISHED))
            };
            conversation.push(state.pending.iter().map(result).collect::<Vec<_>>());
        }
        conversation
    }

    /// Replaces the whole conversation.
    pub(super) fn replace(&self, conversation: Conversation) {
        let mut state = self.state();
        *state = State { system: conversation.system.clone(), ..State::default() };
        state.sent = Arc::new(conversation);
    }

    /// Sets the context before the conversation.
    pub(super) fn set_context(&self, context: AgentContext) {
        let mut state = self.state();
        let system = context.system_prompt(state.system.as_deref());
        let message = context.message.map(Message::from);
        let before = state.sent.messages.first().filter(|_| state.has_context);
        if state.sent.system == system && before == message.as_ref() {
            return;
        }
        let had_context = std::mem::replace(&mut state.has_context, message.is_some());
        let sent = Arc::make_mut(&mut state.sent);
        sent.system = system;
        sent.messages.splice(..usize::from(had_context), message);
    }

    /// Returns `true` if the conversation ends with something for the model to answer.
    pub(super) fn needs_reply(&self) -> bool {
        let state = self.state();
        match state.sent.messages[usize::from(state.has_context)..].last() {
            None => false,
            Some(Message::Assistant(message)) => message.calls().next().is_some(),
            Some(_) => true,
        }
    }

    /// Returns how often the last reply's calls were made in the replies right before it, with the same results.
    pub(super) fn repeats(&self) -> usize {
        let state = self.state();
        let Some((Message::Assistant(last), before)) = state.sent.messages.split_last() else { return 0 };
        let mut rounds = before.rchunks_exact(2).map_while(|round| match round {
            [Message::Assistant(answer), Message::Tool { results }] if same_calls(answer, last) => Some(results),
            _ => None,
        });
        let Some(results) = rounds.next() else { return 0 };
        1 + rounds.take_while(|others| same_results(results, others)).count()
    }

    /// Appends the host's messages.
    pub(super) fn extend(&self, messages: Vec<Message>) {
        Arc::make_mut(&mut self.state().sent).messages.extend(messages);
    }

    /// Appends a reply, unless it is empty, and returns its calls, which are pending now.
    pub(super) fn push_reply(&self, message: AssistantMessage) -> Vec<ToolCall> {
        let calls: Vec<ToolCall> = message.calls().cloned().collect();
        if !message.parts.is_empty() {
            let mut state = self.state();
            state.pending = calls.iter().map(|call| (call.clone(), None)).collect();
            Arc::make_mut(&mut state.sent).push(message);
        }
        calls
    }

    /// Sets a pending call's result, by its index in the reply.
    pub(super) fn set_result(&self, index: usize, result: ToolResult) {
        if let Some((_, slot)) = self.state().pending.get_mut(index) {
            *slot = Some(result);
        }
    }

    /// Appends the results of the pending calls as a message. Calls without a result get one that says so.
    pub(super) fn close_calls(&self) {
        let mut state = self.state();
        let pending = std::mem::take(&mut state.pending);
        if !pending.is_empty() {
            let result = |(call, result): (ToolCall, Option<ToolResult>)| {
                result.unwrap_or_else(|| ToolResult::error(&call, INTERRUPTED))
            };
            Arc::make_mut(&mut state.sent).push(pending.into_iter().map(result).collect::<Vec<_>>());
        }
    }
}

/// Returns `true` if two replies make the same calls, regardless of call ids.
fn same_calls(one: &AssistantMessage, other: &AssistantMessage) -> bool {
    let calls = |message| AssistantMessage::calls(message).map(|call: &ToolCall| (&call.name, &call.arguments));
    calls(one).eq(calls(other))
}

/// Returns `true` if two messages have the same results, regardless of call ids.
fn same_results(one: &[ToolResult], other: &[ToolResult]) -> bool {
    one.iter().map(|result| &result.content).eq(other.iter().map(|result| &result.content))
}

#[cfg(test)]
mod tests {
    use super::*;
    use ropeway_core::content::ContentPart;
    use ropeway_core::message::AssistantPart;
    use ropeway_core::tool::Arguments;

    fn calling(ids: &[&str]) -> AssistantMessage {
        let call = |id: &&str| AssistantPart::ToolCall(ToolCall::new(*id, "t", Arguments::new()));
        AssistantMessage::new(ids.iter().map(call).collect())
    }

    #[test]
    fn a_snapshot_has_a_result_for_every_running_call() {
        let history = History::new(Conversation::new().with_system("s").with("q"));
        let calls = history.push_reply(calling(&["a", "b"]));
        history.set_result(1, ToolResult::new(&calls[1], vec![ContentPart::text("2")]));
        let said = Conversation::new().with_system("s").with("q").with(calling(&["a", "b"]));
        let second = ToolResult::new(&calls[1], vec![ContentPart::text("2")]);
        let unfinished = vec![ToolResult::error(&calls[0], UNFINISHED), second.clone()];
        assert_eq!(history.snapshot(), said.clone().with(unfinished));
        history.close_calls();
        assert_eq!(history.snapshot(), said.with(vec![ToolResult::error(&calls[0], INTERRUPTED), second]));
    }

    #[test]
    fn context_is_sent_but_not_saved() {
        let history = History::new(Conversation::new().with_system("own").with("q"));
        let context =
            |text: &str| AgentContext { system: Some("more".to_owned()), message: Some(vec![ContentPart::text(text)]) };
        history.set_context(context("a"));
        history.set_context(context("b"));
        assert_eq!(*history.conversation(), Conversation::new().with_system("own\n\nmore").with("b").with("q"));
        assert_eq!(history.snapshot(), Conversation::new().with_system("own").with("q"));
        history.set_context(AgentContext::default());
        assert_eq!(*history.conversation(), history.snapshot());
    }

    #[test]
    fn an_unchanged_context_changes_nothing() {
        let history = History::new(Conversation::new().with("q"));
        history.set_context(AgentContext { system: Some("s".to_owned()), message: None });
        let before = history.conversation();
        history.set_context(AgentContext { system: Some("s".to_owned()), message: None });
        assert!(Arc::ptr_eq(&before, &history.conversation()));
    }

    #[test]
    fn only_an_unanswered_message_needs_a_reply() {
        let history = History::default();
        assert!(!history.needs_reply());
        history.extend(vec!["q".into()]);
        assert!(history.needs_reply());
        history.push_reply(AssistantMessage::text("a"));
        assert!(!history.needs_reply());
        history.push_reply(calling(&["a"]));
        history.close_calls();
        assert!(history.needs_reply());
    }

    #[test]
    fn repeated_calls_are_counted_regardless_of_their_ids() {
        let history = History::new(Conversation::new().with("q"));
        let round = |id: &str, result: &str| {
            let calls = history.push_reply(calling(&[id]));
            let repeats = history.repeats();
            history.set_result(0, ToolResult::new(&calls[0], vec![ContentPart::text(result)]));
            history.close_calls();
            repeats
        };
        assert_eq!([round("a", "1"), round("b", "1"), round("c", "2"), round("d", "2")], [0, 1, 2, 1]);
        assert_eq!([round("e", "2"), round("f", "2")], [2, 3]);
        history.extend(vec!["again".into()]);
        assert_eq!([round("g", "2"), round("h", "2")], [0, 1]);
    }

    #[test]
    fn an_empty_reply_is_not_kept() {
        let history = History::new(Conversation::new().with("q"));
        history.push_reply(AssistantMessage::default());
        assert_eq!(history.snapshot(), Conversation::new().with("q"));
    }
}
