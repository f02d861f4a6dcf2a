//! A history: everything that was said, with what stands before it and the calls that are not answered yet.

use std::sync::{Arc, Mutex, MutexGuard};

use super::AgentContext;
use crate::message::{AssistantMessage, Conversation, Message, ToolCall, ToolMessage, ToolResult};
use crate::sync::lock;

/// What stands for the result of a call that has none yet.
const UNFINISHED: &str = "there is no result of this call: it had not ended yet";

/// What stands for the result of a call whose turn is gone.
const INTERRUPTED: &str = "there is no result of this call: the turn was interrupted";

/// Everything that was said.
#[derive(Debug, Default)]
pub(super) struct History(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// As it is sent: with what stands before it.
    sent: Arc<Conversation>,
    /// What the model is told to be, without what servers have to say.
    system: Option<String>,
    /// The first message is the context, and not a part of what was said.
    has_context: bool,
    /// The calls of the last answer, with their results so far.
    open: Vec<(ToolCall, Option<ToolResult>)>,
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

    /// Everything as it is to be sent. Nobody should hold it for long: what is added meanwhile is added to a copy.
    pub(super) fn sent(&self) -> Arc<Conversation> {
        self.state().sent.clone()
    }

    /// Everything that was said; calls without a result have one that says so.
    pub(super) fn snapshot(&self) -> Conversation {
        let state = self.state();
        let said = &state.sent.messages[usize::from(state.has_context)..];
        let mut conversation = Conversation { system: state.system.clone(), messages: said.to_vec() };
        if !state.open.is_empty() {
            let result = |(call, result): &(ToolCall, Option<ToolResult>)| {
                result.clone().unwrap_or_else(|| ToolResult::error(call, UNFINISHED))
            };
            conversation.push(state.open.iter().map(result).collect::<Vec<_>>());
        }
        conversation
    }

    /// Puts another history in the place of this one.
    pub(super) fn replace(&self, conversation: Conversation) {
        let mut state = self.state();
        *state = State { system: conversation.system.clone(), ..State::default() };
        state.sent = Arc::new(conversation);
    }

    /// Sets what stands before everything that was said.
    pub(super) fn set_context(&self, context: AgentContext) {
        let mut state = self.state();
        let system = context.system_after(state.system.as_deref());
        let message = context.message.map(Message::User);
        let before = state.sent.messages.first().filter(|_| state.has_context);
        if state.sent.system == system && before == message.as_ref() {
            return;
        }
        let had_context = std::mem::replace(&mut state.has_context, message.is_some());
        let sent = Arc::make_mut(&mut state.sent);
        sent.system = system;
        sent.messages.splice(..usize::from(had_context), message);
    }

    /// Is there something that a model could answer?
    pub(super) fn has_question(&self) -> bool {
        let state = self.state();
        let said = &state.sent.messages[usize::from(state.has_context)..];
        match said.last() {
            None => false,
            Some(Message::Assistant(message)) => message.calls().next().is_some(),
            Some(_) => true,
        }
    }

    /// How often in a row the calls of the last answer were made right before it, each time with the same results.
    pub(super) fn repeats(&self) -> usize {
        let state = self.state();
        let Some((Message::Assistant(last), before)) = state.sent.messages.split_last() else { return 0 };
        let mut rounds = before.rchunks_exact(2).map_while(|round| match round {
            [Message::Assistant(answer), Message::Tool(results)] if same_calls(answer, last) => Some(results),
            _ => None,
        });
        let Some(results) = rounds.next() else { return 0 };
        1 + rounds.take_while(|others| same_results(results, others)).count()
    }

    /// Adds messages of the host.
    pub(super) fn extend(&self, messages: Vec<Message>) {
        Arc::make_mut(&mut self.state().sent).messages.extend(messages);
    }

    /// Adds an answer, and opens its calls. One that says nothing is not worth keeping.
    pub(super) fn answer(&self, message: AssistantMessage) -> Vec<ToolCall> {
        let calls: Vec<ToolCall> = message.calls().cloned().collect();
        if !message.parts.is_empty() {
            let mut state = self.state();
            state.open = calls.iter().map(|call| (call.clone(), None)).collect();
            Arc::make_mut(&mut state.sent).push(message);
        }
        calls
    }

    /// The result of a call of the last answer is there.
    pub(super) fn settle(&self, at: usize, result: ToolResult) {
        if let Some((_, place)) = self.state().open.get_mut(at) {
            *place = Some(result);
        }
    }

    /// The calls of the last answer are over: their results become a message. What has no result says so.
    pub(super) fn close(&self) {
        let mut state = self.state();
        let open = std::mem::take(&mut state.open);
        if !open.is_empty() {
            let result = |(call, result): (ToolCall, Option<ToolResult>)| {
                result.unwrap_or_else(|| ToolResult::error(&call, INTERRUPTED))
            };
            Arc::make_mut(&mut state.sent).push(open.into_iter().map(result).collect::<Vec<_>>());
        }
    }
}

/// Do two answers make the same calls, whatever they call them?
fn same_calls(one: &AssistantMessage, other: &AssistantMessage) -> bool {
    let calls = |message| AssistantMessage::calls(message).map(|call: &ToolCall| (&call.name, &call.arguments));
    calls(one).eq(calls(other))
}

/// Do two rounds have the same results?
fn same_results(one: &ToolMessage, other: &ToolMessage) -> bool {
    one.results.iter().map(|result| &result.content).eq(other.results.iter().map(|result| &result.content))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::content::ContentPart;
    use crate::message::{AssistantPart, UserMessage};
    use crate::tool::Arguments;

    fn asking(ids: &[&str]) -> AssistantMessage {
        let call = |id: &&str| AssistantPart::ToolCall(ToolCall::new(*id, "t", Arguments::new()));
        AssistantMessage::new(ids.iter().map(call).collect())
    }

    #[test]
    fn a_snapshot_in_the_midst_of_calls_has_a_result_for_each() {
        let history = History::new(Conversation::new().with_system("s").with("q"));
        let calls = history.answer(asking(&["a", "b"]));
        history.settle(1, ToolResult::new(&calls[1], vec![ContentPart::text("2")]));
        let said = Conversation::new().with_system("s").with("q").with(asking(&["a", "b"]));
        let second = ToolResult::new(&calls[1], vec![ContentPart::text("2")]);
        let unfinished = vec![ToolResult::error(&calls[0], UNFINISHED), second.clone()];
        assert_eq!(history.snapshot(), said.clone().with(unfinished));
        history.close();
        assert_eq!(history.snapshot(), said.with(vec![ToolResult::error(&calls[0], INTERRUPTED), second]));
    }

    #[test]
    fn what_stands_before_the_conversation_is_sent_and_not_saved() {
        let history = History::new(Conversation::new().with_system("own").with("q"));
        let context = |text: &str| AgentContext {
            system: Some("more".to_owned()),
            message: Some(UserMessage { content: vec![ContentPart::text(text)] }),
        };
        history.set_context(context("a"));
        history.set_context(context("b"));
        assert_eq!(*history.sent(), Conversation::new().with_system("own\n\nmore").with("b").with("q"));
        assert_eq!(history.snapshot(), Conversation::new().with_system("own").with("q"));
        history.set_context(AgentContext::default());
        assert_eq!(*history.sent(), history.snapshot());
    }

    #[test]
    fn a_context_that_is_the_same_changes_nothing() {
        let history = History::new(Conversation::new().with("q"));
        history.set_context(AgentContext { system: Some("s".to_owned()), message: None });
        let before = history.sent();
        history.set_context(AgentContext { system: Some("s".to_owned()), message: None });
        assert!(Arc::ptr_eq(&before, &history.sent()));
    }

    #[test]
    fn only_what_was_not_answered_is_a_question() {
        let history = History::default();
        assert!(!history.has_question());
        history.extend(vec!["q".into()]);
        assert!(history.has_question());
        history.answer(AssistantMessage::text("a"));
        assert!(!history.has_question());
        history.answer(asking(&["a"]));
        history.close();
        assert!(history.has_question());
    }

    #[test]
    fn the_same_calls_with_the_same_results_are_counted_under_whatever_ids() {
        let history = History::new(Conversation::new().with("q"));
        let round = |id: &str, result: &str| {
            let calls = history.answer(asking(&[id]));
            let repeats = history.repeats();
            history.settle(0, ToolResult::new(&calls[0], vec![ContentPart::text(result)]));
            history.close();
            repeats
        };
        assert_eq!([round("a", "1"), round("b", "1"), round("c", "2"), round("d", "2")], [0, 1, 2, 1]);
        assert_eq!([round("e", "2"), round("f", "2")], [2, 3]);
        history.extend(vec!["again".into()]);
        assert_eq!([round("g", "2"), round("h", "2")], [0, 1]);
    }

    #[test]
    fn an_answer_that_says_nothing_is_not_kept() {
        let history = History::new(Conversation::new().with("q"));
        history.answer(AssistantMessage::default());
        assert_eq!(history.snapshot(), Conversation::new().with("q"));
    }
}
