//! Chat Completions: what OpenAI began and nearly everybody else speaks, each in their own way.

mod assistant;
mod calls;
mod decode;
mod encode;
mod gather;
mod messages;
mod part;
mod usage;
mod wire;

#[cfg(test)]
mod tests;

pub(super) use self::decode::Decoder;
pub(super) use self::encode::encode;

/// The field of a part's `extra` that names the fields of the message that the part came in, where it is not the usual one.
const FIELDS: &str = "fields";
