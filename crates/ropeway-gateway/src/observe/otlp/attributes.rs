//! OTLP attributes, resources and times
//! (<https://github.com/open-telemetry/opentelemetry-proto/blob/v1.7.0/opentelemetry/proto/common/v1/common.proto>).

use std::time::{SystemTime, UNIX_EPOCH};

use super::protobuf::Message;

/// The instrumentation scope's name.
const SCOPE: &str = "ropeway";

/// Writes a text attribute as a message's field `field`, unless it is empty.
pub(super) fn text(message: &mut Message, field: u32, key: &str, value: &str) {
    if value.is_empty() {
        return;
    }
    let mut any = Message::default();
    any.text(1, value);
    let mut attribute = Message::default();
    attribute.text(1, key);
    attribute.message(2, &any);
    message.message(field, &attribute);
}

/// Creates the message `Resource`.
pub(super) fn resource(attributes: &[(String, String)]) -> Message {
    let mut resource = Message::default();
    for (key, value) in attributes {
        text(&mut resource, 1, key, value);
    }
    resource
}

/// Creates the message `InstrumentationScope`.
pub(super) fn scope() -> Message {
    let mut scope = Message::default();
    scope.text(1, SCOPE);
    scope.text(2, env!("CARGO_PKG_VERSION"));
    scope
}

/// Returns a time in nanoseconds since 1970.
pub(super) fn nanos(time: SystemTime) -> u64 {
    u64::try_from(time.duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos()).unwrap_or(u64::MAX)
}
