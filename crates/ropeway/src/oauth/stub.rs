//! Placeholders until the protocol functions are merged.
#![allow(dead_code, unused, missing_docs)]
use std::time::SystemTime;
use reqwest::Url;
use super::{Challenge, Credentials, OAuthError};
use crate::config::OAuthSettings;
use crate::secret::{Redactor, Secret};
#[derive(Clone)] pub(crate) struct OAuthHttp;
impl OAuthHttp { pub(crate) fn new(_: &Url, _: &[String], _: Redactor) -> Self { Self } }
pub(crate) struct DpopKey;
impl DpopKey { pub(crate) fn from_secret(_: &Secret) -> Result<Self, OAuthError> { Ok(Self) }
 pub(crate) fn proof(&self, _: &str, _: &Url, _: Option<&Secret>, _: Option<&str>, _: SystemTime) -> Result<String, OAuthError> { Ok(String::new()) } }
#[derive(Default)] pub(crate) struct DpopNonces;
impl DpopNonces { pub(crate) fn remember(&self, _: &Url, _: &str) {} pub(crate) fn get(&self, _: &Url) -> Option<String> { None } }
pub(crate) async fn refresh(_: &OAuthHttp, _: &Credentials, _: &OAuthSettings) -> Result<Credentials, OAuthError> { Err(OAuthError::Expired) }
pub(crate) async fn machine_grant(_: &OAuthHttp, _: &Url, _: &OAuthSettings, _: Option<&Challenge>, _: &[String], _: Option<&Secret>) -> Result<Credentials, OAuthError> { Err(OAuthError::Expired) }
pub(crate) fn step_up_scopes(_: &[String], _: &Challenge) -> Vec<String> { Vec::new() }
#[derive(Clone, Debug)] pub struct SignInOptions { pub server: String, pub settings: OAuthSettings, pub challenge: Option<Challenge>, pub account: Option<String>, pub previous: Option<Credentials> }
impl SignInOptions { pub fn new(server: impl Into<String>) -> Self { Self { server: server.into(), settings: OAuthSettings::new(), challenge: None, account: None, previous: None } } }
pub struct SignIn;
impl SignIn { pub async fn start(_: SignInOptions) -> Result<Self, OAuthError> { Ok(Self) }
 pub async fn prepare(&mut self, _: &str) -> Result<String, OAuthError> { Err(OAuthError::Expired) }
 pub async fn finish(&mut self, _: &str) -> Result<Credentials, OAuthError> { Err(OAuthError::Expired) } }
