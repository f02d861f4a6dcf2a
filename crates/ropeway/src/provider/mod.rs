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

mod anthropic;
mod body_builder;
mod chat;
mod client;
mod cost;
mod credentials;
mod decoder;
mod encode;
mod encoded_request;
mod error;
mod error_mapping;
mod event_sink;
mod gemini;
mod http_message;
mod live_exchange;
mod loose_object;
mod media_kinds;
mod media_support;
mod models;
mod normalize;
mod prompt_part;
mod record;
mod recording;
mod replay;
mod reply;
mod reply_builder;
mod reply_driver;
mod request;
mod response_reader;
mod responses;
mod retry;
mod settings;
mod stream;
mod tail_buffer;
mod transport;

pub use self::client::Provider;
// Hidden from the docs: `Usage::cost_usd` returns the amount; the binary shows it.
#[doc(hidden)]
pub use self::cost::Cost;
// Hidden from the docs: used by the binary, the fuzz targets and test servers; not covered by semantic versioning.
#[doc(hidden)]
pub use self::decoder::Decoder;
#[doc(hidden)]
pub use self::encode::encode;
#[doc(hidden)]
pub use self::encoded_request::EncodedRequest;
pub use self::error::{ProviderError, ProviderErrorKind};
#[doc(hidden)]
pub use self::http_message::HttpRequest;
pub use self::media_kinds::MediaKinds;
pub use self::record::Recorder;
pub use self::recording::Recording;
#[doc(hidden)]
pub use self::recording::{Exchange, ExchangeEnd, RecordedRequest};
pub use self::reply::{Reply, ReplyEvent, StopReason, Usage};
pub use self::request::{ChatRequest, OutputFormat, ToolChoice};
pub use self::settings::{ProviderSettings, ProviderTimeouts, Proxy, Quirks, RetryPolicy};
pub use self::stream::ReplyStream;
pub use crate::message::ReasoningEffort;
