//! OpenAI Responses: items go in, items come out, and nothing is left with the provider in between.

mod decode;
mod encode;
mod head;
mod input;
mod item;
mod model;
mod output;
#[cfg(test)]
mod tests;

pub(super) use self::decode::Decoder;
pub(super) use self::encode::encode;
