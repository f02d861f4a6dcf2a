//! The error type for programs that use several parts of the crate.

/// Defines [`Error`] and its conversions: `#[features] /// docs  Variant: Type,`.
macro_rules! errors {
    ($($(#[doc = $doc:literal])+ $(#[cfg($feature:meta)])? $variant:ident: $error:ty,)+) => {
        /// Any error from this crate, for functions that use several of its parts.
        ///
        /// Every public error type converts into it with `?`. Its message and causes are the original error's.
        #[derive(Debug, thiserror::Error)]
        #[non_exhaustive]
        pub enum Error {
            $(
                $(#[doc = $doc])+
                $(#[cfg($feature)])?
                #[error(transparent)]
                $variant(Box<$error>),
            )+
        }

        $(
            $(#[cfg($feature)])?
            impl From<$error> for Error {
                fn from(error: $error) -> Self {
                    Self::$variant(Box::new(error))
                }
            }
        )+
    };
}

errors! {
    /// A tool call returned no result.
    Call: crate::tool::CallError,
    /// A tool call failed, or its result does not have the expected type.
    Result: crate::envelope::ResultError,
    /// A connection could not be established.
    #[cfg(feature = "mcp")]
    Connect: crate::mcp::ConnectError,
    /// A configuration is invalid or cannot be read.
    Config: crate::config::ConfigError,
    /// A bridge could not be built or started.
    #[cfg(feature = "bridge")]
    Bridge: crate::bridge::BridgeError,
    /// A gateway could not be built or started.
    #[cfg(feature = "gateway")]
    Gateway: crate::gateway::GatewayError,
    /// Stored tokens could not be read, written or locked.
    #[cfg(feature = "mcp")]
    TokenStore: crate::oauth::StoreError,
    /// A `ropeway.lock` file could not be read or written.
    Lock: crate::lock::LockError,
    /// A model provider refused a request or could not be reached.
    #[cfg(feature = "providers")]
    Provider: crate::provider::ProviderError,
    /// Text, such as a reply or a recording, does not have the expected format.
    Parse: crate::ParseError,
    /// An agent could not be built, or its turn failed.
    #[cfg(feature = "agent")]
    Agent: crate::agent::AgentError,
    /// A generation failed.
    #[cfg(feature = "agent")]
    Generate: crate::agent::GenerateError,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tool::CallError;

    #[test]
    fn an_error_keeps_the_message_and_the_cause_of_the_original() {
        let source = std::io::Error::other("disk full");
        let error = Error::from(CallError::Failed { tool: "save".to_owned(), source: source.into() });
        assert_eq!(error.to_string(), "tool `save` failed");
        assert_eq!(std::error::Error::source(&error).map(ToString::to_string).as_deref(), Some("disk full"));
        assert!(size_of::<Error>() <= 16);
    }
}
