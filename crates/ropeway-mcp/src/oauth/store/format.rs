//! The token file format: JSON with a readable summary, and the tokens in plain or encrypted form.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::error::Unspecified;
use serde::{Deserialize, Serialize};

use super::key::SignInKey;
use super::seal::StoreKey;
use super::summary::{CredentialsSummary, Protection, StoredSummary};
use crate::oauth::credentials::Credentials;

/// The format's version. A file with a later one is refused.
const VERSION: u64 = 1;

/// A token file that was read, with tokens that may be encrypted.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct TokenFile {
    pub(super) key: SignInKey,
    summary: StoredSummary,
    content: Content,
}

/// A file's tokens.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Content {
    Credentials(Box<Credentials>),
    Sealed(Sealed),
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Sealed {
    /// Identifies the key.
    key: String,
    /// Nonce, encrypted credentials and authentication tag, in base64.
    data: String,
}

#[derive(Serialize, Deserialize)]
struct Document {
    version: u64,
    server: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    account: Option<String>,
    summary: StoredSummary,
    content: Content,
}

/// Reads only the version, which newer formats keep.
#[derive(Deserialize)]
struct FormatVersion {
    version: u64,
}

/// Why a text is not a token file.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum FormatError {
    Newer { version: u64 },
    Invalid { problem: String },
}

/// Why encrypted tokens could not be decrypted.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum OpenError {
    /// They are encrypted with another key.
    AnotherKey,
    /// They were changed, or belong to another server or account.
    Invalid { problem: &'static str },
}

impl TokenFile {
    /// Parses a file's text. Errors do not quote it.
    pub(super) fn parse(text: &[u8]) -> Result<Self, FormatError> {
        let FormatVersion { version } = serde_json::from_slice(text).map_err(invalid)?;
        if version > VERSION {
            return Err(FormatError::Newer { version });
        }
        let document: Document = serde_json::from_slice(text).map_err(invalid)?;
        let key = SignInKey { server: document.server, account: document.account };
        Ok(Self { key, summary: document.summary, content: document.content })
    }

    pub(super) fn summary(&self) -> CredentialsSummary {
        let SignInKey { server, account } = self.key.clone();
        self.summary.clone().with(server, account, self.protection())
    }

    pub(super) fn protection(&self) -> Protection {
        match self.content {
            Content::Credentials(_) => Protection::File,
            Content::Sealed(_) => Protection::Keyring,
        }
    }

    /// Returns the id of the key that decrypts the tokens, if they are encrypted.
    pub(super) fn key_id(&self) -> Option<&str> {
        match &self.content {
            Content::Credentials(_) => None,
            Content::Sealed(sealed) => Some(&sealed.key),
        }
    }

    /// Returns the tokens, which must be those of `key`. Encrypted ones need the key that encrypted them.
    pub(super) fn credentials(self, key: &SignInKey, store_key: Option<&StoreKey>) -> Result<Credentials, OpenError> {
        let credentials = match self.content {
            Content::Credentials(credentials) => *credentials,
            Content::Sealed(sealed) => sealed.open(key, store_key.ok_or(OpenError::AnotherKey)?)?,
        };
        if SignInKey::new(&credentials.server, credentials.account.as_deref()) == *key {
            Ok(credentials)
        } else {
            Err(OpenError::Invalid { problem: "it belongs to another server or account" })
        }
    }
}

impl Sealed {
    fn open(&self, key: &SignInKey, store_key: &StoreKey) -> Result<Credentials, OpenError> {
        if self.key != store_key.id() {
            return Err(OpenError::AnotherKey);
        }
        let changed = || OpenError::Invalid { problem: "its encrypted part was changed" };
        let data = URL_SAFE_NO_PAD.decode(&self.data).map_err(|_| changed())?;
        let text = store_key.open(&key.bound_to(), &data).map_err(|_| changed())?;
        serde_json::from_slice(&text).map_err(|_| changed())
    }
}

/// Returns a token file's text. The tokens are encrypted if there is a key.
pub(super) fn write(credentials: &Credentials, store_key: Option<&StoreKey>) -> Result<Vec<u8>, Unspecified> {
    let key = SignInKey::new(&credentials.server, credentials.account.as_deref());
    let content = match store_key {
        None => Content::Credentials(Box::new(credentials.clone())),
        Some(store_key) => {
            let text = serde_json::to_vec(credentials).map_err(|_| Unspecified)?;
            let data = URL_SAFE_NO_PAD.encode(store_key.seal(&key.bound_to(), &text)?);
            Content::Sealed(Sealed { key: store_key.id().to_owned(), data })
        }
    };
    let summary = StoredSummary::from(credentials);
    let document = Document { version: VERSION, server: key.server, account: key.account, summary, content };
    let mut text = serde_json::to_vec_pretty(&document).map_err(|_| Unspecified)?;
    text.push(b'\n');
    Ok(text)
}

/// Describes an error by its kind and position. The parser's message can quote a token.
fn invalid(error: serde_json::Error) -> FormatError {
    let problem = match error.classify() {
        serde_json::error::Category::Eof => "it is truncated".to_owned(),
        serde_json::error::Category::Syntax => format!("invalid JSON at line {}", error.line()),
        _ => format!("unexpected value at line {}", error.line()),
    };
    FormatError::Invalid { problem }
}

#[cfg(test)]
mod tests {
    use super::super::seal::new_key;
    use super::*;
    use crate::oauth::client::RegisteredClient;
    use crate::oauth::serialized::from_unix;
    use crate::oauth::token_set::TokenSet;

    fn credentials() -> Credentials {
        let mut tokens = TokenSet::bearer("acc3ss");
        tokens.refresh_token = Some("r3fresh".into());
        tokens.expires_at = Some(from_unix(1_800_000_000));
        tokens.scopes = vec!["read".to_owned()];
        let client = RegisteredClient::public("client");
        let mut credentials =
            Credentials::new("https://a", "https://a", "https://as", "https://as/token", client, tokens);
        credentials.obtained_at = from_unix(1_700_000_000);
        credentials
    }

    fn key() -> StoreKey {
        StoreKey::parse(&new_key().expect("a key")).expect("a key")
    }

    #[test]
    fn the_format_does_not_change() {
        let text = write(&credentials(), None).expect("a text");
        let value: serde_json::Value = serde_json::from_slice(&text).expect("JSON");
        assert_eq!(
            value.to_string(),
            concat!(
                r#"{"version":1,"server":"https://a","summary":{"resource":"https://a","issuer":"https://as","client_id":"client","#,
                r#""scopes":["read"],"expires_at":1800000000,"refreshable":true,"dpop":false,"obtained_at":1700000000},"#,
                r#""content":{"credentials":{"server":"https://a","resource":"https://a","issuer":"https://as","#,
                r#""token_endpoint":"https://as/token","client":{"client_id":"client","auth_method":"none","registered":false},"#,
                r#""tokens":{"access_token":"acc3ss","dpop":false,"expires_at":1800000000,"refresh_token":"r3fresh","scopes":["read"]},"#,
                r#""granted":["read"],"obtained_at":1700000000}}}"#,
            )
        );
    }

    #[test]
    fn tokens_round_trip_in_plain_and_encrypted_form() {
        let (key, sign_in) = (key(), SignInKey::new("https://a/", None));
        for (store_key, protection) in [(None, Protection::File), (Some(&key), Protection::Keyring)] {
            let text = write(&credentials(), store_key).expect("a text");
            let file = TokenFile::parse(&text).expect("a file");
            assert_eq!(file.summary().protection, protection);
            assert_eq!((file.summary().server.as_str(), file.summary().refreshable), ("https://a", true));
            assert_eq!(file.credentials(&sign_in, store_key).expect("credentials"), credentials());
        }
    }

    #[test]
    fn an_encrypted_file_does_not_contain_tokens() {
        let text = String::from_utf8(write(&credentials(), Some(&key())).expect("a text")).expect("UTF-8");
        assert!(!text.contains("acc3ss") && !text.contains("r3fresh"), "{text}");
        let shown = format!("{:?}", TokenFile::parse(&write(&credentials(), None).expect("a text")));
        assert!(!shown.contains("acc3ss") && !shown.contains("r3fresh"), "{shown}");
    }

    #[test]
    fn tokens_of_another_server_or_key_are_refused() {
        let (key, sign_in) = (key(), SignInKey::new("https://a", None));
        let open = |store_key: Option<&StoreKey>, sign_in: &SignInKey, with: Option<&StoreKey>| {
            let text = write(&credentials(), store_key).expect("a text");
            TokenFile::parse(&text).expect("a file").credentials(sign_in, with)
        };
        let other = self::key();
        assert_eq!(open(Some(&key), &sign_in, Some(&other)), Err(OpenError::AnotherKey));
        assert_eq!(open(Some(&key), &sign_in, None), Err(OpenError::AnotherKey));
        for other in [SignInKey::new("https://b", None), SignInKey::new("https://a", Some("b"))] {
            assert!(matches!(open(Some(&key), &other, Some(&key)), Err(OpenError::Invalid { .. })));
            assert!(matches!(open(None, &other, None), Err(OpenError::Invalid { .. })));
        }
    }

    #[test]
    fn every_truncated_file_is_described_without_its_content() {
        for store_key in [None, Some(&key())] {
            let text = write(&credentials(), store_key).expect("a text");
            for length in 0..text.len() - 2 {
                let error = TokenFile::parse(&text[..length]).expect_err("truncated");
                assert_eq!(error, FormatError::Invalid { problem: "it is truncated".to_owned() }, "{length}");
            }
        }
    }

    #[test]
    fn other_texts_are_described_without_their_content() {
        for (text, problem) in [
            ("[]", "unexpected value at line 1"),
            ("t0ken", "invalid JSON at line 1"),
            (r#"{"version":"t0ken"}"#, "unexpected value at line 1"),
            (r#"{"version":1,"server":["t0ken"]}"#, "unexpected value at line 1"),
        ] {
            let expected = FormatError::Invalid { problem: problem.to_owned() };
            assert_eq!(TokenFile::parse(text.as_bytes()), Err(expected), "{text}");
        }
        assert_eq!(TokenFile::parse(br#"{"version":2}"#), Err(FormatError::Newer { version: 2 }));
    }
}
