//! [OpenAI Chat Completions](https://platform.openai.com/docs/api-reference/chat), and its many compatible servers.

mod assistant;
mod calls;
mod chunk;
mod decode;
mod encode;
mod messages;
mod part;
mod unknown_fields;
mod usage;

#[cfg(test)]
mod tests;

pub(super) use self::decode::ChatDecoder;
pub(super) use self::encode::encode;
