//! Spans and metrics over OTLP, with `http/protobuf`
//! (<https://opentelemetry.io/docs/specs/otlp/>).
//!
//! Decision 12 (`docs/decisions/0012-telemetry.md`) states why the messages are encoded here.

mod attributes;
mod exporter;
mod metrics;
mod protobuf;
mod settings;
mod spans;
mod variables;

pub(crate) use self::exporter::Exporter;
pub use self::settings::OtlpSettings;
