//! [OpenAI Responses](https://platform.openai.com/docs/api-reference/responses), stateless: nothing is stored at the provider.

mod decode;
mod encode;
mod event_frame;
mod event_head;
mod input;
mod item_fields;
mod model;
mod output_item;
#[cfg(test)]
mod tests;

pub(super) use self::decode::ResponsesDecoder;
pub(super) use self::encode::encode;
