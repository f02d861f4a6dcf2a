//! Conversations with models: values that can be saved, loaded and continued with another provider.
//!
//! A [`Conversation`] is a system prompt and a list of [`Message`]s. [`Dialect`] names a provider's API.

pub use ropeway_core::message::ReasoningEffort;
pub use ropeway_core::message::{
    AssistantMessage, AssistantPart, AssistantText, CallArguments, Conversation, Dialect, Message, ToolCall, ToolResult,
};
