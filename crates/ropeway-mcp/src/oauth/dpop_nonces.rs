//! Nonces that servers require in DPoP proofs ([RFC 9449, section 8](https://www.rfc-editor.org/rfc/rfc9449#section-8)).

use std::collections::VecDeque;
use std::sync::Mutex;

use reqwest::Url;

use ropeway_core::sync::lock;

/// Maximum number of origins. The oldest one is removed.
const MAX_ORIGINS: usize = 16;

/// Maximum nonce length. Longer ones are ignored.
const MAX_NONCE: usize = 1024;

/// Each origin's latest nonce.
#[derive(Debug, Default)]
pub(crate) struct DpopNonces(Mutex<VecDeque<(String, String)>>);

impl DpopNonces {
    /// Remembers a response's nonce.
    pub(crate) fn remember(&self, url: &Url, nonce: &str) {
        if nonce.is_empty() || nonce.len() > MAX_NONCE {
            return;
        }
        let origin = url.origin().ascii_serialization();
        let mut nonces = lock(&self.0);
        nonces.retain(|(known, _)| *known != origin);
        if nonces.len() >= MAX_ORIGINS {
            nonces.pop_front();
        }
        nonces.push_back((origin, nonce.to_owned()));
    }

    /// Returns the nonce for the next proof.
    pub(crate) fn get(&self, url: &Url) -> Option<String> {
        let origin = url.origin().ascii_serialization();
        lock(&self.0).iter().find(|(known, _)| *known == origin).map(|(_, nonce)| nonce.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nonces_belong_to_an_origin_and_are_bounded() {
        let nonces = DpopNonces::default();
        let url = |host: usize| Url::parse(&format!("https://h{host}.example/token")).expect("a URL");
        for host in 0..20 {
            nonces.remember(&url(host), "old");
            nonces.remember(&url(host), &format!("n{host}"));
        }
        nonces.remember(&url(19), &"x".repeat(2000));
        assert_eq!(nonces.get(&url(19)).as_deref(), Some("n19"));
        assert_eq!(nonces.get(&url(3)), None);
        assert_eq!(lock(&nonces.0).len(), MAX_ORIGINS);
    }
}
