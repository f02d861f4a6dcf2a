//! Summaries of stored sign-ins, without their secrets.

use std::fmt;
use std::time::SystemTime;

use serde::{Deserialize, Serialize};

use super::error::StoreError;
use crate::oauth::credentials::Credentials;
use crate::oauth::serialized;

/// How stored tokens are protected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Protection {
    /// They are in memory only.
    Memory,
    /// They are in a file that only the user can read.
    File,
    /// They are in a private file, encrypted with a key in the operating system's keyring.
    Keyring,
}

impl fmt::Display for Protection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Memory => "memory",
            Self::File => "0600 file",
            Self::Keyring => "keyring",
        })
    }
}

/// A stored sign-in without its secrets.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CredentialsSummary {
    /// The server's canonical URL.
    pub server: String,
    /// The account, if the sign-in has one.
    pub account: Option<String>,
    /// The resource that the tokens are for.
    pub resource: String,
    /// The authorization server that issued the tokens.
    pub issuer: String,
    /// The client's id.
    pub client_id: String,
    /// The granted scopes.
    pub scopes: Vec<String>,
    /// When the access token expires.
    pub expires_at: Option<SystemTime>,
    /// Whether the access token can be refreshed without a new sign-in.
    pub refreshable: bool,
    /// Whether the tokens are bound to a key.
    pub dpop: bool,
    /// When the tokens were issued.
    pub obtained_at: SystemTime,
    /// How the tokens are protected.
    pub protection: Protection,
}

/// The stored sign-ins.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct CredentialsList {
    /// The sign-ins, sorted by server and account.
    pub entries: Vec<CredentialsSummary>,
    /// The errors for files that could not be read.
    pub unreadable: Vec<StoreError>,
    /// Whether more sign-ins are stored than are listed.
    pub truncated: bool,
}

/// The part of a token file that is never encrypted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct StoredSummary {
    resource: String,
    issuer: String,
    client_id: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    scopes: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none", with = "serialized::optional_time")]
    expires_at: Option<SystemTime>,
    refreshable: bool,
    dpop: bool,
    #[serde(with = "serialized::time")]
    obtained_at: SystemTime,
}

impl StoredSummary {
    pub(super) fn with(self, server: String, account: Option<String>, protection: Protection) -> CredentialsSummary {
        CredentialsSummary {
            server,
            account,
            resource: self.resource,
            issuer: self.issuer,
            client_id: self.client_id,
            scopes: self.scopes,
            expires_at: self.expires_at,
            refreshable: self.refreshable,
            dpop: self.dpop,
            obtained_at: self.obtained_at,
            protection,
        }
    }
}

impl From<&Credentials> for StoredSummary {
    fn from(credentials: &Credentials) -> Self {
        Self {
            resource: credentials.resource.clone(),
            issuer: credentials.issuer.clone(),
            client_id: credentials.client.client_id.clone(),
            scopes: credentials.granted.clone(),
            expires_at: credentials.tokens.expires_at,
            refreshable: credentials.tokens.refresh_token.is_some(),
            dpop: credentials.tokens.dpop,
            obtained_at: credentials.obtained_at,
        }
    }
}
