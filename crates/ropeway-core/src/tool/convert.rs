//! Conversions into tools and into arguments, for parameters that accept several types.

use std::sync::Arc;

use serde::Serialize;
use serde_json::Value;

use super::error::ArgumentProblem;
use super::interface::{Arguments, Tool};
use crate::json;

/// Converts into a shared [`Tool`].
///
/// Every [`Tool`] converts, and so does an [`Arc`] that holds one, such as the tools that `Mcp::list_tools` returns.
pub trait IntoTool {
    /// Performs the conversion.
    fn into_tool(self) -> Arc<dyn Tool>;
}

impl<T: Tool> IntoTool for T {
    fn into_tool(self) -> Arc<dyn Tool> {
        Arc::new(self)
    }
}

impl<T: Tool> IntoTool for Arc<T> {
    fn into_tool(self) -> Arc<dyn Tool> {
        self
    }
}

impl IntoTool for Arc<dyn Tool> {
    fn into_tool(self) -> Arc<dyn Tool> {
        self
    }
}

/// Converts into a call's [`Arguments`].
///
/// Implemented for [`Arguments`] and [`Value`], which move without a copy, for references to anything that implements
/// [`Serialize`], and for `()`, which stands for no arguments.
///
/// ```
/// use ropeway::tool::IntoArguments;
/// use serde_json::json;
///
/// #[derive(serde::Serialize)]
/// struct Search<'a> {
///     query: &'a str,
/// }
///
/// let expected = json!({"query": "eggs"}).into_arguments()?;
/// assert_eq!((&Search { query: "eggs" }).into_arguments()?, expected);
/// assert!(().into_arguments()?.is_empty());
/// assert!(json!([1, 2]).into_arguments().is_err());
/// # Ok::<(), ropeway::tool::ArgumentProblem>(())
/// ```
pub trait IntoArguments {
    /// Performs the conversion.
    ///
    /// # Errors
    ///
    /// Fails if the value is not a JSON object, or cannot be serialized.
    fn into_arguments(self) -> Result<Arguments, ArgumentProblem>;
}

impl IntoArguments for Arguments {
    fn into_arguments(self) -> Result<Arguments, ArgumentProblem> {
        Ok(self)
    }
}

impl IntoArguments for Value {
    fn into_arguments(self) -> Result<Arguments, ArgumentProblem> {
        match self {
            Self::Object(arguments) => Ok(arguments),
            other => Err(whole(format!("expected a JSON object, found {}", json::kind(&other)))),
        }
    }
}

impl IntoArguments for () {
    fn into_arguments(self) -> Result<Arguments, ArgumentProblem> {
        Ok(Arguments::new())
    }
}

impl<T: Serialize + ?Sized> IntoArguments for &T {
    fn into_arguments(self) -> Result<Arguments, ArgumentProblem> {
        serde_json::to_value(self).map_err(|error| whole(error.to_string()))?.into_arguments()
    }
}

/// Returns a problem with the arguments as a whole.
fn whole(reason: String) -> ArgumentProblem {
    ArgumentProblem { path: String::new(), reason }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::tool::{LocalTool, ToolDefinition};

    #[test]
    fn a_shared_tool_is_not_wrapped_again() {
        let tool: Arc<dyn Tool> = Arc::new(LocalTool::new(ToolDefinition::new("t"), |_, _| async { Ok("") }));
        assert!(Arc::ptr_eq(&tool.clone().into_tool(), &tool));
    }

    #[test]
    fn values_that_are_not_objects_are_refused_by_their_kind() {
        for (value, kind) in [(json!(null), "null"), (json!("x"), "a string"), (json!([]), "an array")] {
            let problem = value.into_arguments().unwrap_err();
            assert_eq!(problem.to_string(), format!("expected a JSON object, found {kind}"));
        }
    }

    #[test]
    fn values_that_cannot_be_serialized_are_refused() {
        let keys = std::collections::BTreeMap::from([((1, 2), 3)]);
        assert_eq!((&keys).into_arguments().unwrap_err().to_string(), "key must be a string");
    }
}
