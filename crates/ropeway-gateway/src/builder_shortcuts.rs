//! Gateway builder shortcuts: session keys, and telemetry from environment variables.

use std::path::PathBuf;

use crate::handle::GatewayBuilder;
use crate::key_source::KeySource;
use crate::observe::otlp::OtlpSettings;
use ropeway_core::secret::Secret;

impl GatewayBuilder {
    /// Reads the keys that seal session ids from a file with one key per line, which is created if it does not exist.
    ///
    /// A restarted gateway with the same keys accepts its earlier sessions. Without a file,
    /// [`session_keys`](Self::session_keys) and keys in the settings, the keys are new at every start, and sessions end with the
    /// gateway.
    #[must_use]
    pub fn session_key_file(self, path: impl Into<PathBuf>) -> Self {
        self.keys(KeySource::File(path.into()))
    }

    /// Sets the keys that seal session ids: 32 bytes each, in base64 or hexadecimal. The first key seals, and every key opens.
    #[must_use]
    pub fn session_keys(self, keys: impl IntoIterator<Item = impl Into<Secret>>) -> Self {
        self.keys(KeySource::Given(keys.into_iter().map(Into::into).collect()))
    }

    /// Sends spans and metrics to the collector that the `OTEL_*` environment variables name, while the gateway runs.
    ///
    /// Invalid variables are ignored; [`Bridge::events`](ropeway_bridge::Bridge::events) reports them as warnings.
    #[must_use]
    pub fn otlp_from_env(self) -> Self {
        let (settings, warnings) = OtlpSettings::from_variables(|name| std::env::var(name).ok());
        let builder = self.bridge(|bridge| bridge.warnings(warnings));
        match settings {
            Some(settings) => builder.otlp(settings),
            None => builder,
        }
    }
}
