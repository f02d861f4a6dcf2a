//! responses.

mod decode;
mod encode;

pub(super) use self::decode::Decoder;
pub(super) use self::encode::encode;
