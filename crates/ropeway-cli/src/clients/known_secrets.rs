//! Secrets for servers that the target file already has: literals become references, and missing values are imported.

use ropeway_config::Secret;
use ropeway_config::edit;
use ropeway_config::edit::EditError;
use ropeway_config::raw::RawServer;

use super::merge::MergedServer;
use crate::secrets::literal::{self, ExtractedSecret, SecretNames};

/// The changes for servers that the target file already has.
#[derive(Debug, Default)]
pub(crate) struct KnownSecrets {
    /// The file's text, with literals replaced by references.
    pub(crate) text: String,
    /// Variables to add to `.env`.
    pub(crate) taken: Vec<ExtractedSecret>,
    /// Notes for the user.
    pub(crate) notes: Vec<String>,
}

impl KnownSecrets {
    /// Compares the known servers with those from other clients. `kept` is the `.env` content, whose values never change.
    pub(crate) fn find(
        text: &str,
        known: &[MergedServer],
        kept: &[(String, Option<Secret>)],
        names: &mut SecretNames,
    ) -> Result<Self, EditError> {
        let mut found = Self { text: text.to_owned(), ..Self::default() };
        let written = if known.is_empty() { Vec::new() } else { edit::servers_of(text)? };
        for theirs in known {
            let ours = written.iter().find(|ours| ours.alias == theirs.server.alias);
            if let Some(ours) = ours.filter(|ours| is_same(ours, &theirs.server)) {
                found.add(ours, theirs, kept, names);
            }
        }
        Ok(found)
    }

    fn add(
        &mut self,
        ours: &RawServer,
        theirs: &MergedServer,
        kept: &[(String, Option<Secret>)],
        names: &mut SecretNames,
    ) {
        let alias = &ours.alias;
        let mut changed = ours.clone();
        let taken = literal::extract(&mut changed, names);
        if !taken.is_empty() {
            match edit::update(&self.text, &changed) {
                Ok(text) => {
                    self.text = text;
                    self.taken.extend(taken);
                }
                Err(_) => {
                    let keys: Vec<String> = taken.iter().map(|taken| format!("`{}`", taken.key)).collect();
                    let keys = keys.join(", ");
                    self.notes
                        .push(format!("could not move the secrets of `{alias}` out of the file; edit {keys} by hand"));
                    changed = ours.clone();
                }
            }
        }
        // These names are placeholders.
        let mut read = theirs.server.clone();
        for ExtractedSecret { name, value, key } in literal::extract(&mut read, &mut SecretNames::default()) {
            let (Some(ours), Some(theirs_text)) =
                (literal::text_at(&mut changed, &key), literal::text_at(&mut read, &key))
            else {
                continue;
            };
            let Some(variable) = reference(ours, theirs_text, &name) else { continue };
            let mine = self.taken.iter().find(|taken| taken.name == variable).map(|taken| Some(&taken.value));
            let kept = kept.iter().find(|(name, _)| name == variable).map(|(_, value)| value.as_ref());
            match mine.or(kept) {
                None => {
                    names.insert(variable, &value);
                    self.taken.push(ExtractedSecret { name: variable.to_owned(), value, key });
                }
                Some(Some(same)) if *same == value => {}
                Some(_) => {
                    let title = theirs.title;
                    let note =
                        format!("`{variable}` of `{alias}` keeps its value, which differs from the one in {title}");
                    if !self.notes.contains(&note) {
                        self.notes.push(note);
                    }
                }
            }
        }
    }
}

/// Returns `true` if two entries have the same command or URL, regardless of secrets.
fn is_same(ours: &RawServer, theirs: &RawServer) -> bool {
    let host = |server: &RawServer| {
        let url = server.url.as_ref()?.0.clone();
        Some(url.split(['?', '#', '$']).next().unwrap_or_default().to_owned())
    };
    ours.command == theirs.command && host(ours) == host(theirs)
}

/// Returns the variable in `ours` at the placeholder's position in `theirs`: `Bearer ${TOKEN}` and `Bearer ${placeholder}`.
fn reference<'a>(ours: &'a str, theirs: &str, placeholder: &str) -> Option<&'a str> {
    let (before, after) = theirs.split_once(&format!("${{{placeholder}}}"))?;
    let middle = ours.strip_prefix(before)?.strip_suffix(after)?;
    let name = middle.strip_prefix("${")?.strip_suffix('}')?;
    let name = name.strip_prefix("env:").unwrap_or(name);
    let is_name = !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    is_name.then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_variable_is_matched_with_the_secret_of_another_client() {
        assert_eq!(reference("Bearer ${TOKEN}", "Bearer ${A_TOKEN}", "A_TOKEN"), Some("TOKEN"));
        assert_eq!(reference("${env:TOKEN}", "${X}", "X"), Some("TOKEN"));
        for (ours, theirs) in [
            ("Basic ${TOKEN}", "Bearer ${X}"),
            ("${TOKEN:-usual}", "${X}"),
            ("${file:/etc/token}", "${X}"),
            ("a literal", "${X}"),
            ("${A}-${B}", "${X}"),
        ] {
            assert_eq!(reference(ours, theirs, "X"), None, "{ours}");
        }
    }
}
