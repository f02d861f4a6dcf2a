//! A content digest for a file, without its comments and layout.

use std::path::Path;

use super::format::parse_tree;
use super::node::{Node, NodeKind};
use super::problem::ConfigError;
use ropeway_core::tool::{Digest, Hasher};

/// Returns a digest for a configuration file's parsed content.
///
/// Texts that differ only in comments and layout have the same digest. Texts with the same digest at the same path have the same
/// meaning.
///
/// # Errors
///
/// Fails if the text cannot be parsed.
pub fn content_digest(text: &str, origin: &Path) -> Result<Digest, ConfigError> {
    let mut hasher = Hasher::new("ropeway configuration 1");
    add(&mut hasher, &parse_tree(text, origin)?);
    Ok(hasher.finish())
}

/// Hashes a node without its position. Parsing bounds the tree's depth.
fn add(hasher: &mut Hasher, node: &Node) {
    match &node.kind {
        NodeKind::Scalar { text, plain } => {
            hasher.field(if *plain { b"plain" } else { b"quoted" });
            hasher.field(text.as_bytes());
        }
        NodeKind::List(items) => {
            hasher.field(b"list");
            hasher.field(&items.len().to_be_bytes());
            items.iter().for_each(|item| add(hasher, item));
        }
        NodeKind::Map(entries) => {
            hasher.field(b"map");
            hasher.field(&entries.len().to_be_bytes());
            for entry in entries {
                hasher.field(entry.key.as_bytes());
                add(hasher, &entry.value);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn digest(text: &str) -> Digest {
        content_digest(text, Path::new("nowhere/ropeway.yaml")).expect("a file")
    }

    #[test]
    fn comments_and_layout_do_not_change_the_digest() {
        let text = "servers:\n  - alias: a\n    args: [x, y]\n";
        for same in [
            "# mine\nservers:\n- alias: a # first\n  args:\n    - x\n\n    - y\n",
            "\u{feff}{servers: [{alias: a, args: [x, y]}]}",
        ] {
            assert_eq!(digest(text), digest(same), "{same}");
        }
        for other in [
            "servers:\n  - alias: a\n    args: [x y]\n",
            "servers:\n  - alias: a\n    args: [y, x]\n",
            "servers:\n  - alias: a\n    args: [[x, y]]\n",
            "servers:\n  - alias: a\n  - args: [x, y]\n",
            "servers:\n  - alias: a\n    args: [x, y]\nlock: off\n",
        ] {
            assert_ne!(digest(text), digest(other), "{other}");
        }
        assert_ne!(digest("a: 1"), digest("a: '1'"));
        assert!(content_digest("{", Path::new("a.json")).is_err());
    }
}
