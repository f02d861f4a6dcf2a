//! The `OTEL_*` variables
//! (<https://opentelemetry.io/docs/specs/otel/configuration/sdk-environment-variables/>,
//! <https://opentelemetry.io/docs/specs/otel/protocol/exporter/>).

use std::time::Duration;

use percent_encoding::percent_decode_str;
use reqwest::Url;

use super::settings::{OtlpEndpoint, OtlpSettings};
use crate::observe::Sampler;
use ropeway_core::secret::Secret;

/// A collector's endpoint on the same machine.
const DEFAULT_ENDPOINT: &str = "http://localhost:4318";

/// The only supported `OTEL_EXPORTER_OTLP_PROTOCOL`.
const PROTOCOL: &str = "http/protobuf";

/// Maximum number of headers and attributes.
const MAX_PAIRS: usize = 64;

impl OtlpSettings {
    /// Reads the `OTEL_*` variables. Returns `None` if nothing is exported, and warnings about values that are ignored.
    ///
    /// Spans and metrics are exported if `OTEL_EXPORTER_OTLP_ENDPOINT` or the signal's endpoint is set, or if
    /// `OTEL_TRACES_EXPORTER` or `OTEL_METRICS_EXPORTER` is `otlp`.
    pub fn from_variables(get: impl Fn(&str) -> Option<String>) -> (Option<Self>, Vec<String>) {
        let mut variables = Variables { get: &get, warnings: Vec::new() };
        let settings = variables.settings();
        (settings, variables.warnings)
    }
}

struct Variables<'a> {
    get: &'a dyn Fn(&str) -> Option<String>,
    warnings: Vec<String>,
}

impl Variables<'_> {
    /// Returns a variable. An empty one counts as unset.
    fn get(&self, name: &str) -> Option<String> {
        (self.get)(name).map(|value| value.trim().to_owned()).filter(|value| !value.is_empty())
    }

    fn settings(&mut self) -> Option<OtlpSettings> {
        if self.get("OTEL_SDK_DISABLED").is_some_and(|value| value.eq_ignore_ascii_case("true")) {
            return None;
        }
        let (traces, metrics) = (self.endpoint("TRACES"), self.endpoint("METRICS"));
        if traces.is_none() && metrics.is_none() {
            return None;
        }
        let queue = self.number("OTEL_BSP_MAX_QUEUE_SIZE", 2048).clamp(1, 1 << 20);
        Some(OtlpSettings {
            traces,
            metrics,
            resource: self.resource(),
            sampler: self.sampler(),
            queue,
            batch: self.number("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", 512).clamp(1, queue),
            delay: self.millis("OTEL_BSP_SCHEDULE_DELAY", 5_000),
            interval: self.millis("OTEL_METRIC_EXPORT_INTERVAL", 60_000).max(Duration::from_millis(100)),
        })
    }

    /// Returns a signal's endpoint, if it is exported.
    fn endpoint(&mut self, signal: &str) -> Option<OtlpEndpoint> {
        let exporter = self.get(&format!("OTEL_{signal}_EXPORTER"));
        let specific = self.get(&format!("OTEL_EXPORTER_OTLP_{signal}_ENDPOINT"));
        let common = self.get("OTEL_EXPORTER_OTLP_ENDPOINT");
        match exporter.as_deref() {
            Some("otlp") => {}
            Some(exporter) => {
                if exporter != "none" {
                    self.warn(&format!("OTEL_{signal}_EXPORTER"), exporter, "`otlp` or `none`");
                }
                return None;
            }
            None if specific.is_none() && common.is_none() => return None,
            None => {}
        }
        let either =
            |suffix: &str| (format!("OTEL_EXPORTER_OTLP_{signal}_{suffix}"), format!("OTEL_EXPORTER_OTLP_{suffix}"));
        let (name, shared_name) = either("PROTOCOL");
        if let Some(protocol) = self.get(&name).or_else(|| self.get(&shared_name))
            && protocol != PROTOCOL
        {
            let lower = signal.to_lowercase();
            self.warnings.push(format!(
                "{lower} are not exported: `{shared_name}={protocol}` is not supported; try `{PROTOCOL}`"
            ));
            return None;
        }
        let (name, shared_name) = either("COMPRESSION");
        if self.get(&name).or_else(|| self.get(&shared_name)).is_some_and(|compression| compression != "none") {
            self.warnings.push(format!("`{shared_name}` is ignored: compression is not supported"));
        }
        let text = specific.unwrap_or_else(|| {
            let base = common.unwrap_or_else(|| DEFAULT_ENDPOINT.to_owned());
            format!("{}/v1/{}", base.trim_end_matches('/'), signal.to_lowercase())
        });
        let url = Url::parse(&text).ok().filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host());
        let Some(url) = url else {
            // The value may contain a secret.
            let lower = signal.to_lowercase();
            self.warnings.push(format!("{lower} are not exported: the endpoint is not an http or https URL"));
            return None;
        };
        let (name, shared_name) = either("HEADERS");
        let headers = self.get(&name).or_else(|| self.get(&shared_name)).unwrap_or_default();
        let headers = self.pairs(&shared_name, &headers);
        let headers = headers.into_iter().map(|(name, value)| (name, Secret::new(value))).collect();
        let (name, shared_name) = either("TIMEOUT");
        let common = self.millis(&shared_name, 10_000);
        let timeout = if self.get(&name).is_some() { self.millis(&name, 10_000) } else { common };
        Some(OtlpEndpoint { url, headers, timeout: timeout.max(Duration::from_millis(1)) })
    }

    fn resource(&mut self) -> Vec<(String, String)> {
        let given = self.get("OTEL_RESOURCE_ATTRIBUTES").unwrap_or_default();
        let mut attributes = self.pairs("OTEL_RESOURCE_ATTRIBUTES", &given);
        if let Some(name) = self.get("OTEL_SERVICE_NAME") {
            attributes.retain(|(key, _)| key != "service.name");
            attributes.push(("service.name".to_owned(), name));
        }
        let instance = format!("{:016x}", fastrand::u64(..));
        let defaults = [
            ("service.name", "ropeway"),
            ("service.version", env!("CARGO_PKG_VERSION")),
            ("service.instance.id", &instance),
            ("telemetry.sdk.name", "ropeway"),
            ("telemetry.sdk.language", "rust"),
            ("telemetry.sdk.version", env!("CARGO_PKG_VERSION")),
        ];
        for (key, value) in defaults {
            if !attributes.iter().any(|(own, _)| own == key) {
                attributes.push((key.to_owned(), value.to_owned()));
            }
        }
        attributes
    }

    fn sampler(&mut self) -> Sampler {
        let Some(name) = self.get("OTEL_TRACES_SAMPLER") else { return Sampler::default() };
        let argument = self.get("OTEL_TRACES_SAMPLER_ARG");
        let mut ratio = || match argument.as_deref().map(str::parse::<f64>) {
            None => 1.0,
            Some(Ok(ratio)) if (0.0..=1.0).contains(&ratio) => ratio,
            Some(_) => {
                self.warn("OTEL_TRACES_SAMPLER_ARG", argument.as_deref().unwrap_or_default(), "a number from 0 to 1");
                1.0
            }
        };
        let (ratio, is_parent_based) = match name.as_str() {
            "always_on" => (1.0, false),
            "always_off" => (0.0, false),
            "traceidratio" => (ratio(), false),
            "parentbased_always_on" => (1.0, true),
            "parentbased_always_off" => (0.0, true),
            "parentbased_traceidratio" => (ratio(), true),
            other => {
                self.warn("OTEL_TRACES_SAMPLER", other, "a sampler such as `parentbased_traceidratio`");
                (1.0, true)
            }
        };
        Sampler { ratio, is_parent_based }
    }

    /// Reads `key=value` pairs, separated by commas, with percent-encoded values.
    fn pairs(&mut self, name: &str, text: &str) -> Vec<(String, String)> {
        let mut pairs = Vec::new();
        for pair in text.split(',').map(str::trim).filter(|pair| !pair.is_empty()).take(MAX_PAIRS) {
            let decoded = pair.split_once('=').and_then(|(key, value)| {
                let value = percent_decode_str(value.trim()).decode_utf8().ok()?;
                Some((key.trim().to_owned(), value.into_owned()))
            });
            match decoded.filter(|(key, _)| !key.is_empty()) {
                Some(pair) => pairs.push(pair),
                // The pair may contain a secret.
                None => self.warnings.push(format!("`{name}` is incomplete: a pair is not `key=value`")),
            }
        }
        pairs
    }

    fn number(&mut self, name: &str, default: usize) -> usize {
        let Some(text) = self.get(name) else { return default };
        text.parse().unwrap_or_else(|_| {
            self.warn(name, &text, "a number");
            default
        })
    }

    fn millis(&mut self, name: &str, default: usize) -> Duration {
        // Limits each duration to a day.
        Duration::from_millis(self.number(name, default).min(86_400_000) as u64)
    }

    fn warn(&mut self, name: &str, value: &str, expected: &str) {
        let value: String = value.chars().take(100).collect();
        self.warnings.push(format!("`{name}={}` is ignored: expected {expected}", value.escape_debug()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(variables: &[(&str, &str)]) -> (Option<OtlpSettings>, Vec<String>) {
        let get = |name: &str| variables.iter().find(|(own, _)| *own == name).map(|(_, value)| (*value).to_owned());
        OtlpSettings::from_variables(get)
    }

    fn settings(variables: &[(&str, &str)]) -> OtlpSettings {
        let (settings, warnings) = read(variables);
        assert_eq!(warnings, [""; 0]);
        settings.expect("settings")
    }

    fn urls(settings: &OtlpSettings) -> [Option<&str>; 2] {
        [&settings.traces, &settings.metrics].map(|endpoint| endpoint.as_ref().map(|endpoint| endpoint.url.as_str()))
    }

    #[test]
    fn nothing_is_exported_by_default() {
        let endpoint = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://c:4318");
        for variables in [
            &[][..],
            &[("OTEL_EXPORTER_OTLP_ENDPOINT", "")],
            &[endpoint, ("OTEL_SDK_DISABLED", "TRUE")],
            &[endpoint, ("OTEL_TRACES_EXPORTER", "none"), ("OTEL_METRICS_EXPORTER", "none")],
            &[("OTEL_SERVICE_NAME", "x"), ("OTEL_TRACES_SAMPLER", "always_on")],
        ] {
            let (settings, warnings) = read(variables);
            assert!(settings.is_none() && warnings.is_empty(), "{variables:?}: {warnings:?}");
        }
    }

    #[test]
    fn the_paths_of_signals_are_added_to_the_common_endpoint_only() {
        let both = settings(&[("OTEL_EXPORTER_OTLP_ENDPOINT", "http://c:4318/base/")]);
        assert_eq!(urls(&both), [Some("http://c:4318/base/v1/traces"), Some("http://c:4318/base/v1/metrics")]);
        let one = settings(&[("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "https://c/own")]);
        assert_eq!(urls(&one), [Some("https://c/own"), None]);
        let local = settings(&[("OTEL_METRICS_EXPORTER", "otlp")]);
        assert_eq!(urls(&local), [None, Some("http://localhost:4318/v1/metrics")]);
    }

    #[test]
    fn headers_resource_and_sampler_are_read() {
        let settings = settings(&[
            ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://c"),
            ("OTEL_EXPORTER_OTLP_HEADERS", "api-key=a%20b%3D, x = y ,"),
            ("OTEL_EXPORTER_OTLP_METRICS_HEADERS", "m=1"),
            ("OTEL_EXPORTER_OTLP_TIMEOUT", "500"),
            ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf"),
            ("OTEL_SERVICE_NAME", "team gateway"),
            ("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=prod,service.name=other,service.version=9"),
            ("OTEL_TRACES_SAMPLER", "parentbased_traceidratio"),
            ("OTEL_TRACES_SAMPLER_ARG", "0.1"),
            ("OTEL_BSP_MAX_QUEUE_SIZE", "10"),
        ]);
        let headers = |endpoint: &Option<OtlpEndpoint>| -> Vec<(String, String)> {
            let headers = &endpoint.as_ref().expect("an endpoint").headers;
            headers.iter().map(|(name, value)| (name.clone(), value.expose().to_owned())).collect()
        };
        assert_eq!(headers(&settings.traces), [("api-key".into(), "a b=".into()), ("x".into(), "y".into())]);
        assert_eq!(headers(&settings.metrics), [("m".into(), "1".into())]);
        assert_eq!(settings.traces.as_ref().map(|endpoint| endpoint.timeout), Some(Duration::from_millis(500)));
        let attribute = |key: &str| {
            let found = settings.resource.iter().filter(|(own, _)| own == key);
            found.map(|(_, value)| value.as_str()).collect::<Vec<_>>()
        };
        assert_eq!(attribute("service.name"), ["team gateway"]);
        assert_eq!((attribute("service.version"), attribute("deployment.environment.name")), (vec!["9"], vec!["prod"]));
        assert_eq!(settings.sampler, Sampler { ratio: 0.1, is_parent_based: true });
        assert_eq!((settings.queue, settings.batch), (10, 10));
    }

    #[test]
    fn values_that_make_no_sense_are_ignored_with_a_warning() {
        let endpoint = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://c");
        for (variable, expected) in [
            (("OTEL_TRACES_SAMPLER", "sometimes"), "a sampler such as"),
            (("OTEL_BSP_SCHEDULE_DELAY", "5s"), "expected a number"),
            (("OTEL_EXPORTER_OTLP_HEADERS", "s3cret"), "is not `key=value`"),
            (("OTEL_EXPORTER_OTLP_COMPRESSION", "gzip"), "compression is not supported"),
            (("OTEL_TRACES_EXPORTER", "jaeger"), "expected `otlp` or `none`"),
        ] {
            let (settings, warnings) = read(&[endpoint, variable]);
            assert!(settings.is_some(), "{variable:?}");
            assert!(warnings.iter().any(|warning| warning.contains(expected)), "{variable:?}: {warnings:?}");
            assert!(!warnings.concat().contains("s3cret"));
        }
        let (settings, warnings) = read(&[endpoint, ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")]);
        assert!(settings.is_none());
        assert!(warnings[0].starts_with("traces are not exported: `OTEL_EXPORTER_OTLP_PROTOCOL=grpc`"), "{warnings:?}");
        let (settings, warnings) = read(&[("OTEL_EXPORTER_OTLP_ENDPOINT", "user:s3cret@collector")]);
        assert!(settings.is_none() && !warnings.concat().contains("s3cret"), "{warnings:?}");
    }
}
