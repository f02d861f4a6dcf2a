//! Certificates that the user's environment names, which every sandboxed server may read.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use ropeway_config::CERTIFICATE_VARIABLES;

use super::home::home;

/// The variable that names several directories, separated by colons.
const LIST: &str = "SSL_CERT_DIR";

/// Returns the certificates that this process's environment names, each with its variable.
///
/// A server's entry cannot add a path: the launcher sets its variables only when it executes the server.
pub(crate) fn certificates() -> Vec<(&'static str, PathBuf)> {
    certificates_of(|name| std::env::var_os(name), home().as_deref())
}

fn certificates_of(variable: impl Fn(&str) -> Option<OsString>, home: Option<&Path>) -> Vec<(&'static str, PathBuf)> {
    let mut found = Vec::new();
    for name in CERTIFICATE_VARIABLES {
        let Some(value) = variable(name) else { continue };
        let paths: Vec<PathBuf> =
            if *name == LIST { std::env::split_paths(&value).collect() } else { vec![value.into()] };
        found.extend(paths.into_iter().filter(|path| is_narrow(path, home)).map(|path| (*name, path)));
    }
    found
}

/// Returns `true` for an existing absolute path that does not include the home directory. A relative path would depend on the
/// server's directory.
fn is_narrow(path: &Path, home: Option<&Path>) -> bool {
    let Ok(target) = path.canonicalize() else { return false };
    path.is_absolute() && target.parent().is_some() && !home.is_some_and(|home| home.starts_with(&target))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_existing_narrow_paths_are_certificates() {
        let folder = tempfile::tempdir().expect("a folder");
        let root = folder.path().canonicalize().expect("a folder");
        let (home, certs) = (root.join("home"), root.join("certs"));
        std::fs::create_dir_all(&home).and_then(|()| std::fs::create_dir(&certs)).expect("folders");
        let file = home.join("ca.pem");
        std::fs::write(&file, "").expect("a file");
        let list = format!("{}:{}:{}:/", certs.display(), home.display(), root.join("absent").display());
        let variable = |name: &str| match name {
            "SSL_CERT_DIR" => Some(list.clone().into()),
            "NODE_EXTRA_CA_CERTS" => Some(file.clone().into()),
            "PIP_CERT" => Some("Cargo.toml".into()),
            "CURL_CA_BUNDLE" => Some(root.clone().into()),
            _ => None,
        };
        let expected = [("NODE_EXTRA_CA_CERTS", file.clone()), ("SSL_CERT_DIR", certs)];
        assert_eq!(certificates_of(variable, Some(&home)), expected);
    }
}
