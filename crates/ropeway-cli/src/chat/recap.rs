//! A conversation's last exchange, shown when a chat continues it.

use ropeway_core::message::{Conversation, Message};

use super::undo::first_line;
use crate::terminal::text::{clean, counted, cut, cut_words, wrap};

/// Maximum reply lines.
const MAX_LINES: usize = 4;

/// Returns the last message and the start of its reply.
pub(crate) fn recap(conversation: &Conversation, width: usize) -> String {
    let messages = &conversation.messages;
    let Some(last) = messages.iter().rposition(|message| matches!(message, Message::User { .. })) else {
        return String::new();
    };
    let mut text = format!("{}\n", cut_words(&format!("  › {}", first_line(&messages[last])), width));
    let reply = messages[last..].iter().rev().find_map(|message| match message {
        Message::Assistant(reply) => Some(reply.to_text()).filter(|text| !text.trim().is_empty()),
        _ => None,
    });
    match (reply, messages.last()) {
        (_, Some(Message::User { .. })) => {
            text.push_str("  not answered: `/retry` sends it again, `/undo` removes it\n")
        }
        (Some(reply), _) => {
            let reply = wrap(&clean(&reply), width, 2);
            let lines: Vec<&str> = reply.lines().collect();
            lines.iter().take(MAX_LINES).for_each(|line| text.push_str(&format!("{}\n", cut(line, width))));
            if let Some(more) = lines.len().checked_sub(MAX_LINES).filter(|more| *more > 0) {
                text.push_str(&format!("  … {} more\n", counted(more, "line")));
            }
        }
        (None, _) => text.push_str("  ended before a reply: `/retry` continues, `/undo` removes it\n"),
    }
    text
}

#[cfg(test)]
mod tests {
    use ropeway_core::message::AssistantMessage;

    use super::*;

    #[test]
    fn the_last_exchange_is_shortened_and_cleaned() {
        let reply = format!("One \u{1b}[2Jline.\n\n{}", "word ".repeat(60));
        let conversation = Conversation::new().with("first").with(AssistantMessage::text("1"));
        let conversation = conversation.with(format!("{}\u{1b}[2J\nsecond line", "long ".repeat(20)).as_str());
        let shown = recap(&conversation.clone().with(AssistantMessage::text(reply)), 40);
        let lines: Vec<&str> = shown.lines().collect();
        assert_eq!(lines[..3], ["  › long long long long long long long…", "  One line.", ""]);
        assert_eq!((lines.len(), lines[5]), (6, "  … 7 lines more"), "{shown}");
        let unanswered = recap(&conversation, 40);
        assert!(unanswered.contains("`/undo` removes it"), "{unanswered}");
        assert_eq!(recap(&Conversation::new(), 40), "");
    }
}
