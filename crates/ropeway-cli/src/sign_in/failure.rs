//! Sign-in failures, with exit codes and advice.

use ropeway_core::secret::Redactor;
use ropeway_mcp::oauth::{Credentials, OAuthError, StoreError};

use crate::failure::{Failure, exit_of_oauth};
use crate::secrets::redaction;

/// Returns the failure for an OAuth operation on a server.
pub(crate) fn oauth_failure(message: impl Into<String>, error: &OAuthError) -> Failure {
    Failure::new(exit_of_oauth(error), message).caused_by(error)
}

/// Returns the token store's failure. Its message states the fix.
pub(crate) fn store_failure(error: &StoreError) -> Failure {
    Failure::usage(error.to_string()).caused_by_source(error)
}

/// Redacts a sign-in's secrets from all further output.
pub(crate) fn redact_credentials(credentials: &Credentials) {
    redaction::add_secrets(&Redactor::new(credentials.secrets()));
}
