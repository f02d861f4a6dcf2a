//! A tool whose calls are validated and always return an envelope.

use std::any::Any;
use std::fmt;
use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::{Arc, OnceLock};
use std::task::Poll;
use std::time::Duration;

use serde_json::Value;
use tokio::time::Instant;

use crate::duration::format_duration;
use crate::envelope::Envelope;
use crate::schema::{Validator, fill_required};
use crate::secret::Redactor;
use crate::sync::sleep_until;
use crate::tool::{
    ArgumentMapping, ArgumentProblem, Arguments, BoxFuture, CallContext, CallError, Origin, Tool, ToolDefinition,
    ToolOutput, summary_line,
};

/// Grace period after the deadline in which a tool can report the timeout itself, with more detail.
const GRACE: Duration = Duration::from_millis(250);

/// Wraps a tool: validates arguments, catches panics, enforces the deadline and returns an [`Envelope`] for every call.
///
/// Clones share the compiled schema.
#[derive(Clone)]
pub struct CheckedTool {
    tool: Arc<dyn Tool>,
    validator: Arc<OnceLock<Validator>>,
}

/// A failure that a local tool did not report itself.
#[derive(Debug, thiserror::Error)]
enum LocalFailure {
    #[error("timed out after {}", format_duration(*.0))]
    TimedOut(Duration),
    #[error("panicked: {0}")]
    Panicked(String),
}

impl CheckedTool {
    /// Wraps a tool. Its schema is compiled on first use.
    pub fn new(tool: Arc<dyn Tool>) -> Self {
        Self { tool, validator: Arc::default() }
    }

    /// Returns the tool's name, description and schemas.
    pub fn definition(&self) -> &ToolDefinition {
        self.tool.definition()
    }

    /// Returns the wrapped tool.
    pub fn tool(&self) -> Arc<dyn Tool> {
        self.tool.clone()
    }

    /// Replaces the tool behind the definition. The compiled schema is shared.
    pub fn with_tool(&self, tool: Arc<dyn Tool>) -> Self {
        Self { tool, validator: self.validator.clone() }
    }

    /// Returns the tool under another name. The compiled schema is shared.
    #[must_use]
    pub fn renamed(&self, name: impl Into<String>) -> Self {
        let definition = ToolDefinition { name: name.into(), ..self.definition().clone() };
        let tool = Arc::new(Renamed { definition, tool: self.tool.clone() });
        Self { tool, validator: self.validator.clone() }
    }

    /// Returns a warning if the input schema is invalid. Compiles the schema.
    pub fn warning(&self) -> Option<String> {
        self.warning_of(self.validator())
    }

    /// Returns the same as [`warning`](Self::warning) without keeping the compiled schema, which may be large.
    pub fn schema_warning(&self) -> Option<String> {
        match self.validator.get() {
            Some(validator) => self.warning_of(validator),
            None => self.warning_of(&Validator::compile(&self.definition().input_schema)),
        }
    }

    fn warning_of(&self, validator: &Validator) -> Option<String> {
        let warning = match validator.warning() {
            Some(warning) => warning.to_owned(),
            None => self.definition().input_schema.parse_error()?,
        };
        Some(format!("invalid input schema of tool `{}`: {warning}", self.definition().own_name()))
    }

    /// Returns the tool's call [summary](Tool::summarize), safe to display: one line with bounded length, without control
    /// characters or `secrets`.
    pub fn summary(&self, arguments: &Arguments, secrets: &Redactor) -> Option<String> {
        // A panic drops the summary, not the call.
        let text = catch_unwind(AssertUnwindSafe(|| self.tool.summarize(arguments))).ok().flatten()?;
        summary_line(&text, secrets)
    }

    /// Executes a call. Always returns an envelope, even for invalid arguments, a panic, a timeout or a cancellation.
    pub async fn call(&self, arguments: Arguments, cx: &CallContext) -> Envelope {
        let start = Instant::now();
        let cx = &cx.for_call();
        let outcome = match self.check(arguments) {
            Ok(arguments) => self.run(arguments, start, cx).await,
            Err(error) => Err(error),
        };
        let ToolDefinition { name, origin, output_schema, .. } = self.definition();
        let (id, origin, took) = (cx.id().clone(), origin.clone(), start.elapsed());
        match outcome {
            Ok(output) => {
                let envelope = Envelope::from_output(id, name, origin, took, output);
                match output_schema {
                    Some(schema) => envelope.cast_to(schema),
                    None => envelope,
                }
            }
            Err(error) => Envelope::from_error(id, name, origin, took, error),
        }
    }

    fn validator(&self) -> &Validator {
        self.validator.get_or_init(|| {
            let definition = self.definition();
            let validator = Validator::compile(&definition.input_schema);
            if validator.warning().is_some() {
                // The warning may quote the server, and secrets are not known here.
                let server = match &definition.origin {
                    Origin::Server { server, .. } => Some(server.as_str()),
                    Origin::Local => None,
                };
                tracing::warn!(server, "invalid input schema of tool `{}`", definition.own_name());
            }
            validator
        })
    }

    /// Returns the error for a call with these arguments, if they are invalid.
    pub fn argument_error(&self, arguments: &Arguments) -> Option<CallError> {
        self.check(arguments.clone()).err()
    }

    /// Returns the arguments if they are valid, with defaults for required ones that are missing.
    fn check(&self, mut arguments: Arguments) -> Result<Arguments, CallError> {
        catch_unwind(AssertUnwindSafe(|| self.tool.prepare(&mut arguments)))
            .map_err(|panic| self.failed(LocalFailure::Panicked(panic_message(&*panic))))?;
        let arguments = Value::Object(arguments);
        let invalid = |problems| CallError::InvalidArguments { tool: self.definition().name.clone(), problems };
        let checked = match self.validator().validate(&arguments) {
            Ok(()) => arguments,
            Err(problems) => self.with_defaults(&arguments, problems).map_err(invalid)?,
        };
        match checked {
            Value::Object(arguments) => Ok(arguments),
            // Unreachable: `arguments` is an object.
            _ => Ok(Arguments::new()),
        }
    }

    /// Returns invalid arguments with defaults for missing required ones, if that makes them valid. Schema generators list
    /// an argument with a default as required, because its value is always present after parsing
    /// (<https://zod.dev/json-schema#io>).
    fn with_defaults(&self, arguments: &Value, problems: Vec<ArgumentProblem>) -> Result<Value, Vec<ArgumentProblem>> {
        let Some(filled) = fill_required(&self.definition().input_schema, arguments) else { return Err(problems) };
        match self.validator().validate(&filled.value) {
            Ok(()) => Ok(filled.value),
            Err(problems) => Err(filled.explain(problems)),
        }
    }

    /// Waits for the result, a panic, the deadline or the cancellation.
    async fn run(&self, arguments: Arguments, start: Instant, cx: &CallContext) -> Result<ToolOutput, CallError> {
        // Inside the future, so that a panic before the first await is also caught.
        let mut call = pin!(async { self.tool.call(arguments, cx).await });
        let caught = poll_fn(|task| match catch_unwind(AssertUnwindSafe(|| call.as_mut().poll(task))) {
            Ok(poll) => poll,
            Err(panic) => Poll::Ready(Err(self.failed(LocalFailure::Panicked(panic_message(&*panic))))),
        });
        tokio::select! {
            biased;
            outcome = caught => outcome,
            () = cx.cancelled() => Err(CallError::Cancelled),
            () = sleep_until(cx.deadline().map(|deadline| deadline + GRACE)) => Err(self.timed_out(start.elapsed().saturating_sub(GRACE))),
        }
    }

    /// Returns the error for a call that took too long.
    pub fn timed_out(&self, after: Duration) -> CallError {
        match &self.definition().origin {
            Origin::Server { server, .. } => {
                CallError::Timeout { server: server.clone(), after, idle: false, hint: None }
            }
            Origin::Local => self.failed(LocalFailure::TimedOut(after)),
        }
    }

    fn failed(&self, failure: LocalFailure) -> CallError {
        CallError::Failed { tool: self.definition().name.clone(), source: Box::new(failure) }
    }
}

impl fmt::Debug for CheckedTool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("CheckedTool").field(&self.definition().name).finish()
    }
}

/// A tool under another name.
struct Renamed {
    definition: ToolDefinition,
    tool: Arc<dyn Tool>,
}

impl Tool for Renamed {
    fn definition(&self) -> &ToolDefinition {
        &self.definition
    }

    fn prepare(&self, arguments: &mut Arguments) {
        self.tool.prepare(arguments);
    }

    fn summarize(&self, arguments: &Arguments) -> Option<String> {
        self.tool.summarize(arguments)
    }

    fn argument_mapping(&self) -> ArgumentMapping {
        self.tool.argument_mapping()
    }

    fn map_arguments(&self, arguments: &mut Arguments) {
        self.tool.map_arguments(arguments);
    }

    fn call<'a>(&'a self, arguments: Arguments, cx: &'a CallContext) -> BoxFuture<'a, Result<ToolOutput, CallError>> {
        self.tool.call(arguments, cx)
    }
}

/// Returns a panic's message.
pub fn panic_message(panic: &(dyn Any + Send)) -> String {
    match (panic.downcast_ref::<&str>(), panic.downcast_ref::<String>()) {
        (Some(text), _) => (*text).to_owned(),
        (_, Some(text)) => text.clone(),
        _ => "unknown cause".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use serde_json::json;

    use super::*;
    use crate::envelope::EnvelopeData;
    use crate::tool::{BoxError, CancelToken, LocalTool};

    fn checked<F, R>(definition: ToolDefinition, function: F) -> CheckedTool
    where
        F: Fn(Arguments) -> R + Send + Sync + 'static,
        R: Future<Output = Result<ToolOutput, BoxError>> + Send + 'static,
    {
        CheckedTool::new(Arc::new(LocalTool::new(definition, move |arguments, _| function(arguments))))
    }

    fn look() -> ToolDefinition {
        ToolDefinition::new("look")
            .with_input_schema(json!({"type": "object", "properties": {"n": {"type": "integer"}}}))
    }

    fn arguments(value: Value) -> Arguments {
        value.as_object().cloned().unwrap_or_default()
    }

    fn text(envelope: &Envelope) -> String {
        match envelope.data() {
            EnvelopeData::Text(text) => text.into_owned(),
            other => panic!("{other:?}"),
        }
    }

    /// A server's tool that never returns, or panics before it returns a future.
    struct Stuck {
        definition: ToolDefinition,
        panics: bool,
    }

    impl Tool for Stuck {
        fn definition(&self) -> &ToolDefinition {
            &self.definition
        }

        fn call<'a>(&'a self, _: Arguments, _: &'a CallContext) -> BoxFuture<'a, Result<ToolOutput, CallError>> {
            assert!(!self.panics, "no {}", "way");
            Box::pin(std::future::pending())
        }
    }

    fn stuck(panics: bool) -> CheckedTool {
        let mut definition = look();
        definition.origin = Origin::Server { server: "web".into(), tool: "look".into() };
        CheckedTool::new(Arc::new(Stuck { definition, panics }))
    }

    #[tokio::test]
    async fn a_result_is_cast_to_the_output_schema() {
        let definition = look().with_output_schema(json!({"properties": {"m": {"type": "integer"}}}));
        let tool = checked(definition, |_| async { Ok(ToolOutput::structured(json!({"m": "3"}))) });
        let envelope = tool.call(arguments(json!({"n": 1})), &CallContext::new("7")).await;
        assert_eq!(envelope.data(), EnvelopeData::Json(&json!({"m": 3})));
        assert_eq!((envelope.id.0.as_str(), envelope.tool.as_str(), &envelope.origin), ("7", "look", &Origin::Local));
        assert_eq!(envelope.changes.len(), 1);
        assert!(!envelope.meta.is_error);
    }

    #[tokio::test]
    async fn invalid_arguments_never_reach_the_tool() {
        static CALLS: AtomicU32 = AtomicU32::new(0);
        let tool = checked(look(), |_| async {
            CALLS.fetch_add(1, Ordering::Relaxed);
            Ok(ToolOutput::default())
        });
        let envelope = tool.call(arguments(json!({"n": "x"})), &CallContext::default()).await;
        assert!(envelope.meta.is_error);
        assert!(text(&envelope).contains("- at `/n`: must be an integer, not a string"), "{}", text(&envelope));
        assert!(matches!(envelope.error.as_deref(), Some(CallError::InvalidArguments { .. })));
        assert_eq!(CALLS.load(Ordering::Relaxed), 0);
    }

    #[tokio::test]
    async fn a_missing_required_argument_is_sent_with_its_default() {
        let definition = ToolDefinition::new("shot").with_input_schema(json!({
            "type": "object", "required": ["scale", "target"], "additionalProperties": false,
            "properties": {"scale": {"enum": ["css", "device"], "default": "css"}, "target": {"type": "string"}},
        }));
        let tool = checked(definition, |arguments| async move { Ok(ToolOutput::structured(Value::Object(arguments))) });
        let envelope = tool.call(arguments(json!({"target": "page"})), &CallContext::default()).await;
        assert_eq!(envelope.data(), EnvelopeData::Json(&json!({"target": "page", "scale": "css"})));
        let given = json!({"target": "page", "scale": "device"});
        let envelope = tool.call(arguments(given.clone()), &CallContext::default()).await;
        assert_eq!(envelope.data(), EnvelopeData::Json(&given));
        let envelope = tool.call(Arguments::new(), &CallContext::default()).await;
        let words = text(&envelope);
        assert!(words.contains("`target` is missing") && !words.contains("scale"), "{words}");
    }

    #[tokio::test]
    async fn a_default_that_its_own_schema_refuses_is_not_sent() {
        let definition = ToolDefinition::new("shot").with_input_schema(json!({
            "required": ["scale"], "properties": {"scale": {"type": "string", "pattern": "^[a-z]+$", "default": "1x"}},
        }));
        let tool = checked(definition, |_| async { Ok(ToolOutput::text("called")) });
        let words = text(&tool.call(Arguments::new(), &CallContext::default()).await);
        let expected =
            "at `/scale`: is required, and its default does not match its own schema: must match the pattern";
        assert!(words.contains(expected), "{words}");
    }

    #[tokio::test]
    async fn an_error_result_of_the_tool_is_passed_through() {
        let tool = checked(look(), |_| async { Ok(ToolOutput::error("no such file")) });
        let envelope = tool.call(Arguments::new(), &CallContext::default()).await;
        assert!(envelope.meta.is_error && envelope.error.is_none());
        assert_eq!(text(&envelope), "no such file");
    }

    #[tokio::test]
    async fn a_tool_that_panics_can_be_called_again() {
        let tool = checked(look(), |arguments| async move {
            tokio::task::yield_now().await;
            assert!(!arguments.contains_key("n"), "n is unlucky");
            Ok(ToolOutput::text("fine"))
        });
        let envelope = tool.call(arguments(json!({"n": 1})), &CallContext::default()).await;
        assert!(text(&envelope).starts_with("Error: tool `look` failed: panicked: n is unlucky. "));
        assert_eq!(text(&tool.call(Arguments::new(), &CallContext::default()).await), "fine");
    }

    #[tokio::test]
    async fn a_panic_before_the_first_await_is_caught() {
        let envelope = stuck(true).call(Arguments::new(), &CallContext::default()).await;
        assert!(text(&envelope).contains("panicked: no way"));
    }

    #[tokio::test(start_paused = true)]
    async fn a_tool_that_misses_its_deadline_times_out() {
        let cx = CallContext::default().with_timeout(Duration::from_secs(3));
        let envelope = stuck(false).call(Arguments::new(), &cx).await;
        assert!(text(&envelope).starts_with("Error: server `web` timed out after 3 s"), "{}", text(&envelope));
        assert!(envelope.error.as_deref().is_some_and(CallError::is_transient));
        let local = checked(look(), |_| std::future::pending());
        let cx = CallContext::default().with_timeout(Duration::from_secs(3));
        let envelope = local.call(Arguments::new(), &cx).await;
        assert!(text(&envelope).starts_with("Error: tool `look` failed: timed out after 3 s"));
    }

    #[tokio::test(start_paused = true)]
    async fn a_tool_may_report_its_timeout_itself() {
        let tool = checked(look(), |_| async {
            tokio::time::sleep(Duration::from_secs(3)).await;
            Err("the disk is asleep".into())
        });
        let cx = CallContext::default().with_timeout(Duration::from_secs(3));
        assert!(text(&tool.call(Arguments::new(), &cx).await).contains("the disk is asleep"));
    }

    #[tokio::test(start_paused = true)]
    async fn a_cancelled_call_returns_an_envelope() {
        let cancel = CancelToken::new();
        let cx = CallContext::default().with_cancel(cancel.clone());
        let tool = stuck(false);
        let (envelope, ()) = tokio::join!(tool.call(Arguments::new(), &cx), async {
            tokio::time::sleep(Duration::from_secs(1)).await;
            cancel.cancel();
        });
        assert!(matches!(envelope.error.as_deref(), Some(CallError::Cancelled)));
        assert_eq!(envelope.took, Duration::from_secs(1));
    }

    #[test]
    fn a_panic_in_summarize_drops_the_summary() {
        let tool = LocalTool::new(look(), |_: Arguments, _| async { Ok::<_, BoxError>("") })
            .with_summary(|arguments| format!("Look at\n{}", arguments["n"]));
        let summary =
            |given: Value| CheckedTool::new(Arc::new(tool.clone())).summary(&arguments(given), &Redactor::default());
        assert_eq!(summary(json!({"n": 3})).as_deref(), Some("Look at 3"));
        assert_eq!(summary(json!({})), None);
        let renamed = CheckedTool::new(Arc::new(tool.clone())).renamed("other");
        assert_eq!(renamed.summary(&arguments(json!({"n": 3})), &Redactor::default()).as_deref(), Some("Look at 3"));
    }

    #[tokio::test]
    async fn calls_with_one_context_have_different_ids() {
        let cx = CallContext::default();
        let tool = checked(look(), |_| async { Ok(ToolOutput::text("fine")) });
        let [first, second] = [tool.call(Arguments::new(), &cx).await, tool.call(Arguments::new(), &cx).await];
        assert_ne!(first.id, second.id);
    }

    #[tokio::test]
    async fn an_invalid_schema_is_a_warning_that_names_the_tool() {
        let definition =
            ToolDefinition::new("odd").with_input_schema(json!({"$ref": "https://example.com/schema.json"}));
        let tool = checked(definition, |_| async { Ok(ToolOutput::text("fine")) });
        let warning = tool.warning().expect("a warning");
        assert!(warning.contains("tool `odd`") && warning.contains("https://example.com/schema.json"), "{warning}");
        assert_eq!(text(&tool.call(arguments(json!({"any": 1})), &CallContext::default()).await), "fine");
        assert_eq!(checked(look(), |_| std::future::pending()).warning(), None);
    }
}
