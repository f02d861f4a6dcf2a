//! An authorization server's error responses ([RFC 6749, section 5.2](https://www.rfc-editor.org/rfc/rfc6749#section-5.2)).

use reqwest::StatusCode;
use serde_json::{Map, Value};

use super::error::OAuthError;
use super::text::shown;
use ropeway_core::secret::Redactor;

/// Number of characters that an error shows from a code.
const MAX_CODE: usize = 100;

/// Returns the error that a response contains, if it contains one. Some servers send it with status 200.
pub(super) fn refusal(
    status: StatusCode,
    body: Option<&Map<String, Value>>,
    redactor: &Redactor,
) -> Option<OAuthError> {
    let body = body?;
    let code = body.get("error").and_then(Value::as_str).filter(|code| !code.is_empty())?;
    if status.is_success() && body.contains_key("access_token") {
        return None;
    }
    let description = body.get("error_description").and_then(Value::as_str);
    Some(refused(code, description, redactor))
}

/// Returns the error for a code and its description.
pub(super) fn refused(code: &str, description: Option<&str>, redactor: &Redactor) -> OAuthError {
    let error = shown(code, redactor).chars().take(MAX_CODE).collect();
    let description = description.map(|text| shown(text, redactor)).filter(|text| !text.is_empty());
    OAuthError::Refused { error, description }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use ropeway_core::secret::Secret;

    #[test]
    fn errors_are_redacted_and_bounded() {
        let redactor = Redactor::new(&[Secret::new("r3fresh-token")]);
        let body = json!({"error": "invalid_grant", "error_description": format!("r3fresh-token\u{1b}[2J {}", "x".repeat(999))});
        let error = refusal(StatusCode::BAD_REQUEST, body.as_object(), &redactor).expect("an error");
        assert!(error.is_invalid_grant());
        let text = error.to_string();
        assert!(text.len() < 500 && !text.contains("r3fresh") && !text.contains('\u{1b}'), "{text}");
        assert!(text.starts_with("the authorization server refused the request: invalid_grant (***[2J xxx"), "{text}");
    }

    #[test]
    fn an_error_with_status_200_is_an_error() {
        let body = json!({"error": "bad_verification_code"});
        assert!(refusal(StatusCode::OK, body.as_object(), &Redactor::default()).is_some());
        let body = json!({"access_token": "a", "error": ""});
        assert!(refusal(StatusCode::OK, body.as_object(), &Redactor::default()).is_none());
    }
}
