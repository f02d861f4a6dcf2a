//! Model providers: one request and its streamed reply, in four API dialects.
//!
//! A [`Provider`] sends a [`ChatRequest`], retries it, and returns a [`ReplyStream`], or the whole [`Reply`] with
//! [`Provider::complete`]. [`ProviderSettings`] sets the address, key and timeouts. A [`Recorder`] stores exchanges, and
//! [`Provider::replaying`] answers from a [`Recording`] without a network.
//!
//! | [`Dialect`](crate::message::Dialect) | reference |
//! |---|---|
//! | `Anthropic` | [Messages API](https://docs.anthropic.com/en/api/messages) |
//! | `Responses` | [OpenAI Responses](https://platform.openai.com/docs/api-reference/responses) |
//! | `Chat` | [OpenAI Chat Completions](https://platform.openai.com/docs/api-reference/chat) |
//! | `Gemini` | [Gemini `generateContent`](https://ai.google.dev/api/generate-content) |

pub use ropeway_core::message::ReasoningEffort;
pub use ropeway_providers::{
    ChatRequest, MediaKinds, OutputFormat, Provider, ProviderError, ProviderErrorKind, ProviderSettings,
    ProviderTimeouts, Proxy, Quirks, Recorder, Recording, Reply, ReplyEvent, ReplyStream, RetryPolicy, StopReason,
    ToolChoice, Usage,
};
