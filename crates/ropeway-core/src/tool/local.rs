//! Tools that are host functions.

use std::future::Future;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::context::CallContext;
use super::definition::ToolDefinition;
use super::error::{ArgumentProblem, BoxError, CallError};
use super::interface::{Arguments, BoxFuture, Tool};
use super::output::ToolOutput;

type Summarize = dyn Fn(&Arguments) -> String + Send + Sync;

type Function = dyn Fn(Arguments, CallContext) -> BoxFuture<'static, Result<ToolOutput, CallError>> + Send + Sync;

/// A host function as a tool.
///
/// # Examples
///
/// ```
/// use ropeway::{LocalTool, ToolDefinition};
///
/// #[derive(serde::Deserialize, schemars::JsonSchema)]
/// struct Sum {
///     a: f64,
///     b: f64,
/// }
///
/// let sum = LocalTool::typed(ToolDefinition::new("sum").with_description("Add two numbers"), |Sum { a, b }, _| async move {
///     Ok((a + b).to_string())
/// });
/// ```
#[derive(Clone)]
pub struct LocalTool {
    definition: ToolDefinition,
    function: Arc<Function>,
    summarize: Option<Arc<Summarize>>,
}

impl LocalTool {
    /// Creates a tool from a definition and a closure that takes JSON arguments.
    pub fn new<F, R, O>(definition: ToolDefinition, function: F) -> Self
    where
        F: Fn(Arguments, CallContext) -> R + Send + Sync + 'static,
        R: Future<Output = Result<O, BoxError>> + Send + 'static,
        O: Into<ToolOutput>,
    {
        let name = definition.name.clone();
        let function = move |arguments, cx| -> BoxFuture<'static, _> {
            let answer = function(arguments, cx);
            let tool = name.clone();
            Box::pin(async move { answer.await.map(Into::into).map_err(|source| CallError::Failed { tool, source }) })
        };
        Self { definition, function: Arc::new(function), summarize: None }
    }

    /// Creates a tool from a definition and a closure with typed arguments. The input schema is derived from their type.
    pub fn typed<A, F, R, O>(definition: ToolDefinition, function: F) -> Self
    where
        A: DeserializeOwned + JsonSchema + Send + 'static,
        F: Fn(A, CallContext) -> R + Send + Sync + 'static,
        R: Future<Output = Result<O, BoxError>> + Send + 'static,
        O: Into<ToolOutput>,
    {
        let schema = schemars::generate::SchemaSettings::draft2020_12().into_generator().into_root_schema_for::<A>();
        let definition = definition.with_input_schema(schema.into());
        let tool = definition.name.clone();
        let function = move |arguments: Arguments, cx| -> BoxFuture<'static, _> {
            let tool = tool.clone();
            match serde_json::from_value::<A>(Value::Object(arguments)) {
                Ok(arguments) => {
                    let answer = function(arguments, cx);
                    Box::pin(async move {
                        answer.await.map(Into::into).map_err(|source| CallError::Failed { tool, source })
                    })
                }
                Err(error) => {
                    let problems = vec![ArgumentProblem { path: String::new(), reason: error.to_string() }];
                    Box::pin(std::future::ready(Err(CallError::InvalidArguments { tool, problems })))
                }
            }
        };
        Self { definition, function: Arc::new(function), summarize: None }
    }

    /// Sets the one-line call summary for the user; see [`Tool::summarize`].
    ///
    /// ```
    /// # use ropeway::{LocalTool, ToolDefinition};
    /// let delete = LocalTool::new(ToolDefinition::new("delete"), |_, _| async { Ok("deleted") })
    ///     .with_summary(|arguments| format!("Delete {}", arguments["path"]));
    /// ```
    #[must_use]
    pub fn with_summary<S: Into<String>>(
        mut self,
        summarize: impl Fn(&Arguments) -> S + Send + Sync + 'static,
    ) -> Self {
        self.summarize = Some(Arc::new(move |arguments| summarize(arguments).into()));
        self
    }
}

impl Tool for LocalTool {
    fn definition(&self) -> &ToolDefinition {
        &self.definition
    }

    fn summarize(&self, arguments: &Arguments) -> Option<String> {
        self.summarize.as_ref().map(|summarize| summarize(arguments))
    }

    fn call<'a>(&'a self, arguments: Arguments, cx: &'a CallContext) -> BoxFuture<'a, Result<ToolOutput, CallError>> {
        (self.function)(arguments, cx.clone())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[derive(serde::Deserialize, JsonSchema)]
    struct Sum {
        /// The first number.
        a: i64,
        /// The second number.
        b: i64,
    }

    fn sum() -> LocalTool {
        LocalTool::typed(
            ToolDefinition::new("sum").with_description("Adds two numbers"),
            |Sum { a, b }, _| async move {
                a.checked_add(b).map(|sum| sum.to_string()).ok_or_else(|| "the sum is too large".into())
            },
        )
    }

    fn arguments(value: Value) -> Arguments {
        value.as_object().cloned().unwrap_or_default()
    }

    #[tokio::test]
    async fn the_schema_of_typed_arguments_is_derived() {
        let tool = sum();
        assert_eq!(tool.definition().input_schema["required"], json!(["a", "b"]));
        assert_eq!(tool.definition().input_schema["properties"]["a"]["description"], json!("The first number."));
        let output = tool.call(arguments(json!({"a": 1, "b": 2})), &CallContext::default()).await.expect("a sum");
        assert_eq!(output, ToolOutput::text("3"));
    }

    #[tokio::test]
    async fn invalid_arguments_do_not_reach_the_function() {
        let error = sum().call(arguments(json!({"a": "x"})), &CallContext::default()).await.expect_err("no number");
        assert!(matches!(error, CallError::InvalidArguments { tool, .. } if tool == "sum"));
    }

    #[tokio::test]
    async fn an_error_of_the_function_is_the_source() {
        let error = sum()
            .call(arguments(json!({"a": i64::MAX, "b": 1})), &CallContext::default())
            .await
            .expect_err("too large");
        let source = std::error::Error::source(&error).map(ToString::to_string);
        assert_eq!(
            (error.to_string().as_str(), source.as_deref()),
            ("tool `sum` failed", Some("the sum is too large"))
        );
    }

    #[tokio::test]
    async fn a_closure_takes_json_arguments() {
        let tool = LocalTool::new(ToolDefinition::new("echo"), |arguments: Arguments, _| async move {
            Ok(Value::Object(arguments).to_string())
        });
        let output = tool.call(arguments(json!({"x": 1})), &CallContext::default()).await.expect("an echo");
        assert_eq!(output, ToolOutput::text("{\"x\":1}"));
    }
}
